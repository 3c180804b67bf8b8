package campaign_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// TestTakenOver lets a second process take a run from a first one that is in the
// middle of a cell, as when the first was suspended. The first stops and leaves
// everything to the second, whether it was told before it tries to write or not.
func TestTakenOver(t *testing.T) {
	crash := func(campaign.Cell) (campaign.Result, error) {
		return campaign.Result{}, &campaign.CellError{Err: errors.New("the engine died")}
	}
	success := func(c campaign.Cell) (campaign.Result, error) { return measured(c), nil }
	for _, test := range []struct {
		why  string
		ttl  time.Duration
		told bool
		end  func(campaign.Cell) (campaign.Result, error)
	}{
		{"the first is told while its cell runs", 30 * time.Millisecond, true, crash},
		{"its cell fails before it is told", time.Hour, false, crash},
		{"its cell ends well before it is told", time.Hour, false, success},
	} {
		t.Run(test.why, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			var first, second grid
			for _, g := range []*grid{&first, &second} {
				st, err := store.Open(t.Context(), path)
				if err != nil {
					t.Fatal(err)
				}
				defer st.Close()
				*g = grid{t: t, store: st}
			}
			if err := campaign.Create(t.Context(), first.store, store.Run{ID: "r"}, cellsOf("m@one 1/1/1", "m@one 1/1/2", "m@one 1/1/3")); err != nil {
				t.Fatal(err)
			}
			inFlight, ended := make(chan struct{}), make(chan struct{})
			var late error
			slow := &script{cell: func(ctx context.Context, n int, c campaign.Cell) (campaign.Result, error) {
				if n == 1 {
					return measured(c), nil
				}
				close(inFlight)
				if test.told {
					<-ctx.Done()
				} else {
					<-ended // here: the second has begun the same cell
				}
				return test.end(c)
			}}
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, late = first.run(t.Context(), slow, func(o *campaign.Options) { o.Owner, o.LockTTL = "first", test.ttl })
			}()
			<-inFlight
			if err := second.store.Break(t.Context(), "r", "first"); err != nil {
				t.Fatal(err)
			}
			heir := &script{cell: func(_ context.Context, n int, c campaign.Cell) (campaign.Result, error) {
				if n == 1 {
					close(ended)
					<-done // the first comes to its end while this cell runs
				}
				return measured(c), nil
			}}
			out, err := second.run(t.Context(), heir, nil)
			if err != nil || !out.Complete() || out.Recovered != 1 || second.states() != "done:1 done:2 done:1" {
				t.Errorf("the second: %s, %+v, %v", second.states(), out, err)
			}
			if !errors.Is(late, store.ErrLockLost) || strings.Count(late.Error(), store.ErrLockLost.Error()) != 1 || slow.open != 0 || slow.runs != 2 {
				t.Errorf("the first: %v, %d cells, engines open %d", late, slow.runs, slow.open)
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
