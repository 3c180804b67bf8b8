package llamacpp_test

import (
	"fmt"
	"os"

	"github.com/llmprof/llmprof/format/llamacpp"
)

func Example() {
	file, err := os.Open("testdata/llama-bench.synthetic.jsonl")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer file.Close()
	p, warnings, err := llamacpp.Read("bench.jsonl", file, llamacpp.Options{})
	fmt.Println(p.Header.Deploy.Engine, p.Header.Deploy.EngineVersion, warnings, err)
	for _, point := range p.Points {
		t, _ := point.Median()
		fmt.Println(point.Step.Mode, point.Step.Pass.Tokens(), "tokens at context", point.Step.Pass.MeanDecodeContext(), "take", t)
	}
	// Output:
	// llama.cpp b7200 [] <nil>
	// prefill 128 tokens at context 0 take 29.01 ms
	// prefill 512 tokens at context 0 take 160.1 ms
	// decode 1 tokens at context 32 take 606.4 µs
	// decode 1 tokens at context 1056 take 1.755 ms
}
