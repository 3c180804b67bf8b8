package vllm_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/vllm"
	"github.com/llmprof/llmprof/forward"
)

// TestServing: a client learns where to ask, and the steps since a mark are
// those of what was run.
func TestServing(t *testing.T) {
	inBubble(t, newFake(), fakeSetup(), func(t *testing.T, s engine.Session) {
		serving := s.(engine.Serving)
		e := serving.Endpoint()
		if !strings.HasPrefix(e.URL, "http://127.0.0.1:") || e.Model == "" || e.TokenHigh <= e.TokenLow {
			t.Errorf("endpoint %+v", e)
		}
		mark := serving.Mark()
		measured(t, s, []engine.Task{stepTask(1, 1, 2, 16, 3)})
		// A warm-up and a run, each a prefill of 2 × 16 and two decode steps.
		steps := serving.Steps(t.Context(), mark, 2*(32+4))
		var totals []forward.Totals
		for _, o := range steps {
			if o.Seconds <= 0 {
				t.Errorf("a step of %g s", o.Seconds)
			}
			totals = append(totals, o.Totals)
		}
		prefill, decode := forward.Totals{PrefillRequests: 2, PrefillTokens: 32}, forward.Totals{DecodeRequests: 2, DecodeTokens: 2}
		if want := []forward.Totals{prefill, decode, decode, prefill, decode, decode}; !slices.Equal(totals, want) {
			t.Errorf("steps %+v", totals)
		}
		if more := serving.Steps(t.Context(), serving.Mark(), 1); len(more) != 0 {
			t.Errorf("steps after the last: %+v", more)
		}
	})
}

// TestServingFlags: a server for clients has a tokenizer and says what was
// cached.
func TestServingFlags(t *testing.T) {
	yes, no := true, false
	setup := fakeSetup()
	setup.Serve, setup.Device = true, "cuda"
	setup.Deploy.MaxNumSeqs, setup.Deploy.PrefixCaching, setup.Deploy.ChunkedPrefill, setup.Deploy.SchedulingPolicy = 4, &yes, &no, "priority"
	line := strings.Join((&vllm.Server{}).CommandLine(setup, engine.StepTask{}, 0, 0), " ")
	for _, want := range []string{"--enable-prompt-tokens-details", "--enable-prefix-caching", "--no-enable-chunked-prefill", "--scheduling-policy priority", "--max-num-seqs 4"} {
		if !strings.Contains(line, want) {
			t.Errorf("%s: want %s", line, want)
		}
	}
	for _, not := range []string{"--skip-tokenizer-init", "--no-async-scheduling", "--no-enable-prefix-caching"} {
		if strings.Contains(line, not) {
			t.Errorf("%s: want no %s", line, not)
		}
	}
}
