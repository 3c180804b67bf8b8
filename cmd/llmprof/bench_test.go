package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/vllmbench"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/mock"
	"github.com/llmprof/llmprof/workload"
)

// mockAt starts a mock server and returns its address.
func mockAt(t *testing.T, o mock.Options) string {
	t.Helper()
	emptyHome(t)
	if o.Timer == nil {
		o.Timer = mock.Timing{First: 5 * time.Millisecond, Gap: time.Millisecond}
	}
	o.Listen = "127.0.0.1:0"
	s, err := mock.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.URL()
}

// benched runs bench and reads its document.
func benched(t *testing.T, args ...string) (document map[string]json.RawMessage, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err = run(context.WithoutCancel(t.Context()), append(append([]string{"bench"}, args...), "--json", "-q"), strings.NewReader(""), &stdout, &stderr)
	if stdout.Len() > 0 {
		if bad := json.Unmarshal(stdout.Bytes(), &document); bad != nil {
			t.Fatalf("%v: %s", bad, stdout.String())
		}
	}
	return document, err
}

// summaryOf is a window of a document.
func summaryOf(t *testing.T, document map[string]json.RawMessage, window string) load.Summary {
	t.Helper()
	var s load.Summary
	if err := json.Unmarshal(document[window], &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBench(t *testing.T) {
	url := mockAt(t, mock.Options{})
	out := filepath.Join(t.TempDir(), "run")
	document, err := benched(t, url, "--request-rate", "200", "--num-prompts", "60", "--random-input-len", "32", "--random-output-len", "8",
		"--random-prefix-len", "64", "--goodput", "ttft:2000 tpot:500", "--metrics-interval", "100ms", "--seed", "5", "-o", out)
	if err != nil && exitCode(err) != codeNo { // a busy machine makes it INVALID
		t.Fatal(err)
	}
	whole := summaryOf(t, document, "whole")
	if whole.Completed != 60 || whole.Failed != 0 || whole.OutputTokens == nil || *whole.OutputTokens != 480 || whole.TTFT.N != 60 || whole.Goodput == nil {
		t.Errorf("%+v", whole)
	}
	var server struct {
		Requests float64 `json:"finished_requests"`
		Prompt   float64 `json:"prompt_tokens"`
		Output   float64 `json:"generation_tokens"`
		Hits     float64 `json:"prefix_cache_hits_tokens"`
	}
	if err := json.Unmarshal(document["server_whole"], &server); err != nil {
		t.Fatal(err)
	}
	if server.Requests != 60 || server.Output != 480 || server.Prompt != 60*96 || server.Hits == 0 || int(server.Hits) != *whole.CachedTokens {
		t.Errorf("the server counts %+v, the client %d cached tokens", server, *whole.CachedTokens)
	}
	for _, name := range []string{"run.json", "requests.jsonl", "schedule.jsonl"} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	// The promised keys, whatever the run was like.
	for _, key := range []string{"schema", "version", "verdict", "reasons", "whole", "steady", "server"} {
		if _, ok := document[key]; !ok {
			t.Errorf("no key %q", key)
		}
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(document["whole"], &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range strings.Fields("completed failed duration_s request_throughput output_throughput ttft_ms ttft_sched_ms tpot_ms itl_ms icl_ms e2el_ms e2el_sched_ms send_lag_ms") {
		if _, ok := keys[key]; !ok {
			t.Errorf("no key whole.%s", key)
		}
	}
	again, err := benched(t, url, "--schedule", filepath.Join(out, "schedule.jsonl"), "--no-metrics", "-o", out+"2")
	if err != nil && exitCode(err) != codeNo {
		t.Fatal(err)
	}
	if s := summaryOf(t, again, "whole"); s.Completed != 60 || string(again["server"]) != "null" {
		t.Errorf("the schedule again: %d completed, server %s", s.Completed, again["server"])
	}
	first, second := schedule(t, out), schedule(t, out+"2")
	if len(first) != 60 || !slices.EqualFunc(first, second, func(a, b workload.Request) bool { return a.At == b.At && a.Seed == b.Seed }) {
		t.Error("the replayed schedule is another one")
	}
}

// schedule reads what a run was to send.
func schedule(t *testing.T, folder string) []workload.Request {
	t.Helper()
	file, err := os.Open(filepath.Join(folder, "schedule.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := workload.Read("schedule", file)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return s.Requests
}

func TestBenchInvalid(t *testing.T) {
	faults, err := mock.ParseFaults("500:every=4")
	if err != nil {
		t.Fatal(err)
	}
	url := mockAt(t, mock.Options{Faults: faults})
	out := filepath.Join(t.TempDir(), "run")
	document, err := benched(t, url, "--max-concurrency", "4", "--num-prompts", "40", "--random-input-len", "8", "--random-output-len", "4", "-o", out)
	if code := exitCode(err); code != codeNo {
		t.Errorf("exit code %d, error %v: want %d", code, err, codeNo)
	}
	if whole := summaryOf(t, document, "whole"); string(document["verdict"]) != `"INVALID"` || whole.Failed < 8 || whole.Failed > 12 {
		t.Errorf("verdict %s, %d failed", document["verdict"], whole.Failed)
	}
	if _, err := os.Stat(filepath.Join(out, "run.json")); err != nil {
		t.Error("the file of an invalid run is missing")
	}
}

// traces is where recorded traffic of every kind lies.
const traces = "../../format/trace/testdata/"

func TestBenchMistakes(t *testing.T) {
	url := mockAt(t, mock.Options{})
	for _, c := range []struct {
		why  string
		args []string
		code int
		want string
	}{
		{"no server", []string{}, codeUsage, "wants the URL"},
		{"a server that is not there", []string{"http://127.0.0.1:1"}, codeOutside, "127.0.0.1:1"},
		{"no rate", []string{url, "--request-rate", "often"}, codeUsage, "requests a second"},
		{"no such backend", []string{url, "--backend", "vlm"}, codeUsage, "unknown --backend"},
		{"no such endpoint", []string{url, "--endpoint", "embeddings"}, codeUsage, "completions or chat"},
		{"no such data", []string{url, "--dataset-name", "shargpt"}, codeUsage, "unknown --dataset-name"},
		{"data of a model hub", []string{url, "--dataset-name", "hf", "--dataset-path", "a/b"}, codeUsage, "--dataset-name hf sends texts"},
		{"data by its own name without a file", []string{url, "--dataset-name", "sharegpt"}, codeUsage, "--dataset-name sharegpt wants --dataset-path"},
		{"data of another kind", []string{url, "--dataset-name", "azure", "--dataset-path", traces + "burstgpt.csv"}, codeUsage, "--dataset-name azure"},
		{"a trace without a file", []string{url, "--dataset-name", "trace"}, codeUsage, "--dataset-path"},
		{"a missing trace", []string{url, "--dataset-path", "nowhere.csv"}, codeUsage, "nowhere.csv"},
		{"a wrong limit", []string{url, "--slo", "ttft"}, codeUsage, "--slo"},
		{"a wrong limit in vLLM's words", []string{url, "--goodput", "foo:3"}, codeUsage, "--goodput: limit"},
		{"a search ends overloaded runs itself", []string{url, "--find-rate", "--slo", "ttft:5", "--stop-overload"}, codeUsage, "--stop-overload has no use with --find-rate"},
		{"a burst cannot keep rising", []string{url, "--stop-overload"}, codeUsage, "--stop-overload has no use without --request-rate"},
		{"nor can a closed loop", []string{url, "--max-concurrency", "4", "--stop-overload"}, codeUsage, "--stop-overload has no use without --request-rate"},
		{"a search without limits", []string{url, "--find-rate"}, codeUsage, "--slo"},
		{"a broken body", []string{url, "--extra-body", "{"}, codeUsage, "--extra-body"},
		{"no requests", []string{url, "--num-prompts", "0"}, codeUsage, "--num-prompts 0"},
		{"fewer than no clients", []string{url, "--max-concurrency", "-1"}, codeUsage, "--max-concurrency -1"},
		{"no clients", []string{url, "--max-concurrency", "0"}, codeUsage, "--max-concurrency 0"},
		{"no time", []string{url, "--timeout", "0s"}, codeUsage, "--timeout 0s"},
		{"no time between readings", []string{url, "--metrics-interval", "-1s"}, codeUsage, "--metrics-interval -1s"},
		{"no turns", []string{url, "--session-turns", "0"}, codeUsage, "--session-turns 0"},
		{"a trace that stands still", []string{url, "--dataset-path", traces + "own.csv", "--trace-speed", "0"}, codeUsage, "--trace-speed 0"},
		{"a share above all", []string{url, "--find-rate", "--slo", "ttft:5", "--goodput-share", "2"}, codeUsage, "--goodput-share 2"},
		{"a share of no number", []string{url, "--random-prefix-len", "8", "--prefix-share", "NaN"}, codeUsage, "--prefix-share NaN"},
		{"a rate and more", []string{url, "--request-rate", "4x"}, codeUsage, `--request-rate "4x"`},
		{"an unknown metric", []string{url, "--percentile-metrics", "ttft,tpto"}, codeUsage, `--percentile-metrics "tpto"`},
		{"two ends", []string{url, "--request-rate", "4", "--duration", "5s", "--num-prompts", "3"}, codeUsage, "--num-prompts has no use with --duration"},
		{"an end of what comes at once", []string{url, "--duration", "5s"}, codeUsage, "--duration has no use without --request-rate"},
		{"lengths beside a trace", []string{url, "--dataset-path", traces + "own.csv", "--random-input-len", "5"}, codeUsage, "--random-input-len has no use"},
		{"half a ramp", []string{url, "--ramp-up-strategy", "linear"}, codeUsage, "--ramp-up-duration"},
		{"half a range of tokens", []string{url, "--token-low", "5"}, codeUsage, "--token-low 5"},
		{"half a certificate", []string{"https://127.0.0.1:1", "--tls-key", "key.pem"}, codeUsage, "--tls-cert"},
		{"no scheme of the web", []string{"ftp://x"}, codeUsage, "want a URL such as"},
		{"a subcommand of another tool", []string{"serve", url}, codeUsage, "serve is no address"},
		{"a header that cannot be", []string{url, "--header", "bad name=x"}, codeUsage, "header \"bad name\""},
		{"a header's value is not shown", []string{url, "--header", "=sesame"}, codeUsage, "--header \"\": want NAME=VALUE"},
		{"no number", []string{url, "--num-prompts", "abc"}, codeUsage, "--num-prompts \"abc\": \"abc\" is not a count"},
		{"a time with an unknown unit", []string{url, "--timeout", "5x"}, codeUsage, "--timeout \"5x\": want a time such as 500ms"},
		{"no model of the server's", []string{url, "--model", "nosuch"}, codeUsage, "the first: status 404"},
		{"nobody there, and a model", []string{"http://127.0.0.1:1", "--model", "m"}, codeOutside, "none of 2 warm-up requests was answered, the first: connect"},
		{"a length by its other name beside a trace", []string{url, "--dataset-path", traces + "own.csv", "--input-len", "5"}, codeUsage, "--random-input-len has no use"},
		{"certificates without TLS", []string{url, "--insecure"}, codeUsage, "--insecure has no use without an https URL"},
		{"a format for a folder", []string{url, "-o", "json"}, codeUsage, "-o json"},
		{"an unknown format", []string{url, "--export", "vllm=a.json"}, codeUsage, `unknown format "vllm"`},
		{"a format without a file", []string{url, "--export", "vllm-serve"}, codeUsage, "FORMAT=FILE"},
		{"a file in no folder", []string{url, "--export", "vllm-serve=nowhere/a.json", "--num-prompts", "1"}, codeUsage, "nowhere/a.json"},
		{"bursts of nothing", []string{url, "--request-rate", "1", "--burstiness", "-1"}, codeUsage, "urst"},
	} {
		_, err := benched(t, c.args...)
		if err == nil || exitCode(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: exit code %d, error %v: want %d and %q", c.why, exitCode(err), err, c.code, c.want)
		}
	}
}

// TestBenchDefaults checks that what the environment says of flags for all
// commands contradicts nothing that stands on the command line.
func TestBenchDefaults(t *testing.T) {
	url := mockAt(t, mock.Options{})
	t.Setenv("LLMPROF_NUM_PROMPTS", "7")
	t.Setenv("LLMPROF_REQUEST_RATE", "50")
	document, err := benched(t, url, "--duration", "200ms", "--random-input-len", "8", "--random-output-len", "2", "--no-metrics")
	if err != nil && exitCode(err) != codeNo {
		t.Fatal(err)
	}
	if n := summaryOf(t, document, "whole").Completed; n == 7 || n < 2 {
		t.Errorf("%d requests in 0.2 s of 50 a second", n)
	}
}

// TestBenchData checks what is sent of a file by each name that it may have.
func TestBenchData(t *testing.T) {
	url := mockAt(t, mock.Options{})
	for _, c := range []struct {
		args    string
		pattern string
		n       int
	}{
		{"--dataset-path own.csv --trace-speed 1000", "replay", 3},
		{"--dataset-path own.csv --trace-speed 1000 --num-prompts 2", "replay", 2},
		{"--dataset-path own.csv --dataset-name lengths --num-prompts 6", "at once", 6},
		{"--dataset-path sharegpt.json --dataset-name sharegpt --num-prompts 4 --request-rate 100", "poisson", 4},
		{"--dataset-path burstgpt.csv --dataset-name burstgpt --num-prompts 5 --max-concurrency 2", "closed", 5},
		{"--dataset-path sharegpt.json --dataset-name custom --num-prompts 4", "at once", 4},
	} {
		args := strings.Fields(strings.Replace(c.args, "--dataset-path ", "--dataset-path "+traces, 1))
		document, err := benched(t, append(args, url, "--no-metrics")...)
		if err != nil && exitCode(err) != codeNo {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		var load struct {
			Pattern  string `json:"pattern"`
			Requests int    `json:"requests"`
		}
		if err := json.Unmarshal(document["workload"], &load); err != nil || !strings.Contains(load.Pattern, c.pattern) || load.Requests != c.n {
			t.Errorf("%s: %+v, %v: want %s, %d requests", c.args, load, err, c.pattern, c.n)
		}
	}
}

// TestBenchWarmCache sends the same prompts twice to a server that remembers
// them, all at once.
func TestBenchWarmCache(t *testing.T) {
	url := mockAt(t, mock.Options{})
	for i, warm := range []bool{false, true, false} {
		seed := map[int]string{0: "1", 1: "1", 2: "2"}[i]
		document, err := benched(t, url, "--num-prompts", "10", "--seed", seed, "--random-input-len", "64", "--random-output-len", "2")
		if err != nil && exitCode(err) != codeNo {
			t.Fatal(err)
		}
		reasons := string(document["reasons"])
		if strings.Contains(reasons, "prefix cache") != warm || !strings.Contains(reasons, "a burst has no steady part") {
			t.Errorf("run %d: %s", i+1, reasons)
		}
	}
}

func TestBenchExport(t *testing.T) {
	faults, err := mock.ParseFaults("500:every=10")
	if err != nil {
		t.Fatal(err)
	}
	url := mockAt(t, mock.Options{Faults: faults})
	file := filepath.Join(t.TempDir(), "serve.json")
	document, err := benched(t, url, "--request-rate", "300", "--burstiness", "2", "--max-concurrency", "50", "--num-prompts", "40", "--num-warmups", "0",
		"--random-input-len", "8", "--random-output-len", "4", "--export", "vllm-serve="+file)
	if err != nil && exitCode(err) != codeNo {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	runs, warnings, err := vllmbench.ReadServe(file, bytes.NewReader(text), format.Limits{})
	if err != nil || len(warnings) > 0 || len(runs) != 1 {
		t.Fatalf("%d runs, %v, %v", len(runs), warnings, err)
	}
	s, whole := runs[0], summaryOf(t, document, "whole")
	if *s.NumPrompts != 40 || *s.Completed != 36 || *s.Failed != 4 || *s.RequestRate != 300 || *s.Burstiness != 2 || *s.MaxConcurrency != 50 || s.Unlimited {
		t.Errorf("%s", text)
	}
	near := func(seconds, ms *float64) bool { return math.Abs(*seconds*1e3-*ms) < 1e-9*max(*ms, 1) }
	if !near(s.Statistic("ttft").Mean, whole.TTFT.Mean) || !near(s.Statistic("itl").Median, whole.ICL.P50) || !near(s.Statistic("e2el").Deviation, whole.E2EL.Std) {
		t.Errorf("other figures: %s", text)
	}
}

func TestBenchFindsRate(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for half a minute")
	}
	url := mockAt(t, mock.Options{MaxNumSeqs: 2, Timer: mock.Timing{First: 20 * time.Millisecond, Gap: time.Millisecond}})
	document, err := benched(t, url, "--find-rate", "--slo", "ttft:200", "--request-rate", "40", "--num-prompts", "200", "--random-input-len", "8", "--random-output-len", "4", "--no-metrics")
	if err != nil && exitCode(err) != codeNo {
		t.Fatal(err)
	}
	var rate *float64
	if err := json.Unmarshal(document["slo_rate"], &rate); err != nil {
		t.Fatalf("%v: %s", err, document["slo_rate"])
	}
	if rate == nil {
		t.Skip("NOT JUDGED: no rate keeps a limit of ten times what an answer takes: this machine is busy")
	}
	// Two seats of 23 ms serve 87 requests a second at most; a busy machine serves
	// fewer.
	t.Logf("%.1f requests/s keep the limit", *rate)
	if *rate <= 0 || *rate > 120 {
		t.Errorf("%.1f requests/s keep the limit; two seats of 23 ms serve 87", *rate)
	}
}

// TestBenchForeignFlags: flags of other tools are taken, or what stands for them
// here is named.
func TestBenchForeignFlags(t *testing.T) {
	url := mockAt(t, mock.Options{APIKey: "sesame"})
	document, err := benched(t, url+"/v1/chat/completions", "--header", "Authorization: Bearer sesame", "--num-prompts", "3", "--input-len", "17", "--output-len", "3")
	if err != nil && exitCode(err) != codeNo {
		t.Fatal(err)
	}
	if s := summaryOf(t, document, "whole"); s.Completed != 3 || *s.OutputTokens != 9 || string(document["endpoint"]) != `"chat"` {
		t.Errorf("%d requests of %d tokens at %s", s.Completed, *s.OutputTokens, document["endpoint"])
	}
	for flag, want := range map[string]string{
		"--base-url": "is an argument", "--save-result": "-o FOLDER", "--api-key": "OPENAI_API_KEY", "--temperature": "--extra-body", "--num-promts": "did you mean --num-prompts",
	} {
		_, err := benched(t, url, flag, "x")
		if err == nil || exitCode(err) != codeUsage || !strings.Contains(hintOf(err), want) {
			t.Errorf("%s: %v, hint %q; want %q", flag, err, hintOf(err), want)
		}
	}
}
