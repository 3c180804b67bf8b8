package stepbench_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/profile"
)

func qwen3() *catalog.Model {
	return &catalog.Model{
		Name: "Qwen3-4B", Type: "qwen3", NumLayers: 36, HiddenSize: 2560, NumHeads: 32, NumKVHeads: 8, HeadDim: 128,
		IntermediateSize: 9728, VocabSize: 151936, MaxSeqLen: 40960, TieEmbeddings: true, QKNorm: "head",
		DType: catalog.BF16, ParamsTotal: 4_022_468_096,
	}
}

func a100() *catalog.Device {
	quantity := func(v float64) catalog.Quantity { return catalog.Quantity{Value: v, Source: "NVIDIA A100 datasheet"} }
	return &catalog.Device{
		Name: "a100-sxm-80gb", Memory: quantity(80 << 30), Bandwidth: quantity(2039e9), L2: quantity(40 << 20),
		Peaks: map[catalog.DType]catalog.Quantity{catalog.BF16: quantity(312e12), catalog.FP16: quantity(312e12)},
	}
}

// TestLintFixture checks lint on the real measurements: the five cold runs are
// found, and nothing is called impossible.
func TestLintFixture(t *testing.T) {
	if err := qwen3().Validate(); err != nil {
		t.Fatal(err)
	}
	p, _ := read(t, fixture)
	findings := profile.Lint(p, profile.LintOptions{Device: a100(), Model: qwen3()})
	var cold []string
	for _, f := range findings {
		t.Logf("%s %s %d: %s\n\t%s", f.Severity, f.Rule, f.Count, f.Message, strings.Join(f.Examples, "\n\t"))
		switch f.Rule {
		case profile.RuleColdStart:
			for _, flag := range f.Flags {
				s := p.Points[flag.Point].Step
				cold = append(cold, fmt.Sprintf("%s (%d,%d) run %d", s.Mode, s.BatchSize, s.InputLen, flag.Sample))
			}
		case profile.RuleFailures:
			if f.Count != 11 || !slices.Equal(f.Examples, []string{"8 × oom", "3 × skipped_due_to_limits"}) {
				t.Errorf("failures: %d, %q", f.Count, f.Examples)
			}
		case profile.RuleNonMonotone:
		default:
			t.Errorf("unexpected %s: %q", f.Rule, f.Examples)
		}
	}
	slices.Sort(cold)
	want := []string{"prefill (1,1) run 0", "prefill (32,1) run 0", "prefill (4,4) run 1", "prefill (64,1) run 0", "prefill (8,2) run 0"}
	if !slices.Equal(cold, want) {
		t.Errorf("cold runs %q, want %q", cold, want)
	}
	clean := p.Drop(findings)
	if len(clean.Points) != len(p.Points) {
		t.Errorf("dropping cold runs left %d points of %d", len(clean.Points), len(p.Points))
	}
	if got := find(t, clean, profile.Prefill, 1, 1); len(got.Samples) != 2 || got.Summary != nil {
		t.Errorf("(1,1) after dropping: %+v", got)
	}
	if got := find(t, p, profile.Prefill, 1, 1); len(got.Samples) != 3 {
		t.Errorf("dropping changed the profile itself: %+v", got)
	}
}

// TestLintFixtureInWrongUnit reads the fixture as if its seconds were
// milliseconds, and the other way round.
func TestLintFixtureInWrongUnit(t *testing.T) {
	for _, c := range []struct {
		factor float64
		want   string
	}{{1e3, "10^3"}, {1e6, "10^6"}, {1e-3, "10^-3"}} {
		p, _ := read(t, fixture)
		for i := range p.Points {
			for k := range p.Points[i].Samples {
				p.Points[i].Samples[k] *= c.factor
			}
		}
		findings := profile.Lint(p, profile.LintOptions{Device: a100(), Model: qwen3()})
		if f := findings[0]; f.Rule != profile.RuleUnitSlip || f.Count != 188 || !strings.Contains(f.Examples[0], c.want) {
			t.Errorf("times %g: first finding %s %d %q", c.factor, f.Rule, f.Count, f.Examples)
		}
	}
}
