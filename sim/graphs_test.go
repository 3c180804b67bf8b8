package sim_test

import (
	"testing"
	"time"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/sim"
)

func TestPadded(t *testing.T) {
	count := sim.StepTimerFunc(func(p forward.Pass) (time.Duration, error) { return time.Duration(p.Tokens()), p.Validate() })
	padded, err := sim.NewPadded(count, []int{1, 2, 4, 8})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why  string
		pass forward.Pass
		want time.Duration
	}{
		{"a captured size stays", forward.Decode(4, 100), 4},
		{"three rows run as four", forward.Decode(3, 100), 4},
		{"a prompt of five tokens and a decode run as eight", forward.Pass{Prefill: []forward.Chunk{{Count: 1, New: 5}}, Decode: forward.Sequences{Count: 1, SumContext: 9}}, 8},
		{"contexts that are listed are not those of the padding", forward.Pass{Decode: forward.Sequences{Count: 3, SumContext: 6, Shortest: 1, Longest: 3}, DecodeContexts: []int{1, 2, 3}}, 4},
		{"beyond the largest size nothing is padded", forward.Decode(9, 100), 9},
	} {
		if got, err := padded.StepTime(c.pass); err != nil || got != c.want {
			t.Errorf("%s: %d tokens, %v, want %d", c.why, got, err, c.want)
		}
	}
	for why, sizes := range map[string][]int{"none": nil, "falling": {4, 2}, "nothing": {0, 1}} {
		if _, err := sim.NewPadded(count, sizes); err == nil {
			t.Errorf("%s: taken", why)
		}
	}
}
