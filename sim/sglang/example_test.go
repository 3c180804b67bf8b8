package sglang_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/llmprof/llmprof/sim/sglang"
)

func ExampleRun() {
	schedule, _, err := sglang.Run("example", strings.NewReader(`
config sglang=0.5.23 pool=64 page=1 chunk=16 max_prefill=64 seats=8 policy=fcfs overlap=0
req A arrival=1 prompt=10 max_new=2
req B arrival=1 prompt=12 max_new=1
`))
	if err != nil {
		log.Fatal(err)
	}
	for line := range strings.Lines(schedule) {
		fmt.Println(strings.Join(strings.Fields(line)[:4], " "))
		if strings.HasPrefix(line, "step 3") {
			break
		}
	}
	// Output:
	// step 1 kind=prefill sched=A:10,B:6
	// step 2 kind=prefill sched=B:6
	// step 3 kind=decode sched=A:1
}

func ExampleScheduler() {
	rules, err := sglang.RulesOf("0.5.23")
	if err != nil {
		log.Fatal(err)
	}
	s, err := sglang.New(sglang.Config{
		Rules: rules, Pool: 4096, Page: 1, Chunk: 512, MaxPrefill: 16384, Seats: 64,
		Conservativeness: 1, Overlap: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		if _, err := s.Add(sglang.Request{Prompt: 300, MaxNew: 2}); err != nil {
			log.Fatal(err)
		}
	}
	for s.Busy() {
		b, err := s.Step()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(b.Kind, b.Requests, b.Tokens, b.Finished)
	}
	// Output:
	// prefill [0 1] [300 212] []
	// prefill [1 2] [88 300] []
	// decode [0 1 2] [1 1 1] []
	// none [] [] [0 1 2]
}
