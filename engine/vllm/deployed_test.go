package vllm_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
	"github.com/llmprof/llmprof/engine/vllm"
)

// TestNames: the drivers are called as --engine calls them.
func TestNames(t *testing.T) {
	for want, driver := range map[string]engine.Driver{"vllm": &vllm.Server{}, "vllm-probe": vllm.Probe{}, "vllm-bench": vllm.BenchLatency{}} {
		if got := driver.Name(); got != want {
			t.Errorf("%T is called %q, want %q", driver, got, want)
		}
	}
}

// TestRefusesOtherDeployments: no driver measures another deployment than the
// one that was asked for.
func TestRefusesOtherDeployments(t *testing.T) {
	for want, d := range map[string]deploy.Config{
		"data-parallel":            {DataParallel: 2},
		"activations in fp8":       {DType: "fp8"},
		"a KV cache in int8":       {KVCacheDType: "int8"},
		"experts over 4 of 2":      {TensorParallel: 2, ExpertParallel: 4},
		"stages of chosen layers":  {PipelineLayers: []int{1, 2}},
		"SGLang's share of memory": {MemFractionStatic: 0.8},
		"quantised embeddings":     {QuantizeEmbeddings: true},
	} {
		for _, driver := range []engine.Driver{&vllm.Server{}, vllm.Probe{}, vllm.BenchLatency{}} {
			_, err := driver.Start(t.Context(), place.Local(), engine.Setup{Model: "m", Program: "/no/such/program", Deploy: d})
			if err == nil || !strings.Contains(err.Error(), want) || hintOf(err) == "" {
				t.Errorf("%s: error %v, want %q", driver.Name(), err, want)
			}
		}
	}
}

// TestRecordedDeployment: what is recorded is what the command line says, and
// before it what the engine's log and metrics do.
func TestRecordedDeployment(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		why  string
		ask  deploy.Config
		args []string
		log  string
		want deploy.Config
	}{
		{
			why:  "as asked for, in blocks of the engine's",
			ask:  deploy.Config{DType: "bf16", TensorParallel: 2, PipelineParallel: 1, BlockSize: 64, Quantization: "awq", GPUMemoryUtilization: 0.5, Model: "name"},
			want: deploy.Config{DType: "bf16", TensorParallel: 2, PipelineParallel: 1, BlockSize: 128, Quantization: "awq", GPUMemoryUtilization: 0.5, Model: "name", MaxNumBatchedTokens: 4096},
		},
		{
			why: "the user's own arguments win", ask: deploy.Config{DType: "bf16", TensorParallel: 1, GPUMemoryUtilization: 0.5},
			args: []string{"--dtype=float16", "--tensor_parallel_size", "4", "--gpu-memory-utilization=0.8", "--kv-cache-dtype", "fp8_e5m2", "--enable-expert-parallel", "--max-num-batched-tokens", "1k"},
			want: deploy.Config{DType: "fp16", TensorParallel: 4, ExpertParallel: 4, GPUMemoryUtilization: 0.8, KVCacheDType: "fp8", BlockSize: 128, Model: "/m/tiny"},
		},
		{
			why:  "seats, switches and policy",
			ask:  deploy.Config{MaxNumSeqs: 5, ChunkedPrefill: &no, PrefixCaching: &no, SchedulingPolicy: "priority"},
			log:  "(EngineCore pid=9) INFO 11-21 00:55:49 [core.py:1] Initializing a V1 LLM engine (v0.32.0) with config: model='/m/tiny', enable_prefix_caching=True, enable_chunked_prefill=False, pooler_config=None",
			want: deploy.Config{MaxNumSeqs: 5, ChunkedPrefill: &no, PrefixCaching: &yes, SchedulingPolicy: "priority", BlockSize: 128, Model: "/m/tiny", MaxNumBatchedTokens: 4096},
		},
		{
			why: "the engine's word is the last", ask: deploy.Config{TensorParallel: 1},
			log: "(EngineCore pid=9) INFO 11-21 00:55:49 [core.py:1] Initializing a V1 LLM engine (v0.32.0) with config: model='/m/tiny', speculative_config=None, " +
				"tokenizer='/m/tiny', dtype=torch.float16, max_seq_len=2048, tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1, quantization=None, kv_cache_dtype=fp8",
			want: deploy.Config{DType: "fp16", TensorParallel: 2, PipelineParallel: 1, DataParallel: 1, KVCacheDType: "fp8", BlockSize: 128, Model: "/m/tiny", MaxNumBatchedTokens: 4096},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			f, setup := newFake(), fakeSetup()
			setup.Deploy, setup.Args = c.ask, c.args
			if c.log != "" {
				f.startLog = []string{c.log}
			}
			c.want.Engine, c.want.EngineVersion, c.want.MaxModelLen = "vllm", "0.32.0", 2048
			if c.want.MaxNumSeqs == 0 {
				c.want.MaxNumSeqs = setup.MaxBatch
			}
			inBubble(t, f, setup, func(t *testing.T, s engine.Session) {
				if diff := cmp.Diff(c.want, s.Facts().Deploy); diff != "" {
					t.Errorf("deployment (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// secretivePlace is a place whose environment holds a secret.
type secretivePlace struct{ *fakeServer }

func (secretivePlace) Redactor() *engine.Redactor {
	return engine.NewRedactor("MY_SERVICE_TOKEN=plain-words-of-mine")
}

// TestServerInheritedSecrets: what a server says of its environment reaches
// neither the terminal nor the profile.
func TestServerInheritedSecrets(t *testing.T) {
	f, setup := newFake(), fakeSetup()
	f.startLog = []string{"env: plain-words-of-mine"}
	f.refuse = func(p [][]int) (int, string) {
		if len(p) == 4 {
			return 400, "you are plain-words-of-mine"
		}
		return 0, ""
	}
	var said strings.Builder
	setup.Log = &said
	inBubbleAt(t, secretivePlace{f}, setup, func(t *testing.T, s engine.Session) {
		r := measured(t, s, []engine.Task{stepTask(1, 1, 4, 16, 2)})[0]
		if !strings.Contains(r.Failure, "you are "+engine.Hidden) {
			t.Errorf("failure %q", r.Failure)
		}
	})
	if text := said.String(); strings.Contains(text, "plain-words") || !strings.Contains(text, "env: "+engine.Hidden) {
		t.Errorf("log %q", text)
	}
}
