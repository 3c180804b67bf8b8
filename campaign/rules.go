package campaign

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
)

// maxCells bounds the cells of one file.
const maxCells = 100_000

// problem is a value that breaks a rule.
type problem struct {
	field string
	// index is the place in the field's list; -1 means the field itself.
	index        int
	text, advice string
}

// settle fills in the place of a container and maps spellings of one
// thing onto one.
func (m *Model) settle() {
	c := &m.Cell
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
	c.KVCacheDType = strings.ToLower(strings.TrimSpace(c.KVCacheDType))
	if c.KVCacheDType == "auto" {
		c.KVCacheDType = ""
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

// problems checks every value of an entry. What is missing is the caller's to
// say.
func (m *Model) problems() []problem {
	var found []problem
	add := func(field string, format string, args ...any) {
		found = append(found, problem{field: field, index: -1, text: fmt.Sprintf(format, args...)})
	}
	c := m.Cell
	word := func(field, v string, required bool) {
		switch {
		case v == "" && required:
			add(field, "it is empty")
		case strings.HasPrefix(v, "-"):
			add(field, "%q begins with a dash and would be taken for an option", clip(v))
		case len(v) > 1024 || strings.ContainsFunc(v, func(r rune) bool { return !printable(r) }):
			add(field, "%q is too long or holds what cannot be printed", clip(v))
		}
	}
	word("model_id", c.ModelID, false)
	if c.Place != "docker:"+c.ContainerName { // else it is judged as a place
		word("container_name", c.ContainerName, false)
	}
	word("engine", c.Engine, true)
	word("device", c.Device, false)
	word("quantization", c.Quantization, false)
	word("kv_cache_dtype", c.KVCacheDType, false)
	if why, advice := placeFault(c); why != "" {
		field := "place"
		if c.Place == "docker:"+c.ContainerName {
			field = "container_name"
		}
		found = append(found, problem{field, -1, why, advice})
	}
	if !slices.Contains(dtypes(), c.DType) {
		found = append(found, problem{"dtype", -1, fmt.Sprintf("unknown format %q", clip(c.DType)), "known formats: " + strings.Join(dtypes(), ", ")})
	}
	m.numbers(add)
	for _, id := range c.GPUIDs {
		word("gpu_ids", id, true)
	}
	if n := len(c.GPUIDs); n > 0 && n < c.TensorParallel {
		add("gpu_ids", "%d devices are too few for tensor_parallel_size %d", n, c.TensorParallel)
	}
	for _, name := range slices.Sorted(maps.Keys(c.EngineEnv)) {
		if secret(name) {
			found = append(found, problem{"engine_env", -1, clip(name) + " holds a secret, which would be stored with every cell", "set it in the environment of llmprof or of the container instead"})
		}
	}
	return append(found, m.lists()...)
}

// dtypes lists the formats that a cell can ask for.
func dtypes() []string { return []string{"auto", "float16", "bfloat16", "float32", "fp8"} }

// numbers checks the ranges.
func (m *Model) numbers(add func(field, format string, args ...any)) {
	const many = 1 << 20
	c, a := m.Cell, m.Cell.Architecture
	within := func(field string, v, low, high int) {
		if v < low || v > high {
			add(field, "%d is out of range: want %d to %d", v, low, high)
		}
	}
	within("tensor_parallel_size", c.TensorParallel, 1, 1024)
	within("max_model_len", c.MaxModelLen, 0, 1<<30)
	within("num_warmup", c.NumWarmup, 0, many)
	within("num_iters", c.NumIters, 1, many)
	within("num_layers", a.NumLayers, 0, many)
	within("num_heads", a.NumHeads, 0, many)
	within("num_kv_heads", a.NumKVHeads, 0, many)
	within("head_dim", a.HeadDim, 0, many)
	within("hidden_size", a.HiddenSize, 0, 1<<30)
	if u := c.GPUMemoryUtilization; !(u > 0 && u <= 1) {
		add("gpu_memory_utilization", "%g is out of range: want more than 0 and at most 1", u)
	}
	if p := a.Params; !(p >= 0 && p <= 1e15) {
		add("model_params", "%g is out of range: want 0 to 1e15", p)
	}
	if a.NumKVHeads > a.NumHeads && a.NumHeads > 0 {
		add("num_kv_heads", "%d is more than num_heads %d", a.NumKVHeads, a.NumHeads)
	}
	if limit := c.MaxModelLen; limit > 0 && len(m.InputLengths) > 0 && len(m.OutputLengths) > 0 {
		if in, out := slices.Max(m.InputLengths), slices.Max(m.OutputLengths); in+out > limit {
			add("max_model_len", "%d is too short for the longest cell: input %d and output %d make %d tokens", limit, in, out, in+out)
		}
	}
}

// lists checks the lists that are multiplied out.
func (m *Model) lists() []problem {
	var found []problem
	check := func(field string, values []int, high int) {
		seen := map[int]bool{}
		for i, v := range values {
			switch {
			case v < 1 || v > high:
				found = append(found, problem{field, i, fmt.Sprintf("%d is out of range: want 1 to %d", v, high), ""})
			case seen[v]:
				found = append(found, problem{field, i, fmt.Sprintf("%d stands twice", v), ""})
			}
			seen[v] = true
		}
	}
	check("input_lengths", m.InputLengths, 1<<24)
	check("output_lengths", m.OutputLengths, 1<<24)
	check("batch_sizes", m.BatchSizes, 1<<20)
	check("block_sizes", m.BlockSizes, 1<<16)
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
		return fmt.Sprintf("%q is no place", clip(c.Place)), forms
	case name == "" || strings.HasPrefix(name, "-") || strings.ContainsFunc(name, func(r rune) bool { return r == ' ' || !printable(r) }):
		return fmt.Sprintf("%q names nothing that can be reached", clip(name)), forms
	case (kind == "docker" || kind == "podman") && strings.ContainsAny(name, "/:@"):
		return fmt.Sprintf("%q is not the name of a container", clip(name)), "container_name is that of a running container, not of its image; for another place write place: " + clip(name)
	}
	return "", ""
}

// secret reports whether an environment variable is likely to hold a secret.
func secret(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc([]string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "APIKEY", "CREDENTIAL"}, func(part string) bool {
		return strings.Contains(name, part) && !strings.HasSuffix(name, "TOKENS") && !strings.Contains(name, "TOKENIZ")
	})
}

// doubts says which words of an entry are passed on to the engine although
// nothing is known about them here.
func (m *Model) doubts() []problem {
	var found []problem
	c := m.Cell
	if _, err := deploy.ParseWeightFormat(c.Quantization, catalog.FP16); err != nil {
		nearest := catalog.Nearest(c.Quantization, deploy.WeightFormats(), 3)
		found = append(found, problem{"quantization", -1, fmt.Sprintf("%q is passed on to the engine as it is; no memory is predicted (nearest known: %s)", clip(c.Quantization), strings.Join(nearest, ", ")), ""})
	}
	if _, err := catalog.ParseDType(c.KVCacheDType); err != nil && c.KVCacheDType != "" {
		found = append(found, problem{"kv_cache_dtype", -1, fmt.Sprintf("%q is passed on to the engine as it is; no KV cache is predicted", clip(c.KVCacheDType)), ""})
	}
	return found
}
