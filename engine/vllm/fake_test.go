package vllm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmprof/llmprof/engine"
)

// fakeServer is a place on which "vllm serve" starts a server that speaks
// HTTP and writes a log as vLLM does, and schedules first come, first served.
// All of it is within one bubble of testing/synctest: connections are pipes.
type fakeServer struct {
	// budget and seats are the scheduler's limits.
	budget, seats int
	// startLog is what it says before it is ready; startExit ends it then.
	startLog  []string
	startExit error
	// loading is how long it takes to be ready.
	loading time.Duration
	// noPause has no development interface; slow is the time between the
	// arrivals of two prompts of one request, 0 for all at one moment.
	noPause bool
	slow    time.Duration
	// logs changes the lines of one iteration.
	logs func(n int, line string) []string
	// silent logs no iterations.
	silent bool
	// crashAt and hangAt are the iterations before which the engine dies or
	// stops; crash is how.
	crashAt, hangAt int
	crash           error
	crashLog        []string
	// refuse answers requests for completions.
	refuse func(prompts [][]int) (status int, body string)
	// unhealthy is the answer of /health after start; 0 is well.
	unhealthy int
	// stranger sends a request of this many tokens with every batch.
	stranger int
	// config is the model's config.json; empty for none.
	config string
	// neverReady listens to nothing; portTaken is the number of processes that
	// find their port taken, starts counts them all.
	neverReady        bool
	portTaken, starts int
	// tcp is where it listens outside of a bubble.
	tcp net.Listener
	// missing is the error of starting any process.
	missing error

	mu       sync.Mutex
	argv     []string
	env      []string
	waiting  []*fakeRequest
	running  []*fakeRequest
	paused   bool
	steps    int
	closed   chan struct{}
	wake     chan struct{}
	log      io.WriteCloser
	listener *pipeListener
	http     *http.Server
	ended    error
	pauses   int
}

type fakeRequest struct {
	prompt, output      int
	computed, generated int
	done                chan struct{}
}

func (*fakeServer) String() string { return "fake" }

func (*fakeServer) Available(context.Context) error { return nil }

func (f *fakeServer) CopyIn(context.Context, string, io.Reader, uint32) error { return nil }

func (f *fakeServer) CopyOut(_ context.Context, path string) (io.ReadCloser, error) {
	if f.config == "" || !strings.HasSuffix(path, "config.json") {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(strings.NewReader(f.config)), nil
}

func (*fakeServer) TempDir(context.Context) (string, func() error, error) {
	return "/tmp/fake", func() error { return nil }, nil
}

func (f *fakeServer) Dial(ctx context.Context, _ int) (net.Conn, error) {
	f.mu.Lock()
	l := f.listener
	f.mu.Unlock()
	if l == nil {
		return nil, errors.New("connection refused")
	}
	return l.dial(ctx)
}

// Start starts the server.
func (f *fakeServer) Start(_ context.Context, cmd engine.Command) (engine.Process, error) {
	if f.missing != nil {
		return nil, f.missing
	}
	f.starts++
	r, w := io.Pipe()
	f.argv, f.env, f.log = cmd.Argv, cmd.Env, w
	f.closed, f.wake = make(chan struct{}), make(chan struct{}, 1)
	p := &fakeProcess{server: f, stdout: r}
	go f.serve(cmd.Stderr)
	return p, nil
}

// serve is the life of the server's process.
func (f *fakeServer) serve(stderr io.Writer) {
	time.Sleep(f.loading)
	for _, line := range f.startLog {
		f.say(line)
	}
	if f.portTaken > 0 && f.starts <= f.portTaken {
		f.say("OSError: [Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address already in use")
		f.end(&engine.ExitError{Program: "vllm", Place: "fake", Code: 1})
		return
	}
	if f.neverReady {
		<-f.closed
		return
	}
	if f.startExit != nil {
		fmt.Fprintln(stderr, "Traceback (most recent call last):")
		f.end(f.startExit)
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if f.unhealthy > 0 && f.count() > 2 {
			w.WriteHeader(f.unhealthy)
		}
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"version":"0.32.0"}`) })
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"object":"list","data":[{"id":"tiny","root":"/m/tiny","max_model_len":2048}]}`)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `vllm:cache_config_info{block_size="128",cache_dtype="auto",enable_prefix_caching="False",engine="0",kv_cache_memory_bytes="1073741824",kv_cache_size_tokens="524288",num_cpu_blocks="None",num_gpu_blocks="4096"} 1.0`)
	})
	mux.HandleFunc("POST /v1/completions", f.complete)
	if !f.noPause {
		mux.HandleFunc("POST /pause", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("mode") != "keep" {
				http.Error(w, "requests of others are aborted", http.StatusTeapot)
				return
			}
			f.mu.Lock()
			f.paused = true
			f.pauses++
			f.mu.Unlock()
			fmt.Fprint(w, `{"status":"paused"}`)
		})
		mux.HandleFunc("POST /resume", func(w http.ResponseWriter, _ *http.Request) {
			f.mu.Lock()
			f.paused = false
			f.mu.Unlock()
			f.poke()
			fmt.Fprint(w, `{"status":"resumed"}`)
		})
	}
	f.mu.Lock()
	f.listener = newPipeListener()
	f.http = &http.Server{Handler: mux}
	l, server := net.Listener(f.listener), f.http
	if f.tcp != nil {
		l = f.tcp
	}
	f.mu.Unlock()
	go server.Serve(l) // it ends with Close
	f.schedule()
}

func (f *fakeServer) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.steps
}

func (f *fakeServer) say(line string) { fmt.Fprintln(f.log, line) }

func (f *fakeServer) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// end ends the process.
func (f *fakeServer) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.closed:
		return
	default:
	}
	f.ended = err
	if f.http != nil {
		f.http.Close()
		f.listener.Close()
	}
	f.log.Close()
	close(f.closed)
}

func (f *fakeServer) complete(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Model     string  `json:"model"`
		Prompt    [][]int `json:"prompt"`
		MaxTokens int     `json:"max_tokens"`
		IgnoreEOS bool    `json:"ignore_eos"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Model != "tiny" || !body.IgnoreEOS {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	if f.refuse != nil {
		if status, text := f.refuse(body.Prompt); status != 0 {
			http.Error(w, text, status)
			return
		}
	}
	total := 0
	for _, p := range body.Prompt {
		total += len(p)
	}
	var requests []*fakeRequest
	add := func(output int, prompts ...int) {
		f.mu.Lock()
		for _, prompt := range prompts {
			q := &fakeRequest{prompt: prompt, output: output, done: make(chan struct{})}
			requests, f.waiting = append(requests, q), append(f.waiting, q)
		}
		f.mu.Unlock()
		f.poke()
	}
	if f.stranger > 0 && body.MaxTokens > 2 {
		add(3, f.stranger)
	}
	var lengths []int
	for _, p := range body.Prompt {
		lengths = append(lengths, len(p))
	}
	if f.slow == 0 { // at one moment, whatever the machine does
		add(body.MaxTokens, lengths...)
	} else {
		for i, n := range lengths {
			if i > 0 {
				time.Sleep(f.slow)
			}
			add(body.MaxTokens, n)
		}
	}
	for _, q := range requests {
		select {
		case <-q.done:
		case <-f.closed:
			return
		case <-r.Context().Done():
			return
		}
	}
	fmt.Fprintf(w, `{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, total, body.MaxTokens*len(body.Prompt))
}

// schedule runs steps: running requests first, then waiting ones, each up to
// what is left of the budget.
func (f *fakeServer) schedule() {
	for {
		f.mu.Lock()
		idle := f.paused || len(f.running)+len(f.waiting) == 0
		f.mu.Unlock()
		if idle {
			select {
			case <-f.wake:
			case <-f.closed:
				return
			}
			continue
		}
		if f.hangAt > 0 && f.steps == f.hangAt {
			<-f.closed
			return
		}
		if f.crashAt > 0 && f.steps == f.crashAt {
			for _, line := range f.crashLog {
				f.say(line)
			}
			f.end(f.crash)
			return
		}
		line := f.step()
		lines := []string{line}
		if f.logs != nil {
			lines = f.logs(f.count()-1, line)
		}
		for _, l := range lines {
			if !f.silent {
				f.say(l)
			}
		}
		f.finish()
		select {
		case <-f.closed:
			return
		default:
		}
	}
}

// step runs one step and returns its line of the log.
func (f *fakeServer) step() string {
	f.mu.Lock()
	left := f.budget
	var contextRequests, contextTokens, generationRequests int
	for _, q := range f.running {
		switch {
		case left == 0:
		case q.computed < q.prompt:
			n := min(left, q.prompt-q.computed)
			q.computed += n
			left -= n
			contextRequests++
			contextTokens += n
			if q.computed == q.prompt {
				q.generated = 1
			}
		default:
			q.generated++
			left--
			generationRequests++
		}
	}
	for len(f.waiting) > 0 && left > 0 && len(f.running) < f.seats {
		q := f.waiting[0]
		f.waiting = f.waiting[1:]
		f.running = append(f.running, q)
		n := min(left, q.prompt)
		q.computed = n
		left -= n
		contextRequests++
		contextTokens += n
		if q.computed == q.prompt {
			q.generated = 1
		}
	}
	n := f.steps
	f.steps++
	f.mu.Unlock()
	took := time.Millisecond + time.Duration(contextTokens)*50*time.Microsecond + time.Duration(generationRequests)*100*time.Microsecond
	time.Sleep(took)
	return fmt.Sprintf("(APIServer pid=9) INFO 11-21 00:37:21 [loggers.py:199] Engine 000: Iteration(%d): %d context requests, %d context tokens, "+
		"%d generation requests, %d generation tokens, iteration elapsed time: %.2f ms, CPU KV cache usage: 0.1%%",
		n, contextRequests, contextTokens, generationRequests, generationRequests, took.Seconds()*1e3)
}

// finish answers the requests that have all their tokens.
func (f *fakeServer) finish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	rest := f.running[:0]
	for _, q := range f.running {
		if q.generated >= q.output {
			close(q.done)
		} else {
			rest = append(rest, q)
		}
	}
	f.running = rest
}

// fakeProcess is the server's process.
type fakeProcess struct {
	server *fakeServer
	stdout io.Reader
}

func (*fakeProcess) Stdin() io.WriteCloser { return nopCloser{io.Discard} }
func (p *fakeProcess) Stdout() io.Reader   { return p.stdout }

func (p *fakeProcess) Wait() error {
	<-p.server.closed
	return p.server.ended
}

func (p *fakeProcess) Stop(time.Duration) error {
	p.server.end(nil)
	return nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// pipeListener accepts pipes.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (*pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// growing is a file that another writes and that is followed.
type growing struct {
	mu   sync.Mutex
	text []byte
	more chan struct{}
}

func newGrowing() *growing { return &growing{more: make(chan struct{})} }

func (g *growing) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.text = append(g.text, p...)
	close(g.more)
	g.more = make(chan struct{})
	return len(p), nil
}

// Close is for those who write.
func (*growing) Close() error { return nil }

// open follows the file from its beginning.
func (g *growing) open(context.Context) (io.ReadCloser, error) {
	return &growingReader{file: g, closed: make(chan struct{})}, nil
}

// growingReader is a file that was opened.
type growingReader struct {
	file   *growing
	at     int
	once   sync.Once
	closed chan struct{}
}

func (r *growingReader) Read(p []byte) (int, error) {
	for {
		r.file.mu.Lock()
		n := copy(p, r.file.text[r.at:])
		more := r.file.more
		r.file.mu.Unlock()
		select {
		case <-r.closed:
			return 0, io.EOF
		default:
		}
		if r.at += n; n > 0 {
			return n, nil
		}
		select {
		case <-more:
		case <-r.closed:
		}
	}
}

func (r *growingReader) Close() error {
	r.once.Do(func() { close(r.closed) })
	return nil
}

// attachable runs the server outside of a bubble, as one that others started,
// and returns its address and its log.
func (f *fakeServer) attachable(t *testing.T) (url string, log *growing) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // a test's own port
	if err != nil {
		t.Fatal(err)
	}
	log = newGrowing()
	f.tcp, f.log, f.loading = l, log, 0
	f.closed, f.wake = make(chan struct{}), make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.serve(io.Discard)
	}()
	t.Cleanup(func() {
		f.end(nil)
		<-done
	})
	return "http://" + l.Addr().String(), log
}

// hintOf is the first hint of an error.
func hintOf(err error) string {
	var hint interface{ Hint() string }
	if errors.As(err, &hint) {
		return hint.Hint()
	}
	return ""
}
