package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/llmprof/llmprof/store"
)

// Runner starts engines.
type Runner interface {
	// Load starts an engine that can run every cell of the group.
	Load(ctx context.Context, g Group) (Engine, error)
}

// Engine runs the cells of one group, one at a time.
type Engine interface {
	// Run measures a cell. It returns soon after ctx ends.
	Run(ctx context.Context, c Cell) (Result, error)
	// Close stops the engine and makes sure that the device is free again. It
	// is called once, also after a failure and when the campaign is
	// interrupted.
	Close(ctx context.Context) error
}

// Result is a cell that was measured and whose profile was read back.
type Result struct {
	// Document is what the store keeps: the profile or its summary, a JSON
	// object. Without it the cell counts as failed.
	Document json.RawMessage
	// ProfileFile is where the profile lies; empty for none.
	ProfileFile string
	// Warnings are noted.
	Warnings []string
}

// Retry says how often and how soon a failed cell or start is tried again.
// The zero value of a field means its default.
type Retry struct {
	// Attempts counts all tries, the first one included. Default 3.
	Attempts int
	// Backoff is the pause before the second try; it doubles up to MaxBackoff.
	// Defaults: 5 s and 1 min.
	Backoff, MaxBackoff time.Duration
}

// pause is the time to wait after the given attempt.
func (r Retry) pause(attempt int) time.Duration {
	d := r.Backoff
	for range attempt - 1 {
		if d >= r.MaxBackoff {
			break
		}
		d *= 2
	}
	return min(d, r.MaxBackoff)
}

// Hooks are told what happens; nil ones are not.
type Hooks struct {
	// GroupStarted comes before an engine is loaded; number counts from 1. A
	// group whose place is gone has no start.
	GroupStarted func(g Group, number, of int)
	// Ready comes once, before the first group: what the run holds now, and how
	// many cells are set out.
	Ready func(Outcome)
	// CellStarted comes with the number of the attempt over all runs.
	CellStarted func(c Cell, attempt int)
	// CellDone comes with what was stored, whatever the end.
	CellDone func(c Cell, end store.Cell)
	// Retrying comes before a pause; what names the cell or the engine.
	Retrying func(what string, err error, pause time.Duration)
	// Note is told of what goes wrong beside the cells.
	Note func(text string)
}

// Options are those of [Run]. Store, RunID and Runner are needed.
type Options struct {
	Store  *store.Store
	RunID  string
	Runner Runner
	// Only chooses among the pending cells. A filter that asks for states runs
	// the cells in these states again, except those that are done.
	Only  Filter
	Retry Retry
	// Reset are ends whose cells are to run again; Extend are cells that the run
	// gets unless it has them. Both are done under the run's lock.
	Reset  []store.State
	Extend []Cell
	// Settings are what beside the cells decides the measurements: a JSON object,
	// to be equal to that of [store.Run.Settings]. Nil, here or there, compares
	// nothing. A difference is a [*SettingsError], and so is a cell of Extend that
	// stands for one of the run, of the same model and sizes, with other
	// settings. With OtherSettings both are no more than a note, and such cells
	// take the place of those that are not done.
	Settings      json.RawMessage
	OtherSettings bool
	// CellTimeout bounds one try of one cell; 0 means no bound.
	CellTimeout time.Duration
	// Owner says who runs this, for others that find the run in use. Default:
	// "llmprof". LockTTL is how long the run stays taken after its process
	// died. Default 1 min.
	Owner   string
	LockTTL time.Duration
	// Now and Sleep are the clock. Defaults: the real one.
	Now   func() time.Time
	Sleep func(context.Context, time.Duration) error
	Hooks Hooks
}

func (o Options) withDefaults() (Options, error) {
	if o.Store == nil || o.RunID == "" || o.Runner == nil {
		return o, errors.New("a campaign needs a store, a run and a runner")
	}
	if o.Retry.Attempts < 0 || o.Retry.Backoff < 0 || o.Retry.MaxBackoff < 0 || o.CellTimeout < 0 || o.LockTTL < 0 {
		return o, errors.New("attempts and times are negative: want 0 or more")
	}
	set := func(field *time.Duration, usual time.Duration) {
		if *field == 0 {
			*field = usual
		}
	}
	set(&o.Retry.Backoff, 5*time.Second)
	set(&o.Retry.MaxBackoff, max(time.Minute, o.Retry.Backoff))
	set(&o.LockTTL, time.Minute)
	if o.Retry.Attempts == 0 {
		o.Retry.Attempts = 3
	}
	if o.Owner == "" {
		o.Owner = "llmprof"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	return o, nil
}

// sleep waits unless ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// Outcome is what a campaign has come to.
type Outcome struct {
	// Total is the number of cells of the run, Counts their states; each cell
	// counts once.
	Total  int
	Counts map[store.State]int
	// Selected is the number of cells that this call set out to run, Ended how
	// these ended; what is missing was interrupted.
	Selected int
	Ended    map[store.State]int
	// Recovered is the number of cells that an earlier process left in flight,
	// Reset those that [Options.Reset] concerned. By [Options.Extend] the run has
	// Added cells more, Changed ones have other settings, and Left ones are open
	// that are not in it; those are run all the same.
	Recovered, Reset, Added, Changed, Left int
	// Loads is the number of engines that were started.
	Loads int
}

// Complete reports whether every cell of the run is done.
func (o Outcome) Complete() bool { return o.Counts[store.Done] == o.Total }

// Succeeded reports whether every cell that this call set out to run is done.
func (o Outcome) Succeeded() bool { return o.Ended[store.Done] == o.Selected }

// Run measures the cells of a run that are pending, those included that a
// process left in flight when it died. An error means that the campaign did
// not come to its end: the context ended, the store failed, or another process
// has taken the run over, which is [store.ErrLockLost]; the store is not changed
// after that. The outcome holds in any case; cells that did not work are no
// error.
func Run(ctx context.Context, o Options) (Outcome, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Outcome{}, err
	}
	held, release, err := o.Store.Hold(ctx, o.RunID, o.Owner, o.LockTTL)
	if err != nil {
		return Outcome{}, err
	}
	r := &run{Options: o, stored: map[string]store.Cell{}, lost: map[string]error{}, oom: map[string][]Cell{}, changed: map[string]bool{}}
	r.outcome.Ended = map[store.State]int{}
	err = r.all(held)
	lasting := context.WithoutCancel(held)
	if err != nil {
		// What is in flight goes back to pending. If this fails as well, the
		// next run does it; after the lock was lost it is the other's, and the
		// store refuses it.
		_, _ = o.Store.Recover(lasting, o.RunID)
	}
	err = errors.Join(err, r.tally(lasting))
	if freed := release(); !errors.Is(err, store.ErrLockLost) {
		err = errors.Join(err, freed)
	}
	return r.outcome, err
}

// run is one call of Run.
type run struct {
	Options
	outcome Outcome
	// stored are the rows of the selected cells by [Cell.Hash].
	stored map[string]store.Cell
	// lost are places at which nothing can run, with the reason.
	lost map[string]error
	// oom are the cells that had too little memory, by [Cell.LoadKey].
	oom map[string][]Cell
	// changed are the cells, by [Cell.Hash], that took the place of chosen ones.
	changed map[string]bool
}

// all runs every selected cell.
func (r *run) all(ctx context.Context) error {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	cells, err := r.choose(ctx)
	if err != nil {
		return err
	}
	r.outcome.Selected = len(cells)
	if r.Hooks.Ready != nil {
		r.Hooks.Ready(r.outcome)
	}
	groups := Order(cells)
	for i, g := range groups {
		if err := r.group(ctx, g, i+1, len(groups)); err != nil {
			return err
		}
	}
	return nil
}

// prepare does what is done once the run is taken and before anything runs.
func (r *run) prepare(ctx context.Context) error {
	if err := r.compareSettings(ctx); err != nil {
		return err
	}
	recovered, err := r.Store.Recover(ctx, r.RunID)
	if err != nil {
		return err
	}
	r.outcome.Recovered = len(recovered)
	if len(r.Reset) > 0 {
		if r.outcome.Reset, err = r.Store.Reset(ctx, r.RunID, r.Reset...); err != nil {
			return err
		}
	}
	return r.extend(ctx)
}

// choose lists the cells to run.
func (r *run) choose(ctx context.Context) ([]Cell, error) {
	rows, err := r.Store.Outline(ctx, r.RunID)
	if err != nil {
		return nil, err
	}
	var cells []Cell
	for _, row := range rows {
		c, err := Decode(row)
		if err != nil {
			return nil, err
		}
		waiting := row.State == store.Pending || r.Only.ByState() && row.State != store.Done
		if !waiting || !r.changed[c.Hash()] && !r.Only.Match(c, row.State) {
			if row.State == store.OOM {
				r.oom[c.LoadKey()] = append(r.oom[c.LoadKey()], c)
			}
			continue
		}
		if other, twice := r.stored[c.Hash()]; twice {
			return nil, fmt.Errorf("run %s: cells %s and %s are the same", r.RunID, other.Hash, row.Hash)
		}
		r.stored[c.Hash()] = row
		cells = append(cells, c)
	}
	return cells, nil
}

// tally counts the states of all cells.
func (r *run) tally(ctx context.Context) (err error) {
	r.outcome.Total = 0
	r.outcome.Counts, err = r.Store.Counts(ctx, r.RunID)
	for _, n := range r.outcome.Counts {
		r.outcome.Total += n
	}
	return err
}

// begin marks a cell as running.
func (r *run) begin(ctx context.Context, c Cell) (store.Cell, error) {
	hash := c.Hash()
	row := r.stored[hash]
	row.Started = r.Now()
	attempt, err := r.Store.Begin(context.WithoutCancel(ctx), r.RunID, row.Hash, row.Started)
	if err != nil {
		return row, err
	}
	row.State, row.Attempts = store.Running, attempt
	r.stored[hash] = row
	return row, nil
}

// finish stores the end of a cell.
func (r *run) finish(ctx context.Context, c Cell, row store.Cell) error {
	row.Ended = r.Now()
	if !row.Started.IsZero() {
		row.Seconds = row.Ended.Sub(row.Started).Seconds()
	}
	if err := r.Store.Finish(context.WithoutCancel(ctx), row); err != nil {
		return err
	}
	r.stored[c.Hash()] = row
	r.outcome.Ended[row.State]++
	if r.Hooks.CellDone != nil {
		r.Hooks.CellDone(c, row)
	}
	return nil
}

// give ends a cell that was not tried.
func (r *run) give(ctx context.Context, c Cell, state store.State, text, hint string) error {
	row := r.stored[c.Hash()]
	if row.State != store.Pending {
		var err error
		if row, err = r.begin(ctx, c); err != nil {
			return err
		}
	}
	row.State, row.Error, row.Hint, row.Started = state, text, hint, time.Time{}
	return r.finish(ctx, c, row)
}

// giveBack sets the cell in flight to pending again.
func (r *run) giveBack(ctx context.Context, c Cell) error {
	if _, err := r.Store.Recover(context.WithoutCancel(ctx), r.RunID); err != nil {
		return err
	}
	row := r.stored[c.Hash()]
	row.State = store.Pending
	r.stored[c.Hash()] = row
	return nil
}

func (r *run) note(format string, args ...any) {
	if r.Hooks.Note != nil {
		r.Hooks.Note(fmt.Sprintf(format, args...))
	}
}

// wait pauses before another try.
func (r *run) wait(ctx context.Context, what string, err error, attempt int) error {
	pause := r.Retry.pause(attempt)
	if r.Hooks.Retrying != nil {
		r.Hooks.Retrying(what, err, pause)
	}
	return r.Sleep(ctx, pause)
}
