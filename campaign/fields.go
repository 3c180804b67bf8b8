package campaign

import (
	"slices"

	"github.com/goccy/go-yaml/ast"
)

// field is one key of an entry.
type field struct {
	name string
	// read writes a value into the entry, or says why it cannot.
	read func(*Model, ast.Node) []misread
}

// reading makes a field of the way its values are read and the place where
// they go.
func reading[T any](name string, read func(ast.Node) (T, []misread), place func(*Model) *T) field {
	return field{name, func(m *Model, node ast.Node) []misread {
		v, faults := read(node)
		if faults == nil {
			*place(m) = v
		}
		return faults
	}}
}

func text(name string, place func(*Model) *string) field { return reading(name, readText, place) }

func whole(name string, place func(*Model) *int) field { return reading(name, readWhole, place) }

func number(name string, place func(*Model) *float64) field { return reading(name, readNumber, place) }

func truth(name string, place func(*Model) *bool) field { return reading(name, readTruth, place) }

func wholes(name string, place func(*Model) *[]int) field {
	return reading(name, func(n ast.Node) ([]int, []misread) { return readList(n, readWhole) }, place)
}

// graphs is a field that is true where captured graphs are wanted, or where they
// are not; either word takes back what the other said in defaults.
func graphs(name string, wanted bool) field {
	return field{name, func(m *Model, node ast.Node) []misread {
		v, faults := readTruth(node)
		if faults == nil {
			m.Cell.CUDAGraphs, m.Cell.EnforceEager = wanted && v, wanted != v
		}
		return faults
	}}
}

// fields lists the keys of an entry.
func fields() []field {
	return []field{
		text("model_id", func(m *Model) *string { return &m.Cell.ModelID }),
		text("hf_model_id", func(m *Model) *string { return &m.Cell.ModelID }),
		text("container_name", func(m *Model) *string { return &m.Cell.ContainerName }),
		text("place", func(m *Model) *string { return &m.Cell.Place }),
		text("engine", func(m *Model) *string { return &m.Cell.Engine }),
		text("device", func(m *Model) *string { return &m.Cell.Device }),
		reading("gpu_ids", readDevices, func(m *Model) *[]string { return &m.Cell.GPUIDs }),
		wholes("input_lengths", func(m *Model) *[]int { return &m.InputLengths }),
		wholes("output_lengths", func(m *Model) *[]int { return &m.OutputLengths }),
		wholes("batch_sizes", func(m *Model) *[]int { return &m.BatchSizes }),
		wholes("block_sizes", func(m *Model) *[]int { return &m.BlockSizes }),
		text("dtype", func(m *Model) *string { return &m.Cell.DType }),
		whole("tensor_parallel_size", func(m *Model) *int { return &m.Cell.TensorParallel }),
		whole("pipeline_parallel_size", func(m *Model) *int { return &m.Cell.PipelineParallel }),
		text("quantization", func(m *Model) *string { return &m.Cell.Quantization }),
		text("kv_cache_dtype", func(m *Model) *string { return &m.Cell.KVCacheDType }),
		number("gpu_memory_utilization", func(m *Model) *float64 { return &m.Cell.GPUMemoryUtilization }),
		whole("max_model_len", func(m *Model) *int { return &m.Cell.MaxModelLen }),
		whole("max_num_batched_tokens", func(m *Model) *int { return &m.Cell.MaxNumBatchedTokens }),
		whole("threads", func(m *Model) *int { return &m.Cell.Threads }),
		reading("seed", func(n ast.Node) (int64, []misread) { v, bad := readWhole(n); return int64(v), bad }, func(m *Model) *int64 { return &m.Cell.Seed }),
		graphs("cuda_graphs", true),
		graphs("enforce_eager", false),
		truth("trust_remote_code", func(m *Model) *bool { return &m.Cell.TrustRemoteCode }),
		truth("weights", func(m *Model) *bool { return &m.Cell.Weights }),
		whole("num_warmup", func(m *Model) *int { return &m.Cell.NumWarmup }),
		whole("num_iters", func(m *Model) *int { return &m.Cell.NumIters }),
		reading("engine_args", func(n ast.Node) ([]string, []misread) { return readList(n, readText) },
			func(m *Model) *[]string { return &m.Cell.EngineArgs }),
		reading("engine_env", readPairs, func(m *Model) *map[string]string { return &m.Cell.EngineEnv }),
		number("model_params", func(m *Model) *float64 { return &m.Cell.Architecture.Params }),
		whole("num_layers", func(m *Model) *int { return &m.Cell.Architecture.NumLayers }),
		whole("num_heads", func(m *Model) *int { return &m.Cell.Architecture.NumHeads }),
		whole("num_kv_heads", func(m *Model) *int { return &m.Cell.Architecture.NumKVHeads }),
		whole("head_dim", func(m *Model) *int { return &m.Cell.Architecture.HeadDim }),
		whole("hidden_size", func(m *Model) *int { return &m.Cell.Architecture.HiddenSize }),
	}
}

// fieldNames lists the keys that an entry may have.
func fieldNames() []string {
	var names []string
	for _, f := range fields() {
		names = append(names, f.name)
	}
	return names
}

// passedOver lists keys of files in use that have no effect here, with what
// to say about them.
func passedOver() map[string]string {
	return map[string]string{
		"num_experts":       "experts are read from the model itself",
		"experts_per_token": "experts are read from the model itself",
		"notes":             "it is for readers",
		"image":             "a container is used as it runs",
		"port":              "no port is needed",
		"prompts":           "prompts are made up to the lengths asked for",
		"max_tokens":        "output_lengths says how many tokens are generated",
	}
}

// shared reports whether a field may stand under defaults: all but the
// model's name.
func shared(name string) bool { return !slices.Contains([]string{"model_id", "hf_model_id"}, name) }

// flagName is the flag of a field.
func flagName(field string) string {
	switch field {
	case "model_id":
		return "--model"
	case "container_name":
		return "--container"
	case "input_lengths":
		return "--input-len"
	case "output_lengths":
		return "--output-len"
	case "batch_sizes":
		return "--batch-size"
	case "num_warmup":
		return "--num-iters-warmup"
	case "engine_args":
		return "--engine-arg"
	case "engine_env":
		return "--engine-env"
	}
	name := []byte("--" + field)
	for i, b := range name {
		if b == '_' {
			name[i] = '-'
		}
	}
	return string(name)
}
