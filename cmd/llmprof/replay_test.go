package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/stat"
)

// recordedLoads are what a real vLLM served, with its log and its clients' times.
const recordedLoads = "../../fit/testdata/vllm-cpu/"

// TestReplay learns the steps of a real vLLM from two loads, by its log and its
// clients' times, simulates loads from their schedules with the server's own
// flags, and holds the means of the run and the number of steps against what
// was served. All times are recorded ones, so that no machine has a say in it.
func TestReplay(t *testing.T) {
	emptyHome(t)
	dir := t.TempDir()
	var profiles []string
	for _, load := range []string{"a-poisson", "b-burst-prefix"} {
		profiles = append(profiles, filepath.Join(dir, load+".llmprof"))
		asked(t, "import", recordedLoads+load+".iterations.log.gz", "--requests", recordedLoads+load+".record.jsonl.gz", "-o", profiles[len(profiles)-1])
	}
	predictor := filepath.Join(dir, "server.json")
	asked(t, append([]string{"train", "server", "--predictor-file", predictor}, profiles...)...)
	for _, c := range []struct {
		load, why string
		seen      bool
	}{
		{"g-busy-public", "400 requests, three times the rate of the loads that were learnt", false},
		{"a2-poisson", "the schedule of a load that was learnt, served again: what is left is the machine's noise", false},
		{"b-burst-prefix", "bursts with shared prefixes, learnt: its tokens and its cache, and no bound on its times", true},
	} {
		t.Run(c.load, func(t *testing.T) {
			t.Log(c.why)
			var sim report.SimulationDocument
			text := asked(t, "simulate", "--predictor-file", predictor, "--trace", recordedLoads+c.load+".record.jsonl.gz", "--vllm-version", "0.32.0", "--no-async-scheduling",
				"--block-size", "32", "--num-gpu-blocks", "1024", "--max-num-seqs", "16", "--max-num-batched-tokens", "512", "--max-model-len", "2048", "--json")
			if err := json.Unmarshal(text, &sim); err != nil {
				t.Fatal(err)
			}
			replay(t, c.load, &sim, !c.seen)
		})
	}
}

// recordedServing is what the clients of a load saw.
type recordedServing struct {
	ttft, tpot, e2el []float64 // milliseconds
	cached           int       // tokens
}

// replay holds a simulation against the record and the log of its load.
func replay(t *testing.T, name string, sim *report.SimulationDocument, timed bool) {
	t.Helper()
	served := readServing(t, recordedLoads+name+".record.jsonl.gz")
	steps, tokens := loggedSteps(t, recordedLoads+name+".iterations.log.gz")
	r := sim.Replicas[0]
	if sim.Whole.Completed != len(served.e2el) || int(r.PrefixHits) != served.cached || r.PrefillTokens+r.DecodeTokens != tokens || r.Preemptions != 0 {
		t.Errorf("simulated %d requests, %d cached tokens, %d computed, %d preemptions; vLLM %d, %d, %d, 0", sim.Whole.Completed, r.PrefixHits,
			r.PrefillTokens+r.DecodeTokens, r.Preemptions, len(served.e2el), served.cached, tokens)
	}
	off := percentOff(float64(r.Steps), float64(steps))
	t.Logf("%d requests, %d cached tokens, %d computed; steps: the log %d, simulated %d (%+.1f %%); tokens a step %.2f and %.2f", len(served.e2el), served.cached, tokens,
		steps, r.Steps, off, float64(tokens)/float64(steps), r.TokensPerStep)
	if math.Abs(off) > 8 {
		t.Errorf("steps are off by %+.1f %%, want at most 8", off)
	}
	for _, m := range []struct {
		name   string
		values []float64
		mean   *float64
		bound  float64
	}{{"TTFT", served.ttft, sim.Whole.TTFT.Mean, 8}, {"TPOT", served.tpot, sim.Whole.TPOT.Mean, 10}, {"E2EL", served.e2el, sim.Whole.E2EL.Mean, 7}} {
		off := percentOff(*m.mean, stat.Mean(m.values))
		t.Logf("%s mean: vLLM %.2f ms, simulated %.2f, %+.1f %% (at most %g)", m.name, stat.Mean(m.values), *m.mean, off, m.bound)
		if timed && math.Abs(off) > m.bound {
			t.Errorf("%s is off by %+.1f %%, want at most %g", m.name, off, m.bound)
		}
	}
}

// readServing reads a record.
func readServing(t *testing.T, name string) recordedServing {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var out recordedServing
	for lines := bufio.NewScanner(unpacked); lines.Scan(); {
		var r struct {
			Sent   float64 `json:"sent_s"`
			First  float64 `json:"first_s"`
			Last   float64 `json:"last_s"`
			Output int     `json:"output_tokens"`
			Cached int     `json:"cached_tokens"`
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		out.ttft, out.e2el = append(out.ttft, 1e3*(r.First-r.Sent)), append(out.e2el, 1e3*(r.Last-r.Sent))
		if r.Output > 1 {
			out.tpot = append(out.tpot, 1e3*(r.Last-r.First)/float64(r.Output-1))
		}
		out.cached += r.Cached
	}
	if len(out.e2el) == 0 {
		t.Fatalf("%s: no requests", name)
	}
	return out
}
