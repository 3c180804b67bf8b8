package campaign_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/store"
)

// script is a Runner whose loads and cells do what a test says. Nil funcs
// succeed.
type script struct {
	load  func(n int, g campaign.Group) error
	cell  func(ctx context.Context, n int, c campaign.Cell) (campaign.Result, error)
	close func() error

	loads, runs, open int
	log               []string // what was asked for, in order
}

func (s *script) Load(_ context.Context, g campaign.Group) (campaign.Engine, error) {
	s.loads++
	s.log = append(s.log, "load "+g.Cells[0].ModelID)
	if s.load != nil {
		if err := s.load(s.loads, g); err != nil {
			return nil, err
		}
	}
	s.open++
	return &scripted{s}, nil
}

type scripted struct{ *script }

func (e *scripted) Run(ctx context.Context, c campaign.Cell) (campaign.Result, error) {
	e.runs++
	e.log = append(e.log, fmt.Sprintf("run %s %d/%d/%d", c.ModelID, c.InputLen, c.OutputLen, c.BatchSize))
	if e.cell == nil {
		return measured(c), nil
	}
	return e.cell(ctx, e.runs, c)
}

func (e *scripted) Close(context.Context) error {
	e.open--
	e.log = append(e.log, "close")
	if e.close != nil {
		return e.close()
	}
	return nil
}

func measured(c campaign.Cell) campaign.Result {
	return campaign.Result{Document: json.RawMessage(fmt.Sprintf(`{"batch":%d}`, c.BatchSize)), ProfileFile: c.Name() + ".json"}
}

// grid is a campaign of models in a store.
type grid struct {
	t     *testing.T
	store *store.Store
	cells []campaign.Cell
}

// cellsOf makes cells "model@place input/output/batch".
func cellsOf(specs ...string) []campaign.Cell {
	var cells []campaign.Cell
	for _, spec := range specs {
		c := campaign.Defaults()
		c.DType = "float16"
		name, sizes, _ := strings.Cut(spec, " ")
		c.ModelID, c.Place, _ = strings.Cut(name, "@")
		c.Place = "docker:" + c.Place
		_, _ = fmt.Sscanf(sizes, "%d/%d/%d", &c.InputLen, &c.OutputLen, &c.BatchSize)
		cells = append(cells, c)
	}
	return cells
}

func newGrid(t *testing.T, specs ...string) *grid {
	t.Helper()
	st, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	g := &grid{t: t, store: st, cells: cellsOf(specs...)}
	if err := campaign.Create(t.Context(), st, store.Run{ID: "r", Kind: "batch", Name: "test"}, g.cells); err != nil {
		t.Fatal(err)
	}
	return g
}

// run runs the campaign with a clock that does not wait.
func (g *grid) run(ctx context.Context, r campaign.Runner, change func(*campaign.Options)) (campaign.Outcome, error) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	o := campaign.Options{
		Store: g.store, RunID: "r", Runner: r,
		Now:   func() time.Time { now = now.Add(time.Second); return now },
		Sleep: func(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) },
	}
	if change != nil {
		change(&o)
	}
	return campaign.Run(ctx, o)
}

// states are the cells' states in the order in which they were made, each with
// its attempts.
func (g *grid) states() string {
	g.t.Helper()
	rows, err := g.store.Cells(g.t.Context(), "r")
	if err != nil {
		g.t.Fatal(err)
	}
	var states []string
	for _, row := range rows {
		states = append(states, fmt.Sprintf("%s:%d", row.State, row.Attempts))
	}
	return strings.Join(states, " ")
}

func (g *grid) row(i int) store.Cell {
	g.t.Helper()
	rows, err := g.store.Cells(g.t.Context(), "r")
	if err != nil {
		g.t.Fatal(err)
	}
	return rows[i]
}

func TestRunOrder(t *testing.T) {
	g := newGrid(t, "m@one 2/1/1", "n@two 1/1/1", "m@one 1/1/1", "k@one 1/1/2")
	s := &script{}
	var told []string
	out, err := g.run(t.Context(), s, func(o *campaign.Options) {
		o.Hooks = campaign.Hooks{
			GroupStarted: func(g campaign.Group, n, of int) {
				told = append(told, fmt.Sprintf("group %d/%d of %d", n, of, len(g.Cells)))
			},
			CellStarted: func(c campaign.Cell, attempt int) {
				told = append(told, fmt.Sprintf("start %s:%d", c.ModelID, attempt))
			},
			CellDone: func(c campaign.Cell, end store.Cell) { told = append(told, fmt.Sprintf("%s %s", end.State, c.ModelID)) },
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(s.log, ", "), "load m, run m 1/1/1, run m 2/1/1, close, load k, run k 1/1/2, close, load n, run n 1/1/1, close"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := strings.Join(told, ", "), "group 1/3 of 2, start m:1, done m, start m:1, done m, group 2/3 of 1, start k:1, done k, group 3/3 of 1, start n:1, done n"; got != want {
		t.Errorf("told %s\nwant %s", got, want)
	}
	if got := g.states(); got != "done:1 done:1 done:1 done:1" {
		t.Errorf("states %s", got)
	}
	if !out.Complete() || !out.Succeeded() || out.Total != 4 || out.Loads != 3 || out.Selected != 4 || s.open != 0 {
		t.Errorf("outcome %+v, engines open %d", out, s.open)
	}
	row := g.row(0)
	if string(row.Result) != `{"batch":1}` || !strings.HasSuffix(row.ProfileFile, "_2in_1out_bs1.json") || row.Seconds != 1 || !row.Ended.After(row.Started) {
		t.Errorf("row %+v", row)
	}
	// A second call finds nothing to do.
	if out, err := g.run(t.Context(), &script{load: func(int, campaign.Group) error { return errors.New("not wanted") }}, nil); err != nil || out.Selected != 0 || out.Loads != 0 || !out.Complete() {
		t.Errorf("again: %+v, %v", out, err)
	}
}

// TestFailures scripts what can go wrong. States are those of the cells in
// the order of the grid, each with its attempts.
func TestFailures(t *testing.T) {
	crash := errors.New("the engine died")
	fails := func(f *campaign.CellError, when func(n int, c campaign.Cell) bool) func(context.Context, int, campaign.Cell) (campaign.Result, error) {
		return func(_ context.Context, n int, c campaign.Cell) (campaign.Result, error) {
			if when(n, c) {
				return campaign.Result{}, f
			}
			return measured(c), nil
		}
	}
	outOfMemory := func() error { return &campaign.CellError{State: store.OOM, Err: errors.New("out of memory")} }
	batch := func(b int) func(int, campaign.Cell) bool {
		return func(_ int, c campaign.Cell) bool { return c.BatchSize == b }
	}
	three := []string{"m@one 1/1/1", "m@one 1/1/2", "m@one 1/1/3"}
	for _, c := range []struct {
		why    string
		cells  []string
		runner script
		states string
		loads  int
		says   string // in the error of the first cell that is not done
	}{
		{
			why: "a cell that kills the engine every time fails; the others run on new engines", cells: three,
			runner: script{cell: fails(&campaign.CellError{Err: crash}, batch(2))},
			states: "done:1 failed:3 done:1", loads: 4, says: "the engine died",
		},
		{
			why: "a flaky cell gets there", cells: three,
			runner: script{cell: fails(&campaign.CellError{Err: crash}, func(n int, _ campaign.Cell) bool { return n == 2 || n == 3 })},
			states: "done:1 done:3 done:1", loads: 3,
		},
		{
			why: "a plain error counts like a crash", cells: three,
			runner: script{cell: func(_ context.Context, n int, c campaign.Cell) (campaign.Result, error) {
				if n == 1 {
					return campaign.Result{}, crash
				}
				return measured(c), nil
			}},
			states: "done:2 done:1 done:1", loads: 2,
		},
		{
			why: "an engine that lives on is kept", cells: three,
			runner: script{cell: fails(&campaign.CellError{Err: crash, Alive: true}, func(n int, _ campaign.Cell) bool { return n == 1 })},
			states: "done:2 done:1 done:1", loads: 1,
		},
		{
			why: "what would fail again is not tried again", cells: three,
			runner: script{cell: fails(&campaign.CellError{Err: crash, Final: true, Alive: true}, batch(2))},
			states: "done:1 failed:1 done:1", loads: 1, says: "died",
		},
		{
			why: "wrong usage is not tried again", cells: three[:1],
			runner: script{cell: func(context.Context, int, campaign.Cell) (campaign.Result, error) {
				return campaign.Result{}, fmt.Errorf("ask: %w", &campaign.FileError{Faults: []*campaign.LineError{{Text: "bad flag"}}})
			}},
			states: "failed:1", loads: 1, says: "ask: bad flag",
		},
		{
			why: "nor where the engine says so", cells: three[:1],
			runner: script{cell: fails(&campaign.CellError{Alive: true, Err: &campaign.SelectError{Why: "unknown"}}, batch(1))},
			states: "failed:1", loads: 1, says: "unknown",
		},
		{
			why: "nor is a start", cells: three[:2],
			runner: script{load: func(int, campaign.Group) error {
				return &campaign.CellError{Err: &campaign.SelectError{Why: "unknown"}}
			}},
			states: "failed:0 failed:0", loads: 1, says: "unknown",
		},
		{
			why: "a refused cell is refused once", cells: three,
			runner: script{cell: fails(&campaign.CellError{State: store.Refused, Err: errors.New("too long a prompt"), Alive: true}, batch(2))},
			states: "done:1 refused:1 done:1", loads: 1, says: "too long a prompt",
		},
		{
			why:    "after too little memory only what is smaller in some dimension runs",
			cells:  []string{"m@one 8/8/1", "m@one 2/2/4", "m@one 2/3/4", "m@one 9/9/4", "m@one 1/9/9"},
			runner: script{cell: fails(&campaign.CellError{State: store.OOM, Err: errors.New("CUDA out of memory")}, batch(4))},
			states: "done:1 oom:1 skipped:0 skipped:0 done:1", loads: 2, says: "CUDA out of memory",
		},
		{
			why: "a load that the engine refuses refuses its group, in its words", cells: append([]string{"n@one 1/1/1"}, three...),
			runner: script{load: func(_ int, g campaign.Group) error {
				if g.Cells[0].ModelID == "m" {
					return &campaign.CellError{State: store.Refused, Err: errors.New("No common block size for 16")}
				}
				return nil
			}},
			states: "done:1 refused:0 refused:0 refused:0", loads: 2, says: "No common block size for 16",
		},
		{
			why: "a load without memory", cells: append([]string{"n@one 1/1/1"}, three...),
			runner: script{load: func(_ int, g campaign.Group) error {
				if g.Cells[0].ModelID == "m" {
					return &campaign.CellError{State: store.OOM, Err: errors.New("out of memory")}
				}
				return nil
			}},
			states: "done:1 oom:0 oom:0 oom:0", loads: 2, says: "out of memory",
		},
		{
			why: "an engine that died still holds its memory when the next one starts: that passes", cells: three,
			runner: script{
				load: func(n int, _ campaign.Group) error {
					if n == 2 || n == 3 {
						return outOfMemory()
					}
					return nil
				},
				cell: fails(&campaign.CellError{Err: crash}, func(n int, _ campaign.Cell) bool { return n == 2 }),
			},
			states: "done:1 done:2 done:1", loads: 4,
		},
		{
			why: "memory that stays taken after a crash is a failure: it says nothing of the cells", cells: three,
			runner: script{
				load: func(n int, _ campaign.Group) error {
					if n > 1 {
						return outOfMemory()
					}
					return nil
				},
				cell: fails(&campaign.CellError{Err: crash}, batch(2)),
			},
			states: "done:1 failed:1 failed:0", loads: 4, says: "start the engine again: out of memory",
		},
		{
			why: "so it is after a cell that had too little memory", cells: []string{"m@one 1/1/4", "m@one 8/1/1"},
			runner: script{
				load: func(n int, _ campaign.Group) error {
					if n == 2 {
						return outOfMemory()
					}
					return nil
				},
				cell: fails(&campaign.CellError{State: store.OOM, Err: errors.New("CUDA out of memory")}, batch(4)),
			},
			states: "oom:1 done:1", loads: 3, says: "CUDA out of memory",
		},
		{
			why: "and after a first start that died half-way", cells: three[:1],
			runner: script{load: func(n int, _ campaign.Group) error {
				switch n {
				case 1:
					return crash
				case 2:
					return outOfMemory()
				}
				return nil
			}},
			states: "done:1", loads: 3,
		},
		{
			why: "a load that fails for good fails its group only", cells: append(three[:2:2], "n@one 1/1/1"),
			runner: script{load: func(_ int, g campaign.Group) error {
				if g.Cells[0].ModelID == "m" {
					return errors.New("no such module")
				}
				return nil
			}},
			states: "failed:0 failed:0 done:1", loads: 4, says: "no such module",
		},
		{
			why: "a load that works the third time", cells: three,
			runner: script{load: func(n int, _ campaign.Group) error {
				if n < 3 {
					return crash
				}
				return nil
			}},
			states: "done:1 done:1 done:1", loads: 3,
		},
		{
			why: "a container that is missing costs its own cells only", cells: []string{"m@gone 1/1/1", "n@gone 1/1/1", "m@there 1/1/1"},
			runner: script{load: func(_ int, g campaign.Group) error {
				if g.Cells[0].Place == "docker:gone" {
					return &campaign.CellError{Outside: true, Final: true, Err: errors.New("no container gone")}
				}
				return nil
			}},
			states: "cancelled:0 cancelled:0 done:1", loads: 2, says: "docker:gone cannot be used: no container gone",
		},
		{
			why: "a container that goes away in the middle", cells: []string{"m@gone 1/1/1", "m@gone 1/1/2", "n@gone 1/1/1", "m@there 1/1/1"},
			runner: script{
				load: func(n int, g campaign.Group) error {
					if g.Cells[0].Place == "docker:gone" && n > 1 {
						return &campaign.CellError{Outside: true, Err: errors.New("no container gone")}
					}
					return nil
				},
				cell: func(_ context.Context, n int, c campaign.Cell) (campaign.Result, error) {
					if n == 2 {
						return campaign.Result{}, &campaign.CellError{Outside: true, Err: errors.New("connection lost")}
					}
					return measured(c), nil
				},
			},
			states: "done:1 cancelled:1 cancelled:0 done:1", loads: 5, says: "no container gone",
		},
		{
			why: "a device that is not free again ends its place", cells: []string{"m@one 1/1/1", "n@one 1/1/1", "m@two 1/1/1"},
			runner: script{close: func() error { return &campaign.CellError{Outside: true, Err: errors.New("70 GiB are still in use")} }},
			states: "done:1 cancelled:0 done:1", loads: 2, says: "70 GiB are still in use",
		},
		{
			why: "success without a profile is none", cells: three[:1],
			runner: script{cell: func(context.Context, int, campaign.Cell) (campaign.Result, error) { return campaign.Result{}, nil }},
			states: "failed:3", loads: 1, says: "there is no profile",
		},
		{
			why: "a runner without an engine", cells: three[:1],
			runner: script{load: func(int, campaign.Group) error { return &campaign.CellError{} }},
			states: "failed:0", loads: 3, says: "the cell ended as failed",
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			g := newGrid(t, c.cells...)
			s := c.runner
			out, err := g.run(t.Context(), &s, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := g.states(); got != c.states || s.loads != c.loads || out.Loads != c.loads || s.open != 0 {
				t.Errorf("states %s, want %s; loads %d, want %d; engines open %d\n%s", got, c.states, s.loads, c.loads, s.open, strings.Join(s.log, ", "))
			}
			for i := range c.cells {
				if row := g.row(i); row.State != store.Done {
					if !strings.Contains(row.Error, c.says) {
						t.Errorf("error %q, want %q", row.Error, c.says)
					}
					break
				}
			}
			total := 0
			for _, n := range out.Ended {
				total += n
			}
			if total != len(c.cells) || out.Selected != total || out.Total != total {
				t.Errorf("outcome %+v", out)
			}
		})
	}
}

// TestRetryPauses holds the growth of the pauses.
func TestRetryPauses(t *testing.T) {
	g := newGrid(t, "m@one 1/1/1")
	var pauses []time.Duration
	_, err := g.run(t.Context(), &script{cell: func(context.Context, int, campaign.Cell) (campaign.Result, error) {
		return campaign.Result{}, errors.New("no luck")
	}}, func(o *campaign.Options) {
		o.Retry = campaign.Retry{Attempts: 6, MaxBackoff: 30 * time.Second}
		o.Sleep = func(_ context.Context, d time.Duration) error { pauses = append(pauses, d); return nil }
	})
	if got := fmt.Sprint(pauses); err != nil || got != "[5s 10s 20s 30s 30s]" {
		t.Errorf("%s, %v", got, err)
	}
}

func TestTimeout(t *testing.T) {
	g := newGrid(t, "m@one 1/1/1", "m@one 1/1/2")
	s := &script{cell: func(ctx context.Context, _ int, c campaign.Cell) (campaign.Result, error) {
		if c.BatchSize == 1 {
			<-ctx.Done()
			return campaign.Result{}, ctx.Err()
		}
		return measured(c), nil
	}}
	// The bound must not hit the cell that does not hang.
	out, err := g.run(t.Context(), s, func(o *campaign.Options) { o.CellTimeout = 5 * time.Second })
	if err != nil || g.states() != "timeout:1 done:1" || s.loads != 2 || s.open != 0 || out.Ended[store.Timeout] != 1 {
		t.Errorf("states %s, loads %d, %+v, %v", g.states(), s.loads, out, err)
	}
	if row := g.row(0); !strings.Contains(row.Error, "stopped after 5s") || row.Hint == "" {
		t.Errorf("row %+v", row)
	}
}

func TestOnly(t *testing.T) {
	g := newGrid(t, "m@one 1/1/1", "m@one 1/1/2", "n@one 1/1/1")
	only := func(expr string) func(*campaign.Options) {
		f, err := campaign.Select(expr)
		if err != nil {
			t.Fatal(err)
		}
		return func(o *campaign.Options) { o.Only = f }
	}
	out, err := g.run(t.Context(), &script{}, only("batch=2"))
	if err != nil || g.states() != "pending:0 done:1 pending:0" || out.Selected != 1 || !out.Succeeded() || out.Complete() {
		t.Errorf("states %s, %+v, %v", g.states(), out, err)
	}
	broken := &script{load: func(int, campaign.Group) error {
		return &campaign.CellError{State: store.Refused, Err: errors.New("no")}
	}}
	if _, err := g.run(t.Context(), broken, only("model=m")); err != nil || g.states() != "refused:0 done:1 pending:0" {
		t.Errorf("states %s, %v", g.states(), err)
	}
	if _, err := g.run(t.Context(), &script{}, only("state=refused|done")); err != nil || g.states() != "done:1 done:1 pending:0" {
		t.Errorf("states %s, %v", g.states(), err)
	}
}

// TestMemoryOfOOM: what had too little memory in an earlier call still spares the
// larger cells of its group, and them alone.
func TestMemoryOfOOM(t *testing.T) {
	g := newGrid(t, "m@c 1/1/2", "m@c 1/1/4", "m@c 8/1/1", "n@c 1/1/4")
	first := &script{cell: func(context.Context, int, campaign.Cell) (campaign.Result, error) {
		return campaign.Result{}, &campaign.CellError{State: store.OOM, Err: errors.New("CUDA out of memory")}
	}}
	only, err := campaign.Select("model=m,batch=2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.run(t.Context(), first, func(o *campaign.Options) { o.Only = only }); err != nil {
		t.Fatal(err)
	}
	if _, err := g.run(t.Context(), &script{}, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := g.states(), "oom:1 skipped:0 done:1 done:1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestExtend adds the cells of a changed file.
func TestExtend(t *testing.T) {
	g := newGrid(t, "m@one 1/1/1", "m@one 1/1/2")
	if _, err := g.run(t.Context(), &script{}, nil); err != nil {
		t.Fatal(err)
	}
	n, err := campaign.Extend(t.Context(), g.store, "r", cellsOf("m@one 1/1/2", "m@one 1/1/4"))
	if err != nil || n != 1 {
		t.Fatalf("%d, %v", n, err)
	}
	s := &script{}
	out, err := g.run(t.Context(), s, nil)
	if err != nil || s.runs != 1 || out.Total != 3 || !out.Complete() {
		t.Errorf("%d runs, %+v, %v", s.runs, out, err)
	}
}

// TestPreparedUnderTheLock: what is to run again and what is new is settled once
// the run is taken, and not while another has it.
func TestPreparedUnderTheLock(t *testing.T) {
	g := newGrid(t, "m@one 1/1/1", "m@one 1/1/2", "m@one 1/1/3")
	if _, err := g.run(t.Context(), &script{cell: func(_ context.Context, _ int, c campaign.Cell) (campaign.Result, error) {
		if c.BatchSize == 2 {
			return campaign.Result{}, &campaign.CellError{Final: true, Alive: true, Err: errors.New("no luck")}
		}
		return measured(c), nil
	}}, nil); err != nil || g.states() != "done:1 failed:1 done:1" {
		t.Fatalf("%s, %v", g.states(), err)
	}
	var ready []campaign.Outcome
	again := func(o *campaign.Options) {
		o.Reset, o.Extend = []store.State{store.Failed, store.Timeout}, cellsOf("m@one 1/1/2", "m@one 1/1/9")
		o.Hooks.Ready = func(out campaign.Outcome) { ready = append(ready, out) }
	}
	release, err := g.store.Lock(t.Context(), "r", "somebody", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.run(t.Context(), &script{}, again); err == nil || g.states() != "done:1 failed:1 done:1" || len(ready) > 0 {
		t.Errorf("while somebody has it: %s, %v", g.states(), err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	out, err := g.run(t.Context(), &script{}, again)
	if err != nil || !out.Complete() || out.Total != 4 || out.Reset != 1 || out.Added != 1 || out.Selected != 2 {
		t.Errorf("%s, %+v, %v", g.states(), out, err)
	}
	if len(ready) != 1 || ready[0].Reset != 1 || ready[0].Added != 1 || ready[0].Selected != 2 || ready[0].Loads != 0 {
		t.Errorf("told %+v", ready)
	}
	if _, err := g.run(t.Context(), &script{}, func(o *campaign.Options) { o.Reset = []store.State{store.Done} }); err == nil {
		t.Error("what is done was reset")
	}
}

// TestSettings: a run goes on with the settings that it began with.
func TestSettings(t *testing.T) {
	for _, c := range []struct {
		why, stored, now string
		says             string // empty: they are equal
	}{
		{"the same in another order", `{"program":"a","n":2}`, `{ "n": 2, "program": "a" }`, ""},
		{"what is left out is not set", `{"program":"a","image":"","n":0}`, `{"program":"a"}`, ""},
		{"an older run has none", "", `{"program":"a"}`, ""},
		{"nothing is asked for", `{"program":"a"}`, "", ""},
		{"another value", `{"program":"a"}`, `{"program":"b"}`, `run r began with other settings: program was "a" and is "b"`},
		{"one more", `{"program":"a"}`, `{"program":"a","image":"v1"}`, `image was not set and is "v1"`},
		{"one less, and another", `{"program":"a","n":1}`, `{"n":12345678901234567890}`, `n was 1 and is 12345678901234567890; program was "a" and is not set`},
		{"no object", `{}`, `[1]`, "want a JSON object"},
	} {
		t.Run(c.why, func(t *testing.T) {
			g := newGrid(t)
			raw := func(text string) json.RawMessage {
				if text == "" {
					return nil
				}
				return json.RawMessage(text)
			}
			if err := campaign.Create(t.Context(), g.store, store.Run{ID: "set", Settings: raw(c.stored)}, cellsOf("m@one 1/1/1")); err != nil {
				t.Fatal(err)
			}
			var notes []string
			set := func(o *campaign.Options) {
				o.RunID, o.Settings = "set", raw(c.now)
				o.Extend = cellsOf("m@one 1/1/2")
				o.Hooks.Note = func(text string) { notes = append(notes, text) }
			}
			out, err := g.run(t.Context(), &script{}, set)
			if c.says == "" {
				if err != nil || !out.Complete() || out.Total != 2 || len(notes) > 0 {
					t.Errorf("%+v, %v, notes %q", out, err, notes)
				}
				return
			}
			says := strings.ReplaceAll(c.says, "run r ", "run set ")
			if err == nil || !strings.Contains(err.Error(), says) || out.Total != 1 || out.Counts[store.Pending] != 1 {
				t.Errorf("%+v, %v: want an error with %q, and nothing changed", out, err, says)
			}
			bad, ok := errors.AsType[*campaign.SettingsError](err)
			if !ok {
				return
			}
			if bad.ExitCode() != 2 || bad.Hint() == "" {
				t.Errorf("exit code %d, hint %q", bad.ExitCode(), bad.Hint())
			}
			out, err = g.run(t.Context(), &script{}, func(o *campaign.Options) { set(o); o.OtherSettings = true })
			if err != nil || !out.Complete() || len(notes) != 1 || !strings.Contains(notes[0], bad.Differences[0]) {
				t.Errorf("taken all the same: %+v, %v, notes %q", out, err, notes)
			}
		})
	}
}

// TestOtherCells: cells that are asked for with other settings than the run has
// are refused, or take the place of those that are not done.
func TestOtherCells(t *testing.T) {
	asked := func(change func(*campaign.Cell), specs ...string) []campaign.Cell {
		cells := cellsOf(specs...)
		for i := range cells {
			if change != nil {
				change(&cells[i])
			}
		}
		return cells
	}
	iters := func(c *campaign.Cell) { c.NumIters = 5 }
	all := []string{"m@one 1/1/1", "m@one 1/1/2", "m@one 1/1/4"}
	for _, c := range []struct {
		why    string
		extend []campaign.Cell
		says   string // of the refusal; empty for none
		// states after going on all the same, and how many runs that took.
		states string
		runs   int
		left   int
	}{
		{"the same cells", asked(nil, all...), "", "done:1 done:1 done:1", 2, 0},
		{"a file that has grown", asked(nil, append(all, "m@one 1/1/8")...), "", "done:1 done:1 done:1 done:1", 3, 0},
		{"a file that has shrunk: what is open is run all the same", asked(nil, all[:2]...), "", "done:1 done:1 done:1", 2, 1},
		{"another number of iterations: what is done stays", asked(iters, all...), "num_iters was 30 and is 5 in 3 cells", "done:1 done:1 done:1", 2, 0},
		{
			"two settings", asked(func(c *campaign.Cell) { c.NumIters, c.DType = 5, "float32" }, all[1]),
			`dtype was "float16" and is "float32" in 1 cell; num_iters was 30 and is 5 in 1 cell`, "done:1 done:1 done:1", 2, 1,
		},
		{"the same sizes elsewhere", asked(nil, "m@two 1/1/2"), `place was "docker:one" and is "docker:two" in 1 cell`, "done:1 done:1 done:1", 2, 1},
		{"another model's cells are new ones", asked(iters, append(all[:0:0], "other@one 1/1/1")...), "", "done:1 done:1 done:1 done:1", 3, 2},
		{"one setting of the run's, one of its own: the latter is new", append(asked(nil, all...), asked(iters, all[0])...), "", "done:1 done:1 done:1 done:1", 3, 0},
	} {
		t.Run(c.why, func(t *testing.T) {
			g := newGrid(t, all...)
			if _, err := g.run(t.Context(), &script{}, func(o *campaign.Options) { o.Only, _ = campaign.Select("batch=1") }); err != nil {
				t.Fatal(err)
			}
			extend := func(o *campaign.Options) { o.Extend = c.extend }
			if c.says != "" {
				_, err := g.run(t.Context(), &script{}, extend)
				if bad, ok := errors.AsType[*campaign.SettingsError](err); !ok || !strings.Contains(bad.Error(), c.says) || g.states() != "done:1 pending:0 pending:0" {
					t.Errorf("%v, %s: want %q, and nothing changed", err, g.states(), c.says)
				}
			}
			s := &script{}
			out, err := g.run(t.Context(), s, func(o *campaign.Options) { extend(o); o.OtherSettings = c.says != "" })
			if err != nil || g.states() != c.states || s.runs != c.runs || out.Left != c.left {
				t.Errorf("%v, %s after %d runs, %d left: want %s after %d, %d left", err, g.states(), s.runs, out.Left, c.states, c.runs, c.left)
			}
			again, err := g.run(t.Context(), &script{}, func(o *campaign.Options) { extend(o); o.OtherSettings = true })
			if err != nil || again.Selected != 0 {
				t.Errorf("again: %+v, %v: want nothing to do", again, err)
			}
		})
	}
}

// TestOtherCellsRun: what runs with other settings are the cells that were
// asked for, in the place of the old ones; what describes the model is no setting.
func TestOtherCellsRun(t *testing.T) {
	g := newGrid(t, "m@one 1/1/1", "m@one 1/1/2")
	failing := &script{cell: func(_ context.Context, _ int, c campaign.Cell) (campaign.Result, error) {
		if c.BatchSize == 2 {
			return campaign.Result{}, &campaign.CellError{State: store.OOM, Err: errors.New("full")}
		}
		return measured(c), nil
	}}
	if _, err := g.run(t.Context(), failing, nil); err != nil {
		t.Fatal(err)
	}
	wanted := cellsOf("m@one 1/1/2", "m@one 1/1/1")
	for i := range wanted {
		wanted[i].GPUMemoryUtilization = 0.95
	}
	var ran []campaign.Cell
	s := &script{cell: func(_ context.Context, _ int, c campaign.Cell) (campaign.Result, error) {
		ran = append(ran, c)
		return measured(c), nil
	}}
	out, err := g.run(t.Context(), s, func(o *campaign.Options) { o.Extend, o.OtherSettings = wanted, true })
	if err != nil || out.Changed != 1 || len(ran) != 1 || ran[0].Hash() != wanted[0].Hash() {
		t.Errorf("%+v, %v; ran %+v: want the cell that was out of memory, with the new share", out, err, ran)
	}
	if g.states() != "done:1 done:2" {
		t.Errorf("states %s", g.states())
	}
	// A filter by states chooses by those that the cells had.
	g = newGrid(t, "m@one 1/1/1", "m@one 1/1/2", "m@one 1/1/4")
	if _, err := g.run(t.Context(), failing, func(o *campaign.Options) { o.Only, _ = campaign.Select("batch=1|2") }); err != nil {
		t.Fatal(err)
	}
	wanted = cellsOf("m@one 1/1/1", "m@one 1/1/2", "m@one 1/1/4")
	for i := range wanted {
		wanted[i].GPUMemoryUtilization = 0.95
	}
	ran = nil
	out, err = g.run(t.Context(), s, func(o *campaign.Options) {
		o.Extend, o.OtherSettings = wanted, true
		o.Only, _ = campaign.Select("state=oom")
	})
	if err != nil || out.Changed != 1 || len(ran) != 1 || ran[0].Hash() != wanted[1].Hash() || g.states() != "done:1 done:2 pending:0" {
		t.Errorf("%+v, %v; ran %+v, states %s: want the one that was out of memory, and the others as they were", out, err, ran, g.states())
	}
	g = newGrid(t, "m@one 1/1/1")
	wanted = cellsOf("m@one 1/1/1")
	wanted[0].Architecture.NumLayers = 32
	ran = nil
	if _, err := g.run(t.Context(), s, func(o *campaign.Options) { o.Extend = wanted }); err != nil || len(ran) != 1 || ran[0].Architecture.NumLayers != 32 {
		t.Errorf("%v; ran %+v: want the description of now", err, ran)
	}
}

func TestLocked(t *testing.T) {
	g := newGrid(t, "m@one 1/1/1")
	release, err := g.store.Lock(t.Context(), "r", "somebody", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var locked *store.LockedError
	if _, err := g.run(t.Context(), &script{}, nil); !errors.As(err, &locked) {
		t.Errorf("got %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.run(t.Context(), &script{}, nil); err != nil || g.states() != "done:1" {
		t.Errorf("%s, %v", g.states(), err)
	}
}

func TestOptions(t *testing.T) {
	if _, err := campaign.Run(t.Context(), campaign.Options{}); err == nil || !strings.Contains(err.Error(), "a store, a run and a runner") {
		t.Errorf("got %v", err)
	}
	g := newGrid(t)
	for why, change := range map[string]func(*campaign.Options){
		"unknown run":       func(o *campaign.Options) { o.RunID = "nobody" },
		"negative attempts": func(o *campaign.Options) { o.Retry.Attempts = -1 },
	} {
		if _, err := g.run(t.Context(), &script{}, change); err == nil {
			t.Errorf("%s: no error", why)
		}
	}
	if out, err := g.run(t.Context(), &script{}, nil); err != nil || out.Total != 0 || !out.Complete() {
		t.Errorf("a run without cells: %+v, %v", out, err)
	}
}
