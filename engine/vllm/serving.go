package vllm

import (
	"context"
	"fmt"

	"github.com/llmprof/llmprof/engine"
)

var _ engine.Serving = (*session)(nil)

// Endpoint is where the server is asked.
func (s *session) Endpoint() engine.Endpoint {
	return engine.Endpoint{URL: s.url, Model: s.model, TokenLow: s.tokens.low, TokenHigh: s.tokens.high}
}

// reach finds the address at which clients of this machine ask a started
// server.
func (s *session) reach(ctx context.Context, place engine.Place, port int) error {
	if !s.setup.Serve || place.String() == "local" {
		s.url = fmt.Sprintf("http://127.0.0.1:%d", port)
		return nil
	}
	address, end, err := engine.Tunnel(ctx, place, port)
	if err != nil {
		return err
	}
	s.url, s.untunnel = "http://"+address, end
	return nil
}

// Mark is the place in the log from which on Steps tells.
func (s *session) Mark() int { return s.log.mark() }

// Steps are the steps since a mark.
func (s *session) Steps(ctx context.Context, mark, tokens int) []engine.ServedStep {
	found := s.log.wait(ctx, mark, s.lag(), func(steps []step) bool {
		n := 0
		for _, o := range steps {
			n += o.Totals.PrefillTokens + o.Totals.DecodeTokens
		}
		return n >= tokens
	})
	var out []engine.ServedStep
	for _, o := range found {
		told := engine.ServedStep{Totals: o.Totals, Seconds: o.Seconds}
		if o.HasKVUsage {
			told.KVUsage = &o.KVUsage
		}
		out = append(out, told)
	}
	return out
}
