package sim

import "testing"

// TestRefusals counts why the head of the queue is not admitted, of 8 usable
// blocks of 4 tokens while a prompt of 16 holds 4 and the budget is 16.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		why                           string
		watermark                     float64
		prompt                        int
		blocks, watermarks, sequences int64
		open                          bool // without the gate for all tokens, and with a budget for them
	}{
		{"15 tokens have their four blocks", 0, 15, 0, 0, 0, false},
		{"without a watermark of two blocks they would", 0.3, 15, 1, 1, 0, false},
		{"32 tokens of which 15 are computed first lack them for the rest alone", 0, 31, 1, 0, 1, false},
		{"with a watermark of two blocks they lack them for the first 15 too", 0.3, 31, 1, 0, 0, false},
		{"in one step they lack them with a watermark and without", 0.3, 31, 1, 0, 0, true},
	} {
		s := moving(t, func(config *Config) { config.Watermark, config.MaxBatchedTokens = c.watermark, 31 })
		if c.open {
			s = moving(t, func(config *Config) {
				config.Watermark, config.MaxBatchedTokens, config.NoFullSequenceGate = c.watermark, 64, true
			})
		}
		comes(t, s, Request{Prompt: 16, Output: 2}, Request{Prompt: c.prompt, Output: 1})
		s.Schedule()
		if got := s.Totals(); got.Blocks != c.blocks || got.Watermark != c.watermarks || got.FullSequence != c.sequences {
			t.Errorf("%s: %+v, want %d refused, %d by the watermark, %d by the gate", c.why, got, c.blocks, c.watermarks, c.sequences)
		}
	}
}
