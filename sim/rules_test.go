package sim_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/sim"
)

// TestRulesOf pins each switch to the release that brought it.
func TestRulesOf(t *testing.T) {
	for _, c := range []struct {
		why          string
		before, from string
		has          func(sim.Rules) bool // in the release from, not before
	}{
		{"a head that is too long stops the pass", "0.11.2", "0.12.0", func(r sim.Rules) bool { return !r.SetLongAside }},
		{"requests set aside return in order", "0.13.0", "0.14.0", func(r sim.Rules) bool { return !r.ReturnReversed }},
		{"max_num_scheduled_tokens", "0.16.0", "0.17.0", func(r sim.Rules) bool { return r.ScheduledTokens }},
		{"scheduler_reserve_full_isl", "0.18.1", "0.19.0", func(r sim.Rules) bool { return r.FullSequenceGate }},
		{"the free list is split", "0.23.0", "0.24.0", func(r sim.Rules) bool { return r.SplitFree }},
		{"watermark", "0.23.0", "0.24.0", func(r sim.Rules) bool { return r.Watermark }},
		{"the threshold is checked", "0.26.0", "0.27.0", func(r sim.Rules) bool { return r.ThresholdBounded }},
		{"a victim earlier in the list moves the walk", "0.27.1", "0.28.0", func(r sim.Rules) bool { return r.VictimMovesIndex }},
		{"a lone request is not cut", "0.30.0", "0.31.0", func(r sim.Rules) bool { return r.LoneUncut }},
		{"the walk goes on after a self-preemption", "0.32.0", "0.33.0", func(r sim.Rules) bool { return r.SelfPreemptGoesOn }},
	} {
		if c.has(rulesOf(t, c.before)) {
			t.Errorf("%s: %s has it", c.why, c.before)
		}
		if !c.has(rulesOf(t, c.from)) || !c.has(rulesOf(t, "")) {
			t.Errorf("%s: %s or the newest does not have it", c.why, c.from)
		}
	}
}

func TestReleaseSpellings(t *testing.T) {
	for _, c := range []struct{ why, text, same string }{
		{"a leading v", "v0.27.1", "0.27.1"},
		{"no patch", "0.27", "0.27.0"},
		{"a release candidate counts as its release", "0.27.1rc2", "0.27.1"},
		{"a later build", "0.27.1.post1", "0.27.1"},
		{"a local build", "0.27.1+cpu.7", "0.27.1"},
		{"a patch of the newest", "0.33.4", "0.33.0"},
		{"the oldest", "0.9.2", "0.11.2"},
	} {
		if rulesOf(t, c.text) != rulesOf(t, c.same) {
			t.Errorf("%s: %s is not as %s", c.why, c.text, c.same)
		}
	}
	for _, text := range []string{"0.9.1", "0.34.0", "1.0.0", "0", "latest", "0.x.1", "0.27.", "0.-27.1", "0.27.1 ", "0.99999999999999999999.0"} {
		_, err := sim.RulesOf(text)
		var unknown *sim.UnknownReleaseError
		if !errors.As(err, &unknown) || !strings.Contains(err.Error(), text) || !strings.Contains(unknown.Hint(), sim.NewestRelease) {
			t.Errorf("release %q: %v", text, err)
		}
	}
}

func rulesOf(t *testing.T, release string) sim.Rules {
	t.Helper()
	r, err := sim.RulesOf(release)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
