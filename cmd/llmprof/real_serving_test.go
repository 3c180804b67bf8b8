package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
	"github.com/llmprof/llmprof/engine/vllm"
	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/vllmbench"
	"github.com/llmprof/llmprof/internal/enginetest"
	"github.com/llmprof/llmprof/internal/peers"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/stat"
)

// TestRealBench loads a vLLM server with bench and with vLLM's own client, and
// holds what bench counts to be what the server does.
func TestRealBench(t *testing.T) {
	program := enginetest.VLLM(t)
	emptyHome(t)
	dir, yes := tinyFolder(t), true
	session, err := (&vllm.Server{}).Start(t.Context(), place.Local(), engine.Setup{
		Model: dir, Device: "cpu", Threads: 1, Program: program, Serve: true, StartTimeout: 8 * time.Minute,
		Deploy: deploy.Config{BlockSize: 32, MaxModelLen: 1024, MaxNumSeqs: 8, MaxNumBatchedTokens: 1024, PrefixCaching: &yes},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	at := session.(engine.Serving).Endpoint()
	shape := []string{"--max-concurrency", "4", "--num-prompts", "60", "--random-input-len", "64", "--random-output-len", "16", "--random-prefix-len", "96", "--seed", "3"}

	out := t.TempDir()
	text, ours := client(t, exec.CommandContext(t.Context(), built(t), append([]string{
		"bench", at.URL, "--json", "-q", "-o", out, "--token-low", strconv.Itoa(at.TokenLow), "--token-high", strconv.Itoa(at.TokenHigh), "--token-chunks",
	}, shape...)...))
	var d report.BenchDocument
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	w, s := d.Whole, d.ServerWhole
	if w.Completed != 60 || w.Failed != 0 || s == nil {
		t.Fatalf("%d completed, %d failed, the server says %+v", w.Completed, w.Failed, s)
	}
	for _, c := range []struct {
		what   string
		client *int
		server *float64
	}{
		{"requests", &w.Completed, s.Requests},
		{"prompt tokens", w.InputTokens, s.PromptTokens},
		{"tokens out", w.OutputTokens, s.GenerationTokens},
		{"cached tokens", w.CachedTokens, s.PrefixHits},
	} {
		if c.client == nil || c.server == nil || float64(*c.client) != *c.server || *c.client == 0 {
			t.Errorf("%s: the client counts %v, the server %v", c.what, value(c.client), value(c.server))
			continue
		}
		t.Logf("%s: %d, by the server too", c.what, *c.client)
	}
	// The first request with the prefix computes it; 96 tokens are 3 blocks.
	if want := 59 * 96; w.CachedTokens == nil || *w.CachedTokens > 60*96 || *w.CachedTokens < want-4*96 {
		t.Errorf("%v cached tokens, want about %d", value(w.CachedTokens), want)
	}
	file, err := os.Open(filepath.Join(out, "run.llmprof"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p, warnings, err := profile.Read("run.llmprof", file)
	if err != nil {
		t.Fatal(err)
	}
	requests, says := p.Filter(profile.ByKind(profile.KindRequest)).Points, p.Filter(profile.ByKind(profile.KindServer)).Points
	if len(requests) != 60 || len(says) == 0 || len(warnings) > 0 {
		t.Errorf("run.llmprof holds %d requests, %d windows of the server: %v", len(requests), len(says), warnings)
	}

	theirs, used := vllmClient(t, program, dir, at, shape)
	if theirs.Completed == nil || *theirs.Completed != 60 {
		t.Errorf("vllm bench serve: %v of 60 requests", value(theirs.Completed))
	}
	ttft, tpot := theirs.Statistic("ttft"), theirs.Statistic("tpot")
	if ttft == nil || tpot == nil {
		t.Fatal("vllm bench serve says no TTFT or TPOT")
	}
	t.Logf("TTFT mean ms: ours %.2f, vllm bench serve %.2f; TPOT %.3f, %.3f", *w.TTFT.Mean, *ttft.Mean*1e3, *w.TPOT.Mean, *tpot.Mean*1e3)
	t.Logf("whole client: ours %.3f s of CPU, %.0f MB; vllm bench serve %.3f s, %.0f MB", ours.CPU.Seconds(), float64(ours.Peak)/1e6, used.CPU.Seconds(), float64(used.Peak)/1e6)
}

// built is llmprof as a program of its own.
func built(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "llmprof")
	if text, err := exec.CommandContext(t.Context(), "go", "build", "-o", name, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return name
}

// client runs a load generator and returns what it prints and takes.
func client(t *testing.T, cmd *exec.Cmd) ([]byte, peers.Usage) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	used, err := peers.Measure(cmd)
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), used
}

// value is a figure for messages.
func value[T any](v *T) any {
	if v == nil {
		return "nothing"
	}
	return *v
}

// vllmClient is what vllm bench serve says of the same load, and what it takes.
func vllmClient(t *testing.T, program, dir string, at engine.Endpoint, shape []string) (vllmbench.Serve, peers.Usage) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "serve.json")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{
		"bench", "serve", "--backend", "vllm", "--base-url", at.URL, "--model", at.Model, "--tokenizer", dir, "--dataset-name", "random", "--ignore-eos",
		"--save-result", "--save-detailed", "--result-filename", name,
	}, shape...)...)
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "OMP_NUM_THREADS=1")
	_, used := client(t, cmd)
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	runs, warnings, err := vllmbench.ReadServe(name, file, format.Limits{})
	if err != nil || len(runs) != 1 {
		t.Fatalf("%d runs, %v, %v", len(runs), warnings, err)
	}
	return runs[0], used
}

var (
	seatsLine  = regexp.MustCompile(`'max_num_seqs': (\d+)`)
	budgetLine = regexp.MustCompile(`'max_num_batched_tokens': (\d+)`)
	blockLine  = regexp.MustCompile(`'block_size': (\d+)`)
)

// TestRealWorkload starts vLLM for a workload profile: the prefixes are found in
// its cache, its log says the settings that were asked for, and a block size
// that it does not have is reported as such.
func TestRealWorkload(t *testing.T) {
	program := enginetest.VLLM(t)
	emptyHome(t)
	dir, out := tinyFolder(t), filepath.Join(t.TempDir(), "w")
	var stdout, stderr bytes.Buffer
	args := []string{
		"profile", "workload", dir, "--device", "cpu", "--threads", "1", "--program", program, "--C", "64", "--B", "4",
		"--max-num-batched-tokens", "128", "--max-num-seqs", "9", "--num-warmup", "1", "--num-measurements", "3", "--num-steps", "16", "-o", out, "--json", "-v",
	}
	err := run(context.WithoutCancel(t.Context()), append(args, "--M", "2", "--block-size", "32,16"), strings.NewReader(""), &stdout, &stderr)
	if err == nil || !strings.Contains(err.Error(), "1 of 2 cells") {
		t.Fatalf("error %v, want that of 2 cells one could not be measured; %s", err, stderr.String())
	}
	var d report.WorkloadDocument
	if err := json.Unmarshal(stdout.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Results) != 2 {
		t.Fatalf("%d results", len(d.Results))
	}
	r, refused := d.Results[0], d.Results[1]
	if !strings.Contains(refused.Failure, "blocks of 16 tokens") && !strings.Contains(refused.Failure, "No common block size") {
		t.Errorf("blocks of 16: %q", refused.Failure)
	}
	if r.Failure != "" {
		t.Fatal(r.Failure)
	}
	// Three runs of 4 prefills, of 4 decodes, and of both, each with 2 × 32 tokens.
	if p := r.PrefixTokens; p.Asked != 3*16*64 || p.Found == nil || *p.Found != p.Asked || p.By != "counter of prefix hits" {
		t.Errorf("cached prefixes %+v", p)
	}
	t.Logf("%d tokens of prefixes, all found by the %s", r.PrefixTokens.Asked, r.PrefixTokens.By)
	said := stderr.String()
	for _, c := range []struct {
		what string
		line *regexp.Regexp
		want string
		ran  int
	}{
		{"seats", seatsLine, "9", r.Engine.MaxNumSeqs},
		{"budget", budgetLine, "128", r.Engine.MaxNumBatchedTokens},
		{"block size", blockLine, "32", r.Engine.BlockSize},
	} {
		if found := c.line.FindStringSubmatch(said); found == nil || found[1] != c.want || strconv.Itoa(c.ran) != c.want {
			t.Errorf("%s: the log says %v, the result %d, want %s", c.what, found, c.ran, c.want)
		}
	}
	// C and B as the engine computed them: every prompt is 64 new tokens.
	alone := map[string]int{}
	file, err := os.Open(filepath.Join(out, "blocks-of-32.llmprof"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p, _, err := profile.Read("w.llmprof", file)
	if err != nil {
		t.Fatal(err)
	}
	for _, point := range p.Points {
		if point.Kind == profile.KindStep {
			sums := point.Step.Sums()
			alone["prefill"] += sums.PrefillTokens
			alone["most requests"] = max(alone["most requests"], sums.PrefillRequests+sums.DecodeRequests)
			alone["most tokens"] = max(alone["most tokens"], sums.PrefillTokens+sums.DecodeTokens)
			switch {
			case sums.DecodeRequests > 4:
				alone["more decodes"]++
			case sums.DecodeRequests == 4 && sums.PrefillRequests > 0:
				alone["mixed"]++
			case sums.DecodeRequests == 4:
				alone["decode"]++
			}
		}
	}
	if alone["prefill"] != 3*16*64 || alone["most tokens"] > 128 || alone["most requests"] > 9 {
		t.Errorf("by the engine's log: %d prompt tokens computed, at most %d tokens and %d requests a step", alone["prefill"], alone["most tokens"], alone["most requests"])
	}
	// Each decode has 16 steps and more with all four, in the runs alone and those
	// with prefills in their midst, whose four prompts of 64 take two steps of 128.
	if alone["decode"] < 3*2*16 || alone["mixed"] < 3*2 || alone["more decodes"] > 0 {
		t.Errorf("by the engine's log: 4 requests decode in %d steps, beside prompts in %d, more than 4 in %d", alone["decode"], alone["mixed"], alone["more decodes"])
	}
	t.Logf("by the engine's log: 4 requests decode in %d steps, beside prompts in %d", alone["decode"], alone["mixed"])
	t.Logf("by the engine's log: %d prompt tokens computed, at most %d tokens and %d requests a step", alone["prefill"], alone["most tokens"], alone["most requests"])
	if r.Slowdown == nil || r.Slowdown.Prefill == nil || r.Slowdown.Decode == nil || len(r.Metrics.BatchEfficiency) == 0 || r.CPUMemoryUsage == nil || r.Metrics.Preemptions == nil {
		t.Errorf("missing: %+v", r)
	}
	t.Logf("slowdown of prefills ×%.2f, of decodes ×%.2f", *r.Slowdown.Prefill, *r.Slowdown.Decode)
	if m := r.Metrics; len(m.PrefillCompute) < 3 || len(m.DecodeCompute) < 3*8 {
		t.Errorf("mixed runs: %d steps with prompts, %d that only decode", len(m.PrefillCompute), len(m.DecodeCompute))
	} else {
		t.Logf("mixed runs: %d steps with prompts, mean %.1f ms; %d that only decode, mean %.1f ms", len(m.PrefillCompute), stat.Mean(m.PrefillCompute), len(m.DecodeCompute), stat.Mean(m.DecodeCompute))
	}

	// A server that is started again with the same settings is the same one.
	stdout.Reset()
	err = run(context.WithoutCancel(t.Context()), append(args, "--M", "2,1", "--block-size", "32", "--profiling-type", "mixed", "--resume"), strings.NewReader(""), &stdout, &stderr)
	if err != nil {
		t.Fatalf("gone on with: %v", err)
	}
	var more report.WorkloadDocument
	if err := json.Unmarshal(stdout.Bytes(), &more); err != nil || len(more.Results) != 2 || more.Results[0].Timestamp != r.Timestamp || more.Results[1].Failure != "" {
		t.Errorf("gone on with: %v, %+v", err, more.Results)
	}
}
