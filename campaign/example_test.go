package campaign_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/store"
)

const exampleFile = `models:
  - model_id: Qwen/Qwen3-8B
    container_name: vllm
    input_lengths: [256, 512]
    output_lengths: [256]
    batch_sizes: [8, 1]
    dtype: bfloat16
`

func ExampleParse() {
	file, warnings, err := campaign.Parse("qwen.yaml", []byte(exampleFile))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range file.Cells() {
		fmt.Println(c.Name(), c.DType, c.GPUMemoryUtilization)
	}
	fmt.Println(len(warnings), "warnings")
	// Output:
	// vllm_256in_256out_bs8 bfloat16 0.9
	// vllm_256in_256out_bs1 bfloat16 0.9
	// vllm_512in_256out_bs8 bfloat16 0.9
	// vllm_512in_256out_bs1 bfloat16 0.9
	// 0 warnings
}

func ExampleParse_fault() {
	_, _, err := campaign.Parse("qwen.yaml", []byte("models:\n  - model_id: a/b\n    place: local\n    input_lengts: [1]\n    output_lengths: [0]\n    batch_sizes: [1]\n"))
	fmt.Println(err)
	var bad *campaign.FileError
	if errors.As(err, &bad) {
		fmt.Println("hint:", bad.Hint())
	}
	// Output:
	// qwen.yaml:4:5: unknown field "input_lengts"
	//     4 |     input_lengts: [1]
	//             ^
	// qwen.yaml:5:22: output_lengths: 0 is out of range: want 1 to 16777216
	//     5 |     output_lengths: [0]
	//                              ^
	// hint: line 4: nearest known: input_lengths
}

// bench stands for what measures cells.
type bench struct{}

func (bench) Load(_ context.Context, g campaign.Group) (campaign.Engine, error) {
	fmt.Printf("load %s for %d cells, batches up to %d\n", g.Cells[0].ModelID, len(g.Cells), g.MaxBatch)
	return bench{}, nil
}

func (bench) Run(_ context.Context, c campaign.Cell) (campaign.Result, error) {
	if c.BatchSize == 8 && c.InputLen == 256 {
		return campaign.Result{}, &campaign.CellError{State: store.OOM, Err: errors.New("CUDA out of memory")}
	}
	return campaign.Result{Document: json.RawMessage(`{}`)}, nil
}

func (bench) Close(context.Context) error { return nil }

func ExampleRun() {
	ctx := context.Background()
	st, err := store.Open(ctx, ":memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer st.Close()
	file, _, err := campaign.Parse("qwen.yaml", []byte(exampleFile))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := campaign.Create(ctx, st, store.Run{ID: "qwen-1", Kind: "batch", Name: "qwen", Config: []byte(exampleFile)}, file.Cells()); err != nil {
		fmt.Println(err)
		return
	}
	outcome, err := campaign.Run(ctx, campaign.Options{
		Store: st, RunID: "qwen-1", Runner: bench{},
		Hooks: campaign.Hooks{CellDone: func(c campaign.Cell, end store.Cell) { fmt.Println(c.Name(), end.State) }},
	})
	fmt.Println(outcome.Counts[store.Done], "of", outcome.Total, "done", err)
	// Output:
	// load Qwen/Qwen3-8B for 4 cells, batches up to 8
	// vllm_256in_256out_bs1 done
	// vllm_512in_256out_bs1 done
	// vllm_256in_256out_bs8 oom
	// vllm_512in_256out_bs8 skipped
	// 2 of 4 done <nil>
}
