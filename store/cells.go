package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmprof/llmprof/unit"
)

// State is how far a cell has come.
type State string

// The states of a cell. Pending and Running are on the way, all others are
// ends.
const (
	Pending   State = "pending"
	Running   State = "running"
	Done      State = "done"
	Failed    State = "failed"
	OOM       State = "oom"
	Refused   State = "refused"
	Timeout   State = "timeout"
	Skipped   State = "skipped"
	Cancelled State = "cancelled"
)

// States lists all states, in the order in which reports show them.
func States() []State {
	return []State{Pending, Running, Done, Failed, OOM, Refused, Timeout, Skipped, Cancelled}
}

// Ended reports whether a cell in this state has an outcome.
func (s State) Ended() bool { return s != Pending && s != Running }

// Cell is one measurement of a run.
type Cell struct {
	// RunID and Hash name the cell; Hash is the content hash of what decides
	// the measurement, so equal cells of other runs can be found.
	RunID, Hash string
	// Index is the place of the cell in its run, from 0.
	Index int
	// Spec is what is measured; nil or JSON.
	Spec  json.RawMessage
	State State
	// Attempts is the number of times the cell was begun. It never falls.
	Attempts int
	// Error is why the cell has no result, Hint the advice that goes with it.
	Error, Hint string
	// Result is what was measured; nil or JSON. ProfileFile is a file that
	// holds more, empty for none.
	Result      json.RawMessage
	ProfileFile string
	// Started and Ended are the times of the last attempt; zero for none.
	Started, Ended time.Time
	// Seconds is how long the last attempt took, in seconds; 0 for none.
	Seconds float64
}

const (
	cellColumns    = "cells.run_id, cells.hash, cells.position, cells.spec, cells.state, cells.attempts, cells.error, cells.hint, cells.result, cells.profile_file, cells.started, cells.ended, cells.seconds"
	outlineColumns = "cells.run_id, cells.hash, cells.position, cells.spec, cells.state, cells.attempts, cells.error, cells.hint, NULL, cells.profile_file, cells.started, cells.ended, cells.seconds"
)

// noOutcome takes back what an earlier attempt left in a cell.
const noOutcome = "error = '', hint = '', result = NULL, profile_file = '', ended = NULL, seconds = 0"

// scanCell reads cellColumns.
func scanCell(scan func(...any) error) (Cell, error) {
	var c Cell
	err := scan(&c.RunID, &c.Hash, &c.Index, (*[]byte)(&c.Spec), &c.State, &c.Attempts, &c.Error, &c.Hint,
		(*[]byte)(&c.Result), &c.ProfileFile, (*moment)(&c.Started), (*moment)(&c.Ended), &c.Seconds)
	return c, err
}

// Cells lists the cells of a run by index; those of the same index in the
// order in which they were added.
func (s *Store) Cells(ctx context.Context, runID string) ([]Cell, error) {
	cells, err := collect(ctx, s.db, scanCell, "SELECT "+cellColumns+" FROM cells WHERE run_id = ? ORDER BY position, rowid", runID)
	if err == nil && len(cells) == 0 {
		err = requireRun(ctx, s.db, runID)
	}
	return cells, s.explain("list the cells of run "+runID, err)
}

// Outline lists the cells of a run as [Store.Cells] does, without their results.
func (s *Store) Outline(ctx context.Context, runID string) ([]Cell, error) {
	cells, err := collect(ctx, s.db, scanCell, "SELECT "+outlineColumns+" FROM cells WHERE run_id = ? ORDER BY position, rowid", runID)
	if err == nil && len(cells) == 0 {
		err = requireRun(ctx, s.db, runID)
	}
	return cells, s.explain("outline the cells of run "+runID, err)
}

// Counts are the numbers of cells of a run by state; states without cells are
// left out.
func (s *Store) Counts(ctx context.Context, runID string) (map[State]int, error) {
	type count struct {
		state State
		n     int
	}
	counts, err := collect(ctx, s.db, func(scan func(...any) error) (c count, err error) {
		err = scan(&c.state, &c.n)
		return c, err
	}, "SELECT state, count(*) FROM cells WHERE run_id = ? GROUP BY state", runID)
	if err == nil && len(counts) == 0 {
		err = requireRun(ctx, s.db, runID)
	}
	if err != nil {
		return nil, s.explain("count the cells of run "+runID, err)
	}
	byState := make(map[State]int, len(counts))
	for _, c := range counts {
		byState[c.state] = c.n
	}
	return byState, nil
}

// FindCells lists the cells of a hash in all runs, those of the newest run
// first. A hash that no run has gives none.
func (s *Store) FindCells(ctx context.Context, hash string) ([]Cell, error) {
	cells, err := collect(ctx, s.db, scanCell, "SELECT "+cellColumns+` FROM cells JOIN runs ON runs.id = cells.run_id
		WHERE cells.hash = ? ORDER BY runs.created DESC, runs.id DESC`, hash)
	return cells, s.explain("find cell "+hash, err)
}

// AddCells adds the cells whose hashes the run does not have, all of them or
// none, and returns their number. Cells that it has stay as they are.
func (s *Store) AddCells(ctx context.Context, runID string, cells []Cell) (added int, err error) {
	doing := "add cells to run " + runID
	if err := checkCells(cells); err != nil {
		return 0, fmt.Errorf("%s: %w", doing, err)
	}
	err = s.change(ctx, doing, func(tx *sql.Tx) (err error) {
		if err := requireRun(ctx, tx, runID); err != nil {
			return err
		}
		added, err = addCells(ctx, tx, runID, cells)
		if err != nil || added == 0 {
			return err
		}
		return s.touch(ctx, tx, runID)
	})
	if err != nil {
		return 0, err
	}
	return added, nil
}

// addCells inserts the cells that a run does not have.
func addCells(ctx context.Context, tx *sql.Tx, runID string, cells []Cell) (added int, err error) {
	insert, err := tx.PrepareContext(ctx, "INSERT INTO cells (run_id, hash, position, spec, state, attempts, error, hint, result, profile_file, started, ended, seconds) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING")
	if err != nil {
		return 0, err
	}
	defer insert.Close()
	for _, c := range cells {
		if c.State == "" {
			c.State = Pending
		}
		done, err := insert.ExecContext(ctx, runID, c.Hash, c.Index, jsonText(c.Spec), c.State, c.Attempts, c.Error, c.Hint,
			jsonText(c.Result), c.ProfileFile, moment(c.Started), moment(c.Ended), c.Seconds)
		if err != nil {
			return 0, err
		}
		n, err := done.RowsAffected()
		if err != nil {
			return 0, err
		}
		added += int(n)
	}
	return added, nil
}

// Begin sets a cell to running and returns the number of this attempt, from
// 1. A cell that is running or done cannot be begun: that is a [*StateError].
func (s *Store) Begin(ctx context.Context, runID, hash string, at time.Time) (attempt int, err error) {
	err = s.change(ctx, "begin cell "+hash, func(tx *sql.Tx) error {
		state, attempts, err := progress(ctx, tx, runID, hash)
		if err != nil {
			return err
		}
		if state == Running || state == Done {
			return &StateError{runID, hash, state, attempts, "begun"}
		}
		attempt = attempts + 1
		_, err = tx.ExecContext(ctx, "UPDATE cells SET state = ?, attempts = ?, started = ?, "+noOutcome+" WHERE run_id = ? AND hash = ?",
			Running, attempt, moment(at), runID, hash)
		return orElse(err, s.touch(ctx, tx, runID))
	})
	if err != nil {
		return 0, err
	}
	return attempt, nil
}

// Finish gives a cell its end: state, error, hint, result, profile file, time
// of the end and seconds are those of c, all else stays. c.Attempts is what
// [Store.Begin] returned; the first end of an attempt counts, and saying the
// same end again changes nothing. A pending cell can be given up in any end
// but done. All other changes are a [*StateError].
func (s *Store) Finish(ctx context.Context, c Cell) error {
	doing := "finish cell " + c.Hash
	if err := checkEnd(c); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return s.change(ctx, doing, func(tx *sql.Tx) error {
		state, attempts, err := progress(ctx, tx, c.RunID, c.Hash)
		if err != nil {
			return err
		}
		current := c.Attempts == attempts
		switch {
		case current && state == c.State:
			return nil
		case current && state == Running, current && state == Pending && c.State != Done:
		default:
			return &StateError{c.RunID, c.Hash, state, attempts, fmt.Sprintf("set to %s for attempt %d", c.State, c.Attempts)}
		}
		_, err = tx.ExecContext(ctx, "UPDATE cells SET state = ?, error = ?, hint = ?, result = ?, profile_file = ?, ended = ?, seconds = ? WHERE run_id = ? AND hash = ?",
			c.State, c.Error, c.Hint, jsonText(c.Result), c.ProfileFile, moment(c.Ended), c.Seconds, c.RunID, c.Hash)
		return orElse(err, s.touch(ctx, tx, c.RunID))
	})
}

// checkEnd refuses a cell that is no outcome.
func checkEnd(c Cell) error {
	if c.State == "" || !c.State.Ended() {
		return fmt.Errorf("state %q is not an end", c.State)
	}
	return checkCell(c)
}

// Recover sets cells that a killed process left running back to pending, and
// returns them. The caller holds the run's lock.
func (s *Store) Recover(ctx context.Context, runID string) ([]Cell, error) {
	return s.restart(ctx, "recover the cells of run "+runID, runID, Running)
}

// Reset sets the cells of the given ends back to pending, without their
// outcomes, and returns their number. Cells that are done stay so.
func (s *Store) Reset(ctx context.Context, runID string, states ...State) (int, error) {
	doing := "reset cells of run " + runID
	for _, state := range states {
		switch {
		case !slices.Contains(States(), state):
			return 0, fmt.Errorf("%s: state %q: not one of %s", doing, state, unit.List(States()))
		case state == Done:
			return 0, fmt.Errorf("%s: %w", doing, errors.New("a cell that is done stays done"))
		case state == Running:
			return 0, fmt.Errorf("%s: %w", doing, errors.New("a cell that is running is set back by Recover only"))
		}
	}
	states = slices.DeleteFunc(slices.Clone(states), func(state State) bool { return state == Pending })
	cells, err := s.restart(ctx, doing, runID, states...)
	return len(cells), err
}

// restart sets the cells of the given states to pending and returns them by
// index.
func (s *Store) restart(ctx context.Context, doing, runID string, states ...State) (cells []Cell, err error) {
	err = s.change(ctx, doing, func(tx *sql.Tx) error {
		if err := requireRun(ctx, tx, runID); err != nil || len(states) == 0 {
			return err
		}
		in, args := "state IN (?"+strings.Repeat(",?", len(states)-1)+")", []any{runID}
		for _, state := range states {
			args = append(args, state)
		}
		var err error
		cells, err = collect(ctx, tx, func(scan func(...any) error) (Cell, error) {
			c := Cell{RunID: runID, State: Pending}
			err := scan(&c.Hash, &c.Index, (*[]byte)(&c.Spec), &c.Attempts)
			return c, err
		}, "SELECT hash, position, spec, attempts FROM cells WHERE run_id = ? AND "+in+" ORDER BY position, rowid", args...)
		if err != nil || len(cells) == 0 {
			return err
		}
		if _, err = tx.ExecContext(ctx, "UPDATE cells SET state = '"+string(Pending)+"', started = NULL, "+noOutcome+" WHERE run_id = ? AND "+in, args...); err != nil {
			return err
		}
		return s.touch(ctx, tx, runID)
	})
	if err != nil {
		return nil, err
	}
	return cells, nil
}

// Replace puts another cell in the place of one that is neither running nor
// done, which would be a [*StateError]: pending, with the hash and the spec of
// with and without outcome; position and attempts stay. It is an error if
// another cell of the run has that hash.
func (s *Store) Replace(ctx context.Context, runID, hash string, with Cell) error {
	doing := "replace cell " + hash
	with.State = Pending
	if err := checkCell(with); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return s.change(ctx, doing, func(tx *sql.Tx) error {
		state, attempts, err := progress(ctx, tx, runID, hash)
		if err != nil {
			return err
		}
		if state == Running || state == Done {
			return &StateError{runID, hash, state, attempts, "replaced"}
		}
		_, err = tx.ExecContext(ctx, "UPDATE cells SET hash = ?, spec = ?, state = ?, started = NULL, "+noOutcome+" WHERE run_id = ? AND hash = ?",
			with.Hash, jsonText(with.Spec), Pending, runID, hash)
		return orElse(err, s.touch(ctx, tx, runID))
	})
}

// progress reads how far a cell has come.
func progress(ctx context.Context, tx *sql.Tx, runID, hash string) (state State, attempts int, err error) {
	err = tx.QueryRowContext(ctx, "SELECT state, attempts FROM cells WHERE run_id = ? AND hash = ?", runID, hash).Scan(&state, &attempts)
	if !errors.Is(err, sql.ErrNoRows) {
		return state, attempts, err
	}
	if err := requireRun(ctx, tx, runID); err != nil {
		return "", 0, err
	}
	known, err := collect(ctx, tx, scanText, "SELECT hash FROM cells WHERE run_id = ?", runID)
	return "", 0, orElse(err, notFound("cell", hash, known))
}
