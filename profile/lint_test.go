package profile_test

import (
	"strings"
	"testing"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

// toy is a model of about 0.81 G parameters in its layers.
func toy() *catalog.Model {
	return &catalog.Model{
		Name: "toy", Type: "llama", NumLayers: 4, HiddenSize: 4096, NumHeads: 32, NumKVHeads: 32, HeadDim: 128,
		IntermediateSize: 11008, VocabSize: 32000, MaxSeqLen: 4096, DType: catalog.BF16,
	}
}

// card multiplies 100 TFLOP/s and reads 1 TB/s.
func card() *catalog.Device {
	q := func(v float64) catalog.Quantity { return catalog.Quantity{Value: v, Source: "made up"} }
	return &catalog.Device{
		Name: "card", Memory: q(80 << 30), Bandwidth: q(1e12), L2: q(40 << 20),
		Peaks: map[catalog.DType]catalog.Quantity{catalog.BF16: q(100e12), catalog.FP8: q(200e12)},
	}
}

func decode(batch int, samples ...float64) profile.Point {
	return profile.Point{
		Kind: profile.KindStep, Samples: samples,
		Step: &profile.Step{Mode: profile.Decode, BatchSize: batch, InputLen: 100, OutputLen: 2, Pass: forward.Decode(batch, 101)},
	}
}

func clocked(c profile.Clock, p profile.Point) profile.Point {
	p.Clock = c
	return p
}

func summarised(p profile.Point, mean, std float64, runs int) profile.Point {
	p.Samples, p.Summary = nil, &profile.Summary{Mean: mean, Std: std, Runs: runs}
	return p
}

func TestLint(t *testing.T) {
	// The layers hold 4·(4·4096² + 3·4096·11008 + 2·4096) + 4096 parameters
	// = 809.5 M, the head 131.1 M: reading them takes 1.881 ms, a prompt of
	// 1000 tokens at least 16.193 ms.
	known := profile.LintOptions{Device: card(), Model: toy()}
	for _, c := range []struct {
		why      string
		points   []profile.Point
		opts     profile.LintOptions
		change   func(*profile.Header)
		rule     profile.Rule // "" for no finding at all
		severity profile.Severity
		count    int
		example  string
		left     int // points after Drop
	}{
		{
			why:    "times above the bounds are fine",
			points: []profile.Point{step(1000, 0.0163), decode(1, 0.0019)}, opts: known, left: 2,
		},
		{
			why:    "faster than the device multiplies",
			points: []profile.Point{step(1000, 0.0161), step(2000, 0.04)}, opts: known,
			rule: profile.RuleComputePeak, severity: profile.SeverityError, count: 1, example: "at least 16.19 ms needed (1.01 × peak)", left: 1,
		},
		{
			why:    "one impossible sample makes the point impossible",
			points: []profile.Point{step(1000, 0.02, 0.0161, 0.02)}, opts: known,
			rule: profile.RuleComputePeak, severity: profile.SeverityError, count: 1, left: 0,
		},
		{
			why:    "two devices are twice as fast",
			points: []profile.Point{step(1000, 0.0161)}, opts: known,
			change: func(h *profile.Header) { h.Deploy.TensorParallel = 2 }, left: 1,
		},
		{
			why:    "weights multiplied in fp8 have fp8's peak",
			points: []profile.Point{step(1000, 0.0161)}, opts: known,
			change: func(h *profile.Header) { h.Deploy.Quantization = "fp8" }, left: 1,
		},
		{
			why:    "faster than the weights are read",
			points: []profile.Point{decode(1, 0.00187)}, opts: known,
			rule: profile.RuleMemoryPeak, severity: profile.SeverityError, count: 1, example: "at least 1.881 ms needed (1.01 × bandwidth)", left: 0,
		},
		{
			why:    "weights that fit the cache may be faster than memory",
			points: []profile.Point{decode(1, 0.00187)}, opts: profile.LintOptions{Model: toy(), Device: func() *catalog.Device { d := card(); d.L2.Value = 2 << 30; return d }()},
			rule: profile.RuleMemoryPeak, severity: profile.SeverityNote, count: 1, left: 1,
		},
		{
			why:    "without a device the bounds are skipped, and said so",
			points: []profile.Point{step(1000, 1e-9)}, opts: profile.LintOptions{Model: toy()},
			rule: profile.RuleComputePeak, severity: profile.SeveritySkipped, left: 1,
		},
		{
			why:    "milliseconds taken for seconds",
			points: []profile.Point{step(1000, 25), step(2000, 50), step(1, 4)}, opts: known,
			rule: profile.RuleUnitSlip, severity: profile.SeverityError, count: 3, example: "near 10^3", left: 0,
		},
		{
			why:    "seconds divided once too often",
			points: []profile.Point{step(1000, 25e-6), step(2000, 50e-6)}, opts: known,
			rule: profile.RuleUnitSlip, severity: profile.SeverityError, count: 2, example: "near 10^-3", left: 0,
		},
		{
			why:    "timed with the CPU's clock",
			points: []profile.Point{clocked(profile.ClockCPU, step(8, 0.04)), step(16, 0.05)}, opts: known,
			rule: profile.RuleCPUTime, severity: profile.SeverityError, count: 1, left: 1,
		},
		{
			why:    "128 tokens take as long as 1024",
			points: []profile.Point{step(1, 0.039), step(128, 0.040), step(1024, 0.041)}, opts: known,
			rule: profile.RuleCPUTime, severity: profile.SeverityWarning, count: 3, left: 0,
		},
		{
			why:    "so little work that the launch floor hides it",
			points: []profile.Point{step(128, 0.080), step(1024, 0.081)}, opts: known, left: 2,
		},
		{
			why:    "prefill that grows",
			points: []profile.Point{step(128, 0.010), step(1024, 0.040)}, opts: known, left: 2,
		},
		{
			why:    "a cold first run goes, its point stays",
			points: []profile.Point{step(8, 0.0912, 0.0114, 0.0111)}, opts: known,
			rule: profile.RuleColdStart, severity: profile.SeverityWarning, count: 1, example: "run 1 took 91.20 ms, the others 11.25 ms", left: 1,
		},
		{
			why:    "exactly 1.2 times the median of the others is not cold",
			points: []profile.Point{step(8, 0.012, 0.010, 0.010)}, opts: known, left: 1,
		},
		{
			why:    "the factor is an option",
			points: []profile.Point{step(8, 0.012, 0.010, 0.010)}, opts: profile.LintOptions{Device: card(), Model: toy(), ColdFactor: 1.15},
			rule: profile.RuleColdStart, severity: profile.SeverityWarning, count: 1, left: 1,
		},
		{
			why:    "a spread without its runs hints at a cold one",
			points: []profile.Point{summarised(step(8), 0.0379, 0.0377, 3)}, opts: known,
			rule: profile.RuleColdStart, severity: profile.SeverityNote, count: 1, left: 1,
		},
		{
			why:    "copies: the first stays",
			points: []profile.Point{step(8, 0.02), step(16, 0.02), step(8, 0.02), step(8, 0.02)}, opts: known,
			rule: profile.RuleDuplicate, severity: profile.SeverityWarning, count: 2, example: "point 3 repeats point 1", left: 2,
		},
		{
			why:    "two times of one key more than a tenth apart: neither is to be trusted",
			points: []profile.Point{step(8, 0.020), step(8, 0.023)}, opts: known,
			rule: profile.RuleContradiction, severity: profile.SeverityWarning, count: 2, example: "2 times, 20.00 ms to 23.00 ms", left: 0,
		},
		{
			why:    "the same measured again with like result",
			points: []profile.Point{step(8, 0.020), step(8, 0.021)}, opts: known,
			rule: profile.RuleRepeated, severity: profile.SeverityNote, count: 2, left: 2,
		},
		{
			why:    "time drops where the pass grows",
			points: []profile.Point{decode(1, 0.02), decode(2, 0.0179)}, opts: known,
			rule: profile.RuleNonMonotone, severity: profile.SeverityNote, count: 1, left: 2,
		},
		{
			why:    "a timer of 1 ms under times of 20 ms",
			points: []profile.Point{step(8, 0.020, 0.021, 0.020, 0.021, 0.020, 0.021, 0.020, 0.021, 0.020, 0.021), step(16, 0.022, 0.021, 0.022, 0.021, 0.022, 0.021, 0.022, 0.021, 0.022, 0.021)}, opts: known,
			rule: profile.RuleQuantised, severity: profile.SeverityNote, count: 2, example: "± 2 %", left: 2,
		},
		{
			why:    "failures are counted by reason",
			points: []profile.Point{{Kind: profile.KindFailure, Reason: "oom"}}, opts: known,
			rule: profile.RuleFailures, severity: profile.SeverityNote, count: 1, example: "1 × oom", left: 1,
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			p := &profile.Profile{Header: header(), Points: c.points}
			if c.change != nil {
				c.change(&p.Header)
			}
			findings := profile.Lint(p, c.opts)
			if got := p.Drop(findings); len(got.Points) != c.left {
				t.Errorf("dropping leaves %d points, want %d", len(got.Points), c.left)
			}
			if c.rule == "" {
				if len(findings) > 0 {
					t.Errorf("findings %+v", findings)
				}
				return
			}
			for _, f := range findings {
				if f.Rule != c.rule {
					continue
				}
				if f.Severity != c.severity || f.Count != c.count || len(f.Flags) != c.count || !strings.Contains(strings.Join(f.Examples, "\n"), c.example) {
					t.Errorf("finding %+v, want %s of %d with %q", f, c.severity, c.count, c.example)
				}
				return
			}
			t.Errorf("no %s among %+v", c.rule, findings)
		})
	}
}

func TestLintShowsFewExamples(t *testing.T) {
	p := &profile.Profile{}
	for i := range 50 {
		p.Points = append(p.Points, step(1+i, 0.05, 0.01, 0.01))
	}
	for _, f := range profile.Lint(p, profile.LintOptions{Examples: 2}) {
		if f.Rule == profile.RuleColdStart && (f.Count != 50 || len(f.Examples) != 2) {
			t.Errorf("%d found, %d examples", f.Count, len(f.Examples))
		}
	}
}

// TestLintServerSteps: a server runs like steps again and again, and they take
// now longer and now shorter. Nothing is wrong with that.
func TestLintServerSteps(t *testing.T) {
	p := &profile.Profile{}
	for i, totals := range []forward.Totals{
		{DecodeRequests: 1, DecodeTokens: 1},
		{DecodeRequests: 1, DecodeTokens: 1},
		{DecodeRequests: 1, DecodeTokens: 1},
		{PrefillRequests: 1, PrefillTokens: 512},
		{PrefillRequests: 1, PrefillTokens: 512, DecodeRequests: 2, DecodeTokens: 2},
	} {
		mode := profile.Decode
		if totals.PrefillTokens > 0 {
			mode = profile.Mixed
		}
		p.Points = append(p.Points, profile.Point{
			Kind: profile.KindStep, Clock: profile.ClockWall, Samples: []float64{0.004 * float64(1+i%2)},
			Step: &profile.Step{Mode: mode, Totals: &totals},
		})
	}
	for _, f := range profile.Lint(p, profile.LintOptions{}) {
		if f.Severity == profile.SeverityError || f.Severity == profile.SeverityWarning {
			t.Errorf("%s: %v", f.Rule, f.Examples)
		}
	}
	if kept := p.Drop(profile.Lint(p, profile.LintOptions{})); len(kept.Points) != len(p.Points) {
		t.Errorf("%d of %d steps are kept", len(kept.Points), len(p.Points))
	}
}
