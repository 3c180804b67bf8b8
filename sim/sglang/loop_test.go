package sglang_test

import (
	"errors"
	"fmt"
	"log"
	"testing"

	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/sglang"
)

func ExampleLoop() {
	rules, err := sglang.RulesOf("0.5.23")
	if err != nil {
		log.Fatal(err)
	}
	l, err := sglang.NewLoop(sglang.Config{
		Rules: rules, Pool: 4096, Page: 16, Chunk: 512, MaxPrefill: 16384, Seats: 64, Conservativeness: 1, Context: 1000,
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := l.Add(sim.Request{Prompt: 995, Output: 2}); err != nil {
		fmt.Println(err)
	}
	for range 2 {
		if _, err := l.Add(sim.Request{Prompt: 300, Output: 2}); err != nil {
			log.Fatal(err)
		}
	}
	for l.State().Busy {
		i, err := l.Plan()
		if err != nil {
			log.Fatal(err)
		}
		l.Read()
		fmt.Println(i.Requests, i.Tokens, i.Context, i.FreeBlocks, i.Finished)
	}
	// Output:
	// sglang: add request: prompt of 995 tokens: want less than 994 in a context of 1000 and a pool of 4096
	// [0 1] [300 208] 0 224 []
	// [1] [92] 0 218 []
	// [0 1] [1 1] 600 218 [0 1]
	// [] [] 0 256 []
}

// TestLoopRequests holds what a load's request becomes.
func TestLoopRequests(t *testing.T) {
	rules, err := sglang.RulesOf("")
	if err != nil {
		t.Fatal(err)
	}
	config := sglang.Config{Rules: rules, Pool: 90, Page: 1, Chunk: 32, MaxPrefill: 64, Seats: 8, Conservativeness: 1, Context: 90}
	for _, c := range []struct {
		why      string
		change   func(*sglang.Config)
		requests []sim.Request
		iterates int
		want     string // requests of the last of the iterations, and all that ended until then
	}{
		{"it ends by a token that the scheduler does not foresee", nil, []sim.Request{{Prompt: 10, Output: 2, MaxTokens: 60}}, 2, "[0] [0]"},
		{"the reserve of the first is a share: 60-34 is more than 13", nil, []sim.Request{{Prompt: 30, Output: 50}, {Prompt: 10, Output: 2}}, 2, "[1] []"},
		{"with ignore_eos all of it: 60-49 is less than 13", func(c *sglang.Config) { c.IgnoreEOS = true }, []sim.Request{{Prompt: 30, Output: 50}, {Prompt: 10, Output: 2}}, 2, "[0] []"},
		{"the lower priority is the more important", func(c *sglang.Config) { c.Priority, c.Chunk = true, 10 }, []sim.Request{{Prompt: 10, Output: 1, Priority: 3}, {Prompt: 10, Output: 1, Priority: -3}}, 1, "[1] [1]"},
	} {
		t.Run(c.why, func(t *testing.T) {
			config := config
			if c.change != nil {
				c.change(&config)
			}
			l, err := sglang.NewLoop(config)
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range c.requests {
				if _, err := l.Add(q); err != nil {
					t.Fatal(err)
				}
			}
			var requests, ended []int32
			for range c.iterates {
				i, err := l.Plan()
				if err != nil {
					t.Fatal(err)
				}
				l.Read()
				requests, ended = i.Requests, append(ended, i.Finished...)
			}
			if got := fmt.Sprint(requests, " ", ended); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	l, err := sglang.NewLoop(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Add(sim.Request{Prompt: 89, Output: 1}); !errors.Is(err, sim.ErrUnservable) {
		t.Errorf("a prompt of 89 tokens in a context of 90: %v, want it refused", err)
	}
	if _, err := l.Add(sim.Request{Prompt: 0, Output: 1}); err == nil || errors.Is(err, sim.ErrUnservable) {
		t.Errorf("a prompt of 0 tokens: %v, want a fault", err)
	}
	if _, err := sglang.NewLoop(sglang.Config{}); err == nil {
		t.Error("an empty configuration makes a loop")
	}
}

// TestLoopIdle lets a request come after a pause: the engine's loop has gone round
// meanwhile, so no decodes are left to be waited for.
func TestLoopIdle(t *testing.T) {
	rules, err := sglang.RulesOf("")
	if err != nil {
		t.Fatal(err)
	}
	l, err := sglang.NewLoop(sglang.Config{
		Rules: rules, Pool: 100, Page: 1, Chunk: 32, MaxPrefill: 64, Seats: 8, Conservativeness: 1, DecodeInterval: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	for id := range int32(2) {
		if _, err := l.Add(sim.Request{Prompt: 10, Output: 1}); err != nil {
			t.Fatal(err)
		}
		i, err := l.Plan()
		if err != nil {
			t.Fatal(err)
		}
		l.Read()
		if len(i.Requests) != 1 || i.Requests[0] != id {
			t.Errorf("batch %v, want request %d alone, prefilled at once", i.Requests, id)
		}
		for l.State().Busy {
			if _, err := l.Plan(); err != nil {
				t.Fatal(err)
			}
			l.Read()
		}
	}
}
