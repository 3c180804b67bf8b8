package scenario_test

import (
	"fmt"
	"strings"

	"github.com/llmprof/llmprof/sim/scenario"
)

func ExampleRun() {
	schedule, expected, err := scenario.Run("two.txt", strings.NewReader(`# Both fit into one step.
config vllm=0.33.0 num_blocks=17 block_size=4 max_num_batched_tokens=16 max_num_seqs=4 max_model_len=32
req A arrival=1 prompt=6 output=1
req B arrival=1 prompt=4 output=1
`))
	fmt.Print(schedule)
	fmt.Println(expected == "", err)
	// Output:
	// step 1 sched=A:6,B:4 hit=A:0,B:0 preempt=- evict=- run=A,B wait=- free=13 out=A:1,B:1 finish=A,B end_free=16
	// end steps=1 preemptions=0 hit_tokens=0 evictions=0
	// true <nil>
}
