package load

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// constant is a schedule of n requests, rate a second.
func constant(n int, rate float64, output int) *workload.Schedule {
	s := &workload.Schedule{Seed: 7, Pattern: "constant"}
	for k := range n {
		s.Requests = append(s.Requests, workload.Request{ID: k, At: unit.Seconds(float64(k) / rate), InputLen: 8, OutputLen: output, Seed: uint64(k)})
	}
	return s
}

// truth remembers when the server emitted each token.
type truth struct {
	mu    sync.Mutex
	emits map[string][]time.Time // by prompt
}

func (e *truth) stamp(a *asked, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	prompt := string(a.body.Prompt)
	e.emits[prompt] = append(e.emits[prompt], at)
}

// readErrors are the milliseconds, ascending, from the moment the server emitted
// a token to the moment the client says it read it: 19,200 chunks of 100
// requests a second, on one clock in one process.
func readErrors(tb testing.TB) []float64 {
	tb.Helper()
	e := &truth{emits: map[string][]time.Time{}}
	s := serve(tb, steady(20*time.Millisecond, 5*time.Millisecond, e.stamp))
	result, err := Run(tb.Context(), []Target{{URL: s.url(), Model: "m"}}, Options{
		Schedule: constant(300, 100, 64), Text: func(q workload.Request) string { return strconv.Itoa(q.ID) },
	})
	if err != nil {
		tb.Fatal(err)
	}
	e.mu.Lock() // the server's goroutines may not have ended
	defer e.mu.Unlock()
	var late []float64
	for i := range result.Records {
		r := &result.Records[i]
		if !r.OK() || len(r.Chunks) != 64 {
			tb.Fatalf("request %d: %d chunks, %v", r.ID, len(r.Chunks), r.Failure)
		}
		for j, c := range r.Chunks {
			late = append(late, result.Started.Add(c.At).Sub(e.emits[strconv.Quote(strconv.Itoa(i))][j]).Seconds()*1e3)
		}
	}
	slices.Sort(late)
	return late
}

// TestTruth holds the client's times of chunks against the times at which the
// server emitted them: none was read before it was emitted.
func TestTruth(t *testing.T) {
	if late := readErrors(t); late[0] < 0 {
		t.Errorf("a chunk was read %.3f ms before it was emitted", -late[0])
	}
}

// TestCoordinatedOmission has a server that answers nothing for two seconds, from
// the 30th of 180 requests on: a client that waits for answers would send less
// and report little of it.
func TestCoordinatedOmission(t *testing.T) {
	var once sync.Once
	over := make(chan struct{})
	quick := steady(0, 0, nil)
	s := serve(t, func(a *asked) bool {
		if a.number >= 30 {
			once.Do(func() { time.AfterFunc(2*time.Second, func() { close(over) }) })
			<-over
		}
		return quick(a)
	})
	result, err := Run(t.Context(), []Target{{URL: s.url(), Model: "m"}}, Options{Schedule: constant(180, 60, 2), MaxConcurrency: 4, Warmup: 1})
	if err != nil {
		t.Fatal(err)
	}
	limits, err := ParseSLOs("ttft:200")
	if err != nil {
		t.Fatal(err)
	}
	whole, steady := result.Summaries(limits)
	if whole.Completed != 180 || whole.Concurrency.Max > 4 {
		t.Fatalf("%d completed, concurrency %+v", whole.Completed, whole.Concurrency)
	}
	if *whole.TTFTSched.P90 < 1000 || *whole.TTFTSched.Mean < 3**whole.TTFT.Mean || *whole.SendLag.P90 < 500 {
		t.Errorf("the stall is hidden: TTFT mean %.0f, from the schedule mean %.0f p90 %.0f ms, lag p90 %.0f", *whole.TTFT.Mean, *whole.TTFTSched.Mean, *whole.TTFTSched.P90, *whole.SendLag.P90)
	}
	if *whole.GoodShare > 0.8 {
		t.Errorf("goodput share %.2f looks away from the wait", *whole.GoodShare)
	}
	if gate := Judge(result, whole, steady, DefaultLimits()); gate.Grade != Invalid || !strings.Contains(strings.Join(gate.Reasons(), "; "), "late") {
		t.Errorf("gate %v %v", gate.Grade, gate.Reasons())
	}
}

// TestSessions checks that turns follow their predecessors' ends, after their
// think time, and that the schedule's tokens are what is sent.
func TestSessions(t *testing.T) {
	var mu sync.Mutex
	prompts := map[int]string{}
	s := serve(t, func(a *asked) bool {
		mu.Lock()
		prompts[a.number] = string(a.body.Prompt)
		mu.Unlock()
		if a.path != "/v1/completions" || !a.body.Stream || !a.body.StreamOptions.Usage || !a.body.IgnoreEOS || a.body.MinTokens != 4 || a.header.Get("Authorization") != "Bearer secret" {
			a.write(plainBody("400 Bad", "text/plain", a.path+a.raw))
			return true
		}
		return steady(10*time.Millisecond, time.Millisecond, nil)(a)
	})
	schedule := &workload.Schedule{}
	for i := range 6 {
		q := workload.Request{ID: i, InputLen: 5, OutputLen: 4, Seed: uint64(i), Session: "s", Turn: i + 1}
		if i > 0 {
			q.After = &workload.Dependency{Request: i - 1, Think: 0.02}
		}
		schedule.Requests = append(schedule.Requests, q)
	}
	target := Target{URL: s.url(), Model: "m", Engine: VLLM, APIKey: "secret"}
	result, err := Run(t.Context(), []Target{target}, Options{Schedule: schedule})
	if err != nil {
		t.Fatal(err)
	}
	for i := range result.Records {
		r := &result.Records[i]
		if !r.OK() {
			t.Fatal(r.Failure)
		}
		if i > 0 && r.Sched != result.Records[i-1].Close+20*time.Millisecond {
			t.Errorf("turn %d is due at %v, its predecessor ended at %v", r.Turn, r.Sched, result.Records[i-1].Close)
		}
		if r.Send < r.Sched {
			t.Errorf("turn %d was sent before it was due", r.Turn)
		}
		mu.Lock()
		sent := prompts[i]
		mu.Unlock()
		if want := string(appendTokens(nil, workload.Tokens(schedule.Requests[i], 100, 10_000))); sent != want {
			t.Errorf("turn %d: prompt %s, want %s", r.Turn, sent, want)
		}
	}
}

func TestClosedLoopKeepsItsConcurrency(t *testing.T) {
	s := serve(t, steady(5*time.Millisecond, time.Millisecond, nil))
	result, err := Run(t.Context(), []Target{{URL: s.url(), Model: "m"}}, Options{Schedule: closedLoop(4, 60, 8, 4)})
	if err != nil {
		t.Fatal(err)
	}
	whole, steady := result.Summaries(nil)
	if whole.Completed != 60 || whole.Concurrency.Max != 4 {
		t.Errorf("%d completed, concurrency %+v", whole.Completed, whole.Concurrency)
	}
	// Each end but the last four's is the time of another request: how late that
	// is sent is the machine's doing.
	var ends, due []time.Duration
	for i := range result.Records {
		ends, due = append(ends, result.Records[i].Close), append(due, result.Records[i].Sched)
	}
	slices.Sort(ends)
	slices.Sort(due)
	if !slices.Equal(due[4:], ends[:56]) {
		t.Errorf("requests are due at %v, others ended at %v", due, ends)
	}
	t.Logf("concurrency of the steady part %+v", steady.Concurrency)
	if *whole.OutputTokens != 240 || *whole.InputTokens != 180 || whole.ICL.N != 180 || whole.TPOT.N != 60 {
		t.Errorf("tokens %d and %d, %d gaps, %d values of TPOT", *whole.OutputTokens, *whole.InputTokens, whole.ICL.N, whole.TPOT.N)
	}
	if n := s.connections(); n > 12 {
		t.Errorf("%d connections for 4 at once: they are not used again", n)
	}
}

func TestSeveralTargetsTakeTurns(t *testing.T) {
	a, b := serve(t, steady(0, 0, nil)), serve(t, steady(0, 0, nil))
	result, err := Run(t.Context(), []Target{{URL: a.url(), Model: "m"}, {URL: b.url() + "/v1/", Model: "m", Endpoint: Chat}}, Options{Schedule: constant(20, 500, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if a.requests() != 10 || b.requests() != 10 || result.Records[1].Target != 1 {
		t.Errorf("%d and %d requests", a.requests(), b.requests())
	}
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := serve(t, func(a *asked) bool {
		if a.number < 3 {
			return steady(0, 0, nil)(a)
		}
		if a.number == 4 { // three have ended, two are on their way
			cancel()
		}
		return hang(streamHead + framed(event("a")))(a)
	})
	result, err := Run(ctx, []Target{{URL: s.url(), Model: "m"}}, Options{Schedule: closedLoop(2, 50, 3, 2)})
	if err != nil {
		t.Fatal(err)
	}
	whole, steady := result.Summaries(nil)
	if whole.Completed != 3 || whole.Cancelled != 2 || whole.Failed != 0 || result.Unsent != 45 || result.Partial == "" {
		t.Errorf("%d completed, %d cancelled, %d failed, %d unsent, %q", whole.Completed, whole.Cancelled, whole.Failed, result.Unsent, result.Partial)
	}
	if gate := Judge(result, whole, steady, DefaultLimits()); gate.Grade == Valid {
		t.Error("a partial run is called valid")
	}
}

// TestOverload has a server with one slot of 40 ms under 60 requests a second.
func TestOverload(t *testing.T) {
	if testing.Short() {
		t.Skip("takes six seconds")
	}
	var seat sync.Mutex
	s := serve(t, func(a *asked) bool {
		seat.Lock()
		time.Sleep(40 * time.Millisecond)
		seat.Unlock()
		return steady(0, 0, nil)(a)
	})
	result, err := Run(t.Context(), []Target{{URL: s.url(), Model: "m"}}, Options{Schedule: constant(6000, 60, 1), StopOverload: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ended after %v, %d unsent", result.Elapsed, result.Unsent)
	if !result.OverCapacity || result.Unsent == 0 {
		t.Errorf("over capacity %v, %d unsent", result.OverCapacity, result.Unsent)
	}
}

func TestLargePrompt(t *testing.T) {
	s := serve(t, func(a *asked) bool {
		time.Sleep(50 * time.Millisecond)
		return steady(0, 0, nil)(a)
	})
	schedule := closedLoop(2, 4, 1_000_000, 1)
	result, err := Run(t.Context(), []Target{{URL: s.url(), Model: "m", Engine: VLLM}}, Options{Schedule: schedule})
	if err != nil {
		t.Fatal(err)
	}
	if whole, _ := result.Summaries(nil); whole.Completed != 4 {
		t.Errorf("%d of 4 completed%s", whole.Completed, firstFailure(result))
	}
}

func TestTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			_, _ = io.WriteString(w, event("a"))
			w.(http.Flusher).Flush()
		}
		_, _ = io.WriteString(w, endOf(2, 3))
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		why  string
		tls  TLS
		good bool
	}{
		{why: "an unknown authority is refused", tls: TLS{}},
		{why: "its certificate is trusted", tls: TLS{CAFile: file}, good: true},
		{why: "every certificate is trusted", tls: TLS{Insecure: true}, good: true},
	} {
		result, err := Run(t.Context(), []Target{{URL: s.URL, Model: "m", TLS: test.tls}}, Options{Schedule: closedLoop(3, 30, 8, 3)})
		if err != nil {
			t.Fatal(err)
		}
		whole, _ := result.Summaries(nil)
		if (whole.Completed == 30) != test.good || whole.Completed+whole.Failed != 30 {
			t.Errorf("%s: %d completed, %d failed%s", test.why, whole.Completed, whole.Failed, firstFailure(result))
		}
	}
}

func TestBadOptions(t *testing.T) {
	good := Target{URL: "http://localhost:1", Model: "m"}
	for _, test := range []struct {
		why     string
		targets []Target
		options Options
		says    []string
	}{
		{why: "everything at once", options: Options{MaxConcurrency: -1}, says: []string{"no target", "no request", "negative"}},
		{why: "no scheme", targets: []Target{{URL: "localhost:8000"}}, options: Options{Schedule: closedLoop(1, 1, 1, 1)}, says: []string{"http://127.0.0.1:8000"}},
		{why: "a password stays out of messages", targets: []Target{{URL: "http://u:pw@h"}}, options: Options{Schedule: closedLoop(1, 1, 1, 1)}, says: []string{"user or password"}},
		{why: "a header that smuggles", targets: []Target{{URL: "http://h", Headers: map[string]string{"A": "b\r\nC: d"}}}, options: Options{Schedule: closedLoop(1, 1, 1, 1)}, says: []string{"header"}},
		{why: "our own header", targets: []Target{{URL: "http://h", Headers: map[string]string{"content-length": "3"}}}, options: Options{Schedule: closedLoop(1, 1, 1, 1)}, says: []string{"client itself"}},
		{why: "an unknown engine", targets: []Target{{URL: "http://h", Engine: "x"}}, options: Options{Schedule: closedLoop(1, 1, 1, 1)}, says: []string{"vllm"}},
		{why: "a missing certificate", targets: []Target{{URL: "https://h", TLS: TLS{CAFile: "/none"}}}, options: Options{Schedule: closedLoop(1, 1, 1, 1)}, says: []string{"certificates"}},
		{why: "a request that waits for itself", targets: []Target{good}, options: Options{Schedule: &workload.Schedule{Requests: []workload.Request{{InputLen: 1, OutputLen: 1, After: &workload.Dependency{}}}}}, says: []string{"stand before"}},
		{why: "no tokens", targets: []Target{good}, options: Options{Schedule: closedLoop(1, 1, 0, 1)}, says: []string{"tokens"}},
	} {
		_, err := Run(t.Context(), test.targets, test.options)
		for _, want := range test.says {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pw") {
				t.Errorf("%s: %v does not say %q", test.why, err, want)
			}
		}
	}
}

func TestRecordsRoundTrip(t *testing.T) {
	s := serve(t, steady(0, time.Millisecond, nil))
	result, err := Run(t.Context(), []Target{{URL: s.url(), Model: "m"}}, Options{Schedule: constant(20, 500, 5)})
	if err != nil {
		t.Fatal(err)
	}
	result.Records[3].Failure = fail(FailCut, "made")
	result.Records[4].Server = &ServerTimes{QueueMS: new(1.5)}
	var out bytes.Buffer
	if err := WriteRecords(&out, Header{Tool: "test", Seed: 7}, result.Records); err != nil {
		t.Fatal(err)
	}
	h, records, err := ReadRecords("r.jsonl", &out)
	if err != nil || h.Seed != 7 || h.Schema != RecordsSchema {
		t.Fatalf("%+v, %v", h, err)
	}
	var back []Record
	for r, err := range records {
		if err != nil {
			t.Fatal(err)
		}
		back = append(back, r)
	}
	if diff := cmp.Diff(result.Records, back); diff != "" {
		t.Error(diff)
	}
	_, _, err = ReadRecords("r.jsonl", strings.NewReader(`{"schema":"other"}`))
	if bad, ok := errors.AsType[*RecordsError](err); !ok || bad.Line != 1 {
		t.Errorf("%v", err)
	}
}
