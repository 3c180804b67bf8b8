package profile_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

func TestMark(t *testing.T) {
	step := func(batch int) *profile.Step {
		return &profile.Step{Mode: profile.Prefill, BatchSize: batch, InputLen: 8, Pass: forward.Prefill(batch, 8, 0)}
	}
	p := &profile.Profile{Points: []profile.Point{
		{Kind: profile.KindStep, Step: step(1), Samples: []float64{0.09, 0.011, 0.011}},
		{Kind: profile.KindStep, Step: step(2), Samples: []float64{0.011, 0.011, 0.011}},
	}}
	findings := profile.Lint(p, profile.LintOptions{})
	marked := p.Mark(findings)
	if diff := cmp.Diff([]string{"lint: cold-start in sample 0"}, marked.Points[0].Warnings); diff != "" {
		t.Errorf("warnings of the cold point (-want +got):\n%s", diff)
	}
	if len(marked.Points[1].Warnings) != 0 || len(p.Points[0].Warnings) != 0 {
		t.Errorf("other points, and the profile itself, stay as they were: %v, %v", marked.Points[1].Warnings, p.Points[0].Warnings)
	}
	if diff := cmp.Diff(marked, marked.Mark(findings)); diff != "" {
		t.Errorf("marking twice changes something:\n%s", diff)
	}
}
