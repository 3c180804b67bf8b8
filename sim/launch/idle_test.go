package launch_test

import (
	"testing"

	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/launch"
)

// TestIdle: a budget that no step used up may be as low as the largest step, and
// the pool that follows from it has to be idle as well.
func TestIdle(t *testing.T) {
	a := ask(t, "Llama-3.1-8B", "h100-sxm-80gb")
	r, err := launch.VLLM(a)
	if err != nil {
		t.Fatal(err)
	}
	const budget, pool = "max_num_batched_tokens", "num_gpu_blocks"
	run := launch.Extent{Step: 6000, Request: 2064, Running: 10}
	d := r.Idle(a.Model.MaxSeqLen, a.Device.Name)
	for _, graphs := range []bool{false, true} {
		d.Graphs = graphs
		found := d.Narrow([]sim.Knob{{Name: budget}, {Name: pool}}, run)
		if len(found) != 2 || found[0].Name != budget || found[0].From == nil || *found[0].From != 6000 || found[0].To == nil || *found[0].To != 8192 {
			t.Errorf("graphs %v: %+v, want a budget of 6000 to 8192 and the pool", graphs, found)
		}
	}
	if found := d.Narrow([]sim.Knob{{Name: budget}}, run); len(found) != 0 {
		t.Errorf("%+v made no difference, though the pool that follows did", found)
	}
	run.Step = 8192
	if found := d.Narrow([]sim.Knob{{Name: budget}, {Name: pool}}, run); len(found) != 1 || found[0].Name != pool {
		t.Errorf("a budget that was used up is among %+v", found)
	}
}
