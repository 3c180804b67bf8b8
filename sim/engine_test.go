package sim_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/sim"
)

// coming is a request that comes at a time.
type coming struct {
	at      int64 // ns
	request sim.Request
}

// uneven is a timer whose steps all differ a little.
func uneven(p forward.Pass) (time.Duration, error) {
	d := time.Millisecond + time.Duration(p.Tokens())*10*time.Microsecond + time.Duration(p.Decode.SumContext)*7
	for i, c := range p.Prefill {
		d += time.Duration(c.New*(c.Context+c.New) + i)
	}
	return d, nil
}

// planned is what a pass said of its step, in ns, and how many tokens it computes.
type planned struct {
	begin, took, host int64
	tokens            int
}

// serve drives an engine from event to event and returns when the tokens of each
// request came, and what every pass planned.
func serve(t interface{ Fatal(...any) }, c sim.EngineConfig, load []coming) (tokens [][]int64, steps []planned) {
	var e *sim.Engine
	c.Enter = func(i int32, _ int64) error {
		_, err := e.Scheduler().Add(load[i].request)
		return err
	}
	e, err := sim.NewEngine(c)
	if err != nil {
		t.Fatal(err)
	}
	tokens = make([][]int64, len(load))
	for sent := 0; ; {
		next := e.Turns().Next()
		if sent < len(load) && load[sent].at <= next {
			e.Turns().Deliver(int32(sent), load[sent].at)
			sent++
			continue
		}
		if next == sim.Asleep {
			return tokens, steps
		}
		for further := true; further; {
			event, err := e.Advance()
			if err != nil {
				t.Fatal(err)
			}
			if event.At != next {
				t.Fatal("the event was announced for another time")
			}
			switch event.Kind {
			case sim.Planned:
				steps = append(steps, planned{event.Begin, event.Took, event.Host, event.Pass.Tokens()})
			case sim.Read:
				for _, token := range event.Outcome.Tokens {
					tokens[token.Request] = append(tokens[token.Request], event.At)
				}
			}
			further = event.Further
		}
	}
}

// replayed is the same in plain words: the scheduler, the timer and a clock.
func replayed(t interface{ Fatal(...any) }, c sim.EngineConfig, load []coming) (tokens [][]int64, steps []planned) {
	s, err := sim.NewScheduler(c.Scheduler)
	if err != nil {
		t.Fatal(err)
	}
	tokens = make([][]int64, len(load))
	now, runsUntil, runs, added := int64(0), int64(0), false, 0
	host, between := int64(0), int64(0) // between: after the step that runs
	for added < len(load) || !s.Idle() {
		if s.Idle() {
			now, runs = max(now, load[added].at+int64(c.Before)), false
		}
		for ; added < len(load) && load[added].at+int64(c.Before) <= now; added++ {
			if _, err := s.Add(load[added].request); err != nil {
				t.Fatal(err)
			}
		}
		plan, took := s.Schedule(), int64(0)
		if plan.Tokens > 0 {
			var pass forward.Pass
			for i := range plan.Scheduled {
				if e := &plan.Scheduled[i]; s.Decodes(e) {
					pass.Decode.Add(int(e.Context))
				} else {
					pass.Prefill = append(pass.Prefill, forward.Chunk{Count: 1, New: int(e.Tokens), Context: int(e.Context), Last: e.Samples})
				}
			}
			d, err := c.Timer.StepTime(pass)
			if err != nil {
				t.Fatal(err)
			}
			took = int64(d)
		}
		results, next, begin := now+took, now+took+int64(c.Between), now
		if c.Scheduler.Async {
			if results = now; runs {
				results = runsUntil
				host += between
			}
			next, begin = results, results
		}
		steps = append(steps, planned{begin, took, host, plan.Tokens})
		between = 0
		if took > 0 {
			between = int64(c.Between)
		}
		if runsUntil, runs = next+took+between, true; !c.Scheduler.Async {
			host += int64(c.Between)
		}
		for _, o := range s.Apply().Tokens {
			tokens[o.Request] = append(tokens[o.Request], results)
		}
		now = next
	}
	return tokens, steps
}

// TestEngineIsReplay holds every step and token of an engine to the nanosecond against a
// plain replay, where it runs short of seats, blocks and budget.
func TestEngineIsReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules, err := sim.RulesOf(rapid.SampledFrom([]string{"0.11.2", "0.27.0", "0.33.0"}).Draw(t, "release"))
		if err != nil {
			t.Fatal(err)
		}
		size := rapid.IntRange(1, 8).Draw(t, "block size")
		c := sim.EngineConfig{
			Scheduler: sim.Config{
				Rules: rules, BlockSize: size, MaxModelLen: 64, Blocks: 1 + (64+size-1)/size + rapid.IntRange(0, 20).Draw(t, "more blocks"),
				MaxSeqs: rapid.IntRange(1, 6).Draw(t, "seats"), MaxBatchedTokens: rapid.IntRange(8, 80).Draw(t, "budget"),
				Policy: sim.Policy(rapid.IntRange(0, 1).Draw(t, "policy")), Async: rapid.Bool().Draw(t, "async"),
			},
			Timer:   sim.StepTimerFunc(uneven),
			Between: time.Duration(rapid.SampledFrom([]int{0, 300, 2_000_000}).Draw(t, "between")),
			Before:  time.Duration(rapid.SampledFrom([]int{0, 500, 3_000_000}).Draw(t, "before")),
		}
		var load []coming
		at := int64(0)
		for range rapid.IntRange(1, 15).Draw(t, "requests") {
			at += int64(rapid.IntRange(0, 6_000_000).Draw(t, "after"))
			prompt := rapid.IntRange(1, 50).Draw(t, "prompt")
			output := rapid.IntRange(1, 64-prompt).Draw(t, "output")
			load = append(load, coming{at, sim.Request{
				Prompt: prompt, Output: output, MaxTokens: rapid.IntRange(output, 64-prompt).Draw(t, "max tokens"),
				Priority: rapid.IntRange(-1, 1).Draw(t, "priority"),
				Prefix:   []sim.Span{{Node: int32(rapid.IntRange(0, 1).Draw(t, "group")), End: rapid.IntRange(0, prompt).Draw(t, "shared")}},
			}})
		}
		got, steps := serve(t, c, load)
		want, plain := replayed(t, c, load)
		for i := range min(len(steps), len(plain)) {
			if steps[i] != plain[i] {
				t.Fatalf("step %d: %+v, want %+v", i, steps[i], plain[i])
			}
		}
		if len(steps) != len(plain) {
			t.Fatalf("%d steps, want %d", len(steps), len(plain))
		}
		for i := range load {
			if !slices.Equal(got[i], want[i]) || len(got[i]) != load[i].request.Output {
				t.Fatalf("request %d of %+v: tokens at %v, want %v", i, load[i], got[i], want[i])
			}
		}
	})
}

// small is an engine of two seats whose steps take 10 ms.
func small(t *testing.T) sim.EngineConfig {
	t.Helper()
	rules, err := sim.RulesOf("")
	if err != nil {
		t.Fatal(err)
	}
	return sim.EngineConfig{
		Scheduler: sim.Config{Rules: rules, Blocks: 100, BlockSize: 4, MaxBatchedTokens: 64, MaxSeqs: 4, MaxModelLen: 64},
		Timer:     sim.StepTimerFunc(func(forward.Pass) (time.Duration, error) { return 10 * time.Millisecond, nil }),
	}
}

// TestEngineLater holds that nothing happens in a stall.
func TestEngineLater(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, c := range []struct {
		why   string
		async bool
		want  []int64 // ms
	}{
		{"a step that would end in the stall ends with it", false, []int64{10, 40, 52}},
		{"async: so it does, and the one that was planned begins then", true, []int64{12, 40, 52}},
	} {
		t.Run(c.why, func(t *testing.T) {
			config := small(t)
			config.Scheduler.Async, config.Between = c.async, 2*time.Millisecond
			config.Later = func(at int64) int64 {
				if at >= 15*ms && at < 40*ms {
					return 40 * ms
				}
				return at
			}
			tokens, _ := serve(t, config, []coming{{0, sim.Request{Prompt: 5, Output: 3}}})
			got := tokens[0]
			for i := range got {
				got[i] /= ms
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("tokens at %v ms, want %v", got, c.want)
			}
		})
	}
}

// TestEngineFails holds that an engine says at once what it cannot do.
func TestEngineFails(t *testing.T) {
	far := errors.New("out of the measured range")
	for _, c := range []struct {
		why  string
		took time.Duration
		err  error
		want string
	}{
		{"a step that the timer does not know", 0, far, "time of a step of 5 tokens: out of the measured range"},
		{"a step that ends before it begins", -time.Second, nil, "time of a step of 5 tokens: -1s: want 0 or more"},
	} {
		t.Run(c.why, func(t *testing.T) {
			config := small(t)
			config.Timer = sim.StepTimerFunc(func(forward.Pass) (time.Duration, error) { return c.took, c.err })
			var e *sim.Engine
			config.Enter = func(int32, int64) error {
				_, err := e.Scheduler().Add(sim.Request{Prompt: 5, Output: 3})
				return err
			}
			e, err := sim.NewEngine(config)
			if err != nil {
				t.Fatal(err)
			}
			e.Turns().Deliver(0, 0)
			if _, err := e.Advance(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	config := small(t)
	config.Scheduler.MaxSeqs = 0
	if _, err := sim.NewEngine(config); err == nil {
		t.Error("an engine without seats was made")
	}
}

// TestEngineStalls fills half of the pool with blocks that A cannot get, so that
// it is put back at its 17th token. While KV is on its way, or somebody may give
// blocks back, that is no error; when all that others do is to wait behind A, it
// is one.
func TestEngineStalls(t *testing.T) {
	a := sim.Request{Prompt: 12, Output: 20}
	for _, c := range []struct {
		why    string
		other  sim.Request
		frees  func(*sim.Scheduler) bool
		stalls bool
	}{
		{"KV for a request behind it comes, and keeps its blocks", sim.Request{Prompt: 16, Output: 9, Remote: 16, Priority: 1}, func(s *sim.Scheduler) bool { return s.Loaded(1) }, true},
		{"the other has ended, and gives its blocks back", sim.Request{Prompt: 16, Output: 1, Hold: true}, func(s *sim.Scheduler) bool { return s.Release(1) }, false},
	} {
		for _, async := range []bool{false, true} {
			config, load := small(t), []sim.Request{a, c.other}
			config.Scheduler.Async, config.Scheduler.Policy = async, sim.Priority
			config.Scheduler.Blocks, config.Scheduler.MaxModelLen = 9, 32
			var e *sim.Engine
			config.Enter = func(i int32, _ int64) error {
				_, err := e.Scheduler().Add(load[i])
				return err
			}
			e, err := sim.NewEngine(config)
			if err != nil {
				t.Fatal(err)
			}
			e.Turns().Deliver(0, 0)
			e.Turns().Deliver(1, 0)
			for range 100 {
				if _, err := e.Advance(); err != nil {
					t.Fatalf("%s (async %v): %v before", c.why, async, err)
				}
			}
			if s := e.Scheduler(); s.State(0) != sim.Waiting || s.Outputs(0) != 5 || !c.frees(s) {
				t.Fatalf("%s (async %v): A is in state %d with %d tokens, want it to wait with 5", c.why, async, s.State(0), s.Outputs(0))
			}
			for range 100 {
				if _, err = e.Advance(); err != nil || e.Turns().Next() == sim.Asleep {
					break
				}
			}
			switch {
			case !c.stalls && (err != nil || e.Scheduler().State(0) != sim.Finished):
				t.Errorf("%s (async %v): %v, and A is in state %d", c.why, async, err, e.Scheduler().State(0))
			case c.stalls && (err == nil || err.Error() != "2 requests wait and 0 run, and none can be computed"):
				t.Errorf("%s (async %v): %v, want that none can be computed", c.why, async, err)
			}
		}
	}
}

// ExampleEngine drives an engine by hand.
func ExampleEngine() {
	rules, err := sim.RulesOf("0.32.0")
	if err != nil {
		fmt.Println(err)
		return
	}
	var engine *sim.Engine
	engine, err = sim.NewEngine(sim.EngineConfig{
		Scheduler: sim.Config{Rules: rules, Blocks: 100, BlockSize: 16, MaxBatchedTokens: 512, MaxSeqs: 8, MaxModelLen: 256},
		Timer: sim.StepTimerFunc(func(p forward.Pass) (time.Duration, error) {
			return 5*time.Millisecond + time.Duration(p.Tokens())*100*time.Microsecond, nil
		}),
		Enter: func(int32, int64) error {
			_, err := engine.Scheduler().Add(sim.Request{Prompt: 50, Output: 3})
			return err
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	engine.Turns().Deliver(0, 0)
	for engine.Turns().Next() != sim.Asleep {
		e, err := engine.Advance()
		if err != nil {
			fmt.Println(err)
			return
		}
		if e.Kind == sim.Read {
			fmt.Println(time.Duration(e.At), "tokens:", len(e.Outcome.Tokens))
		}
	}
	// Output:
	// 10ms tokens: 1
	// 15.1ms tokens: 1
	// 20.2ms tokens: 1
}
