package vllm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/format/vllmlog"
)

// Bounds of what is kept of a log.
const (
	maxLine    = 64 << 10
	maxStartUp = 4 << 20
	maxSteps   = 1 << 18
	tailLines  = 40
)

// step is one line of the log that tells a step.
type step struct {
	vllmlog.Iteration
	// gap says that lines before it are missing.
	gap bool
}

// follower reads a server's log line by line and keeps its steps. All its
// methods may be called at the same time.
type follower struct {
	mu sync.Mutex
	// out is where lines are passed on; nil for nowhere.
	out io.Writer
	// startUp is the text up to the first request, tail the last lines.
	startUp bytes.Buffer
	started bool
	tail    []string
	// steps are those since number base.
	steps []step
	base  int
	// engine is the number of the engine in the first step's line, several
	// that others came after it.
	engine  string
	several bool
	// ended says that nothing more comes.
	ended bool
	// changed is closed and replaced with every step and at the end.
	changed  chan struct{}
	redactor *engine.Redactor
	// tell is told of moments in the server's life, each once.
	tell func(name, source string)
	told map[string]bool
}

// newFollower passes lines on to the setup's log without the secrets that the
// redactor knows, and moments that they tell to the setup's Marked.
func newFollower(setup engine.Setup, redactor *engine.Redactor) *follower {
	return &follower{out: setup.Log, changed: make(chan struct{}), redactor: redactor, tell: setup.Mark, told: map[string]bool{}}
}

// moment is a line that tells of a moment, by words of it.
type moment struct{ words, name, source string }

// moments are the lines of all releases that tell of one. The last is a
// progress bar of vllm bench latency, whose line ends with the last warm-up run.
func moments() []moment {
	return []moment{
		{"Starting to load model", engine.MarkStarted, "log: Starting to load model"},
		{"Model loading took", engine.MarkLoaded, "log: Model loading took"},
		{"Loading model weights took", engine.MarkLoaded, "log: Loading model weights took"},
		{"init engine (profile", engine.MarkReady, "log: init engine"},
		{"Warmup iterations:", engine.MarkWarm, "log: Warmup iterations"},
	}
}

// moment tells of what a line says of the engine's life.
func (f *follower) moment(text string) {
	for _, m := range moments() {
		if f.told[m.name] || !strings.Contains(text, m.words) {
			continue
		}
		f.told[m.name] = true
		f.tell(m.name, m.source)
	}
}

var engineName = regexp.MustCompile(`Engine (\d+): Iteration\(`)

// read takes lines until r ends.
func (f *follower) read(r io.Reader) {
	b := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := b.ReadSlice('\n')
		f.line(strings.TrimRight(string(line), "\r\n"))
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = b.ReadSlice('\n') // the rest of a line that is too long
		}
		if err != nil {
			return
		}
	}
}

// line takes one line.
func (f *follower) line(text string) {
	if text == "" {
		return
	}
	it, ok := vllmlog.ParseIteration(text)
	text = f.redactor.Redact(text)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.out != nil {
		if _, err := io.WriteString(f.out, text+"\n"); err != nil {
			f.out = nil // a listener that fails must not hold up the server
		}
	}
	if !f.started && f.startUp.Len()+len(text) < maxStartUp {
		f.moment(text)
		f.startUp.WriteString(text)
		f.startUp.WriteByte('\n')
	}
	if !ok {
		if len(f.tail) == tailLines {
			f.tail = append(f.tail[:0], f.tail[1:]...)
		}
		f.tail = append(f.tail, text)
		return
	}
	if !it.Dummy {
		f.add(it, text)
	}
}

// add keeps a step, but for one that stands twice.
func (f *follower) add(it vllmlog.Iteration, text string) {
	if found := engineName.FindStringSubmatch(text); found != nil {
		if f.engine == "" {
			f.engine = found[1]
		}
		f.several = f.several || f.engine != found[1]
	}
	s := step{Iteration: it}
	if n := len(f.steps); n > 0 {
		for _, old := range f.steps[max(0, n-8):] {
			if old.Iteration == it {
				return
			}
		}
		s.gap = it.Number != f.steps[n-1].Number+1
	}
	if len(f.steps) == maxSteps {
		f.base += maxSteps / 2
		f.steps = append(f.steps[:0], f.steps[maxSteps/2:]...)
	}
	f.steps = append(f.steps, s)
	f.signal()
}

func (f *follower) signal() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// end says that no more lines come.
func (f *follower) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	f.signal()
}

// mark is the place in the log from which on since returns steps.
func (f *follower) mark() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.base + len(f.steps)
}

// since returns the steps from a mark on, and a channel that is closed when
// there is more.
func (f *follower) since(mark int) (steps []step, more <-chan struct{}, ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append(steps, f.steps[min(max(mark-f.base, 0), len(f.steps)):]...), f.changed, f.ended
}

// wait returns the steps from a mark on as soon as they satisfy enough, and
// what is there when ctx ends, the log does, or nothing has come for quiet.
func (f *follower) wait(ctx context.Context, mark int, quiet time.Duration, enough func([]step) bool) []step {
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for {
		steps, more, ended := f.since(mark)
		if enough(steps) || ended {
			return steps
		}
		select {
		case <-more:
			timer.Reset(quiet)
		case <-timer.C:
			return steps
		case <-ctx.Done():
			return steps
		}
	}
}

// begun ends the start-up and returns its text.
func (f *follower) begun() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started = true
	return f.startUp.String()
}

// lastLines are the last lines that tell no step.
func (f *follower) lastLines(n int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.tail[max(0, len(f.tail)-n):], "\n")
}

// engines reports whether steps of several engines were seen.
func (f *follower) engines() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.several
}

// lineWriter hands what is written to a follower, line by line.
type lineWriter struct {
	f    *follower
	mu   sync.Mutex
	part []byte
}

// Write never fails.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for rest := p; len(rest) > 0; {
		at := bytes.IndexByte(rest, '\n')
		if at < 0 {
			w.part = append(w.part, rest[:min(len(rest), max(0, maxLine-len(w.part)))]...)
			break
		}
		w.part = append(w.part, rest[:min(at, max(0, maxLine-len(w.part)))]...)
		w.f.line(strings.TrimRight(string(w.part), "\r"))
		w.part = w.part[:0]
		rest = rest[at+1:]
	}
	return len(p), nil
}
