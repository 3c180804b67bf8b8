package campaign_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/store"
)

var errInterrupted = errors.New("interrupted")

// TestInterrupted stops a cell in flight: it goes back to pending, what ended
// is kept, the engine is closed.
func TestInterrupted(t *testing.T) {
	for _, c := range []struct {
		why    string
		runner func(stop func()) *script
		states string
	}{
		{"in a cell", func(stop func()) *script {
			return &script{cell: func(ctx context.Context, n int, c campaign.Cell) (campaign.Result, error) {
				if n == 2 {
					stop()
					<-ctx.Done()
					return campaign.Result{}, ctx.Err()
				}
				return measured(c), nil
			}}
		}, "done:1 pending:1 pending:0"},
		{"at the very end of a cell: its result is kept", func(stop func()) *script {
			return &script{cell: func(_ context.Context, n int, c campaign.Cell) (campaign.Result, error) {
				if n == 2 {
					stop()
				}
				return measured(c), nil
			}}
		}, "done:1 done:1 pending:0"},
		{"while an engine is loaded", func(stop func()) *script {
			return &script{load: func(int, campaign.Group) error { stop(); return errInterrupted }}
		}, "pending:0 pending:0 pending:0"},
		{"in a pause before another try", func(stop func()) *script {
			return &script{cell: func(context.Context, int, campaign.Cell) (campaign.Result, error) {
				stop()
				return campaign.Result{}, errors.New("died")
			}}
		}, "pending:1 pending:0 pending:0"},
	} {
		t.Run(c.why, func(t *testing.T) {
			g := newGrid(t, "m@one 1/1/1", "m@one 1/1/2", "m@one 1/1/3")
			ctx, stop := context.WithCancelCause(t.Context())
			s := c.runner(func() { stop(errInterrupted) })
			out, err := g.run(ctx, s, nil)
			if !errors.Is(err, errInterrupted) || g.states() != c.states || s.open != 0 || out.Total != 3 {
				t.Errorf("states %s, want %s; engines open %d; %+v, %v", g.states(), c.states, s.open, out, err)
			}
			if out, err := g.run(t.Context(), &script{}, nil); err != nil || !out.Complete() {
				t.Errorf("going on: %+v, %v", out, err)
			}
		})
	}
}

// TestManyInterruptions runs 200 cells through 50 interruptions at random
// points, every second one a death of the process: the store is closed under
// the campaign. In the end each cell was measured and stored exactly once.
func TestManyInterruptions(t *testing.T) {
	const cells, interruptions, seed = 200, 50, 7
	chance := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "store.db")
	st, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	var specs []string
	for i := range cells {
		specs = append(specs, fmt.Sprintf("m%d@place%d %d/%d/%d", i%5, i%2, 1+i%4, 1+i/4%5, 1+i/20))
	}
	all := cellsOf(specs...)
	if err := campaign.Create(t.Context(), st, store.Run{ID: "r", Kind: "batch", Name: "test"}, all); err != nil {
		t.Fatal(err)
	}
	stored, broken, recovered := map[string]int{}, 0, 0
	for round := 0; ; round++ {
		if round > 4*interruptions {
			t.Fatal("the campaign does not come to its end")
		}
		g := &grid{t: t, store: st}
		ctx, stop := context.WithCancelCause(t.Context())
		// Some points lie in a load, some in a cell, some after its work.
		left := -1
		dies := broken%2 == 0
		if broken < interruptions {
			left = chance.IntN(10)
		}
		point := func() bool { left--; return left == -1 }
		strike := func() error {
			broken++
			if dies {
				_ = st.Close()
			} else {
				stop(errInterrupted)
			}
			return errInterrupted
		}
		s := &script{
			load: func(int, campaign.Group) error {
				if point() {
					return strike()
				}
				return nil
			},
			cell: func(_ context.Context, _ int, c campaign.Cell) (campaign.Result, error) {
				switch {
				case point():
					return campaign.Result{}, strike()
				case point():
					_ = strike()
				}
				return measured(c), nil
			},
		}
		out, err := g.run(ctx, s, func(o *campaign.Options) {
			o.Hooks.CellDone = func(c campaign.Cell, end store.Cell) {
				if end.State == store.Done {
					stored[c.Hash()]++
				}
			}
		})
		stop(nil)
		recovered += out.Recovered
		if s.open != 0 {
			t.Fatalf("round %d: %d engines are open", round, s.open)
		}
		if err == nil {
			if !out.Complete() || out.Total != cells {
				t.Errorf("outcome %+v", out)
			}
			break
		}
		if dies {
			if st, err = store.Open(t.Context(), path); err != nil {
				t.Fatal(err)
			}
		}
	}
	defer st.Close()
	if broken != interruptions || recovered == 0 {
		t.Errorf("%d interruptions, want %d; %d cells were found in flight", broken, interruptions, recovered)
	}
	for _, c := range all {
		if stored[c.Hash()] != 1 {
			t.Errorf("cell %s of %s was stored %d times", c.Name(), c.ModelID, stored[c.Hash()])
		}
	}
	rows, err := st.Cells(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if row.State != store.Done || len(row.Result) == 0 {
			t.Errorf("row %+v", row)
		}
	}
}
