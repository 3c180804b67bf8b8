package fleet_test

import (
	"strings"
	"testing"

	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/fleet"
)

// TestReplicaFaults holds a replica to one scheduler.
func TestReplicaFaults(t *testing.T) {
	vllm, loop := h100(t), loopOf(sglangOf(t, ""))
	for _, c := range []struct {
		why     string
		replica fleet.Replica
		want    string
	}{
		{"vLLM's is one", fleet.Replica{VLLM: &vllm}, ""},
		{"SGLang's is one", fleet.Replica{SGLang: loop}, ""},
		{"both are two", fleet.Replica{VLLM: &vllm, SGLang: loop}, "two schedulers: want one"},
		{"none is none", fleet.Replica{}, "want a scheduler"},
	} {
		t.Run(c.why, func(t *testing.T) {
			c.replica.Timer = sim.StepTimerFunc(linear)
			err := fleet.Config{Replicas: []fleet.Replica{c.replica}}.Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasSuffix(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
