package gpu

import (
	"bufio"
	stdbytes "bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Host is where the devices are: it starts programs there.
type Host interface {
	// Start runs a program and returns its standard output; closing that, or
	// the end of ctx, ends the program. Where there is no such program, the
	// error, or that of the first Read, wraps [exec.ErrNotFound]. A program
	// that failed ends its output with an error in place of io.EOF, where the
	// host can tell.
	Start(ctx context.Context, argv ...string) (io.ReadCloser, error)
}

// Local is this machine.
func Local() Host { return local{} }

type local struct{}

// Start runs a program of this machine.
func (local) Start(ctx context.Context, argv ...string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	out := &output{name: argv[0], cmd: cmd, cancel: cancel}
	cmd.Stderr = &out.complaint
	cmd.WaitDelay = time.Second
	var err error
	if out.pipe, err = cmd.StdoutPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, err // names the program
	}
	return out, nil
}

// output is what a program of this machine prints.
type output struct {
	name      string
	cmd       *exec.Cmd
	cancel    context.CancelFunc
	pipe      io.ReadCloser
	complaint head
	once      sync.Once
	err       error
}

// Read ends with the program's failure where it failed.
func (o *output) Read(p []byte) (int, error) {
	n, err := o.pipe.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if failure := o.wait(); failure != nil {
		if text := strings.TrimSpace(o.complaint.String()); text != "" {
			return n, fmt.Errorf("%s: %w: %s", o.name, failure, text)
		}
		return n, fmt.Errorf("%s: %w", o.name, failure)
	}
	return n, io.EOF
}

func (o *output) wait() error {
	o.once.Do(func() { o.err = o.cmd.Wait() })
	return o.err
}

// Close kills the program.
func (o *output) Close() error {
	o.cancel()
	_ = o.pipe.Close() // lets a Read go that still waits for what the program left behind
	_ = o.wait()       // it was killed
	return nil
}

// maxComplaint bounds what is kept of a program's stderr, in bytes.
const maxComplaint = 2 << 10

// head keeps the beginning of what is written to it.
type head struct{ stdbytes.Buffer }

// Write takes all and keeps what fits.
func (h *head) Write(p []byte) (int, error) {
	if room := maxComplaint - h.Len(); room > 0 {
		_, _ = h.Buffer.Write(p[:min(room, len(p))]) // a buffer takes everything
	}
	return len(p), nil
}

// maxLine bounds a line of a tool's output in bytes.
const maxLine = 1 << 20

// eachLine starts a program and hands on its lines until it ends. A last line
// without a line break is cut off and left out. It returns nil when ctx has
// ended or the program ended well; a fault of line ends the program.
func eachLine(ctx context.Context, h Host, line func(string) error, argv ...string) error {
	out, err := h.Start(ctx, argv...)
	if err != nil {
		return err
	}
	defer out.Close()
	defer context.AfterFunc(ctx, func() { _ = out.Close() })()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxLine)
	lines.Split(wholeLines)
	for lines.Scan() {
		if err := line(lines.Text()); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return stoppedOr(ctx, lines.Err())
}

// wholeLines splits at line breaks and drops what follows the last one.
func wholeLines(text []byte, end bool) (int, []byte, error) {
	if i := stdbytes.IndexByte(text, '\n'); i >= 0 {
		return i + 1, stdbytes.TrimSuffix(text[:i], []byte{'\r'}), nil
	}
	if end {
		return len(text), nil, nil
	}
	return 0, nil, nil
}

// ask runs a program to its end and parses what it prints.
func ask[T any](ctx context.Context, h Host, parse func(io.Reader) (T, error), argv ...string) (T, error) {
	var none T
	out, err := h.Start(ctx, argv...)
	if err != nil {
		return none, err
	}
	defer out.Close()
	defer context.AfterFunc(ctx, func() { _ = out.Close() })()
	text, err := io.ReadAll(io.LimitReader(out, maxText))
	if err != nil {
		return none, err
	}
	return parse(stdbytes.NewReader(text))
}
