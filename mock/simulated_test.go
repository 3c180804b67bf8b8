package mock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmprof/llmprof/format/vllmlog"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/mock"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/sim"
)

// simulation is a replica of 4 seats whose steps take step, and more for every
// token.
func simulation(t testing.TB, step time.Duration) *mock.Simulation {
	t.Helper()
	rules, err := sim.RulesOf("0.32.0")
	if err != nil {
		t.Fatal(err)
	}
	return &mock.Simulation{
		Scheduler: sim.Config{Rules: rules, Blocks: 65, BlockSize: 4, MaxBatchedTokens: 32, MaxSeqs: 4, MaxModelLen: 128},
		Timer: sim.StepTimerFunc(func(p forward.Pass) (time.Duration, error) {
			return step + time.Duration(p.Tokens())*10*time.Microsecond + time.Duration(p.Decode.SumContext)*100, nil
		}),
	}
}

// ids is a body with a prompt of token ids.
func ids(first, n, output int, more string) string {
	text, _ := json.Marshal(func() []int {
		list := make([]int, n)
		for i := range list {
			list[i] = first + i
		}
		return list
	}())
	return fmt.Sprintf(`{"prompt":%s,"max_tokens":%d,"stream":true,"stream_options":{"include_usage":true}%s}`, text, output, more)
}

// TestSimulatedServer asks for a load over HTTP and holds the due time of every
// token against a plain replay of the scheduler with the same timer, to the
// nanosecond. How late the tokens came is printed only.
func TestSimulatedServer(t *testing.T) {
	for _, async := range []bool{false, true} {
		t.Run(fmt.Sprintf("async %v", async), func(t *testing.T) {
			c := simulation(t, time.Millisecond)
			c.Scheduler.Async, c.Scheduler.Blocks = async, 40 // too few: requests lose theirs
			c.Between, c.Speed = 200*time.Microsecond, 2
			server, client := start(t, mock.Options{Simulation: c}), client(t)
			const requests = 24
			sizes := map[string][2]int{}
			var mu sync.Mutex
			var group sync.WaitGroup
			for i := range requests {
				prompt, output := 5+7*(i%9), 4+5*(i%7)
				group.Go(func() {
					time.Sleep(time.Duration(i) * 2 * time.Millisecond)
					a := ask(t.Context(), client, server.URL()+"/v1/completions", ids(1000*i, prompt, output, ""), "")
					if a.err != nil || a.tokens() != output || !a.done {
						t.Errorf("request %d: %d tokens of %d: %v %s", i, a.tokens(), output, a.err, a.raw)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					sizes[a.events[0].ID] = [2]int{prompt, output}
				})
			}
			group.Wait()
			if t.Failed() {
				return
			}
			truth := server.Truth()
			slices.SortStableFunc(truth, func(a, b mock.Truth) int { return int(a.Entered - b.Entered) })
			want, preemptions := replayed(t, c, truth, sizes)
			var late []time.Duration
			for i, r := range truth {
				if !slices.Equal(r.Dues, want[i]) {
					t.Errorf("%s: due at %v, the replay says %v", r.ID, r.Dues, want[i])
				}
				for j := range r.Dues {
					late = append(late, time.Duration(r.Emits[j]-r.Dues[j]))
				}
			}
			slices.Sort(late)
			m := scrape(t, client, server)
			if int64(m.Preemptions.Value) != preemptions {
				t.Errorf("%v preemptions, the replay has %d", m.Preemptions.Value, preemptions)
			}
			t.Logf("%d tokens, %d preemptions; late by p50 %v, p99 %v, max %v", len(late), preemptions, late[len(late)/2], late[len(late)*99/100], late[len(late)-1])
		})
	}
}

// replayed runs the load that the server has seen through a scheduler.
func replayed(t *testing.T, c *mock.Simulation, truth []mock.Truth, sizes map[string][2]int) (dues [][]int64, preemptions int64) {
	t.Helper()
	s, err := sim.NewScheduler(c.Scheduler)
	if err != nil {
		t.Fatal(err)
	}
	half := func(d time.Duration) int64 { return int64(float64(d)/c.Speed + 0.5) }
	dues = make([][]int64, len(truth))
	var now, ends int64 // ends is that of the step that runs, with async scheduling
	for added := 0; added < len(truth) || !s.Idle(); {
		if s.Idle() {
			now, ends = max(now, truth[added].Entered), 0
		}
		for ; added < len(truth) && truth[added].Entered <= now; added++ {
			size := sizes[truth[added].ID]
			if _, err := s.Add(sim.Request{Prompt: size[0], Output: size[1]}); err != nil {
				t.Fatal(err)
			}
		}
		var pass forward.Pass
		for _, e := range s.Schedule().Scheduled {
			if e.Tokens == 1 && int(e.Context) >= sizes[truth[e.Request].ID][0] {
				pass.Decode.Count++
				pass.Decode.SumContext += int64(e.Context)
			} else {
				pass.Prefill = append(pass.Prefill, forward.Chunk{Count: 1, New: int(e.Tokens), Context: int(e.Context)})
			}
		}
		took, gap := int64(0), int64(0)
		if pass.Tokens() > 0 {
			d, _ := c.Timer.StepTime(pass)
			took, gap = half(d), half(c.Between)
		}
		results := now + took
		if c.Scheduler.Async {
			results = max(now, ends)
			ends = results + took + gap
		}
		for _, o := range s.Apply().Tokens {
			dues[o.Request] = append(dues[o.Request], results)
		}
		if now = results; !c.Scheduler.Async {
			now += gap
		}
	}
	return dues, s.Totals().Preemptions
}

// TestSimulatedPrefixes lets requests find what others computed, answers
// included.
func TestSimulatedPrefixes(t *testing.T) {
	c := simulation(t, time.Millisecond)
	server, client := start(t, mock.Options{Simulation: c}), client(t)
	cached := func(body string) int {
		t.Helper()
		a := ask(t.Context(), client, server.URL()+"/v1/completions", body, "")
		if a.err != nil || len(a.events) == 0 || a.events[len(a.events)-1].Usage == nil {
			t.Fatalf("no usage: %v %s", a.err, a.raw)
		}
		return a.events[len(a.events)-1].Usage.Details.Cached
	}
	text := func(prompt string, output int) string {
		return fmt.Sprintf(`{"prompt":%q,"max_tokens":%d,"stream":true,"stream_options":{"include_usage":true}}`, prompt, output)
	}
	turn := strings.Repeat("four", 6)
	for _, ask := range []struct {
		why, body string
		want      int
	}{
		{"the first finds nothing", ids(1, 20, 3, ""), 0},
		{"the same prompt finds all blocks but that of its last token", ids(1, 20, 3, ""), 16},
		{"a prompt that begins alike finds what is the same", strings.Replace(ids(1, 20, 3, ""), ",10,", ",99,", 1), 8},
		{"another prompt finds nothing", ids(500, 20, 3, ""), 0},
		{"a first turn finds nothing", text(turn, 9), 0},
		{"a second turn finds the answer of the first, but for its last token", text(turn+strings.Repeat(" tok", 9)+"more", 2), 12},
	} {
		if got := cached(ask.body); got != ask.want {
			t.Errorf("%s: %d tokens cached, want %d", ask.why, got, ask.want)
		}
	}
	m := scrape(t, client, server)
	if m.PrefixHits.Value != 36 || m.PrefixQueries.Value != 4*20+6+16 {
		t.Errorf("%v of %v tokens found, want 36 of 102", m.PrefixHits.Value, m.PrefixQueries.Value)
	}
	if tokens, ok := m.KVTokens(); !ok || tokens != 260 {
		t.Errorf("the cache holds %d tokens, want 65 blocks of 4", tokens)
	}
}

// TestSimulatedAborts lets clients go in the middle: the gauges are those of the
// scheduler, and the seat is free for who waits.
func TestSimulatedAborts(t *testing.T) {
	c := simulation(t, 300*time.Millisecond)
	c.Scheduler.MaxSeqs = 1
	server, client := start(t, mock.Options{Simulation: c}), client(t)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { ask(ctx, client, server.URL()+"/v1/completions", ids(1, 8, 119, ""), "") })
	for m := scrape(t, client, server); m.Running.Value != 1; m = scrape(t, client, server) {
		time.Sleep(time.Millisecond)
	}
	waits := make(chan answer, 1)
	group.Go(func() { waits <- ask(t.Context(), client, server.URL()+"/v1/completions", ids(100, 8, 2, ""), "") })
	m := scrape(t, client, server)
	for ; m.Waiting.Value != 1; m = scrape(t, client, server) {
		time.Sleep(time.Millisecond)
	}
	if got := m.KVUsage.Value * 64; got < 2 || got != float64(int(got)) {
		t.Errorf("%v blocks of 64 are used by one request, want a whole number of 2 or more", got)
	}
	cancel()
	if a := <-waits; a.err != nil || a.tokens() != 2 {
		t.Errorf("who waited got %d tokens: %v", a.tokens(), a.err)
	}
	group.Wait()
	for m = scrape(t, client, server); m.Finished["abort"] != 1 || m.Running.Value != 0; m = scrape(t, client, server) {
		time.Sleep(time.Millisecond)
	}
	if m.KVUsage.Value != 0 || m.Waiting.Value != 0 || m.Finished["length"] != 1 {
		t.Errorf("left: %v of the cache, %v waiting, ended %v", m.KVUsage.Value, m.Waiting.Value, m.Finished)
	}
}

// TestSimulatedPriorities serves the more important request first.
func TestSimulatedPriorities(t *testing.T) {
	c := simulation(t, 10*time.Millisecond)
	c.Scheduler.MaxSeqs, c.Scheduler.Policy = 1, sim.Priority
	server, client := start(t, mock.Options{Simulation: c}), client(t)
	var group sync.WaitGroup
	var dues [3]int64
	for i, priority := range []int{0, 5, -5} {
		group.Go(func() {
			a := ask(t.Context(), client, server.URL()+"/v1/completions", ids(100*i, 8, 20, fmt.Sprintf(`,"priority":%d`, priority)), "")
			if a.tokens() != 20 {
				t.Errorf("request %d: %v %s", i, a.err, a.raw)
				return
			}
			dues[i] = a.events[0].DueNs
		})
		for m := scrape(t, client, server); m.Running.Value+m.Waiting.Value < float64(i+1); m = scrape(t, client, server) {
			if f := m.Finished["length"]; f > 0 {
				t.Skipf("NOT CHECKED: %v requests have ended before all were there: this machine is busy", f)
			}
			time.Sleep(time.Millisecond)
		}
	}
	group.Wait()
	if !(dues[0] < dues[2] && dues[2] < dues[1]) {
		t.Errorf("first tokens due at %v: want the first, the third and then the second request", dues)
	}
}

// TestSimulatedRefusals answers as vLLM does where a request is too long.
func TestSimulatedRefusals(t *testing.T) {
	server, client := start(t, mock.Options{Simulation: simulation(t, time.Millisecond)}), client(t)
	const text = "This model's maximum context length is 128 tokens. However, you requested %d output tokens and your prompt contains at least %d input tokens, " +
		"for a total of at least %d tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=%d)"
	for _, c := range []struct {
		why                        string
		prompt, output             int
		status, told, least, insum int
	}{
		{"what just fits is served", 120, 8, 200, 0, 0, 0},
		{"one token too many", 121, 8, 400, 8, 121, 129},
		{"the prompt is cut after what fits, so that only a bound is known", 900, 8, 400, 8, 121, 129},
		{"the answer alone is too long", 3, 500, 400, 500, 0, 500},
	} {
		a := ask(t.Context(), client, server.URL()+"/v1/completions", ids(1, c.prompt, c.output, ""), "")
		if a.status != c.status {
			t.Errorf("%s: status %d: %s", c.why, a.status, a.raw)
			continue
		}
		if c.status != 200 && (a.events[0].Error.Message != fmt.Sprintf(text, c.told, c.least, c.insum, c.least) || !strings.Contains(a.raw, `"param":"input_tokens"`)) {
			t.Errorf("%s: %s", c.why, a.raw)
		}
	}
}

// TestSimulatedFaults lets faults strike the way to the client, while the
// engine goes on.
func TestSimulatedFaults(t *testing.T) {
	server, client := start(t, mock.Options{Simulation: simulation(t, time.Millisecond)}), client(t)
	do := func(fault string) answer {
		return ask(t.Context(), client, server.URL()+"/v1/completions", ids(1, 8, 6, ""), fault)
	}
	a := do("stall:token=3,for=40ms")
	if a.tokens() != 6 || !a.done || a.events[2].DueNs-a.events[1].DueNs < 40e6 || a.events[5].DueNs != a.events[2].DueNs || a.events[5].EmitNs != a.events[2].EmitNs {
		t.Errorf("a stall holds all further tokens back and lets them go together: %s", a.raw)
	}
	a = do("half-event:token=2,for=30ms")
	if a.tokens() != 6 || !a.done || a.err != nil || a.events[2].EmitNs-a.events[1].EmitNs < 30e6 || a.events[2].DueNs-a.events[1].DueNs > 25e6 {
		t.Errorf("what is due meanwhile follows the second half: %s", a.raw)
	}
	a = do("half-event:token=6,for=5ms")
	if a.tokens() != 6 || !a.done || a.err != nil {
		t.Errorf("the last event in two parts: %v %s", a.err, a.raw)
	}
	if a = do("error-event:token=3"); a.tokens() != 2 || a.events[2].Error == nil || !a.done {
		t.Errorf("an error ends the stream: %s", a.raw)
	}
	if a = do("cut:at=chunk,token=3"); a.tokens() != 2 || !errors.Is(a.err, io.ErrUnexpectedEOF) {
		t.Errorf("a cut ends the stream: %v %s", a.err, a.raw)
	}
	if a = do("500"); a.status != 500 {
		t.Errorf("status %d", a.status)
	}
	for m := scrape(t, client, server); m.Running.Value != 0; m = scrape(t, client, server) {
		time.Sleep(time.Millisecond) // those that faults ended leave the scheduler
	}
	if s := server.Summary(); s.Completed != 3 || s.Failed != 1 || s.Aborted != 1 || s.Refused != 1 {
		t.Errorf("%+v", s)
	}
}

// TestIterationLog reads the log of a simulated server as that of a real one.
func TestIterationLog(t *testing.T) {
	var log bytes.Buffer
	c := simulation(t, 2*time.Millisecond)
	c.IterationLog = &log
	server, err := mock.New(mock.Options{Simulation: c})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := client(t)
	if a := ask(t.Context(), client, server.URL()+"/v1/completions", ids(1, 40, 5, ""), ""); a.tokens() != 5 {
		t.Fatalf("%v %s", a.err, a.raw)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	p, warnings, err := vllmlog.Read("mock.log", bytes.NewReader(log.Bytes()), vllmlog.Options{})
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, %v in\n%s", err, warnings, &log)
	}
	type line struct {
		totals forward.Totals
		ms     float64
	}
	var got []line
	for _, point := range p.Points {
		if point.Kind == profile.KindStep {
			totals := *point.Step.Totals
			totals.KVTokens = 0
			got = append(got, line{totals, point.Samples[0] * 1e3})
		}
	}
	want := []line{
		{forward.Totals{PrefillRequests: 1, PrefillTokens: 32}, 2.32},
		{forward.Totals{PrefillRequests: 1, PrefillTokens: 8}, 2.08},
		{forward.Totals{DecodeRequests: 1, DecodeTokens: 1}, 2.01},
		{forward.Totals{DecodeRequests: 1, DecodeTokens: 1}, 2.01},
		{forward.Totals{DecodeRequests: 1, DecodeTokens: 1}, 2.01},
		{forward.Totals{DecodeRequests: 1, DecodeTokens: 1}, 2.01},
	}
	if !slices.EqualFunc(got, want, func(a, b line) bool { return a.totals == b.totals && a.ms > b.ms-0.006 && a.ms < b.ms+0.006 }) {
		t.Errorf("steps %+v, want %+v in\n%s", got, want, &log)
	}
	if !strings.Contains(log.String(), "GPU KV cache size: 260 tokens\nMaximum concurrency for 128 tokens per request: 2.03x\n") {
		t.Errorf("the size of the cache is not told:\n%s", &log)
	}
	if m := strings.Count(log.String(), "usage: 0.0%"); m != 1 {
		t.Errorf("%d steps leave the cache empty, want the last alone:\n%s", m, &log)
	}
}

// full is a writer without room.
type full struct{ room int }

func (f *full) Write(b []byte) (int, error) {
	if f.room -= len(b); f.room < 0 {
		return 0, errors.New("no space left")
	}
	return len(b), nil
}

// TestSimulationFails ends a server whose steps cannot be timed, or whose log
// cannot be written, and tells its clients.
func TestSimulationFails(t *testing.T) {
	broken := simulation(t, time.Millisecond)
	timer := broken.Timer
	broken.Timer = sim.StepTimerFunc(func(p forward.Pass) (time.Duration, error) {
		if len(p.Prefill) == 0 && p.Decode.SumContext == 10 {
			return 0, errors.New("out of the measured range")
		}
		return timer.StepTime(p)
	})
	server, err := mock.New(mock.Options{Simulation: broken})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := client(t)
	a := ask(t.Context(), client, server.URL()+"/v1/completions", ids(1, 8, 6, ""), "")
	if a.tokens() != 3 || len(a.events) != 4 || a.events[3].Error == nil {
		t.Errorf("want three tokens and an error: %s", a.raw)
	}
	<-server.Failed()
	if a := ask(t.Context(), client, server.URL()+"/v1/completions", ids(1, 8, 6, ""), ""); a.status != http.StatusInternalServerError {
		t.Errorf("status %d after the failure: %s", a.status, a.raw)
	}
	if err := server.Close(); err == nil || !strings.Contains(err.Error(), "step 4: time of a step of 1 tokens: out of the measured range") {
		t.Errorf("closed with %v", err)
	}

	logged := simulation(t, time.Millisecond)
	logged.IterationLog = &full{room: 200}
	if server, err = mock.New(mock.Options{Simulation: logged}); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := ask(t.Context(), client, server.URL()+"/v1/completions", ids(1, 8, 6, ""), ""); a.tokens() != 6 {
		t.Errorf("a full disk is no reason to send nothing: %s", a.raw)
	}
	<-server.Failed()
	if err := server.Close(); err == nil || !strings.Contains(err.Error(), "write the log of iterations: no space left") {
		t.Errorf("closed with %v", err)
	}
}

// TestSimulationRefuses names what a simulation cannot be.
func TestSimulationRefuses(t *testing.T) {
	for _, c := range []struct {
		why  string
		set  func(*mock.Options)
		want string
	}{
		{"a scheduler that vLLM would refuse", func(o *mock.Options) { o.Simulation.Scheduler.Blocks = 9 }, "the longest that fits is 32"},
		{"no timer", func(o *mock.Options) { o.Simulation.Timer = nil }, "timer of steps is missing"},
		{"a time that runs backwards", func(o *mock.Options) { o.Simulation.Speed = -1 }, "speed: -1"},
		{"a negative gap", func(o *mock.Options) { o.Simulation.Between = -1 }, "-1ns between steps"},
		{"seats beside those of the scheduler", func(o *mock.Options) { o.MaxNumSeqs = 3 }, "limits of its scheduler"},
		{"several tokens a step", func(o *mock.Options) { o.TokensPerChunk = 2 }, "a simulated step puts out one"},
		{"a timer that knows no mixed steps", func(o *mock.Options) {
			o.Simulation.Timer = sim.StepTimerFunc(func(p forward.Pass) (time.Duration, error) {
				if len(p.Prefill) > 0 && p.Decode.Count > 0 {
					return 0, errors.New("only homogeneous steps were timed")
				}
				return time.Millisecond, nil
			})
		}, "time a step of both: only homogeneous"},
		{"a log that cannot be written", func(o *mock.Options) { o.Simulation.IterationLog = &full{} }, "write the log of iterations"},
	} {
		t.Run(c.why, func(t *testing.T) {
			o := mock.Options{Simulation: simulation(t, time.Millisecond)}
			c.set(&o)
			if _, err := mock.New(o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
