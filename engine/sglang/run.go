package sglang

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llmprof/llmprof/engine"
	format "github.com/llmprof/llmprof/format/sglang"
	"github.com/llmprof/llmprof/format/stepbench"
	"github.com/llmprof/llmprof/profile"
)

// Limits of a process: how long it may take to end, and its longest line in
// bytes.
const (
	grace   = 3 * time.Second
	maxLine = 1 << 20
)

// Run measures the tasks, a process for each rectangle of the grid.
func (s *session) Run(ctx context.Context, tasks []engine.Task, emit func(engine.Result) error) error {
	all, err := rectangles(tasks)
	if err != nil {
		return err
	}
	for _, r := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.rectangle(ctx, r, emit); err != nil {
			return err
		}
	}
	return nil
}

// gone is the end of a session through no task's fault.
func gone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &engine.DiedError{Engine: "sglang", Err: err}
}

// rectangle runs one process.
func (s *session) rectangle(ctx context.Context, r *rectangle, emit func(engine.Result) error) error {
	dir, remove, err := s.place.TempDir(ctx)
	if err != nil {
		return gone(ctx, err)
	}
	defer func() { _ = remove() }() // a leftover of a place that is gone
	result := path.Join(dir, "result.jsonl")
	// Python keeps what it prints into a pipe until there is much of it.
	env := slices.Concat([]string{"PYTHONUNBUFFERED=1"}, s.setup.Env)
	said := &startUp{next: s.setup.Log, mark: s.setup.Mark}
	process, err := s.place.Start(ctx, engine.Command{Argv: s.argv(r, result), Env: env, Stderr: said})
	if err != nil {
		return gone(ctx, err)
	}
	_ = process.Stdin().Close() // it reads nothing
	rows, sheet := &reader{said: said, mark: s.setup.Mark}, newSheet(r, func(result engine.Result) error {
		result.Memory = said.memory()
		return emit(result)
	})
	watched := s.watch(ctx, process, rows, sheet)
	ended := errors.Join(watched, process.Wait())
	if sheet.refused != nil {
		return sheet.refused
	}
	if sheet.full() && ended == nil && sheet.waiting() {
		if err := s.sharpen(ctx, result, sheet); err != nil && ctx.Err() == nil {
			s.log(err.Error())
		}
	}
	if err := sheet.rest(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if sheet.full() {
		if ended != nil {
			s.log("after its last row: " + ended.Error())
		}
		return nil
	}
	if ended == nil {
		ended = fmt.Errorf("%d of %d rows: %w", len(sheet.rows), len(sheet.order)*r.rows(), errShort)
	}
	if missing := s.moduleMissing(ended); missing != nil && !rows.begun {
		return missing
	}
	died := &engine.DiedError{Engine: "sglang", OutOfMemory: outOfMemory(ended, watched != nil), Err: ended}
	if rows.begun {
		died.Task = r.tasks[sheet.order[sheet.next()]][0].ID
	}
	return died
}

// maxStartUp bounds what is kept of a start's log in bytes.
const maxStartUp = 1 << 20

// startUp keeps the begin of a log, in which the engine says what memory it
// takes, and passes all of it on.
type startUp struct {
	next   io.Writer                 // nil for nowhere
	mark   func(name, source string) // nil for nobody
	mu     sync.Mutex
	text   bytes.Buffer
	loaded bool
}

// loading tells once that the weights are in memory. The line that says so may
// come on either stream.
func (u *startUp) loading(text []byte) {
	if !u.loaded && u.mark != nil && bytes.Contains(text, []byte("Load weight end")) {
		u.loaded = true
		u.mark(engine.MarkLoaded, "log: Load weight end")
	}
}

// Write never fails for want of a listener.
func (u *startUp) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.loading(p)
	if u.text.Len()+len(p) <= maxStartUp {
		u.text.Write(p)
	}
	if u.next != nil {
		return u.next.Write(p)
	}
	return len(p), nil
}

// line takes a line of the other stream.
func (u *startUp) line(text string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.loading([]byte(text))
	if u.text.Len()+len(text) < maxStartUp {
		u.text.WriteString(text)
		u.text.WriteByte('\n')
	}
}

// memory is what the engine has said of its memory so far.
func (u *startUp) memory() []profile.Point {
	u.mu.Lock()
	defer u.mu.Unlock()
	p, _, err := format.ReadLog("log", bytes.NewReader(u.text.Bytes()))
	if err != nil {
		return nil
	}
	return p.Points
}

// watch reads the rows as they are printed. A process that says nothing for
// longer than a run may take is stopped, and so is one whose rows nobody wants
// any more.
func (s *session) watch(ctx context.Context, process engine.Process, rows *reader, sheet *sheet) error {
	lines, quit, scanned := make(chan string), make(chan struct{}), make(chan error, 1)
	go scan(process.Stdout(), lines, quit, scanned)
	err := s.listen(ctx, lines, scanned, rows, sheet)
	close(quit)
	if err != nil {
		err = errors.Join(err, process.Stop(grace))
	}
	return err
}

// scan hands over the lines of a text and drops what comes after quit.
func scan(text io.Reader, lines chan<- string, quit <-chan struct{}, scanned chan<- error) {
	in := bufio.NewScanner(text)
	in.Buffer(make([]byte, 64<<10), maxLine)
	for in.Scan() {
		select {
		case lines <- in.Text():
		case <-quit:
		}
	}
	scanned <- in.Err()
	close(lines)
	_, _ = io.Copy(io.Discard, text) // so that the process can end
}

// listen takes the rows until the lines end.
func (s *session) listen(ctx context.Context, lines <-chan string, scanned <-chan error, rows *reader, sheet *sheet) error {
	patience := time.NewTimer(s.setup.StartTimeout)
	defer patience.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-patience.C:
			return fmt.Errorf("nothing was printed for too long after %d of %d rows", len(sheet.rows), len(sheet.order)*sheet.rectangle.rows())
		case line, more := <-lines:
			if !more {
				return <-scanned
			}
			if sheet.full() {
				continue
			}
			row, ok, err := rows.line(line, sheet.order[sheet.next()], sheet.output)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			if err := sheet.take(row); err != nil {
				return err
			}
			patience.Reset(s.setup.TaskTimeout)
		}
	}
}

// sharpen reads the result file.
func (s *session) sharpen(ctx context.Context, name string, sheet *sheet) error {
	file, err := s.place.CopyOut(ctx, name)
	if err != nil {
		return fmt.Errorf("read the result file: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	p, _, err := stepbench.Read("result.jsonl", file, stepbench.Options{})
	if err != nil {
		return err
	}
	var rows []sharper
	for i := range p.Points {
		point := &p.Points[i]
		mean, ok := point.Mean()
		if !ok || point.Step == nil {
			continue
		}
		switch {
		case point.Step.Mode == profile.Prefill:
			row := sharper{prefill: float64(mean)}
			if err := json.Unmarshal(point.Extra["total_latency"], &row.total); err != nil {
				row.total = 0 // it is not said
			}
			rows = append(rows, row)
		case point.Step.Mode == profile.Decode && len(rows) > 0:
			rows[len(rows)-1].decode = float64(mean)
		}
	}
	return sheet.sharpen(rows)
}

// moduleMissing recognises a Python without SGLang.
func (s *session) moduleMissing(err error) error {
	if exit, ok := errors.AsType[*engine.ExitError](err); ok && strings.Contains(exit.Stderr, "No module named 'sglang") {
		return &engine.UnusableError{Problem: engine.EngineMissing, What: "sglang in " + s.python + " on " + exit.Place, Remedy: engine.PackageRemedy(s.python, packages), Err: err}
	}
	return nil
}

// outOfMemory reports whether a process seems to have died of want of memory. Of
// one that was stopped, only its words count.
func outOfMemory(err error, stopped bool) bool {
	if exit, ok := errors.AsType[*engine.ExitError](err); ok && stopped {
		return engine.SaysOutOfMemory(exit.Stderr) // the kill was ours
	}
	return engine.OutOfMemory(err)
}

func (s *session) log(text string) {
	if s.setup.Log != nil {
		_, _ = fmt.Fprintln(s.setup.Log, "sglang: "+s.redactor.Redact(text)) // a log that fails must not fail the measurement
	}
}
