package mock

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// TestReplicaIsFleet holds what the mock would send against what llmprof
// simulate says of the same load, to the nanosecond.
func TestReplicaIsFleet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, load := drawSimulation(t)
		schedule := &workload.Schedule{}
		for i := range load {
			q := &load[i]
			q.at, q.shared = q.at/1000*1000, 0 // times that seconds hold exactly, prompts that nobody shares
			q.request.Prefix, q.request.MaxTokens, q.maxToken = nil, q.request.Output, q.request.Output
			schedule.Requests = append(schedule.Requests, workload.Request{
				ID: i, At: unit.Seconds(float64(q.at) / 1e9), InputLen: q.request.Prompt, OutputLen: q.request.Output, Priority: q.request.Priority,
			})
		}
		made, err := fleet.NewLoad(schedule)
		if err != nil {
			t.Fatal(err)
		}
		want, err := fleet.Run(context.Background(), made, fleet.Config{Replicas: []fleet.Replica{
			{VLLM: &c.Scheduler, Timer: c.Timer, Between: c.Between, Before: c.Before},
		}})
		if err != nil {
			t.Fatal(err)
		}
		got, _, _ := drive(t, c, load)
		for i, r := range want.Records {
			if first, last := time.Duration(got[i][0]), time.Duration(got[i][len(got[i])-1]); first != r.First || last != r.Last {
				t.Fatalf("request %d: first token at %v, last at %v; the simulation says %v and %v", i, first, last, r.First, r.Last)
			}
		}
	})
}
