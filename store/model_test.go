package store_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/store"
)

// naive is the store as maps and slices. Its methods do what the store should
// and report whether the store should agree to it.
type naive struct {
	runs map[string]*naiveRun
	now  time.Time
}

type naiveRun struct {
	created time.Time
	cells   []store.Cell
	held    time.Time // until when; zero for free
}

func (n *naive) cell(run, hash string) *store.Cell {
	if r, ok := n.runs[run]; ok {
		for i := range r.cells {
			if r.cells[i].Hash == hash {
				return &r.cells[i]
			}
		}
	}
	return nil
}

func (n *naive) add(run string, cells []store.Cell) int {
	r, added := n.runs[run], 0
	for _, c := range cells {
		if n.cell(run, c.Hash) == nil {
			c.RunID, c.State = run, cmp.Or(c.State, store.Pending)
			r.cells = append(r.cells, c)
			added++
		}
	}
	slices.SortStableFunc(r.cells, func(a, b store.Cell) int { return cmp.Compare(a.Index, b.Index) })
	return added
}

func (n *naive) begin(run, hash string) (attempt int, ok bool) {
	c := n.cell(run, hash)
	if c == nil || c.State == store.Running || c.State == store.Done {
		return 0, false
	}
	*c = store.Cell{RunID: run, Hash: hash, Index: c.Index, Spec: c.Spec, State: store.Running, Attempts: c.Attempts + 1, Started: n.now}
	return c.Attempts, true
}

func (n *naive) finish(end store.Cell) bool {
	c := n.cell(end.RunID, end.Hash)
	switch {
	case c == nil || c.Attempts != end.Attempts:
		return false
	case c.State == end.State:
		return true
	case c.State != store.Running && (c.State != store.Pending || end.State == store.Done):
		return false
	}
	end.Index, end.Spec, end.Started = c.Index, c.Spec, c.Started
	*c = end
	return true
}

func (n *naive) restart(run string, states ...store.State) (changed int) {
	for i, c := range n.runs[run].cells {
		if slices.Contains(states, c.State) {
			n.runs[run].cells[i] = store.Cell{RunID: run, Hash: c.Hash, Index: c.Index, Spec: c.Spec, State: store.Pending, Attempts: c.Attempts}
			changed++
		}
	}
	return changed
}

func (n *naive) locked(run string) bool { return n.runs[run].held.After(n.now) }

// trial plays the same operations to a store and to a naive one.
type trial struct {
	st    *store.Store
	model naive
	t     *testing.T
}

func (tr *trial) agree(t *rapid.T, doing string, err error, ok bool) {
	if (err == nil) != ok {
		t.Fatalf("%s: the store says %v, the model says %v", doing, err, ok)
	}
}

// drawCells draws cells of few hashes, so that they meet.
func drawCells(t *rapid.T) []store.Cell {
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) store.Cell {
		c := store.Cell{Hash: drawHash(t), Index: rapid.IntRange(0, 3).Draw(t, "index")}
		if rapid.Bool().Draw(t, "ended") {
			c.State, c.Seconds, c.Error = drawEnd(t), rapid.Float64Range(0, 1e6).Draw(t, "seconds"), rapid.String().Draw(t, "error")
		}
		return c
	}), 0, 4, func(c store.Cell) string { return c.Hash }).Draw(t, "cells")
}

func drawRun(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "ab", "%"}).Draw(t, "run")
}

func drawHash(t *rapid.T) string {
	return rapid.SampledFrom([]string{"h1", "h2", "h3", "h4", "h5"}).Draw(t, "hash")
}

func drawEnd(t *rapid.T) store.State { return rapid.SampledFrom(store.States()[2:]).Draw(t, "end") }

func (tr *trial) actions() map[string]func(*rapid.T) {
	ctx, st, m := tr.t.Context(), tr.st, &tr.model
	return map[string]func(*rapid.T){
		"": tr.check,
		"create": func(t *rapid.T) {
			id, cells := drawRun(t), drawCells(t)
			_, taken := m.runs[id]
			tr.agree(t, "create "+id, st.CreateRun(ctx, store.Run{ID: id, Created: m.now}, cells), !taken)
			if !taken {
				m.runs[id] = &naiveRun{created: m.now}
				m.add(id, cells)
			}
		},
		"add": func(t *rapid.T) {
			id, cells := drawRun(t), drawCells(t)
			added, err := st.AddCells(ctx, id, cells)
			_, ok := m.runs[id]
			tr.agree(t, "add to "+id, err, ok)
			if ok && added != m.add(id, cells) {
				t.Fatalf("added %d cells", added)
			}
		},
		"begin": func(t *rapid.T) {
			id, hash := drawRun(t), drawHash(t)
			attempt, err := st.Begin(ctx, id, hash, m.now)
			want, ok := m.begin(id, hash)
			tr.agree(t, "begin "+id+hash, err, ok)
			if attempt != want {
				t.Fatalf("begun as attempt %d: want %d", attempt, want)
			}
		},
		"finish": func(t *rapid.T) {
			end := store.Cell{
				RunID: drawRun(t), Hash: drawHash(t), State: drawEnd(t), Attempts: rapid.IntRange(0, 2).Draw(t, "attempt"),
				Error: rapid.String().Draw(t, "error"), Ended: m.now, Seconds: rapid.Float64Range(0, 1e6).Draw(t, "seconds"),
			}
			tr.agree(t, fmt.Sprintf("finish %+v", end), st.Finish(ctx, end), m.finish(end))
		},
		"recover": func(t *rapid.T) {
			id := drawRun(t)
			cells, err := st.Recover(ctx, id)
			_, ok := m.runs[id]
			tr.agree(t, "recover "+id, err, ok)
			if ok && len(cells) != m.restart(id, store.Running) {
				t.Fatalf("recovered %d cells", len(cells))
			}
		},
		"reset": func(t *rapid.T) {
			id, states := drawRun(t), []store.State{drawEnd(t), drawEnd(t)}
			n, err := st.Reset(ctx, id, states...)
			_, ok := m.runs[id]
			ok = ok && !slices.Contains(states, store.Done)
			tr.agree(t, "reset "+id, err, ok)
			if ok && n != m.restart(id, states...) {
				t.Fatalf("reset %d cells", n)
			}
		},
		"delete": func(t *rapid.T) {
			id := drawRun(t)
			_, ok := m.runs[id]
			ok = ok && !m.locked(id)
			tr.agree(t, "delete "+id, st.DeleteRun(ctx, id), ok)
			if ok {
				delete(m.runs, id)
			}
		},
		"lock": func(t *rapid.T) {
			id := drawRun(t)
			release, err := st.Lock(ctx, id, "me", time.Hour)
			_, ok := m.runs[id]
			ok = ok && !m.locked(id)
			tr.agree(t, "lock "+id, err, ok)
			switch {
			case !ok:
			case rapid.Bool().Draw(t, "release"):
				tr.agree(t, "release "+id, release(), true)
				m.runs[id].held = time.Time{}
			default:
				m.runs[id].held = m.now.Add(time.Hour)
			}
		},
		"wait": func(t *rapid.T) {
			m.now = m.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "minutes")) * time.Minute)
		},
	}
}

// check compares everything that can be seen.
func (tr *trial) check(t *rapid.T) {
	type seen struct {
		id     string
		counts map[store.State]int
		cells  []store.Cell
	}
	var want, got []seen
	hashes := map[string]int{}
	for id, r := range tr.model.runs {
		one := seen{id, map[store.State]int{}, r.cells}
		for _, c := range r.cells {
			one.counts[c.State]++
			hashes[c.Hash]++
		}
		want = append(want, one)
	}
	slices.SortFunc(want, func(a, b seen) int {
		return cmp.Or(tr.model.runs[b.id].created.Compare(tr.model.runs[a.id].created), cmp.Compare(b.id, a.id))
	})
	runs, err := tr.st.Runs(tr.t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		cells, err := tr.st.Cells(tr.t.Context(), r.Run.ID)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, seen{r.Run.ID, r.Counts, cells})
	}
	if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(seen{})); diff != "" {
		t.Fatalf("(-model +store):\n%s", diff)
	}
	for hash, n := range hashes {
		if found, err := tr.st.FindCells(tr.t.Context(), hash); err != nil || len(found) != n {
			t.Fatalf("cell %s is found %d times, %v: want %d", hash, len(found), err, n)
		}
	}
}

// TestAgainstModel plays random operations to the store and to a naive model
// of it, which must agree in what they refuse and in what they hold.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		st, err := store.Open(t.Context(), store.Memory)
		if err != nil {
			rt.Fatal(err)
		}
		tr := &trial{st: st, model: naive{runs: map[string]*naiveRun{}, now: noon()}, t: t}
		st.SetClock(func() time.Time { return tr.model.now })
		rt.Repeat(tr.actions())
		// Close gives back the locks; those that ran out are lost or free.
		_ = st.Close()
	})
}
