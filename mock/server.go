package mock

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Server is a mock. It serves as a handler of another server, or with
// [Server.Start] by itself.
type Server struct {
	options Options
	clock   clock
	engine  engine
	routes  *http.ServeMux

	requests atomic.Uint64
	refused  atomic.Uint64

	mu       sync.Mutex
	http     *http.Server
	listener net.Listener
	serving  sync.WaitGroup
	stop     func() bool
	fault    error
	failed   chan struct{}
}

// New makes a server and starts its pacing thread, which Close ends.
func New(o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("set the mock up: %w", err)
	}
	o = o.withDefaults()
	k := &books{options: o, clock: newClock(), meters: newMeters(), truths: truths{limit: o.TruthEmissions}}
	s := &Server{options: o, clock: k.clock, failed: make(chan struct{})}
	var err error
	if s.engine, err = s.newEngine(k); err == nil {
		k.pacer, err = newPacer(k.clock, s.engine.keep)
	}
	if err != nil {
		return nil, fmt.Errorf("set the mock up: %w", err)
	}
	s.routes = s.newRoutes()
	return s, nil
}

// newEngine makes the engine that the options ask for.
func (s *Server) newEngine(k *books) (engine, error) {
	if s.options.Simulation != nil {
		return newSimulated(k, s.fail)
	}
	return &timetable{books: k, kv: newKVCache(s.options)}, nil
}

// fail tells that the server can serve no longer.
func (s *Server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == nil {
		s.fault = err
		close(s.failed)
	}
}

func (s *Server) newRoutes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/completions", s.guard(s.completion(false)))
	mux.HandleFunc("POST /v1/chat/completions", s.guard(s.completion(true)))
	for pattern, handler := range map[string]http.HandlerFunc{
		"GET /v1/models": s.guard(s.models),
		"POST /tokenize": s.tokenize,
		"GET /metrics":   s.metrics,
		"GET /truth":     func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.Truth()) },
		"GET /version": func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, http.StatusOK, map[string]string{"version": s.options.release()})
		},
		"GET /health": func(http.ResponseWriter, *http.Request) {},
		"/ping":       func(http.ResponseWriter, *http.Request) {},
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if s.hold(r, 0) {
				handler(w, r)
			}
		})
	}
	return mux
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Server", "llmprof-mock")
	s.routes.ServeHTTP(w, r)
}

// Start listens and serves until ctx ends or Close is called.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.http != nil {
		return errors.New("start the mock: it has been started")
	}
	server := &http.Server{
		Handler: s, ConnContext: withConnection, ReadHeaderTimeout: time.Minute,
		ErrorLog: log.New(io.Discard, "", 0), // handshakes that fail and clients that leave are no news
		// HTTP/1.1 only: a stream has its connection to itself.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	if s.secure() {
		certificate, err := tls.LoadX509KeyPair(s.options.CertFile, s.options.KeyFile)
		if err != nil {
			return fmt.Errorf("read certificate %s and key %s: %w", s.options.CertFile, s.options.KeyFile, err)
		}
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.options.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", s.options.Listen, err)
	}
	s.http, s.listener = server, listener
	s.serving.Go(func() {
		serve := server.Serve
		if s.secure() {
			serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
		}
		if err := serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.fail(fmt.Errorf("serve on %s: %w", listener.Addr(), err))
		}
	})
	s.stop = context.AfterFunc(ctx, func() { _ = server.Close() }) // Close reports
	return nil
}

func (s *Server) secure() bool { return s.options.CertFile != "" }

// Addr is where a started server listens, as host:port; empty before.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// URL is the address of a started server with its scheme; empty before.
func (s *Server) URL() string {
	switch addr := s.Addr(); {
	case addr == "":
		return ""
	case s.secure():
		return "https://" + addr
	default:
		return "http://" + addr
	}
}

// Failed is closed when a started server can serve no longer; Close says why.
func (s *Server) Failed() <-chan struct{} { return s.failed }

// Now is the clock of emit_ns and due_ns, in nanoseconds.
func (s *Server) Now() int64 { return s.clock.now() }

// Truth lists what was sent to the last clients, in the order of their requests.
func (s *Server) Truth() []Truth {
	k := s.engine.ledger()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.truths.list()
}

// Close ends the server with all open answers, and its pacing thread. A handler
// of another server is closed after that one.
func (s *Server) Close() error {
	s.mu.Lock()
	server, stop := s.http, s.stop
	s.mu.Unlock()
	if server != nil {
		stop()
		_ = server.Close() // connections that are gone are as good
		s.serving.Wait()
	}
	s.engine.ledger().pacer.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}

// Summary is what a server has done.
type Summary struct {
	// Requests are all completions that were asked for, Refused those that were
	// answered with a status of 400 or more or not at all, Completed those that
	// were answered to their end, Failed and Aborted those that a fault and those
	// that a client ended. The rest is open.
	Requests, Refused, Completed, Failed, Aborted int64
	// PromptTokens, CachedTokens and OutputTokens are those of answers that began.
	PromptTokens, CachedTokens, OutputTokens int64
	// Preemptions is how often a request lost its blocks.
	Preemptions int64
	// Writes is the number of writes to streams; LateP50, LateP99 and LateMax are
	// how long after their due time they began, to some 10 %.
	Writes                    int64
	LateP50, LateP99, LateMax time.Duration
}

// Summary is what the server has done so far.
func (s *Server) Summary() Summary {
	k := s.engine.ledger()
	k.mu.Lock()
	defer k.mu.Unlock()
	m := &k.meters
	return Summary{
		Requests: int64(s.requests.Load()), Refused: int64(s.refused.Load()),
		Completed: m.reasons["length"] + m.reasons["stop"], Failed: m.reasons["error"], Aborted: m.reasons["abort"],
		PromptTokens: m.prompt, CachedTokens: m.cached, OutputTokens: m.generated, Preemptions: s.engine.now().preemptions,
		Writes: int64(m.lateness.count), LateP50: m.lateness.quantile(0.5), LateP99: m.lateness.quantile(0.99), LateMax: time.Duration(m.lateness.max),
	}
}

// guard asks for the key.
func (s *Server) guard(next http.HandlerFunc) http.HandlerFunc {
	if s.options.APIKey == "" {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || subtle.ConstantTimeCompare([]byte(key), []byte(s.options.APIKey)) != 1 {
			writeError(w, http.StatusUnauthorized, "", "the API key is missing or wrong")
			return
		}
		next(w, r)
	}
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID          string `json:"id"`
		Object      string `json:"object"`
		Created     int64  `json:"created"`
		OwnedBy     string `json:"owned_by"`
		Root        string `json:"root"`
		MaxModelLen int    `json:"max_model_len"`
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []model{
		{s.options.Model, "model", s.clock.base.Unix(), "llmprof", s.options.Model, s.options.MaxModelLen},
	}})
}

func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(metricsOf(s.engine)) // a client that is gone wants none
}

// writeJSON answers with a document; a client that is gone gets none.
func writeJSON(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document)
}

// writeError answers with an error as OpenAI's API words it, of a parameter if
// one is named.
func writeError(w http.ResponseWriter, status int, param, message string) {
	kind := "BadRequestError"
	var named any
	if param != "" {
		named = param
	}
	switch {
	case status == http.StatusUnauthorized:
		kind = "AuthenticationError"
	case status == http.StatusTooManyRequests:
		kind = "RateLimitError"
	case status >= 500:
		kind = "InternalServerError"
	}
	writeJSON(w, status, map[string]any{"error": map[string]any{"message": message, "type": kind, "param": named, "code": status}})
}
