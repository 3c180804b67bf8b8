package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
	"github.com/llmprof/llmprof/engine/vllm"
	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/internal/enginetest"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/stat"
)

// TestRealReplay serves a load with vLLM, learns its step times from its log,
// foretells another load from its schedule alone, serves that one too, and
// compares. What is computed and what the cache gives must be equal; of times, and
// of the number of steps, which follows from them, only a multiple of the noise
// of shared machines is held, and only where bench trusts both measurements and
// the machine was as fast in both. Then the second load is simulated with its own
// step times, which no drift of the machine touches.
func TestRealReplay(t *testing.T) {
	program := enginetest.VLLM(t)
	emptyHome(t)
	dir, log, yes := t.TempDir(), &growingLog{}, true
	file := func(name string) string { return filepath.Join(dir, name) }
	session, err := (&vllm.Server{}).Start(t.Context(), place.Local(), engine.Setup{
		Model: tinyFolder(t), Device: "cpu", Threads: 1, Program: program, Serve: true, StartTimeout: 8 * time.Minute, Log: log,
		Args:   []string{"--num-gpu-blocks-override", "1024"},
		Deploy: deploy.Config{BlockSize: 32, MaxModelLen: 2048, MaxNumSeqs: 16, MaxNumBatchedTokens: 512, PrefixCaching: &yes},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	at := session.(engine.Serving).Endpoint()
	ask := []string{"bench", at.URL, "--json", "-q", "--token-low", strconv.Itoa(at.TokenLow), "--token-high", strconv.Itoa(at.TokenHigh), "--token-chunks"}

	asked(t, "workload", "--request-rate", "3", "--num-prompts", "125", "--input-len", "lognormal:300:250:16:1500", "--output-len", "lognormal:29:20:2:200",
		"--seed", "11", "--write", file("a.jsonl"))
	asked(t, "workload", "--request-rate", "3.2", "--burstiness", "0.25", "--num-prompts", "125", "--input-len", "lognormal:200:150:16:1200",
		"--output-len", "lognormal:24:16:2:200", "--random-prefix-len", "192", "--prefix-share", "0.7", "--num-prefixes", "3", "--seed", "12", "--write", file("b.jsonl"))

	trusted := servedLoad(t, append(ask, "--schedule", file("a.jsonl"), "-o", file("a"))...)
	if err := os.WriteFile(file("a.log"), log.rest(), 0o600); err != nil {
		t.Fatal(err)
	}
	asked(t, "import", file("a.log"), filepath.Join(file("a"), "run.llmprof"), "-o", file("a.llmprof"))
	onPaper(t, dir, "a", "b.sim.json")
	trustedB := servedLoad(t, append(ask, "--schedule", file("b.jsonl"), "--num-warmups", "0", "-o", file("b"))...)
	trusted = trusted && trustedB
	if err := os.WriteFile(file("b.log"), log.rest(), 0o600); err != nil {
		t.Fatal(err)
	}
	asked(t, "import", file("b.log"), filepath.Join(file("b"), "run.llmprof"), "-o", file("b.llmprof"))
	t.Log("step times learnt from the load before:")
	replayed(t, dir, "b.sim.json", errorBounds{steps: 20, ttft: 25, tpot: 30, e2el: 25}, steadyMachine(t, file("a.llmprof"), file("b.llmprof")) && trusted)
	// How the machine changes from one load to the next is no error here: those of
	// the scheduler, the host and the step model are left.
	onPaper(t, dir, "b", "b.own.json")
	t.Log("step times learnt from the load itself:")
	replayed(t, dir, "b.own.json", errorBounds{steps: 25, ttft: 25, tpot: 25, e2el: 25}, trustedB)
}

// onPaper simulates load b with the step times that the log of a load tells.
func onPaper(t *testing.T, dir, learnt, into string) {
	t.Helper()
	file := func(name string) string { return filepath.Join(dir, name) }
	asked(t, "train", "server", file(learnt+".llmprof"), "--predictor-file", file(learnt+".json"))
	simulated := asked(t, "simulate", "--predictor-file", file(learnt+".json"), "--workload", file("b.jsonl"), "--vllm-version", "0.32.0", "--no-async-scheduling",
		"--block-size", "32", "--server-log", file("a.log"), "--max-num-seqs", "16", "--max-num-batched-tokens", "512", "--max-model-len", "2048", "--json")
	if err := os.WriteFile(file(into), simulated, 0o600); err != nil {
		t.Fatal(err)
	}
}

// How far the machine may have changed from the load that was learnt to the one
// that was foretold, for times to be held: what others do on it is no error of the
// simulation. mostDrift is of a step's time, mostHostDrift of the time of a
// request beside its steps, both as shares.
const (
	mostDrift     = 0.1
	mostHostDrift = 0.3
)

// steadyMachine reports whether steps that decode one request alone, and the way
// of a request to the engine and back, took the same time in two loads.
func steadyMachine(t *testing.T, learnt, foretold string) bool {
	t.Helper()
	var steps, host [2]float64
	for i, name := range []string{learnt, foretold} {
		points := readPoints(t, name)
		gap, err := fit.HostGap(points, points)
		if err != nil {
			t.Logf("times are not held: %s: %v", filepath.Base(name), err)
			return false
		}
		host[i] = 1e3 * float64(gap.Before.Value)
		var times []float64
		for _, point := range points {
			if point.Kind != profile.KindStep {
				continue
			}
			if sums := point.Step.Sums(); sums.PrefillTokens == 0 && sums.DecodeTokens == 1 {
				seconds, _ := point.Median()
				times = append(times, 1e3*float64(seconds))
			}
		}
		if len(times) < 100 {
			t.Fatalf("%d steps of one request alone: want 100", len(times))
		}
		steps[i] = stat.Mean(times)
	}
	drift, hostDrift := steps[1]/steps[0]-1, 0.0
	if more := max(host[0], host[1]); more > 0 { // a time of none is as far off as it gets
		hostDrift = (host[1] - host[0]) / more
	}
	t.Logf("learnt and foretold: steps of one request alone took %.2f and %.2f ms (%+.0f %%), requests beside their steps %.2f and %.2f ms (%+.0f %%); times are held up to %.0f and %.0f %%",
		steps[0], steps[1], 100*drift, host[0], host[1], 100*hostDrift, 100*mostDrift, 100*mostHostDrift)
	return math.Abs(drift) <= mostDrift && math.Abs(hostDrift) <= mostHostDrift
}

// errorBounds are how far the number of steps and the means of times may be off,
// in percent.
type errorBounds struct{ steps, ttft, tpot, e2el float64 }

// replayed holds load b as it was served against load b as it was simulated into
// a file.
func replayed(t *testing.T, dir, simulated string, bounds errorBounds, trusted bool) {
	t.Helper()
	t.Logf("\n%s", asked(t, "compare", filepath.Join(dir, "b"), filepath.Join(dir, simulated), "--window", "whole"))
	var d report.ServedDocument
	if err := json.Unmarshal(asked(t, "compare", filepath.Join(dir, "b"), filepath.Join(dir, simulated), "--json"), &d); err != nil {
		t.Fatal(err)
	}
	equal := func(what string, figures []report.ServedFigure, name string) {
		f := figureNamed(t, figures, name)
		if f.A == nil || f.B == nil || *f.A != *f.B || *f.A == 0 {
			t.Errorf("%s: vLLM %v, the simulation %v", what, value(f.A), value(f.B))
		}
	}
	equal("requests", d.Whole, "completed")
	equal("input tokens", d.Whole, "input_tokens")
	equal("tokens out", d.Whole, "output_tokens")
	equal("cached tokens, by the answers", d.Whole, "cached_tokens")
	equal("cached tokens, by /metrics", d.Engines, "prefix_hits_tokens")

	var sim report.SimulationDocument
	text, err := os.ReadFile(filepath.Join(dir, simulated))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &sim); err != nil {
		t.Fatal(err)
	}
	if sim.KV.Blocks != 1024 {
		t.Errorf("the log tells %d blocks (%s), and the server has 1024", sim.KV.Blocks, sim.KV.Origin)
	}
	steps, tokens := loggedSteps(t, filepath.Join(dir, "b.log"))
	r := sim.Replicas[0]
	t.Logf("steps: the log %d, the simulation %d (%+.1f %%); tokens a step %.2f and %.2f", steps, r.Steps, percentOff(float64(r.Steps), float64(steps)),
		float64(tokens)/float64(steps), r.TokensPerStep)
	if computed := r.PrefillTokens + r.DecodeTokens; computed != tokens {
		t.Errorf("vLLM computed %d tokens, the simulation %d", tokens, computed)
	}
	if off := percentOff(float64(r.Steps), float64(steps)); math.Abs(off) > bounds.steps && trusted {
		t.Errorf("%d steps simulated, %d in the log: %+.1f %%, want at most %g", r.Steps, steps, off, bounds.steps)
	}
	for _, c := range []struct {
		metric      load.Metric
		goal, bound float64
	}{{load.TTFT, 8, bounds.ttft}, {load.TPOT, 10, bounds.tpot}, {load.E2EL, 7, bounds.e2el}} {
		f := figureNamed(t, d.Whole, string(c.metric)+"_ms.mean")
		if f.Difference == nil {
			t.Errorf("%s is missing: %+v", c.metric, f)
			continue
		}
		t.Logf("%s mean: vLLM %.2f ms, simulated %.2f, %+.1f %% (goal %g, held to %g)", strings.ToUpper(string(c.metric)), *f.A, *f.B, *f.Difference, c.goal, c.bound)
		if math.Abs(*f.Difference) > c.bound && trusted {
			t.Errorf("%s is off by %+.1f %%, want at most %g", c.metric, *f.Difference, c.bound)
		}
	}
}

// figureNamed finds a figure of a comparison.
func figureNamed(t *testing.T, figures []report.ServedFigure, name string) report.ServedFigure {
	t.Helper()
	for _, f := range figures {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no figure %s", name)
	return report.ServedFigure{}
}

func percentOff(a, b float64) float64 { return 100 * (a/b - 1) }

// loggedSteps are the steps of a server's log and the tokens that they computed.
func loggedSteps(t *testing.T, name string) (steps, tokens int64) {
	t.Helper()
	for _, point := range readPoints(t, name) {
		if point.Kind == profile.KindStep {
			sums := point.Step.Sums()
			steps, tokens = steps+1, tokens+int64(sums.PrefillTokens+sums.DecodeTokens)
		}
	}
	return steps, tokens
}

// readPoints are the points of a profile or of a server's log.
func readPoints(t *testing.T, name string) []profile.Point {
	t.Helper()
	a := &app{stdin: strings.NewReader(""), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, format: formatTable}
	cat, err := a.catalog()
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := a.readMeasurement(name, readOptions{cat: cat})
	if err != nil {
		t.Fatal(err)
	}
	return p.Points
}

// asked runs a command that must succeed, and returns what it prints.
func asked(t *testing.T, args ...string) []byte {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); err != nil {
		t.Fatalf("llmprof %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return stdout.Bytes()
}

// servedLoad runs a bench, and reports whether it trusts its own figures.
func servedLoad(t *testing.T, args ...string) bool {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr)
	if no, ok := errors.AsType[*verdictError](err); ok {
		t.Logf("the times of this run are not held: %v", no)
		return false
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var d report.BenchDocument
	if err := json.Unmarshal(stdout.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %s %v", d.Workload.Spec, d.Verdict, d.Reasons)
	return true
}

// growingLog is a server's log that is written while the test reads it.
type growingLog struct {
	mu   sync.Mutex
	text []byte
}

func (l *growingLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

// rest takes what was written since the last call, once nothing has come for a
// second: the log lags behind the answers.
func (l *growingLog) rest() []byte {
	for size := -1; ; time.Sleep(time.Second) {
		l.mu.Lock()
		if len(l.text) == size {
			text := l.text
			l.text = nil
			l.mu.Unlock()
			return text
		}
		size = len(l.text)
		l.mu.Unlock()
	}
}
