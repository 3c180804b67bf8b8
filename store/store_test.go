package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/store"
)

// noon is when everything in these tests happens.
func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC) }

// open opens a store that is closed with the test.
func open(t *testing.T, path string) *store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

// filled is a store in memory with run "r" of n pending cells c0, c1, ….
func filled(t *testing.T, n int) *store.Store {
	t.Helper()
	st := open(t, store.Memory)
	if err := st.CreateRun(t.Context(), store.Run{ID: "r", Created: noon()}, cellsOf(n)); err != nil {
		t.Fatal(err)
	}
	return st
}

func cellsOf(n int) []store.Cell {
	var cells []store.Cell
	for i := range n {
		cells = append(cells, store.Cell{Hash: fmt.Sprintf("c%d", i), Index: i})
	}
	return cells
}

// cellOf reads one cell back.
func cellOf(t *testing.T, st *store.Store, runID, hash string) store.Cell {
	t.Helper()
	cells, err := st.Cells(t.Context(), runID)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(cells, func(c store.Cell) bool { return c.Hash == hash })
	if i < 0 {
		t.Fatalf("run %s has no cell %s", runID, hash)
	}
	return cells[i]
}

// hintOf is the advice that an error carries.
func hintOf(err error) string {
	var advised interface{ Hint() string }
	if errors.As(err, &advised) {
		return advised.Hint()
	}
	return ""
}

// codeOf is the exit code that an error carries.
func codeOf(err error) int {
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return 0
}

// wantError checks an error's text and advice.
func wantError(t *testing.T, err error, text, hint string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v: want it to say %q", err, text)
	}
	if got := hintOf(err); !strings.Contains(got, hint) {
		t.Errorf("hint %q of %v: want it to say %q", got, err, hint)
	}
}

// TestRoundTrip puts everything that a run can hold into a file and reads it
// back from the file.
func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new folder", "a?b%20#c.db")
	run := store.Run{
		ID: "2026-03-01T12-00-ab", Kind: "batch", Name: "næme \"quoted\"", Source: "grid.yaml", Tool: "llmprof 1.0", Host: "node-1",
		Config: []byte("models:\n  - \xff\x00\n"), Settings: json.RawMessage(`{ "a": [1, 2] }`), Created: noon(),
	}
	cells := []store.Cell{
		{Hash: "b", Index: 1, Spec: json.RawMessage(`{"batch":8}`), State: store.Pending},
		{
			RunID: "another", Hash: "a", Index: 0, Spec: json.RawMessage(`null`), State: store.OOM, Attempts: 3, Error: "out of\nmemory\x00!", Hint: "less",
			Result: json.RawMessage(`{"peak":1e9}`), ProfileFile: "p.jsonl.gz", Started: noon(), Ended: noon().Add(time.Minute), Seconds: 60.125,
		},
	}
	st, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(st.CreateRun(t.Context(), run, cells), st.Close()); err != nil {
		t.Fatal(err)
	}
	st = open(t, path)
	got, err := st.Run(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.Updated.Before(noon()) {
		t.Errorf("updated at %s: want a time after it was created", got.Updated)
	}
	got.Updated = time.Time{}
	if diff := cmp.Diff(run, got); diff != "" {
		t.Errorf("run (-put +got):\n%s", diff)
	}
	gotCells, err := st.Cells(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(cells) // by index
	for i := range cells {
		cells[i].RunID = run.ID
	}
	if diff := cmp.Diff(cells, gotCells); diff != "" {
		t.Errorf("cells (-put +got):\n%s", diff)
	}
}

func TestCreateRunRefuses(t *testing.T) {
	good := store.Run{ID: "new"}
	cell := func(change func(*store.Cell)) []store.Cell {
		cells := cellsOf(3)
		change(&cells[1])
		return cells
	}
	tests := []struct {
		why   string
		run   store.Run
		cells []store.Cell
		want  string
		hint  string
	}{
		{"a run without an id cannot be found again", store.Run{}, nil, "the id is empty", ""},
		{"an id is typed at a terminal", store.Run{ID: "a\nb"}, nil, "cannot be printed", ""},
		{"an id is text", store.Run{ID: "a\xff"}, nil, "not UTF-8", ""},
		{"an id has an end", store.Run{ID: strings.Repeat("x", 201)}, nil, "201 bytes", ""},
		{"an id names one run", store.Run{ID: "r"}, nil, "a run of this id", "go on with r"},
		{"settings are JSON", store.Run{ID: "new", Settings: json.RawMessage("{")}, nil, "settings is not JSON", ""},
		{"a time has a year of four digits", store.Run{ID: "new", Created: time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC)}, nil, "year", ""},
		{"a cell has a hash", good, cell(func(c *store.Cell) { c.Hash = "" }), "cell 1: the hash is empty", ""},
		{"a hash is one cell", good, cell(func(c *store.Cell) { c.Hash = "c0" }), "cells 0 and 1 have the same hash c0", ""},
		{"a spec is JSON", good, cell(func(c *store.Cell) { c.Spec = json.RawMessage("x") }), "cell 1: the spec is not JSON", ""},
		{"a result is JSON", good, cell(func(c *store.Cell) { c.Result = json.RawMessage("x") }), "the result is not JSON", ""},
		{"states are known", good, cell(func(c *store.Cell) { c.State = "happy" }), `state "happy"`, ""},
		{"only Begin makes a cell run", good, cell(func(c *store.Cell) { c.State = store.Running }), "by Begin only", ""},
		{"an index counts from 0", good, cell(func(c *store.Cell) { c.Index = -1 }), "index -1", ""},
		{"attempts count from 0", good, cell(func(c *store.Cell) { c.Attempts = -1 }), "attempts -1", ""},
		{"NaN is no time", good, cell(func(c *store.Cell) { c.Seconds = math.NaN() }), "seconds NaN", ""},
		{"infinity is no time", good, cell(func(c *store.Cell) { c.Seconds = math.Inf(1) }), "seconds +Inf", ""},
		{"a cell's time has a year of four digits", good, cell(func(c *store.Cell) { c.Ended = time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC) }), "year", ""},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			st := filled(t, 1)
			wantError(t, st.CreateRun(t.Context(), test.run, test.cells), test.want, test.hint)
			if runs, err := st.Runs(t.Context()); err != nil || len(runs) != 1 || runs[0].Counts[store.Pending] != 1 {
				t.Errorf("after the refusal: %v, %v: want the one run as it was", runs, err)
			}
		})
	}
}

func TestRuns(t *testing.T) {
	st := open(t, store.Memory)
	if runs, err := st.Runs(t.Context()); err != nil || len(runs) != 0 {
		t.Errorf("an empty store lists %v, %v", runs, err)
	}
	for i, id := range []string{"old", "empty", "young"} {
		cells := []store.Cell{
			{Hash: "a", State: store.Done, Seconds: 2},
			{Hash: "b", State: store.Done, Seconds: 3},
			{Hash: "c", State: store.Failed, Seconds: 0.5},
			{Hash: "d"},
		}
		if id == "empty" {
			cells = nil
		}
		if err := st.CreateRun(t.Context(), store.Run{ID: id, Created: noon().Add(time.Duration(i) * time.Nanosecond)}, cells); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := st.Runs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range runs {
		states := slices.Sorted(maps.Keys(r.Counts))
		line := r.Run.ID
		for _, s := range states {
			line += fmt.Sprintf(" %s=%d", s, r.Counts[s])
		}
		got = append(got, fmt.Sprintf("%s %gs", line, r.Seconds))
	}
	want := []string{"young done=2 failed=1 pending=1 5.5s", "empty 0s", "old done=2 failed=1 pending=1 5.5s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runs, newest first (-want +got):\n%s", diff)
	}
}

func TestFindRun(t *testing.T) {
	st := open(t, store.Memory)
	_, err := st.Run(t.Context(), "x")
	wantError(t, err, `run "x": not in the store`, "the store has no run yet")
	for _, id := range []string{"alpha", "alphabet", "beta_1", "beta%2"} {
		if err := st.CreateRun(t.Context(), store.Run{ID: id}, nil); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct{ why, id, want, fault, hint string }{
		{"the whole id", "beta_1", "beta_1", "", ""},
		{"an id that is also the beginning of another", "alpha", "alpha", "", ""},
		{"a beginning that one id has", "alphab", "alphabet", "", ""},
		{"wildcards of SQL are letters like others", "beta_", "beta_1", "", ""},
		{"the other wildcard too", "beta%", "beta%2", "", ""},
		{"a beginning that two ids have", "alp", "", "alpha, alphabet", "write more"},
		{"a misspelt id", "alphabte", "", "not in the store", "nearest known: alphabet"},
		{"upper case is another id", "Beta_1", "", "not in the store", "beta_1"},
		{"nothing is the beginning of all, and no name", "", "", "not in the store", "nearest"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			run, err := st.Run(t.Context(), test.id)
			if run.ID != test.want {
				t.Errorf("%q finds %q: want %q", test.id, run.ID, test.want)
			}
			if test.fault == "" && err != nil {
				t.Error(err)
			} else if test.fault != "" {
				wantError(t, err, test.fault, test.hint)
			}
		})
	}
}

func TestDeleteRun(t *testing.T) {
	st := filled(t, 3)
	if err := st.CreateRun(t.Context(), store.Run{ID: "kept"}, cellsOf(1)); err != nil {
		t.Fatal(err)
	}
	release, err := st.Lock(t.Context(), "r", "me", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, st.DeleteRun(t.Context(), "r"), "in use by me", "stop it")
	if err := release(); err != nil {
		t.Fatal(err)
	}
	wantError(t, st.DeleteRun(t.Context(), "kep"), "not in the store", "nearest known: kept")
	if err := st.DeleteRun(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	if cells, err := st.FindCells(t.Context(), "c0"); err != nil || len(cells) != 1 || cells[0].RunID != "kept" {
		t.Errorf("cells left: %v, %v: want the one of run kept", cells, err)
	}
	wantError(t, st.DeleteRun(t.Context(), "r"), "not in the store", "kept")
}
