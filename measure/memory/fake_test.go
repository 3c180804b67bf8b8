package memory_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/gpu"
)

// bank is the memory of made-up devices: engines fill it, and as a source it is
// read.
type bank struct {
	total  int64
	others int64 // what other programs hold of each device, in bytes
	mu     sync.Mutex
	more   *sync.Cond
	// used, process and water are bytes of each device, the last the processes'
	// high-water marks; process and water may be nil.
	used, process, water []int64
	reads                int // since the last change
	broken               error
	over                 bool
	taken                []gpu.Snapshot // all that was handed on
}

func newBank(used ...int64) *bank {
	b := &bank{total: 85e9, used: used}
	b.more = sync.NewCond(&b.mu)
	return b
}

func (*bank) Name() string { return "bank" }

// Follow reads at every interval, until the bank is broken.
func (b *bank) Follow(ctx context.Context, every time.Duration, take func(gpu.Snapshot)) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		b.mu.Lock()
		if b.broken != nil {
			b.over = true
			b.more.Broadcast()
			b.mu.Unlock()
			return b.broken
		}
		s := gpu.Snapshot{Time: time.Now()}
		for i, v := range b.used {
			v += b.others
			r := gpu.Reading{Index: i, UUID: "GPU-" + strconv.Itoa(i), Name: "Imaginary 9000", MemoryUsed: &v, MemoryTotal: &b.total}
			if b.process != nil {
				r.ProcessMemory = &b.process[i]
			}
			if b.water != nil {
				r.ProcessPeak = &b.water[i]
			}
			s.Readings = append(s.Readings, r)
		}
		take(s)
		b.taken = append(b.taken, s)
		b.reads++
		b.more.Broadcast()
		b.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return nil
}

// hold sets the memory of the devices and waits until it has been read often
// enough for every reader to have noticed.
func (b *bank) hold(used ...int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = slices.Clone(used)
	for b.reads = 0; b.reads < 3 && !b.over; {
		b.more.Wait()
	}
}

// holds sets what the engine's processes hold.
func (b *bank) holds(process ...int64) {
	b.mu.Lock()
	b.process = slices.Clone(process)
	used := slices.Clone(b.used)
	b.mu.Unlock()
	b.hold(used...)
}

// fail lets reading fail, and returns when it has.
func (b *bank) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.broken = err; !b.over; {
		b.more.Wait()
	}
}

// snapshots are all that was handed on, so far.
func (b *bank) snapshots() []gpu.Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.taken)
}

// machine is a place on which vllm plays a script of testdata/eras.
type machine struct {
	*bank
	script string
	files  map[string]string
	// heard are the moments that were told, guarded by the bank's mutex.
	heard map[string]bool
}

// hear notes that a moment was told.
func (m *machine) hear(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard[name] = true
	m.more.Broadcast()
}

// told waits until the moment that a line tells of was heard, so that the memory
// does not change before it.
func (m *machine) told(line string) {
	var name string
	switch {
	case strings.Contains(line, "Starting to load model"):
		name = engine.MarkStarted
	case strings.Contains(line, "Model loading took"), strings.Contains(line, "Loading model weights took"):
		name = engine.MarkLoaded
	case strings.Contains(line, "init engine (profile"):
		name = engine.MarkReady
	default:
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for !m.heard[name] && !m.over {
		m.more.Wait()
	}
}

func (*machine) String() string                                          { return "machine" }
func (*machine) Available(context.Context) error                         { return nil }
func (*machine) CopyIn(context.Context, string, io.Reader, uint32) error { return nil }
func (*machine) Dial(context.Context, int) (net.Conn, error)             { return nil, errors.ErrUnsupported }

func (*machine) TempDir(context.Context) (string, func() error, error) {
	return "/t", func() error { return nil }, nil
}
func (m *machine) CopyOut(_ context.Context, p string) (io.ReadCloser, error) { return m.open(p) }

func (m *machine) open(path string) (io.ReadCloser, error) {
	text, ok := m.files[path]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

// Start runs vllm.
func (m *machine) Start(_ context.Context, cmd engine.Command) (engine.Process, error) {
	r, w := io.Pipe()
	p := &running{stdout: r, ended: make(chan struct{})}
	// As places do, it hands on what ends with a line end.
	stderr := engine.NewRedactor().Writer(cmd.Stderr)
	go func() {
		defer close(p.ended)
		p.err = errors.Join(m.vllm(cmd.Argv, w, stderr), stderr.Close())
		_ = w.Close()
	}()
	return p, nil
}

func (m *machine) vllm(argv []string, stdout, stderr io.Writer) error {
	if slices.Contains(argv, "--version") {
		_, err := fmt.Fprintln(stdout, "0.32.0")
		return err
	}
	for line := range strings.Lines(m.script) {
		line = strings.TrimSuffix(line, "\n")
		verb, rest, _ := strings.Cut(line, " ")
		switch {
		case strings.HasPrefix(line, "#"):
		case verb == "@used":
			var used []int64
			for word := range strings.FieldsSeq(rest) {
				v, err := strconv.ParseInt(word, 10, 64)
				if err != nil {
					return err
				}
				used = append(used, v)
			}
			m.hold(used...)
		case verb == "@stderr":
			text, err := strconv.Unquote(rest)
			if err != nil {
				return err
			}
			_, _ = io.WriteString(stderr, text)
		case verb == "@pause": // in its own time
		case verb == "@result":
			file := argv[slices.Index(argv, "--output-json")+1]
			m.files[file] = `{"avg_latency": 0.5, "latencies": [0.4, 0.5, 0.6], "percentiles": {"50": 0.5}}`
		default:
			_, _ = fmt.Fprintln(stdout, line)
			m.told(line)
		}
	}
	return nil
}

// running is a process of a machine.
type running struct {
	stdout io.Reader
	ended  chan struct{}
	err    error
}

func (*running) Stdin() io.WriteCloser      { return nil }
func (p *running) Stdout() io.Reader        { return p.stdout }
func (p *running) Stop(time.Duration) error { return p.Wait() }

func (p *running) Wait() error {
	<-p.ended
	return p.err
}

// newMachine is a machine that plays an era, with its devices at their
// baseline.
func newMachine(t *testing.T, era string, devices int) *machine {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "eras", era+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return &machine{bank: newBank(slices.Repeat([]int64{baseline}, devices)...), script: string(text), files: map[string]string{}, heard: map[string]bool{}}
}

// baseline is what every device of the eras holds before the engine, in bytes.
const baseline = 512 << 20

// session is an engine that does what a test says.
type session struct {
	facts engine.Facts
	run   func(engine.Task) engine.Result
	close func() error
}

func (s *session) Facts() engine.Facts { return s.facts }

func (s *session) Run(_ context.Context, tasks []engine.Task, emit func(engine.Result) error) error {
	for _, task := range tasks {
		r := engine.Result{Task: task}
		if s.run != nil {
			r = s.run(task)
			r.Task = task
		}
		if err := emit(r); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) Close() error {
	if s.close == nil {
		return nil
	}
	return s.close()
}
