package campaign

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/settings"
)

// maxCells bounds the cells of one file.
const maxCells = 100_000

// problem is a value that breaks a rule.
type problem struct {
	field string
	// index is the place in the field's list; -1 means the field itself.
	index        int
	text, advice string
	// secret says that the value must not be shown.
	secret bool
}

// settle fills in the place of a container and maps spellings of one
// thing onto one.
func (c *Cell) settle() {
	if c.Place == "" && c.ContainerName != "" {
		c.Place = "docker:" + c.ContainerName
	}
	c.DType = strings.ToLower(strings.TrimSpace(c.DType))
	if t, err := catalog.ParseDType(c.DType); err == nil {
		c.DType = spelling(t)
	}
	c.Quantization = strings.ToLower(strings.TrimSpace(c.Quantization))
	if c.Quantization == "none" {
		c.Quantization = ""
	}
	c.KVCacheDType = cacheSpelling(strings.ToLower(strings.TrimSpace(c.KVCacheDType)))
	if c.PipelineParallel == 1 {
		c.PipelineParallel = 0
	}
	if c.Device != "cpu" && !c.EnforceEager { // they are used anyway
		c.CUDAGraphs = false
	}
}

// spelling is vLLM's name of a format.
func spelling(t catalog.DType) string {
	switch t {
	case catalog.FP32:
		return "float32"
	case catalog.FP16:
		return "float16"
	case catalog.BF16:
		return "bfloat16"
	}
	return string(t)
}

// cacheSpelling is vLLM's name of a format of the KV cache; the two kinds of fp8
// differ, and one that is left to the engine has no name.
func cacheSpelling(name string) string {
	t, err := catalog.ParseDType(name)
	switch {
	case name == "auto":
		return ""
	case err != nil:
		return name
	case t != catalog.FP8:
		return spelling(t)
	case strings.Contains(name, "e4m3"):
		return "fp8_e4m3"
	case strings.Contains(name, "e5m2"):
		return "fp8_e5m2"
	case name == "float8":
		return "fp8"
	}
	return name
}

// dtypes lists the formats that a cell can ask for.
func dtypes() []string { return []string{"auto", "float16", "bfloat16", "float32", "fp8"} }

// cacheDTypes lists those of the KV cache.
func cacheDTypes() []string {
	return []string{"auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8"}
}

// problems checks every setting of a cell, its sizes left out. What is missing
// is the caller's to say.
func (c Cell) problems() []problem {
	var found []problem
	add := func(field, text, advice string) {
		found = append(found, problem{field: field, index: -1, text: text, advice: advice})
	}
	word := func(field, v string, required bool) {
		switch {
		case v == "" && required:
			add(field, "it is empty", "")
		case strings.HasPrefix(v, "-"):
			add(field, fmt.Sprintf("%q begins with a dash and would be taken for an option", settings.Clip(v)), "")
		case len(v) > 1024 || strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsPrint(r) }):
			add(field, fmt.Sprintf("%q is too long or holds what cannot be printed", settings.Clip(v)), "")
		}
	}
	word("model_id", c.ModelID, false)
	if c.Place != "docker:"+c.ContainerName { // else it is judged as a place
		word("container_name", c.ContainerName, false)
	}
	word("engine", c.Engine, true)
	word("device", c.Device, false)
	word("quantization", c.Quantization, false)
	if why, advice := placeFault(c); why != "" {
		field := "place"
		if c.Place == "docker:"+c.ContainerName {
			field = "container_name"
		}
		add(field, why, advice)
	}
	if c.DType != "" && !slices.Contains(dtypes(), c.DType) {
		add("dtype", fmt.Sprintf("unknown format %q", settings.Clip(c.DType)), "known formats: "+strings.Join(dtypes(), ", "))
	}
	if v := c.KVCacheDType; v != "" && !slices.Contains(cacheDTypes(), v) {
		add("kv_cache_dtype", fmt.Sprintf("unknown format %q", settings.Clip(v)),
			fmt.Sprintf("nearest known: %s; known formats: %s", catalog.Nearest(v, cacheDTypes(), 1)[0], strings.Join(cacheDTypes(), ", ")))
	}
	for i, id := range c.GPUIDs {
		word("gpu_ids", id, true)
		if slices.Contains(c.GPUIDs[:i], id) {
			add("gpu_ids", fmt.Sprintf("%q stands twice", settings.Clip(id)), "")
		}
	}
	return slices.Concat(found, c.numbers(), c.secrets())
}

// within is a problem where v lies outside of its bounds.
func within(field string, v, low, high int) []problem {
	if v >= low && v <= high {
		return nil
	}
	return []problem{{field: field, index: -1, text: fmt.Sprintf("%d is out of range: want %d to %d", v, low, high)}}
}

// numbers checks the ranges.
func (c Cell) numbers() []problem {
	const many = 1 << 20
	a := c.Architecture
	found := slices.Concat(
		within("tensor_parallel_size", c.TensorParallel, 1, 1024),
		within("pipeline_parallel_size", c.PipelineParallel, 0, 1024),
		within("max_model_len", c.MaxModelLen, 0, 1<<30),
		within("max_num_batched_tokens", c.MaxNumBatchedTokens, 0, 1<<30),
		within("threads", c.Threads, 0, 1<<16),
		within("seed", int(c.Seed), 0, 1<<32-1),
		within("num_warmup", c.NumWarmup, 0, many),
		within("num_iters", c.NumIters, 1, many),
		within("num_layers", a.NumLayers, 0, many),
		within("num_heads", a.NumHeads, 0, many),
		within("num_kv_heads", a.NumKVHeads, 0, many),
		within("head_dim", a.HeadDim, 0, many),
		within("hidden_size", a.HiddenSize, 0, 1<<30),
	)
	add := func(field, format string, args ...any) {
		found = append(found, problem{field: field, index: -1, text: fmt.Sprintf(format, args...)})
	}
	if u := c.GPUMemoryUtilization; !(u > 0 && u <= 1) {
		add("gpu_memory_utilization", "%g is out of range: want more than 0 and at most 1", u)
	}
	if p := a.Params; !(p >= 0 && p <= 1e15) {
		add("model_params", "%g is out of range: want 0 to 1e15", p)
	}
	if a.NumKVHeads > a.NumHeads && a.NumHeads > 0 {
		add("num_kv_heads", "%d is more than num_heads %d", a.NumKVHeads, a.NumHeads)
	}
	if n, tp, pp := len(c.GPUIDs), c.TensorParallel, max(c.PipelineParallel, 1); n > 0 && n < tp*pp {
		size := fmt.Sprintf("tensor_parallel_size %d", tp)
		if pp > 1 {
			size += fmt.Sprintf(" with pipeline_parallel_size %d", pp)
		}
		add("gpu_ids", "%d devices are too few for %s", n, size)
	}
	if c.EnforceEager && c.CUDAGraphs {
		add("enforce_eager", "it contradicts cuda_graphs")
	}
	return found
}

// tooLong is a problem where the longest sequence does not admit a cell.
func (c Cell) tooLong(in, out int) []problem {
	if c.MaxModelLen <= 0 || in+out <= c.MaxModelLen {
		return nil
	}
	return []problem{{field: "max_model_len", index: -1, text: fmt.Sprintf("%d is too short for the longest cell: input %d and output %d make %d tokens", c.MaxModelLen, in, out, in+out)}}
}

// The largest sizes of a cell.
const (
	maxLength = 1 << 24
	maxBatch  = 1 << 20
	maxBlock  = 1 << 16
)

// problems checks an entry: its settings, and the lists that are multiplied out.
func (m *Model) problems() []problem {
	found := m.Cell.problems()
	if len(m.InputLengths) > 0 && len(m.OutputLengths) > 0 {
		found = append(found, m.Cell.tooLong(slices.Max(m.InputLengths), slices.Max(m.OutputLengths))...)
	}
	return append(found, m.lists()...)
}

// lists checks the lists that are multiplied out.
func (m *Model) lists() []problem {
	var found []problem
	check := func(field string, values []int, high int) {
		seen := map[int]bool{}
		for i, v := range values {
			switch {
			case v < 1 || v > high:
				found = append(found, problem{field: field, index: i, text: fmt.Sprintf("%d is out of range: want 1 to %d", v, high)})
			case seen[v]:
				found = append(found, problem{field: field, index: i, text: fmt.Sprintf("%d stands twice", v)})
			}
			seen[v] = true
		}
	}
	check("input_lengths", m.InputLengths, maxLength)
	check("output_lengths", m.OutputLengths, maxLength)
	check("batch_sizes", m.BatchSizes, maxBatch)
	check("block_sizes", m.BlockSizes, maxBlock)
	return found
}

// placeFault says what is wrong with the form of a place.
func placeFault(c Cell) (why, advice string) {
	const forms = "a place is local, docker:NAME, podman:NAME, kubectl:[NAMESPACE/]POD or ssh:[USER@]HOST[:PORT]"
	if c.Place == "" || c.Place == "local" {
		return "", ""
	}
	kind, name, _ := strings.Cut(c.Place, ":")
	switch {
	case !slices.Contains([]string{"docker", "podman", "kubectl", "ssh"}, kind):
		return fmt.Sprintf("%q is no place", settings.Clip(c.Place)), forms
	case name == "" || strings.HasPrefix(name, "-") || strings.ContainsFunc(name, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }):
		return fmt.Sprintf("%q names nothing that can be reached", settings.Clip(name)), forms
	case (kind == "docker" || kind == "podman") && strings.ContainsAny(name, "/:@"):
		return fmt.Sprintf("%q is not the name of a container", settings.Clip(name)), "container_name is that of a running container, not of its image; for another place write place: " + settings.Clip(name)
	}
	return "", ""
}

// doubts says which words of an entry are passed on to the engine although
// nothing is known about them here.
func (m *Model) doubts() []problem {
	q := m.Cell.Quantization
	if _, err := deploy.ParseWeightFormat(q, catalog.FP16); err == nil {
		return nil
	}
	nearest := catalog.Nearest(q, deploy.WeightFormats(), 3)
	return []problem{{field: "quantization", index: -1, text: fmt.Sprintf("%q is passed on to the engine as it is; no memory is predicted (nearest known: %s)", settings.Clip(q), strings.Join(nearest, ", "))}}
}
