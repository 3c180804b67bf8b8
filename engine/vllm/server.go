package vllm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/profile"
)

// Server measures steps on a vLLM server. The zero value starts one of its
// own; with URL and OpenLog it attaches to one that runs.
type Server struct {
	// URL is the address of a running server, "http://host:8000". It must run
	// with --enable-logging-iteration-details.
	URL string
	// OpenLog opens that server's log as it grows: a file that is followed, or
	// the output of "kubectl logs -f". It is called at every start, and what it
	// returns is closed with the session.
	OpenLog func(ctx context.Context) (io.ReadCloser, error)
	// APIKey is sent to a running server as bearer token.
	APIKey string
	// Header goes with every request to a running server; one of its own stands
	// before the APIKey.
	Header http.Header
	// Client sends the requests to a running server; nil means one of its own.
	Client *http.Client
	// Port is where a started server listens. Default: any free one.
	Port int
}

// Name is "vllm".
func (*Server) Name() string { return "vllm" }

// Abilities are steps on the engine's wall clock.
func (*Server) Abilities() engine.Abilities {
	return engine.Abilities{Steps: true, CUDAGraphs: true, Clocks: []profile.Clock{profile.ClockWall}}
}

// Waiting times of the driver.
const (
	defaultStart = 15 * time.Minute
	defaultTask  = 10 * time.Minute
	stopGrace    = 20 * time.Second
	// poll is how often a starting server is asked whether it is well.
	poll = 250 * time.Millisecond
	// logLag is how long the log may stay behind the answers.
	logLag = 10 * time.Second
)

// Check refuses what would run as something else; of a server that runs, all
// that it has decided already.
func (s *Server) Check(setup engine.Setup) error {
	if setup.Clock != "" && setup.Clock != profile.ClockWall {
		return fmt.Errorf("start vllm: clock %q: a server's steps are timed by its own wall clock", setup.Clock)
	}
	if s.URL != "" {
		return decided(setup)
	}
	if n := setup.Deploy.DataParallel; n > 1 {
		return &StartError{Reason: fmt.Sprintf("%d data-parallel engines: the steps of one engine at a time can be read", n), Remedy: "measure one replica: data_parallel_size 1"}
	}
	return unsupported(setup.Deploy)
}

// Start starts a server, or attaches to one.
func (s *Server) Start(ctx context.Context, place engine.Place, setup engine.Setup) (engine.Session, error) {
	if err := s.Check(setup); err != nil {
		return nil, err
	}
	if setup.StartTimeout <= 0 {
		setup.StartTimeout = defaultStart
	}
	if setup.TaskTimeout <= 0 {
		setup.TaskTimeout = defaultTask
	}
	if s.URL != "" {
		return s.attach(ctx, place, setup)
	}
	if setup.Model == "" {
		return nil, &StartError{Reason: "no model is named", Remedy: "name a folder with a config.json or a hub id"}
	}
	for attempt := 1; ; attempt++ {
		port, err := freePort(ctx, place, s.Port)
		if err != nil {
			return nil, err
		}
		session, err := launch(ctx, place, setup, port)
		// Another program may have taken the port since it was looked at.
		if errors.Is(err, errPortTaken) && s.Port == 0 && attempt < 3 {
			continue
		}
		if err != nil {
			return nil, err
		}
		return session, nil
	}
}

// program is the vllm program of a setup.
func program(setup engine.Setup) string { return cmp.Or(setup.Program, "vllm") }

// CommandLine is the server's. Where no port is asked for, it is any free one.
func (s *Server) CommandLine(setup engine.Setup, _ engine.StepTask, _, _ int) []string {
	return serveArgs(program(setup), s.Port, setup, limitsOf(setup))
}

// freePort finds a port on which nothing listens, or holds the wanted one to
// be free.
func freePort(ctx context.Context, place engine.Place, wanted int) (int, error) {
	for range 50 {
		port := wanted
		if port == 0 {
			port = 20000 + rand.IntN(12000) // a port, no secret
		}
		c, err := place.Dial(ctx, port)
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if err != nil {
			return port, nil //nolint:nilerr // nothing listens there, so it is free
		}
		_ = c.Close() // it only showed that somebody listens
		if wanted != 0 {
			return 0, &StartError{
				Reason: fmt.Sprintf("port %d on %s is taken", port, place), Remedy: "choose another port, or attach to the server that runs there",
				Err: errPortTaken,
			}
		}
	}
	return 0, &StartError{Reason: fmt.Sprintf("no free port found on %s", place), Remedy: "name a free port", Err: errPortTaken}
}

// session is a server to which tasks can be given.
type session struct {
	client   *client
	log      *follower
	setup    engine.Setup
	limits   limits
	served   served
	model    string
	facts    engine.Facts
	layers   int
	threads  int
	tokens   *prompts
	attached bool
	source   io.Closer

	// url is where this machine reaches the server; untunnel ends the way there.
	url      string
	untunnel func() error

	process engine.Process
	exited  chan struct{} // closed when the process has ended, after ended was set
	ended   error

	// gates are the ways to get a batch into one step that are left, the best
	// first; patience stretches their waits.
	gates    []gate
	patience float64
	quiet    int // runs in a row that the log told nothing of

	closing sync.Once
	closed  error
}

// launch starts a server on a port and waits until it is ready.
func launch(ctx context.Context, place engine.Place, setup engine.Setup, port int) (*session, error) {
	m, folder := known(ctx, place, setup.Model)
	l := limitsOf(setup)
	if m != nil && m.MaxSeqLen > 0 && setup.Deploy.MaxModelLen == 0 {
		l.modelLen = min(l.modelLen, m.MaxSeqLen)
	}
	program := program(setup)
	env := append(environment(m, folder, setup), "VLLM_SERVER_DEV_MODE=1")
	f := newFollower(setup, engine.RedactorOf(place, setup.Env...))
	process, err := place.Start(ctx, engine.Command{
		Argv: serveArgs(program, port, setup, l), Env: env, Stderr: &lineWriter{f: f},
	})
	if err != nil {
		if engine.Unusable(err) == engine.ProgramMissing {
			return nil, missing(program, place.String(), err)
		}
		return nil, fmt.Errorf("start vllm: %w", err)
	}
	s := &session{
		client: atPlace(place, port), log: f, setup: setup, limits: l, process: process, exited: make(chan struct{}),
		gates: []gate{pauseGate, blockGate}, tokens: newTokens(m, setup.Seed), layers: layersOf(m, setup.NumLayers),
		threads: threadsOf(setup.Deploy, env),
	}
	s.client.redactor = f.redactor
	go s.watch()
	if err := s.reach(ctx, place, port); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.ready(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// watch takes the server's output and waits for its end.
func (s *session) watch() {
	s.log.read(s.process.Stdout())
	s.ended = s.process.Wait()
	s.log.end()
	close(s.exited)
}

// ready waits for a started server to answer, and reads what it says of
// itself.
func (s *session) ready(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, s.setup.StartTimeout)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for s.client.healthy(waiting) != nil {
		select {
		case <-s.exited:
			ended := s.ended
			if ended == nil {
				ended = errors.New("vllm ended before it was ready")
			}
			return refusal(s.log.begun(), ended)
		case <-waiting.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return &StartError{
				Reason: fmt.Sprintf("not ready after %v; its last lines: %s", s.setup.StartTimeout, lastOf(s.log.lastLines(5), 5)),
				Remedy: "a longer start timeout, where the model is still loading",
			}
		case <-tick.C:
		}
	}
	said, err := s.client.ask(waiting, "")
	if err != nil {
		return fmt.Errorf("start vllm: %w", err)
	}
	s.served = said
	s.setup.Mark(engine.MarkReady, "GET /health")
	return s.verify(waiting, said)
}

// verify has the server make two tokens and holds its log to tell of it.
func (s *session) verify(ctx context.Context, said served) error {
	s.model = said.model
	mark := s.log.mark()
	if err := s.complete(ctx, [][]int{s.tokens.prompt(8)}, 2); err != nil {
		return fmt.Errorf("start vllm: a first request: %w", err)
	}
	steps := s.log.wait(ctx, mark, s.lag(), func(steps []step) bool { return len(steps) >= 2 })
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(steps) == 0 {
		return &StartError{
			Reason: "the server's log tells no iterations",
			Remedy: "start it with: vllm serve MODEL --enable-logging-iteration-details (vLLM 0.14 or later), and hand its log over as it grows",
		}
	}
	if s.log.engines() {
		return &StartError{Reason: "the log holds steps of several engines", Remedy: "measure one replica: --data-parallel-size 1"}
	}
	s.facts = s.factsOf(said, s.log.begun())
	return nil
}

// attach takes a server that runs.
func (s *Server) attach(ctx context.Context, place engine.Place, setup engine.Setup) (engine.Session, error) {
	if s.OpenLog == nil {
		return nil, &StartError{
			Reason: "no log of the server at " + s.URL + " was given",
			Remedy: "start it with --enable-logging-iteration-details and name its log file, or its pod",
		}
	}
	log, err := s.OpenLog(ctx)
	if err != nil {
		return nil, fmt.Errorf("attach to vllm at %s: open its log: %w", s.URL, err)
	}
	f := newFollower(setup, engine.RedactorOf(place, "API_KEY="+s.APIKey))
	session := &session{
		client: atURL(s.URL), log: f, setup: setup, attached: true, source: log,
		gates:  []gate{blockGate},
		exited: make(chan struct{}), url: s.URL,
	}
	session.client.redactor = f.redactor
	session.client.header = s.Header.Clone()
	if s.APIKey != "" && s.Header.Get("Authorization") == "" {
		if session.client.header == nil {
			session.client.header = http.Header{}
		}
		session.client.header.Set("Authorization", "Bearer "+s.APIKey)
	}
	if s.Client != nil {
		session.client.http = s.Client
	}
	go func() {
		f.read(log)
		f.end()
	}()
	if err := session.join(ctx, place, s.URL); err != nil {
		return nil, errors.Join(err, session.Close())
	}
	return session, nil
}

// join reads what a running server says of itself.
func (s *session) join(ctx context.Context, place engine.Place, url string) error {
	waiting, cancel := context.WithTimeout(ctx, s.setup.StartTimeout)
	defer cancel()
	if err := s.client.healthy(waiting); err != nil {
		return &engine.UnusableError{
			Problem: engine.ServiceUnreachable, What: "vllm at " + url, Err: err,
			Remedy: "check address and port; for a pod, forward its port: kubectl port-forward POD 8000",
		}
	}
	said, err := s.client.ask(waiting, s.setup.Model)
	if err != nil {
		return fmt.Errorf("attach to vllm at %s: %w", url, err)
	}
	s.served, s.limits.modelLen = said, said.maxModelLen
	m, _ := known(waiting, place, said.root)
	s.tokens, s.layers = newTokens(m, s.setup.Seed), layersOf(m, 0)
	// The lines of the past come first.
	s.log.wait(waiting, s.log.mark(), 300*time.Millisecond, func([]step) bool { return false })
	return s.verify(waiting, said)
}

// Facts is what the server said when it was ready.
func (s *session) Facts() engine.Facts { return s.facts }

// Close ends a started server; one that it attached to goes on.
func (s *session) Close() error {
	s.closing.Do(func() {
		if s.process != nil {
			s.closed = s.process.Stop(stopGrace)
			<-s.exited
		}
		if s.source != nil {
			s.closed = s.source.Close()
		}
		if s.untunnel != nil {
			s.closed = errors.Join(s.closed, s.untunnel())
		}
		s.client.http.CloseIdleConnections()
	})
	return s.closed
}

// lag is how long to wait for lines of the log.
func (s *session) lag() time.Duration { return min(logLag, s.setup.TaskTimeout) }

// died explains why the server is of no more use.
func (s *session) died(task int, err error) error {
	var ended error
	select {
	case <-s.exited:
		if ended = s.ended; ended == nil {
			ended = errors.New("the server ended")
		}
	default:
	}
	tail := s.log.lastLines(tailLines)
	d := &engine.DiedError{Engine: "vllm", Task: task, OutOfMemory: engine.SaysOutOfMemory(tail) || engine.OutOfMemory(ended), Err: errors.Join(err, ended)}
	if lines := lastOf(tail, 3); lines != "" && !strings.Contains(d.Error(), lines) {
		d.Err = fmt.Errorf("%w; its last lines: %s", d.Err, lines)
	}
	return d
}

// prompts makes prompts of random tokens.
type prompts struct {
	random    *rand.Rand
	low, high int
}

func (p *prompts) prompt(n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = p.low + p.random.IntN(p.high-p.low)
	}
	return ids
}

func (p *prompts) batch(b, n int) [][]int {
	out := make([][]int, b)
	for i := range out {
		out[i] = p.prompt(n)
	}
	return out
}
