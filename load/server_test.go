package load

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmprof/llmprof/workload"
)

// asked is a request as the test server saw it.
type asked struct {
	conn   net.Conn
	number int // of all requests, from 0
	header http.Header
	path   string
	body   struct {
		Model         string          `json:"model"`
		Prompt        json.RawMessage `json:"prompt"`
		MaxTokens     int             `json:"max_tokens"`
		MinTokens     int             `json:"min_tokens"`
		IgnoreEOS     bool            `json:"ignore_eos"`
		Stream        bool            `json:"stream"`
		StreamOptions struct {
			Usage   bool `json:"include_usage"`
			Running bool `json:"continuous_usage_stats"`
		} `json:"stream_options"`
		Messages []struct{ Role, Content string } `json:"messages"`
	}
	raw string
}

func (a *asked) write(text string) { _, _ = io.WriteString(a.conn, text) }

// answer is how the server deals with a request; false ends the connection.
type answer func(*asked) bool

// server speaks HTTP by hand, so that it can speak it wrongly.
type server struct {
	listener net.Listener
	answer   answer
	mu       sync.Mutex
	seen     int
	conns    map[net.Conn]bool
	accepted int
	wg       sync.WaitGroup
}

func newServer(listener net.Listener, how answer) *server {
	s := &server{listener: listener, answer: how, conns: map[net.Conn]bool{}}
	s.wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = true
			s.accepted++
			s.mu.Unlock()
			s.wg.Go(func() { s.serve(c) })
		}
	})
	return s
}

func (s *server) serve(c net.Conn) {
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	in := bufio.NewReader(c)
	for {
		q, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		text, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		a := &asked{conn: c, header: q.Header, path: q.URL.Path, raw: string(text)}
		if err := json.Unmarshal(text, &a.body); err != nil {
			return
		}
		s.mu.Lock()
		a.number = s.seen
		s.seen++
		s.mu.Unlock()
		if !s.answer(a) {
			return
		}
	}
}

func (s *server) url() string { return "http://" + s.listener.Addr().String() }

// open counts connections that are open.
func (s *server) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// requests and connections count all that came.
func (s *server) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

func (s *server) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

func (s *server) close() {
	s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// serve starts a server for a test.
func serve(t testing.TB, how answer) *server {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(listener, how)
	t.Cleanup(s.close)
	return s
}

const streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"

// framed is text as a chunk of HTTP's chunked encoding.
func framed(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }

const lastFrame = "0\r\n\r\n"

// event is a completion chunk with text.
func event(text string) string {
	return fmt.Sprintf("data: {\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":%q,\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null}],\"usage\":null}\n\n", text)
}

// ending is usage and the end mark.
func endOf(prompt, output int) string {
	return fmt.Sprintf("data: {\"id\":\"cmpl-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", prompt, prompt+output, output)
}

// steady streams the tokens that were asked for: the first after ttft, the
// others gap apart, due times exact. stamp, if not nil, is told each emission.
func steady(ttft, gap time.Duration, stamp func(a *asked, at time.Time)) answer {
	chunk := framed(event("word "))
	return func(a *asked) bool {
		due := time.Now().Add(ttft)
		out := max(a.body.MaxTokens, 1)
		a.write(streamHead)
		for range out {
			time.Sleep(time.Until(due))
			if stamp != nil {
				stamp(a, time.Now())
			}
			if _, err := io.WriteString(a.conn, chunk); err != nil {
				return false
			}
			due = due.Add(gap)
		}
		a.write(framed(endOf(3, out)) + lastFrame)
		return true
	}
}

// TestMain lets the test binary be a server in a process of its own, so that
// the client's CPU time can be told from the server's.
func TestMain(m *testing.M) {
	if timing := os.Getenv("LLMPROF_TEST_SERVER"); timing != "" {
		var ttft, gap time.Duration
		if _, err := fmt.Sscan(timing, (*nanos)(&ttft), (*nanos)(&gap)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		s := newServer(listener, steady(ttft, gap, nil))
		fmt.Println(s.url())
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent ends
		s.close()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// nanos is scanned as a Go duration.
type nanos time.Duration

// Scan is for fmt.
func (n *nanos) Scan(state fmt.ScanState, _ rune) error {
	word, err := state.Token(true, nil)
	if err != nil {
		return err
	}
	d, err := time.ParseDuration(string(word))
	*n = nanos(d)
	return err
}

// serveApart starts the server in a process of its own.
func serveApart(t testing.TB, ttft, gap time.Duration) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self)
	c.Env = append(os.Environ(), fmt.Sprintf("LLMPROF_TEST_SERVER=%v %v", ttft, gap))
	c.Stderr = os.Stderr
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = c.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// closedLoop is a schedule of n requests by c workers.
func closedLoop(c, n, input, output int) *workload.Schedule {
	s := &workload.Schedule{Pattern: "closed"}
	for i := range n {
		q := workload.Request{ID: i, InputLen: input, OutputLen: output, Seed: uint64(i)}
		if i >= c {
			q.After = &workload.Dependency{Request: workload.AnyRequest}
		}
		s.Requests = append(s.Requests, q)
	}
	return s
}
