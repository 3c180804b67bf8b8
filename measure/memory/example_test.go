package memory_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/measure/memory"
)

// An engine is started under a sampler, here a recording that is played, and
// runs one batch.
func ExampleOpen() {
	recording, err := gpu.Replay(strings.NewReader(`{"at_s": 0, "devices": [{"index": 0, "name": "NVIDIA H200", "memory_used_bytes": 536870912}]}
{"at_s": 3600, "devices": []}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	e, err := memory.Open(ctx, memory.Options{
		Source: recording, Settle: time.Millisecond,
		Start: func(context.Context, func(engine.Mark)) (engine.Session, error) { return &session{}, nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	o, err := e.Run(ctx, engine.StepTask{BatchSize: 8, InputLen: 512, OutputLen: 128}, 10, 30)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := e.Close(ctx); err != nil {
		fmt.Println(err)
		return
	}
	d := o.Document(memory.Subject{Name: "example-org/example-8b", Vendor: "cuda"}, time.Now())
	fmt.Println("baseline", *d.MemoryMeasurements.Baseline.TotalBytes)
	for _, p := range d.MemoryBreakdown.Parts[:1] {
		fmt.Println(p.Name, p.Bytes, p.Note)
	}
	// Output:
	// baseline 512.00 MiB
	// weights <nil> the engine does not say, and the architecture is not known
}
