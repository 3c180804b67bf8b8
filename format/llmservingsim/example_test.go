package llmservingsim_test

import (
	"fmt"
	"testing/fstest"

	"github.com/llmprof/llmprof/format/llmservingsim"
)

// A bundle is read from any file system.
func ExampleReadFS() {
	bundle := fstest.MapFS{
		"RTX4090/bf16/meta.yaml":         {Data: []byte("vllm_version: 0.19.0\ngpu: NVIDIA GeForce RTX 4090\nmodel: meta-llama/Llama-3.1-8B\nvariant: bf16\n")},
		"RTX4090/bf16/tp1/dense.csv":     {Data: []byte("layer,tokens,time_us\nqkv_proj,1,54.898\n")},
		"RTX4090/bf16/tp1/attention.csv": {Data: []byte("prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n512,1024,16,3000,539.887\n")},
	}
	p, _, err := llmservingsim.ReadFS("perf", bundle, llmservingsim.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Header.Deploy.Model, "on", p.Header.Device.Reported, "with", p.Header.Deploy.Engine, p.Header.Deploy.EngineVersion)
	for _, point := range p.Points {
		l, t := point.Layer, point.Samples[0]
		fmt.Printf("%s of %d tokens after %d, %d sequences at %d: %.3f µs\n", l.Name, l.Tokens, l.Context, l.Sequences, l.SequenceContext, 1e6*t)
	}
	// Output:
	// meta-llama/Llama-3.1-8B on NVIDIA GeForce RTX 4090 with vllm 0.19.0
	// qkv_proj of 1 tokens after 0, 0 sequences at 0: 54.898 µs
	// attention of 512 tokens after 1024, 16 sequences at 3000: 539.887 µs
}
