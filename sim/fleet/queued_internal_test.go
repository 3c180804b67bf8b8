package fleet

import (
	"context"
	"testing"
	"time"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/workload"
)

// TestQueuedTokens adds up: of those who waited, were preempted or gave up
// nobody is counted in the end.
func TestQueuedTokens(t *testing.T) {
	rules, err := sim.RulesOf("0.33.0")
	if err != nil {
		t.Fatal(err)
	}
	for _, async := range []bool{false, true} {
		s := &workload.Schedule{}
		for i := range 60 {
			q := workload.Request{ID: i, InputLen: 20 + 7*i%40, OutputLen: 1 + 11*i%60, Seed: uint64(i)}
			if i%3 == 0 {
				q.Timeout = 0.15
			}
			s.Requests = append(s.Requests, q)
		}
		l, err := NewLoad(s)
		if err != nil {
			t.Fatal(err)
		}
		config := sim.Config{Rules: rules, Blocks: 40, BlockSize: 4, MaxBatchedTokens: 64, MaxSeqs: 8, MaxModelLen: 120, Async: async}
		timer := sim.StepTimerFunc(func(forward.Pass) (time.Duration, error) { return 10 * time.Millisecond, nil })
		var m Runner
		r, err := m.Run(context.Background(), l, Config{Replicas: []Replica{{VLLM: &config, Timer: timer}}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Replicas[0].Preemptions == 0 {
			t.Error("nobody is preempted: want a load that is")
		}
		if v := m.vllm[0]; v.queued != 0 || len(v.put) != 0 {
			t.Errorf("async %v: %d tokens and %v wait in the end", async, v.queued, v.put)
		}
	}
}
