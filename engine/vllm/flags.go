package vllm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
)

// limits are what a server is started with, as far as it is known.
type limits struct {
	// modelLen is the longest sequence in tokens, budget the most tokens of a
	// step, sequences the most requests of a step; 0 where not known.
	modelLen, budget, sequences int
}

// Largest steps that are asked for without being told to: every token of a
// step costs the engine memory from the start on.
const (
	maxBudget    = 32768
	maxBudgetCPU = 16384
)

// limitsOf sizes a server for the tasks to come.
func limitsOf(setup engine.Setup) limits {
	l := limits{modelLen: setup.Deploy.MaxModelLen, budget: setup.Deploy.MaxNumBatchedTokens, sequences: setup.Deploy.MaxNumSeqs}
	if l.sequences == 0 && !setup.OwnLimits {
		l.sequences = setup.MaxBatch
	}
	if need := setup.MaxInput + setup.MaxOutput; l.modelLen == 0 && need > 0 && !setup.OwnLimits {
		l.modelLen = max(need, 256)
	}
	if l.budget == 0 && setup.MaxBatch > 0 && setup.MaxInput > 0 && !setup.OwnLimits {
		most := maxBudget
		if setup.Device == "cpu" {
			most = maxBudgetCPU
		}
		l.budget = max(2048, min(setup.MaxBatch*setup.MaxInput, most), setup.MaxBatch)
	}
	for flag, value := range map[string]*int{"--max-model-len": &l.modelLen, "--max-num-batched-tokens": &l.budget, "--max-num-seqs": &l.sequences} {
		if text, ok := argument(setup.Args, flag); ok {
			*value, _ = strconv.Atoi(text) // "auto" and "32k" mean that the figure is not known
		}
	}
	return l
}

// argument finds the value of a flag among the user's own arguments.
func argument(args []string, flag string) (value string, ok bool) {
	for i, a := range args {
		a = strings.ReplaceAll(a, "_", "-")
		if a == flag {
			if i+1 < len(args) {
				value = args[i+1]
			}
			return value, true
		}
		if strings.HasPrefix(a, flag+"=") {
			return args[i][len(flag)+1:], true
		}
	}
	return "", false
}

// arguments collects flags that the user has not given.
type arguments struct {
	own  []string
	args []string
}

func (a *arguments) add(flag string, value ...string) {
	names := []string{flag}
	if strings.HasPrefix(flag, "--no-") {
		names = append(names, "--"+flag[len("--no-"):])
	} else {
		names = append(names, "--no-"+flag[len("--"):])
	}
	for _, n := range names {
		if _, given := argument(a.own, n); given {
			return
		}
	}
	a.args = append(append(a.args, flag), value...)
}

func (a *arguments) addInt(flag string, value int) {
	if value > 0 {
		a.add(flag, strconv.Itoa(value))
	}
}

// addSwitch turns a switch on, or off by its "no-" form.
func (a *arguments) addSwitch(name string, on bool) {
	if on {
		a.add("--" + name)
	} else {
		a.add("--no-" + name)
	}
}

// engineArgs are the flags that every command of vLLM takes.
func engineArgs(setup engine.Setup, l limits) []string {
	a := &arguments{own: setup.Args}
	d := setup.Deploy
	if !setup.LoadWeights {
		a.add("--load-format", "dummy")
	}
	if name := dtypeName(d.DType); name != "" {
		a.add("--dtype", name)
	}
	if d.Quantization != "" && d.Quantization != "none" {
		a.add("--quantization", d.Quantization)
	}
	if d.KVCacheDType == catalog.FP8 {
		a.add("--kv-cache-dtype", "fp8")
	}
	if setup.NumLayers > 0 {
		a.add("--hf-overrides", fmt.Sprintf(`{"num_hidden_layers": %d}`, setup.NumLayers))
	}
	a.addInt("--max-model-len", l.modelLen)
	a.addInt("--max-num-seqs", l.sequences)
	a.addInt("--max-num-batched-tokens", l.budget)
	a.addInt("--block-size", d.BlockSize)
	if d.GPUMemoryUtilization > 0 {
		a.add("--gpu-memory-utilization", strconv.FormatFloat(d.GPUMemoryUtilization, 'g', -1, 64))
	}
	if d.TensorParallel > 1 {
		a.addInt("--tensor-parallel-size", d.TensorParallel)
	}
	if d.PipelineParallel > 1 {
		a.addInt("--pipeline-parallel-size", d.PipelineParallel)
	}
	if d.ExpertParallel > 1 {
		a.add("--enable-expert-parallel")
	}
	if setup.Device == "cpu" || !setup.CUDAGraphs {
		a.add("--enforce-eager")
	}
	if setup.Device != "cpu" && !setup.Serve {
		a.add("--no-async-scheduling")
	}
	a.addSwitch("enable-prefix-caching", d.PrefixCaching != nil && *d.PrefixCaching)
	if d.ChunkedPrefill != nil {
		a.addSwitch("enable-chunked-prefill", *d.ChunkedPrefill)
	}
	if d.SchedulingPolicy != "" {
		a.add("--scheduling-policy", d.SchedulingPolicy)
	}
	a.add("--seed", strconv.FormatInt(setup.Seed, 10))
	return append(a.args, setup.Args...)
}

// serveArgs is the command line of a server; port 0 leaves the port out.
func serveArgs(program string, port int, setup engine.Setup, l limits) []string {
	a := &arguments{own: setup.Args}
	a.add("--enable-logging-iteration-details")
	a.add("--disable-uvicorn-access-log")
	if setup.Serve {
		a.add("--enable-prompt-tokens-details")
	} else {
		a.add("--skip-tokenizer-init")
	}
	argv := []string{program, "serve", setup.Model, "--host", "127.0.0.1"}
	if port > 0 {
		argv = append(argv, "--port", strconv.Itoa(port))
	}
	return append(append(argv, a.args...), engineArgs(setup, l)...)
}

// dtypeName is vLLM's name of a format; empty where it is left to the engine.
func dtypeName(t catalog.DType) string {
	switch t {
	case catalog.BF16:
		return "bfloat16"
	case catalog.FP16:
		return "float16"
	case catalog.FP32:
		return "float32"
	}
	return ""
}

// threadsOf is the number of threads that an environment bounds vLLM to; 0
// where it does not, or where several processes have threads of their own.
func threadsOf(d deploy.Config, env []string) int {
	if d.TensorParallel > 1 || d.PipelineParallel > 1 {
		return 0
	}
	for _, variable := range slices.Backward(env) {
		if text, found := strings.CutPrefix(variable, "OMP_NUM_THREADS="); found {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 {
				return 0
			}
			return n
		}
	}
	return 0
}

// environment is what vLLM is started with. The setup's own variables come
// last and win.
func environment(m *catalog.Model, folder bool, setup engine.Setup) []string {
	env := []string{"VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "VLLM_CONFIGURE_LOGGING=1", "VLLM_LOGGING_LEVEL=INFO"}
	if folder { // it needs no hub
		env = append(env, "HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1")
	}
	if setup.Device == "cpu" {
		env = append(env, "VLLM_CPU_KVCACHE_SPACE="+strconv.Itoa(cacheGiB(m, setup)), "VLLM_CPU_OMP_THREADS_BIND=nobind")
		if setup.Threads > 0 {
			env = append(env, "OMP_NUM_THREADS="+strconv.Itoa(setup.Threads))
		}
	}
	return append(env, setup.Env...)
}
