package campaign

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/llmprof/llmprof/store"
)

// closeTime is how long an engine may take to stop.
const closeTime = 2 * time.Minute

// group runs the cells of one load.
func (r *run) group(ctx context.Context, g Group, number, of int) error {
	if r.Hooks.GroupStarted != nil && r.lost[g.Cells[0].Place] == nil {
		r.Hooks.GroupStarted(g, number, of)
	}
	s := &session{run: r, group: g}
	defer s.close(ctx)
	for i, c := range g.Cells {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := s.cell(ctx, c)
		var unloaded *loadError
		if errors.As(err, &unloaded) {
			return s.giveUp(ctx, g.Cells[i:], unloaded.failure)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// session is a group while it runs.
type session struct {
	*run
	group  Group
	engine Engine // nil before the load and after it died
	starts int    // how often an engine was asked for
}

// loadError says that the group's engine does not start.
type loadError struct{ failure *CellError }

func (e *loadError) Error() string { return e.failure.Error() }
func (e *loadError) Unwrap() error { return e.failure }

// cell takes one cell to its end, or to pending if the context ends.
func (s *session) cell(ctx context.Context, c Cell) error {
	if why := s.lost[c.Place]; why != nil {
		return s.abandon(ctx, c, why)
	}
	for _, small := range s.oom[s.group.Key] {
		if covers(c, small) {
			return s.give(ctx, c, store.Skipped, fmt.Sprintf("not tried: input %d, output %d, batch size %d had too little memory, and no dimension of this cell is smaller",
				small.InputLen, small.OutputLen, small.BatchSize), "fewer tokens, more devices, or a narrower KV cache")
		}
	}
	for attempt := 1; ; attempt++ {
		if err := s.load(ctx); err != nil {
			return err
		}
		row, failure, err := s.try(ctx, c)
		if err != nil {
			return err
		}
		if failure != nil && !failure.Alive {
			s.close(ctx)
		}
		if failure == nil || !failure.again() || attempt >= s.Retry.Attempts {
			return s.end(ctx, c, row, failure)
		}
		if err := s.giveBack(ctx, c); err != nil {
			return err
		}
		if err := s.wait(ctx, c.Name(), failure, attempt); err != nil {
			return err
		}
	}
}

// try runs a cell once. It returns the row to store, and the failure if there
// was one; an error means that the campaign cannot go on.
func (s *session) try(ctx context.Context, c Cell) (store.Cell, *CellError, error) {
	row, err := s.begin(ctx, c)
	if err != nil {
		return row, nil, err
	}
	if s.Hooks.CellStarted != nil {
		s.Hooks.CellStarted(c, row.Attempts)
	}
	limited, cancel := ctx, context.CancelFunc(func() {})
	if s.CellTimeout > 0 {
		limited, cancel = context.WithTimeout(ctx, s.CellTimeout)
	}
	defer cancel()
	result, err := s.engine.Run(limited, c)
	if err == nil {
		err = checkResult(result)
	}
	switch {
	case err == nil:
		for _, text := range result.Warnings {
			s.note("%s: %s", c.Name(), text)
		}
		row.State, row.Result, row.ProfileFile = store.Done, result.Document, result.ProfileFile
		return row, nil, nil
	case ctx.Err() != nil:
		return row, nil, context.Cause(ctx)
	case limited.Err() != nil:
		return row, &CellError{State: store.Timeout, Err: fmt.Errorf("stopped after %s, the longest time of one try", s.CellTimeout), Advice: "a longer time for each cell, or fewer tokens"}, nil
	}
	return row, failureOf(err), nil
}

// checkResult refuses a success without a profile.
func checkResult(r Result) error {
	if text := bytes.TrimSpace(r.Document); !json.Valid(text) || text[0] != '{' {
		return &CellError{Alive: true, Err: errors.New("the engine reported success, but there is no profile")}
	}
	return nil
}

// end stores how a cell ended and what follows for others.
func (s *session) end(ctx context.Context, c Cell, row store.Cell, failure *CellError) error {
	if failure == nil {
		return s.finish(ctx, c, row)
	}
	row.State, row.Error, row.Hint = failure.state(), failure.Error(), failure.Hint()
	switch {
	case row.State == store.OOM:
		s.oom[s.group.Key] = append(s.oom[s.group.Key], c)
	case failure.Outside:
		s.lost[c.Place] = failure
	}
	return s.finish(ctx, c, row)
}

// load starts the engine unless it runs, and tries again what may pass.
func (s *session) load(ctx context.Context) error {
	for attempt := 1; s.engine == nil; attempt++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.outcome.Loads++
		s.starts++
		engine, err := s.Runner.Load(ctx, s.group)
		if err == nil && engine == nil {
			err = errors.New("the runner loaded no engine")
		}
		if err == nil {
			s.engine = engine
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		failure := failureOf(err)
		if failure.State == store.OOM && s.starts > 1 {
			failure = stillHeld(failure)
		}
		if !failure.again() || attempt >= s.Retry.Attempts {
			return &loadError{failure}
		}
		first := s.group.Cells[0]
		if err := s.wait(ctx, fmt.Sprintf("%s for %s", first.Engine, first.ModelID), failure, attempt); err != nil {
			return err
		}
	}
	return nil
}

// stillHeld is a start for which there was too little memory after an earlier
// one: the device may not be free of that engine yet, and that passes. It says
// nothing about what the cells need.
func stillHeld(failure *CellError) *CellError {
	return &CellError{
		Err:    fmt.Errorf("start the engine again: %w", failure),
		Advice: "the engine before may still hold the memory: see that the device is free, and run the cells again",
	}
}

// giveUp ends the cells that are left when the engine does not start.
func (s *session) giveUp(ctx context.Context, left []Cell, failure *CellError) error {
	place := s.group.Cells[0].Place
	if failure.Outside && failure.state() == store.Failed {
		s.lost[place] = failure
	}
	for _, c := range left {
		var err error
		if why := s.lost[place]; why != nil {
			err = s.abandon(ctx, c, why)
		} else {
			err = s.give(ctx, c, failure.state(), failure.Error(), failure.Hint())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// abandon ends a cell whose place is gone.
func (s *session) abandon(ctx context.Context, c Cell, why error) error {
	hint := ""
	var advised interface{ Hint() string }
	if errors.As(why, &advised) {
		hint = advised.Hint()
	}
	return s.give(ctx, c, store.Cancelled, fmt.Sprintf("not tried: %s cannot be used: %v", c.Place, why), hint)
}

// close stops the engine if one runs, also when the campaign is interrupted.
func (s *session) close(ctx context.Context) {
	if s.engine == nil {
		return
	}
	lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	err := s.engine.Close(lasting)
	s.engine = nil
	if err == nil {
		return
	}
	place := s.group.Cells[0].Place
	s.note("close the engine on %s: %v", place, err)
	if failureOf(err).Outside && s.lost[place] == nil {
		s.lost[place] = err
	}
}
