package store_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/store"
)

// end is an outcome of a cell of run "r".
func end(hash string, attempt int, state store.State) store.Cell {
	return store.Cell{RunID: "r", Hash: hash, State: state, Attempts: attempt, Ended: noon().Add(time.Second), Seconds: 1}
}

func begin(t *testing.T, st *store.Store, hash string) int {
	t.Helper()
	attempt, err := st.Begin(t.Context(), "r", hash, noon())
	if err != nil {
		t.Fatal(err)
	}
	return attempt
}

func TestBeginAndFinish(t *testing.T) {
	st := filled(t, 2)
	if attempt := begin(t, st, "c0"); attempt != 1 {
		t.Errorf("first attempt is %d: want 1", attempt)
	}
	want := store.Cell{RunID: "r", Hash: "c0", State: store.Running, Attempts: 1, Started: noon()}
	if diff := cmp.Diff(want, cellOf(t, st, "r", "c0")); diff != "" {
		t.Errorf("begun (-want +got):\n%s", diff)
	}
	failed := end("c0", 1, store.Failed)
	failed.Error, failed.Hint, failed.Result, failed.ProfileFile = "engine died", "look at its log", json.RawMessage(`[1]`), "part.jsonl"
	if err := st.Finish(t.Context(), failed); err != nil {
		t.Fatal(err)
	}
	failed.Started = noon()
	if diff := cmp.Diff(failed, cellOf(t, st, "r", "c0")); diff != "" {
		t.Errorf("failed (-want +got):\n%s", diff)
	}
	if attempt := begin(t, st, "c0"); attempt != 2 {
		t.Errorf("second attempt is %d: want 2", attempt)
	}
	want.Attempts = 2
	if diff := cmp.Diff(want, cellOf(t, st, "r", "c0")); diff != "" {
		t.Errorf("begun again, without the earlier outcome (-want +got):\n%s", diff)
	}
	done := end("c0", 2, store.Done)
	done.Result = json.RawMessage(`{"tokens": 7}`)
	for range 2 {
		if err := st.Finish(t.Context(), done); err != nil {
			t.Fatalf("the same end is said again: %v", err)
		}
	}
	again := done
	again.Result = json.RawMessage(`{"tokens": 8}`)
	if err := st.Finish(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	done.Started = noon()
	if diff := cmp.Diff(done, cellOf(t, st, "r", "c0")); diff != "" {
		t.Errorf("the first end of an attempt counts (-want +got):\n%s", diff)
	}
	if other := cellOf(t, st, "r", "c1"); other.State != store.Pending || other.Attempts != 0 {
		t.Errorf("the other cell is %+v: want it untouched", other)
	}
}

func TestRefusedChanges(t *testing.T) {
	st := filled(t, 6)
	for _, hash := range []string{"c0", "c1", "c2", "c5"} {
		begin(t, st, hash)
	}
	for _, c := range []store.Cell{end("c1", 1, store.Done), end("c2", 1, store.Failed), end("c5", 1, store.Timeout)} {
		if err := st.Finish(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	begin(t, st, "c5") // attempt 2 runs
	startAgain := func(hash string) func() error {
		return func() error { _, err := st.Begin(t.Context(), "r", hash, noon()); return err }
	}
	finish := func(c store.Cell) func() error { return func() error { return st.Finish(t.Context(), c) } }
	other := end("c0", 1, store.Done)
	other.RunID = "rr"
	broken := end("c0", 1, store.Done)
	broken.Result = json.RawMessage("{")
	tests := []struct {
		why        string
		do         func() error
		want, hint string
	}{
		{"a cell that runs is somebody's", startAgain("c0"), "is running after 1 attempts: it cannot be begun", ""},
		{"what is done is done", startAgain("c1"), "is done after 1 attempts: it cannot be begun", ""},
		{"no such cell", startAgain("c9"), `cell "c9": not in the store`, "nearest known: c"},
		{"no such run", finish(other), `run "rr": not in the store`, "nearest known: r"},
		{"a done cell does not fail later", finish(end("c1", 1, store.Failed)), "is done after 1 attempts: it cannot be set to failed for attempt 1", ""},
		{"nor in a later attempt", finish(end("c1", 2, store.Failed)), "is done", ""},
		{"a failed attempt does not become good", finish(end("c2", 1, store.Done)), "is failed", ""},
		{"nobody began a cell that is pending", finish(end("c3", 0, store.Done)), "is pending after 0 attempts", ""},
		{"an attempt that others followed is over", finish(end("c5", 1, store.Done)), "is running after 2 attempts: it cannot be set to done for attempt 1", ""},
		{"an attempt that nobody began", finish(end("c5", 3, store.Done)), "for attempt 3", ""},
		{"running is no end", finish(end("c0", 1, store.Running)), `state "running" is not an end`, ""},
		{"pending is no end", finish(end("c0", 1, store.Pending)), `state "pending" is not an end`, ""},
		{"no state is no end", finish(end("c0", 1, "")), `state "" is not an end`, ""},
		{"a state has a name", finish(end("c0", 1, "good")), `state "good"`, ""},
		{"a result is JSON", finish(broken), "the result is not JSON", ""},
	}
	before, err := st.Cells(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			wantError(t, test.do(), test.want, test.hint)
			if after, err := st.Cells(t.Context(), "r"); err != nil || !cmp.Equal(before, after) {
				t.Errorf("after the refusal (-before +after): %v\n%s", err, cmp.Diff(before, after))
			}
		})
	}
	bad, ok := errors.AsType[*store.StateError](startAgain("c1")())
	if !ok || bad.State != store.Done || bad.Hash != "c1" {
		t.Errorf("got %+v: want a StateError of the cell that is done", bad)
	}
}

func TestPendingIsGivenUp(t *testing.T) {
	st := filled(t, 1)
	c := end("c0", 0, store.Skipped)
	c.Error = "a smaller batch was out of memory"
	if err := st.Finish(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, cellOf(t, st, "r", "c0")); diff != "" {
		t.Errorf("skipped without an attempt (-want +got):\n%s", diff)
	}
}

func TestRecoverAndReset(t *testing.T) {
	st := filled(t, 5)
	for _, c := range []store.Cell{end("c0", 1, store.Done), end("c1", 1, store.Failed), end("c2", 1, store.OOM)} {
		begin(t, st, c.Hash)
		if err := st.Finish(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	begin(t, st, "c3")
	recovered, err := st.Recover(t.Context(), "r")
	want := store.Cell{RunID: "r", Hash: "c3", Index: 3, State: store.Pending, Attempts: 1}
	if err != nil || len(recovered) != 1 || !cmp.Equal(want, recovered[0]) {
		t.Errorf("recovered %+v, %v: want only the cell that was running", recovered, err)
	}
	if diff := cmp.Diff(want, cellOf(t, st, "r", "c3")); diff != "" {
		t.Errorf("recovered (-want +got):\n%s", diff)
	}
	if recovered, err := st.Recover(t.Context(), "r"); err != nil || len(recovered) != 0 {
		t.Errorf("recovered again: %v, %v: want nothing", recovered, err)
	}
	if err := st.Finish(t.Context(), end("c3", 1, store.Done)); err == nil {
		t.Error("the killed process's attempt ended after it was recovered: want a refusal")
	}
	if n, err := st.Reset(t.Context(), "r", store.Failed, store.OOM, store.Timeout, store.Pending); err != nil || n != 2 {
		t.Errorf("reset %d cells, %v: want the failed one and the one out of memory", n, err)
	}
	want = store.Cell{RunID: "r", Hash: "c1", Index: 1, State: store.Pending, Attempts: 1}
	if diff := cmp.Diff(want, cellOf(t, st, "r", "c1")); diff != "" {
		t.Errorf("reset (-want +got):\n%s", diff)
	}
	if c := cellOf(t, st, "r", "c0"); c.State != store.Done {
		t.Errorf("the done cell is %s now", c.State)
	}
	if n, err := st.Reset(t.Context(), "r"); err != nil || n != 0 {
		t.Errorf("no states: %d, %v: want nothing reset", n, err)
	}
	for state, text := range map[store.State]string{store.Done: "stays done", store.Running: "by Recover only", "odd": `state "odd"`} {
		_, err := st.Reset(t.Context(), "r", store.Failed, state)
		wantError(t, err, text, "")
	}
	_, err = st.Reset(t.Context(), "rr", store.Failed)
	wantError(t, err, `run "rr": not in the store`, "nearest known: r")
	_, err = st.Recover(t.Context(), "rr")
	wantError(t, err, `run "rr": not in the store`, "nearest known: r")
}

// TestOutlineAndCounts look at a run without what its cells have measured.
func TestOutlineAndCounts(t *testing.T) {
	st := filled(t, 3)
	begin(t, st, "c1")
	done := end("c1", 1, store.Done)
	done.Result, done.ProfileFile = json.RawMessage(`{"tokens": 7}`), "c1.json"
	if err := st.Finish(t.Context(), done); err != nil {
		t.Fatal(err)
	}
	want, err := st.Cells(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	want[1].Result = nil
	got, err := st.Outline(t.Context(), "r")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("outline: %v (-want +got):\n%s", err, diff)
	}
	counts, err := st.Counts(t.Context(), "r")
	if err != nil || !cmp.Equal(counts, map[store.State]int{store.Pending: 2, store.Done: 1}) {
		t.Errorf("counts %v, %v", counts, err)
	}
	_, err = st.Outline(t.Context(), "s")
	wantError(t, err, `run "s": not in the store`, "nearest known: r")
	_, err = st.Counts(t.Context(), "s")
	wantError(t, err, `run "s": not in the store`, "nearest known: r")
	if err := st.CreateRun(t.Context(), store.Run{ID: "empty"}, nil); err != nil {
		t.Fatal(err)
	}
	if counts, err := st.Counts(t.Context(), "empty"); err != nil || len(counts) != 0 {
		t.Errorf("a run without cells: %v, %v", counts, err)
	}
}

func TestAddCells(t *testing.T) {
	st := filled(t, 2)
	begin(t, st, "c1")
	changed := []store.Cell{{Hash: "new", Index: 0, Spec: json.RawMessage(`1`)}, {Hash: "c1", Index: 7, Spec: json.RawMessage(`2`)}}
	if n, err := st.AddCells(t.Context(), "r", changed); err != nil || n != 1 {
		t.Errorf("added %d cells, %v: want the one that is new", n, err)
	}
	cells, err := st.Cells(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	want := []store.Cell{
		{RunID: "r", Hash: "c0", State: store.Pending},
		{RunID: "r", Hash: "new", State: store.Pending, Spec: json.RawMessage(`1`)},
		{RunID: "r", Hash: "c1", Index: 1, State: store.Running, Attempts: 1, Started: noon()},
	}
	if diff := cmp.Diff(want, cells); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	if n, err := st.AddCells(t.Context(), "r", changed); err != nil || n != 0 {
		t.Errorf("added %d cells, %v: want none the second time", n, err)
	}
	_, err = st.AddCells(t.Context(), "r", []store.Cell{{Hash: "x"}, {Hash: "x"}})
	wantError(t, err, "same hash x", "")
	_, err = st.AddCells(t.Context(), "r", []store.Cell{{Hash: "x"}, {Hash: "y", Ended: time.Date(99999, 1, 1, 0, 0, 0, 0, time.UTC)}})
	wantError(t, err, "year", "")
	_, err = st.AddCells(t.Context(), "s", cellsOf(1))
	wantError(t, err, `run "s": not in the store`, "nearest known: r")
	if cells, err := st.Cells(t.Context(), "r"); err != nil || len(cells) != 3 {
		t.Errorf("after the refusals: %d cells, %v: want 3", len(cells), err)
	}
	_, err = st.Cells(t.Context(), "s")
	wantError(t, err, `run "s": not in the store`, "nearest known: r")
}

func TestFindCells(t *testing.T) {
	st := filled(t, 2)
	if err := st.CreateRun(t.Context(), store.Run{ID: "later", Created: noon().Add(time.Hour)}, []store.Cell{{Hash: "c1", State: store.Done}}); err != nil {
		t.Fatal(err)
	}
	cells, err := st.FindCells(t.Context(), "c1")
	if err != nil || len(cells) != 2 || cells[0].RunID != "later" || cells[0].State != store.Done || cells[1].RunID != "r" {
		t.Errorf("found %+v, %v: want those of run later and run r, newest first", cells, err)
	}
	if cells, err := st.FindCells(t.Context(), "c"); err != nil || len(cells) != 0 {
		t.Errorf("a part of a hash finds %v, %v: want nothing", cells, err)
	}
}

func TestCancelledLeavesNothing(t *testing.T) {
	st := filled(t, 1)
	ctx, cancel := contextCancelled(t)
	defer cancel()
	if _, err := st.Begin(ctx, "r", "c0", noon()); !errors.Is(err, ctx.Err()) {
		t.Errorf("begin under a cancelled context: %v: want %v", err, ctx.Err())
	}
	if c := cellOf(t, st, "r", "c0"); c.State != store.Pending || c.Attempts != 0 {
		t.Errorf("the cell is %+v: want it untouched", c)
	}
}

// TestReplace: a cell that has no result can become another one, in its place.
func TestReplace(t *testing.T) {
	other := store.Cell{Hash: "new", Spec: json.RawMessage(`{"n":2}`), Index: 9}
	for _, c := range []struct {
		why, hash string
		with      store.Cell
		state     store.State // before; empty for one that was not begun
		ok        bool
	}{
		{"one that waits", "c1", other, "", true},
		{"one that failed: its outcome goes", "c1", other, store.Failed, true},
		{"other settings, the same hash", "c1", store.Cell{Hash: "c1", Spec: json.RawMessage(`{"n":3}`)}, "", true},
		{"a result stays", "c1", other, store.Done, false},
		{"what runs stays", "c1", other, store.Running, false},
		{"no second one of a hash", "c1", store.Cell{Hash: "c0"}, "", false},
		{"no cell of that hash", "c7", other, "", false},
		{"no JSON", "c1", store.Cell{Hash: "new", Spec: json.RawMessage(`{`)}, "", false},
	} {
		t.Run(c.why, func(t *testing.T) {
			st := filled(t, 3)
			want := store.Cell{RunID: "r", Hash: c.with.Hash, Index: 1, Spec: c.with.Spec, State: store.Pending}
			if c.state != "" {
				want.Attempts = begin(t, st, "c1")
			}
			if c.state.Ended() && c.state != "" {
				failed := end("c1", 1, c.state)
				failed.Error, failed.Result = "died", json.RawMessage(`[1]`)
				if err := st.Finish(t.Context(), failed); err != nil {
					t.Fatal(err)
				}
			}
			before, err := st.Cells(t.Context(), "r")
			if err != nil {
				t.Fatal(err)
			}
			err = st.Replace(t.Context(), "r", c.hash, c.with)
			if !c.ok {
				after, _ := st.Cells(t.Context(), "r")
				if diff := cmp.Diff(before, after); err == nil || diff != "" {
					t.Errorf("%v: want an error, and nothing changed (-before +after):\n%s", err, diff)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, cellOf(t, st, "r", c.with.Hash)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if counts, err := st.Counts(t.Context(), "r"); err != nil || counts[store.Pending] != 3 {
				t.Errorf("%v, %v: want 3 pending cells", counts, err)
			}
		})
	}
}
