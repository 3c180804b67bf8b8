package sim_test

import (
	"fmt"

	"github.com/llmprof/llmprof/sim"
)

// Two requests share a system prompt of 8 tokens; the second finds its blocks.
func Example() {
	rules, err := sim.RulesOf("0.32.0")
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := sim.NewScheduler(sim.Config{
		Rules: rules, Blocks: 17, BlockSize: 4,
		MaxBatchedTokens: 16, MaxSeqs: 4, MaxModelLen: 32,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	system := []sim.Span{{Node: 0, End: 8}}
	for _, q := range []sim.Request{{Prompt: 12, Output: 2, Prefix: system}, {Prompt: 10, Output: 1, Prefix: system}} {
		if _, err := s.Add(q); err != nil {
			fmt.Println(err)
			return
		}
	}
	for step := 1; !s.Idle(); step++ {
		plan := s.Schedule()
		for _, e := range plan.Scheduled {
			fmt.Printf("step %d: request %d computes %d tokens after %d\n", step, e.Request, e.Tokens, e.Context)
		}
		for _, token := range s.Apply().Tokens {
			fmt.Printf("step %d: request %d puts out token %d\n", step, token.Request, token.Number)
		}
	}
	// Output:
	// step 1: request 0 computes 12 tokens after 0
	// step 1: request 1 computes 2 tokens after 8
	// step 1: request 0 puts out token 1
	// step 1: request 1 puts out token 1
	// step 2: request 0 computes 1 tokens after 12
	// step 2: request 0 puts out token 2
}

// One rule can be set against its release.
func ExampleRulesOf() {
	rules, err := sim.RulesOf("0.32.0")
	if err != nil {
		fmt.Println(err)
		return
	}
	rules.SelfPreemptGoesOn = true // as 0.33 does
	fmt.Println(rules.SplitFree, rules.SelfPreemptGoesOn)

	_, err = sim.RulesOf("0.99.0")
	fmt.Println(err)
	// Output:
	// true true
	// vLLM release "0.99.0": its scheduling rules are not known
}
