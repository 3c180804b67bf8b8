package cost_test

import (
	"math"
	"testing"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/forward"
)

// What ranks exchange is the network's part of a step, told apart by what it
// grows with.
func TestExchange(t *testing.T) {
	all, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	model, err := all.Model("Qwen3-32B")
	if err != nil {
		t.Fatal(err)
	}
	device, _, err := all.Device("rtx-pro-6000-server")
	if err != nil {
		t.Fatal(err)
	}
	for _, ranks := range []int{1, 2, 4} {
		e, err := cost.New(model, device, deploy.Config{TensorParallel: ranks}, cost.Settings{})
		if err != nil {
			t.Fatal(err)
		}
		for _, pass := range []forward.Pass{forward.Decode(128, 1000), forward.Prefill(1, 2048, 0), forward.Prefill(3, 700, 50)} {
			want := 0.0
			for _, op := range e.Ops(pass) {
				want += float64(op.Network) * float64(op.Count)
			}
			tokens, rows := e.Exchange(pass.Tokens(), pass.Rows())
			if got := float64(tokens + rows); math.Abs(got-want) > 1e-12 || (ranks > 1) != (tokens > 0) || (ranks > 1) != (rows > 0) {
				t.Errorf("%d ranks, %+v: %v for tokens and %v for rows, want %v together", ranks, pass, tokens, rows, want)
			}
		}
		if tokens, rows := e.Exchange(0, 0); tokens != 0 || rows != 0 {
			t.Errorf("%d ranks: nothing takes %v and %v", ranks, tokens, rows)
		}
	}
}
