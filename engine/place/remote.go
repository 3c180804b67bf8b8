package place

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llmprof/llmprof/engine"
)

// Remote is a place that is reached through a shell: a container, a pod,
// another host. [Docker], [Podman], [Kubectl] and [SSH] make it.
type Remote struct {
	name     string
	redactor *engine.Redactor
	door     door
}

// door opens a shell at a place.
type door interface {
	// open runs "sh -c script" there. The shell ends when its stdin does or
	// the connection is dropped; ctx is for the way there only.
	open(ctx context.Context, script string, stderr io.WriteCloser, last *tail) (link, error)
	// explain says why no shell came up: its status and what it, or whatever
	// leads to it, said. Nil where that is not known.
	explain(status int, text string) error
}

// link is a shell that was opened.
type link interface {
	stdin() io.WriteCloser
	stdout() io.Reader
	// wait waits for the end and returns the exit status, or -1 with the name
	// of the signal.
	wait() (status int, signal string, err error)
	// drop cuts the connection.
	drop()
}

// String names the place as [Parse] reads it.
func (r *Remote) String() string { return r.name }

// Redactor knows the secrets of the environment that leads to the place, and of
// the image where one is started.
func (r *Remote) Redactor() *engine.Redactor { return r.redactor }

// Available finds out whether a shell can be started at the place.
func (r *Remote) Available(ctx context.Context) error {
	s, err := r.run(ctx, func(mark string) string { return "echo " + mark + " here\n" })
	if err != nil {
		return err
	}
	s.close(time.Second)
	return nil
}

// session is a shell that runs a script and has answered with its mark.
type session struct {
	place string
	mark  string
	link  link
	out   *bufio.Reader // stdout after the answer
	word  string        // the first word of the answer after the mark
	rest  string        // the others
	last  *tail
	noise []byte // what stdout said before the answer
}

// run starts a script of ours and waits for its answer.
func (r *Remote) run(ctx context.Context, script func(mark string) string) (*session, error) {
	return r.runWith(ctx, script, listen(engine.Command{}, r.redactor))
}

// answerBound is how much may come before the answer: a login shell's start-up
// files may print.
const answerBound = 1 << 20

// runWith starts a script and waits for its answer.
func (r *Remote) runWith(ctx context.Context, script func(mark string) string, stderr said) (*session, error) {
	mark := newMark()
	l, err := r.door.open(ctx, bootstrap(mark), stderr, stderr.last)
	if err != nil {
		return nil, err
	}
	s := &session{place: r.name, mark: mark, link: l, out: bufio.NewReader(l.stdout()), last: stderr.last}
	dropped := context.AfterFunc(ctx, l.drop)
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(l.stdin(), script(mark)+mark+"\n")
		sent <- err
	}()
	err = s.answer()
	if !dropped() {
		return nil, fmt.Errorf("start a shell on %s: %w", r.name, context.Cause(ctx))
	}
	if err != nil {
		_ = l.stdin().Close()
		time.AfterFunc(killPatience, l.drop) // so that nothing hangs on a door that neither opens nor closes
		status, _, waitErr := l.wait()
		l.drop()
		<-sent //nolint:errcheck // why the shell ended matters more
		text := strings.TrimSpace(stderr.last.String() + "\n" + r.redactor.Redact(strings.TrimSpace(string(s.noise))))
		if why := r.door.explain(status, text); why != nil {
			return nil, why
		}
		if text == "" && waitErr != nil {
			text = waitErr.Error()
		}
		return nil, fmt.Errorf("start a shell on %s: it ended with status %d: %w", r.name, status, orSilence(text))
	}
	if err := <-sent; err != nil {
		l.drop()
		return nil, fmt.Errorf("start a shell on %s: %w", r.name, err)
	}
	return s, nil
}

// orSilence makes an error of what was said.
func orSilence(text string) error {
	if text == "" {
		text = "it said nothing"
	}
	return errors.New(text)
}

// answer reads stdout up to the next line with the mark.
func (s *session) answer() error {
	var line []byte
	for read := 0; read < answerBound; {
		piece, err := s.out.ReadSlice('\n')
		read += len(piece)
		line = append(line, piece...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if len(s.noise) < keptStderr {
			s.noise = append(s.noise, line...)
		}
		if err != nil {
			return err
		}
		if _, text, found := strings.Cut(string(line), s.mark+" "); found {
			s.word, s.rest, _ = strings.Cut(strings.TrimSpace(text), " ")
			return nil
		}
		line = line[:0]
	}
	return errors.New("no answer came")
}

// close ends the shell by closing its stdin, and by force after patience.
func (s *session) close(patience time.Duration) {
	_ = s.link.stdin().Close()
	timer := time.AfterFunc(patience, s.link.drop)
	go func() { _, _ = io.Copy(io.Discard, s.out) }()
	_, _, _ = s.link.wait()
	timer.Stop()
	s.link.drop()
}

// drop ends the shell by force.
func (s *session) drop() {
	s.link.drop()
	_, _, _ = s.link.wait()
}

// remoteProcess is a program that a shell at the place runs.
type remoteProcess struct {
	*session
	program string
	guard   *session

	mu     sync.Mutex // of killed, and of what is said to the guard
	killed bool
	termed bool

	ended chan struct{} // closed when err is set
	err   error
}

// Start starts a program in a process group of its own. Arguments, variables
// and the working folder go over the shell's stdin, so that no secret stands
// in a command line. A second connection stands guard: through it the group is
// ended on Stop, and when it breaks, because this program died or the network
// did, the group is ended at the place.
func (r *Remote) Start(ctx context.Context, cmd engine.Command) (engine.Process, error) {
	if err := checkCommand(ctx, r, cmd); err != nil {
		return nil, err
	}
	s, err := r.runWith(ctx, func(mark string) string {
		return programScript(mark, cmd.Argv, cmd.Env, cmd.Dir)
	}, listen(cmd, r.redactor.With(cmd.Env...)))
	if err != nil {
		return nil, err
	}
	p := &remoteProcess{session: s, program: cmd.Argv[0], ended: make(chan struct{})}
	leader, numberErr := strconv.Atoi(s.rest)
	switch {
	case s.word == "folder":
		s.drop()
		return nil, fmt.Errorf("start %s on %s: folder %s: %w", p.program, r, cmd.Dir, fs.ErrNotExist)
	case s.word == "missing" || s.word == "denied":
		s.drop()
		return nil, remoteProgramError(r.name, p.program, s.word == "denied")
	case s.word != "group" && s.word != "process" || numberErr != nil || leader < 2:
		s.drop()
		return nil, fmt.Errorf("start %s on %s: the shell answered %q", p.program, r, s.word+" "+s.rest)
	}
	p.guard, err = r.run(ctx, func(mark string) string {
		return remoteGuardScript(mark, strconv.Itoa(leader), s.word == "group")
	})
	if err != nil {
		_ = s.link.stdin().Close()
		s.drop()
		return nil, fmt.Errorf("stand guard over %s on %s: %w", p.program, r, err)
	}
	go p.watch(context.AfterFunc(ctx, func() { _ = p.Stop(contextGrace) }))
	return p, nil
}

// remoteProgramError says that a program cannot be run.
func remoteProgramError(place, program string, denied bool) error {
	if denied {
		return &engine.UnusableError{
			Problem: engine.PermissionDenied, What: "program " + program + " on " + place, Remedy: "chmod +x " + program + " there",
		}
	}
	return &engine.UnusableError{
		Problem: engine.ProgramMissing, What: "program " + program + " on " + place,
		Remedy: "install " + program + " there, or give its full path: the PATH is that of a shell without a login",
	}
}

// watch waits for the end of the program and then sends the guard home.
func (p *remoteProcess) watch(forget func() bool) {
	status, signal, err := p.link.wait()
	forget()
	p.tell("done")
	timer := time.AfterFunc(3*leftGrace, p.guard.link.drop)
	_, _, _ = p.guard.link.wait()
	timer.Stop()
	p.guard.link.drop()
	p.mu.Lock()
	defer p.mu.Unlock()
	if status != 0 || err != nil {
		p.err = p.exitError(status, signal, err)
	}
	close(p.ended)
}

// exitError says how the program ended.
func (p *remoteProcess) exitError(status int, signal string, err error) error {
	e := &engine.ExitError{Program: p.program, Place: p.place, Code: status, Signal: signal, Stderr: p.last.String()}
	switch {
	case p.killed && (status < 128 || status == 255):
		e.Code, e.Signal = -1, "SIGKILL" // it took the shell with it, which would have said so
	case status > 128 && status <= 128+31:
		e.Code, e.Signal = -1, signalName(status-128)
	}
	if strings.HasPrefix(p.place, "kubectl:") {
		e.Stderr = strings.TrimSpace(kubectlStatus.ReplaceAllString(e.Stderr, ""))
	}
	if err != nil && e.Stderr == "" {
		e.Stderr = err.Error()
	}
	return e
}

// Stdin feeds the program.
func (p *remoteProcess) Stdin() io.WriteCloser { return p.link.stdin() }

// Stdout is what the program prints.
func (p *remoteProcess) Stdout() io.Reader { return p.out }

// Wait waits until the program and what it started have ended.
func (p *remoteProcess) Wait() error {
	<-p.ended
	return p.err
}

// Stop asks the program's group to end, waits for it, and kills it after
// grace. Where that does not help the connection is cut.
func (p *remoteProcess) Stop(grace time.Duration) error {
	p.mu.Lock()
	first := !p.termed
	p.termed = true
	p.mu.Unlock()
	if first {
		p.tell("TERM")
	}
	if p.endsWithin(grace) {
		return nil
	}
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	p.tell("KILL")
	if p.endsWithin(killPatience) {
		return nil
	}
	p.link.drop()
	return fmt.Errorf("stop %s on %s: it lives on %v after SIGKILL, or the connection is broken", p.program, p.place, killPatience)
}

// tell says a word to the guard. One that is no longer there has ended the
// group itself.
func (p *remoteProcess) tell(word string) {
	_, _ = io.WriteString(p.guard.link.stdin(), word+"\n")
}

// endsWithin waits for the end.
func (p *remoteProcess) endsWithin(patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.ended:
		return true
	case <-timer.C:
		return false
	}
}
