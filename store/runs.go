package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
)

// Run is one campaign: a grid of cells that belong together.
type Run struct {
	// ID is unique in a store; every prefix that is unique names the run too.
	ID string
	// Kind is what the run does, "batch" for example; Name is for readers;
	// Source is where its configuration came from; Tool and Host say what made
	// it, and where.
	Kind, Name, Source, Tool, Host string
	// Config is the configuration as it was given: a YAML file, or flags.
	Config []byte
	// Settings are what the caller wants back when the run goes on; nil or JSON.
	Settings json.RawMessage
	// Created is when the run was made; the zero time stands for now. Updated
	// is when it or one of its cells last changed, kept by the store.
	Created, Updated time.Time
}

// Summary is a run in a list of runs.
type Summary struct {
	Run Run
	// Counts are the numbers of cells by state; states without cells are left out.
	Counts map[State]int
	// Seconds is the time of all cells together, in seconds.
	Seconds float64
}

const runColumns = "runs.id, runs.kind, runs.name, runs.source, runs.tool, runs.host, runs.config, runs.settings, runs.created, runs.updated"

// scanRun reads runColumns, and into further what follows them.
func scanRun(scan func(...any) error, further ...any) (Run, error) {
	var r Run
	err := scan(append([]any{
		&r.ID, &r.Kind, &r.Name, &r.Source, &r.Tool, &r.Host, &r.Config, (*[]byte)(&r.Settings),
		(*moment)(&r.Created), (*moment)(&r.Updated),
	}, further...)...)
	return r, err
}

// CreateRun adds a run with its cells, or nothing. The cells belong to the run
// whatever RunID they carry; one without a state is pending.
func (s *Store) CreateRun(ctx context.Context, run Run, cells []Cell) error {
	if err := checkRun(run, cells); err != nil {
		return fmt.Errorf("create run %q: %w", run.ID, err)
	}
	now := s.now()
	if run.Created.IsZero() {
		run.Created = now
	}
	return s.change(ctx, "create run "+run.ID, func(tx *sql.Tx) error {
		done, err := tx.ExecContext(ctx, "INSERT INTO runs (id, kind, name, source, tool, host, config, settings, created, updated) VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING",
			run.ID, run.Kind, run.Name, run.Source, run.Tool, run.Host, run.Config, jsonText(run.Settings), moment(run.Created), moment(now))
		if err != nil {
			return err
		}
		if added, err := done.RowsAffected(); err != nil || added == 0 {
			return orElse(err, &advisedError{"the store has a run of this id", "give the run another id, or go on with " + run.ID})
		}
		_, err = addCells(ctx, tx, run.ID, cells)
		return err
	})
}

// Runs lists all runs, newest first.
func (s *Store) Runs(ctx context.Context) ([]Summary, error) {
	type part struct {
		run     Run
		state   sql.NullString
		count   int
		seconds float64
	}
	parts, err := collect(ctx, s.db, func(scan func(...any) error) (p part, err error) {
		p.run, err = scanRun(scan, &p.state, &p.count, &p.seconds)
		return p, err
	}, "SELECT "+runColumns+`, cells.state, count(cells.hash), total(cells.seconds)
		FROM runs LEFT JOIN cells ON cells.run_id = runs.id
		GROUP BY runs.id, cells.state
		ORDER BY runs.created DESC, runs.id DESC`)
	if err != nil {
		return nil, s.explain("list the runs", err)
	}
	var all []Summary
	for _, p := range parts {
		if n := len(all); n == 0 || all[n-1].Run.ID != p.run.ID {
			all = append(all, Summary{Run: p.run, Counts: map[State]int{}})
		}
		if p.state.Valid {
			last := &all[len(all)-1]
			last.Counts[State(p.state.String)] = p.count
			last.Seconds += p.seconds
		}
	}
	return all, nil
}

// Run finds a run by its ID or a beginning that only its ID has.
func (s *Store) Run(ctx context.Context, id string) (Run, error) {
	doing := "find run " + id
	known, err := runIDs(ctx, s.db)
	if err != nil {
		return Run{}, s.explain(doing, err)
	}
	full, err := resolve("run", id, known)
	if err != nil {
		return Run{}, err
	}
	run, err := scanRun(s.db.QueryRowContext(ctx, "SELECT "+runColumns+" FROM runs WHERE id = ?", full).Scan)
	return run, s.explain(doing, err)
}

// DeleteRun removes a run and its cells. The ID is the whole one, and nobody
// may hold the lock of the run.
func (s *Store) DeleteRun(ctx context.Context, id string) error {
	return s.change(ctx, "delete run "+id, func(tx *sql.Tx) error {
		if err := requireRun(ctx, tx, id); err != nil {
			return err
		}
		if err := s.requireUnlocked(ctx, tx, id); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "DELETE FROM runs WHERE id = ?", id)
		return err
	})
}

// runIDs lists the IDs of all runs.
func runIDs(ctx context.Context, from reader) ([]string, error) {
	return collect(ctx, from, scanText, "SELECT id FROM runs ORDER BY id")
}

// requireRun refuses an ID that no run has.
func requireRun(ctx context.Context, from reader, id string) error {
	var found bool
	if err := from.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM runs WHERE id = ?)", id).Scan(&found); err != nil || found {
		return err
	}
	known, err := runIDs(ctx, from)
	return orElse(err, notFound("run", id, known))
}

// touch records that a run or one of its cells changed.
func (s *Store) touch(ctx context.Context, tx *sql.Tx, runID string) error {
	_, err := tx.ExecContext(ctx, "UPDATE runs SET updated = max(updated, ?) WHERE id = ?", moment(s.now()), runID)
	return err
}
