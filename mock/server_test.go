package mock_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmprof/llmprof/format/prom"
	"github.com/llmprof/llmprof/mock"
)

// event is what tests read of a chunk.
type event struct {
	ID, Object string
	Choices    []struct {
		Text         string
		Delta        struct{ Role, Content string }
		Message      struct{ Role, Content string }
		FinishReason *string `json:"finish_reason"`
	}
	Usage  *usage
	EmitNs int64 `json:"emit_ns"`
	DueNs  int64 `json:"due_ns"`
	Error  *struct{ Message string }
}

type usage struct {
	Prompt  int `json:"prompt_tokens"`
	Output  int `json:"completion_tokens"`
	Total   int `json:"total_tokens"`
	Details struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (e event) text() string {
	if len(e.Choices) == 0 {
		return ""
	}
	return e.Choices[0].Text + e.Choices[0].Delta.Content + e.Choices[0].Message.Content
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	events []event
	raw    string
	done   bool
	err    error // of reading the body
}

func (a answer) tokens() int {
	n := 0
	for _, e := range a.events {
		n += strings.Count(e.text(), "tok")
	}
	return n
}

func start(t testing.TB, o mock.Options) *mock.Server {
	t.Helper()
	server, err := mock.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return server
}

// client has connections of its own, closed at the end of the test.
func client(t testing.TB) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 2000}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Minute}
}

func ask(ctx context.Context, c *http.Client, url, body, fault string) answer {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	if fault != "" {
		r.Header.Set("X-Llmprof-Mock-Fault", fault)
	}
	response, err := c.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	a := answer{status: response.StatusCode, header: response.Header, raw: string(text), err: err}
	if !strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		var e event
		if json.Unmarshal(text, &e) == nil {
			a.events = []event{e}
		}
		return a
	}
	for lines := bufio.NewScanner(strings.NewReader(a.raw)); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		var e event
		switch {
		case data == "[DONE]":
			a.done = true
		case ok && json.Unmarshal([]byte(data), &e) == nil:
			a.events = append(a.events, e)
		}
	}
	return a
}

const (
	stream = `{"model":"mock","prompt":"eight chars and more","max_tokens":6,"stream":true,"stream_options":{"include_usage":true}}`
	whole  = `{"model":"mock","prompt":[1,2,3],"max_tokens":4}`
	chat   = `{"messages":[{"role":"user","content":"hello"}],"max_completion_tokens":3,"stream":true}`
)

func TestAnswers(t *testing.T) {
	server := start(t, mock.Options{})
	handler := httptest.NewServer(server)
	t.Cleanup(handler.Close)
	c := client(t)
	for _, base := range []string{server.URL(), handler.URL} {
		a := ask(t.Context(), c, base+"/v1/completions", stream, "")
		if a.err != nil || a.status != 200 || !a.done || a.tokens() != 6 || len(a.events) != 7 {
			t.Fatalf("stream: %+v", a)
		}
		last, tail := a.events[5], a.events[6]
		if last.Choices[0].FinishReason == nil || *last.Choices[0].FinishReason != "length" || a.events[4].Choices[0].FinishReason != nil {
			t.Errorf("finish reason of %s", a.raw)
		}
		if tail.Usage == nil || tail.Usage.Prompt != 5 || tail.Usage.Output != 6 || tail.Usage.Total != 11 || len(tail.Choices) != 0 {
			t.Errorf("usage %+v", tail.Usage)
		}
		if a = ask(t.Context(), c, base+"/v1/completions", whole, ""); a.tokens() != 4 || a.events[0].Usage.Prompt != 3 || a.events[0].Object != "text_completion" {
			t.Errorf("whole: %+v", a)
		}
		if a = ask(t.Context(), c, base+"/v1/chat/completions", chat, ""); a.tokens() != 3 || len(a.events) != 4 || a.events[0].Choices[0].Delta.Role != "assistant" || !a.done {
			t.Errorf("chat: %+v", a)
		}
		unstreamed := strings.Replace(chat, `,"stream":true`, "", 1)
		if a = ask(t.Context(), c, base+"/v1/chat/completions", unstreamed, ""); a.tokens() != 3 || a.events[0].Object != "chat.completion" || a.events[0].Choices[0].Message.Role != "assistant" {
			t.Errorf("chat as a whole: %+v", a)
		}
	}
}

func TestParameters(t *testing.T) {
	server := start(t, mock.Options{NaturalTokens: 5, TokensPerChunk: 2, Rule: mock.Words, MaxModelLen: 100})
	c := client(t)
	tests := []struct {
		why, path, body string
		status, tokens  int
		chunks, prompt  int
		reason, ignored string
	}{
		{why: "an answer ends by itself", body: `{"prompt":"a b c","max_tokens":9,"stream":true}`, tokens: 5, chunks: 3, reason: "stop"},
		{why: "ignore_eos goes on to max_tokens", body: `{"prompt":"a b c","max_tokens":9,"ignore_eos":true,"stream":true}`, tokens: 9, chunks: 5, reason: "length"},
		{why: "min_tokens goes on so far", body: `{"prompt":"a b c","max_tokens":9,"min_tokens":8,"stream":true}`, tokens: 8, chunks: 4, reason: "stop"},
		{why: "max_tokens cuts the answer off", body: `{"prompt":"a b c","max_tokens":2}`, tokens: 2, chunks: 1, prompt: 3, reason: "length"},
		{why: "words are tokens", body: `{"prompt":" one  two\nthree ","max_tokens":1}`, tokens: 1, chunks: 1, prompt: 3, reason: "length"},
		{why: "token ids are tokens", body: `{"prompt":[[7,8]],"max_tokens":1}`, tokens: 1, chunks: 1, prompt: 2, reason: "length"},
		{why: "one text in a list is a prompt", body: `{"prompt":["a b"],"max_tokens":1}`, tokens: 1, chunks: 1, prompt: 2, reason: "length"},
		{why: "a chat counts roles and parts", path: "chat/", body: `{"messages":[{"role":"system","content":"be brief"},{"role":"user","content":[{"type":"text","text":"hi"}]}],"max_tokens":1}`, tokens: 1, chunks: 1, prompt: 5, reason: "length"},
		{why: "stop is ignored, with a word", body: `{"prompt":"a","max_tokens":1,"stop":["x"],"echo":false}`, tokens: 1, chunks: 1, prompt: 1, reason: "length", ignored: "stop"},
		{why: "without max_tokens the model's length counts", body: `{"prompt":[` + strings.Repeat("1,", 91) + `1],"ignore_eos":true}`, tokens: 8, chunks: 1, prompt: 92, reason: "length"},
		{why: "several prompts are refused", body: `{"prompt":["a","b"]}`, status: 400},
		{why: "several answers are refused", body: `{"prompt":"a","n":2}`, status: 400},
		{why: "another model is unknown", body: `{"model":"gpt","prompt":"a"}`, status: 404},
		{why: "what is too long is refused", body: `{"prompt":"a","max_tokens":100}`, status: 400},
		{why: "an empty prompt is refused", body: `{"prompt":""}`, status: 400},
		{why: "no tokens are refused", body: `{"prompt":"a","max_tokens":0}`, status: 400},
		{why: "a negative id is refused", body: `{"prompt":[-1]}`, status: 400},
		{why: "broken JSON is refused", body: `{"prompt":`, status: 400},
		{why: "usage for each chunk is for streams", body: `{"prompt":"a","stream_options":{}}`, status: 400},
		{why: "pictures are refused", path: "chat/", body: `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, status: 400},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			a := ask(t.Context(), c, server.URL()+"/v1/"+test.path+"completions", test.body, "")
			if want := cmp.Or(test.status, 200); a.status != want {
				t.Fatalf("status %d, want %d: %s", a.status, want, a.raw)
			}
			if test.status != 0 {
				if a.events == nil || a.events[0].Error == nil || a.events[0].Error.Message == "" {
					t.Errorf("no message: %s", a.raw)
				}
				return
			}
			last := a.events[len(a.events)-1]
			if a.tokens() != test.tokens || len(a.events) != test.chunks || *last.Choices[0].FinishReason != test.reason {
				t.Errorf("%d tokens in %d chunks: %s", a.tokens(), len(a.events), a.raw)
			}
			if test.prompt > 0 && last.Usage.Prompt != test.prompt {
				t.Errorf("prompt of %d tokens, want %d", last.Usage.Prompt, test.prompt)
			}
			if got := a.header.Get("X-Llmprof-Mock-Ignored"); got != test.ignored {
				t.Errorf("ignored %q, want %q", got, test.ignored)
			}
		})
	}
}

func TestContinuousUsage(t *testing.T) {
	server := start(t, mock.Options{TokensPerChunk: 4, EventsPerWrite: 2, Role: mock.RoleAtOnce})
	body := `{"messages":[{"role":"user","content":"x"}],"max_tokens":10,"stream":true,"stream_options":{"continuous_usage_stats":true}}`
	a := ask(t.Context(), client(t), server.URL()+"/v1/chat/completions", body, "")
	if len(a.events) != 4 || a.events[0].Choices[0].Delta.Role != "assistant" {
		t.Fatalf("events: %s", a.raw)
	}
	for i, want := range []int{4, 8, 10} {
		if got := a.events[i+1].Usage; got == nil || got.Output != want {
			t.Errorf("chunk %d: usage %+v, want %d tokens", i, got, want)
		}
	}
	if a.events[1].EmitNs != a.events[2].EmitNs || a.events[3].EmitNs < a.events[2].EmitNs {
		t.Errorf("two events a write: %s", a.raw)
	}
}

// TestSchedule holds the due times against the timing exactly, and the
// emissions against the due times as far as the machine allows.
func TestSchedule(t *testing.T) {
	const first, gap = 20 * time.Millisecond, 5 * time.Millisecond
	server := start(t, mock.Options{Timer: mock.Timing{First: first, PerPromptToken: time.Millisecond, Gap: gap}})
	a := ask(t.Context(), client(t), server.URL()+"/v1/completions", `{"prompt":[1,2,3],"max_tokens":40,"stream":true}`, "")
	truth := server.Truth()
	if len(truth) != 1 || len(truth[0].Emits) != 40 || truth[0].ID != a.events[0].ID {
		t.Fatalf("truth %+v", truth)
	}
	var late []int64
	for i, e := range a.events {
		want := truth[0].Arrival + int64(first+3*time.Millisecond) + int64(i)*int64(gap)
		if e.DueNs != want || truth[0].Dues[i] != want || truth[0].Emits[i] != e.EmitNs {
			t.Errorf("chunk %d: due %d, emitted %d; want %d", i, e.DueNs, e.EmitNs, want)
		}
		if e.EmitNs < e.DueNs {
			t.Errorf("chunk %d is %d ns early", i, e.DueNs-e.EmitNs)
		}
		late = append(late, e.EmitNs-e.DueNs)
	}
	slices.Sort(late)
	t.Logf("late by p50 %v, max %v", time.Duration(late[20]), time.Duration(late[39]))
	if runtime.GOOS != "linux" || late[20] > int64(2*time.Millisecond) {
		t.Skipf("NOT CHECKED: emissions are %v late at the median: this machine is busy, or sleeps in milliseconds", time.Duration(late[20]))
	}
}

func TestTimer(t *testing.T) {
	timing := mock.Timing{First: time.Second, PerPromptToken: time.Millisecond, Gap: time.Minute, PerRunning: time.Hour}
	if got := timing.FirstToken(mock.Load{Prompt: 10, Cached: 4}); got != time.Second+6*time.Millisecond {
		t.Errorf("first token after %v", got)
	}
	if got := timing.NextToken(mock.Load{Running: 3}); got != time.Minute+2*time.Hour {
		t.Errorf("next token after %v", got)
	}
}

// TestManyStreams runs a thousand streams at once, and holds what the clients
// count against the metrics.
func TestManyStreams(t *testing.T) {
	const streams, tokens = 1000, 20
	before := runtime.NumGoroutine()
	func() {
		server := start(t, mock.Options{Timer: mock.Timing{First: 50 * time.Millisecond, Gap: 20 * time.Millisecond}})
		c := client(t)
		var group sync.WaitGroup
		failures := make(chan error, streams)
		for i := range streams {
			group.Go(func() {
				body := fmt.Sprintf(`{"prompt":[%d,2,3],"max_tokens":%d,"stream":true}`, i, tokens)
				a := ask(t.Context(), c, server.URL()+"/v1/completions", body, "")
				if a.err != nil || a.tokens() != tokens || !a.done {
					failures <- fmt.Errorf("stream %d: %d tokens, %w", i, a.tokens(), errors.Join(a.err, errors.New(a.raw)))
				}
			})
		}
		group.Wait()
		close(failures)
		if err := <-failures; err != nil {
			t.Fatal(err)
		}
		m := scrape(t, c, server)
		if m.GenerationTokens.Value != streams*tokens || m.PromptTokens.Value != 3*streams || m.Finished["length"] != streams || m.TTFT.Histogram.Count != streams {
			t.Errorf("metrics: %v tokens, %v of prompts, %v, %v first tokens", m.GenerationTokens.Value, m.PromptTokens.Value, m.Finished, m.TTFT.Histogram.Count)
		}
		s := server.Summary()
		if s.Completed != streams || s.Requests != streams || s.OutputTokens != streams*tokens {
			t.Errorf("summary %+v", s)
		}
		t.Logf("writes late by p50 %v, p99 %v, max %v", s.LateP50, s.LateP99, s.LateMax)
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		c.CloseIdleConnections()
	}()
	settled(t, before)
}

// settled waits until no more goroutines are left than before.
func settled(t *testing.T, before int) {
	t.Helper()
	for range 15_000 { // five minutes
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	text := make([]byte, 1<<16)
	t.Errorf("%d goroutines are left of %d:\n%s", runtime.NumGoroutine(), before, text[:runtime.Stack(text, true)])
}

func scrape(t testing.TB, c *http.Client, server *mock.Server) prom.VLLM {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	s, warnings, err := prom.Read("metrics", response.Body)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("read the metrics: %v, %v", err, warnings)
	}
	return s.VLLM()
}

// TestLeavingClients looks at what is left of clients that go in the middle.
func TestLeavingClients(t *testing.T) {
	server := start(t, mock.Options{Timer: mock.Timing{Gap: time.Hour}, MaxNumSeqs: 2, KVBlocks: 64})
	before := runtime.NumGoroutine()
	c := client(t)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() { ask(ctx, c, server.URL()+"/v1/completions", stream, "") })
	}
	for m := scrape(t, c, server); m.Running.Value != 2 || m.Waiting.Value != 3; m = scrape(t, c, server) {
		time.Sleep(time.Millisecond)
	}
	cancel()
	group.Wait()
	for m := scrape(t, c, server); m.Finished["abort"] != 5; m = scrape(t, c, server) {
		time.Sleep(time.Millisecond)
	}
	if m := scrape(t, c, server); m.Running.Value != 0 || m.Waiting.Value != 0 || m.KVUsage.Value != 0 {
		t.Errorf("left: %v running, %v waiting, %v of the cache", m.Running.Value, m.Waiting.Value, m.KVUsage.Value)
	}
	c.CloseIdleConnections()
	settled(t, before)
}
