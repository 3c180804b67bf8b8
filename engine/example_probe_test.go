package engine_test

import (
	"context"
	"fmt"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
)

// A probe in five lines of shell: it is ready at once and answers one step.
func ExampleStartProbe() {
	probe := `read open
echo '{"event":"ready","schema":"llmprof/probe","version":1,"engine":"sh","clock":"wall"}'
read step
echo '{"event":"step","id":1,"prefill_s":[0.020,0.022],"decode_s":[[0.004,0.005,0.006],[0.004,0.004,0.004]]}'
read close`
	ctx := context.Background()
	session, err := engine.StartProbe(ctx, place.Local(), engine.Command{Argv: []string{"sh", "-c", probe}}, engine.Setup{})
	if err != nil {
		fmt.Println(err)
		return
	}
	task := engine.Task{ID: 1, Step: &engine.StepTask{BatchSize: 1, InputLen: 128, OutputLen: 4}, Runs: 2}
	err = session.Run(ctx, []engine.Task{task}, func(r engine.Result) error {
		for _, p := range r.Points {
			fmt.Println(p.Step.Mode, p.Samples)
		}
		return nil
	})
	fmt.Println(err, session.Close())
	// Output:
	// prefill [0.02 0.022]
	// decode [0.005 0.004]
	// <nil> <nil>
}
