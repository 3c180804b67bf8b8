package stepbench

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/llmprof/llmprof/profile"
)

// metadataObject builds the file's metadata: what the header kept of a foreign
// file, verbatim; of a file that had none, what the profile says; and the
// counts of what is written.
func metadataObject(p *profile.Profile, rows []*benchRow, failed []*profile.Point) object {
	kept := p.Header.Metadata
	known := map[string]any{
		"failed_configs":     failedConfigs(failed),
		"successful_configs": len(rows),
	}
	derive := func(key string, value any, ok bool) {
		if _, given := kept[key]; !given && ok {
			known[key] = value
		}
	}
	h := &p.Header
	derive("benchmark_type", "comprehensive_sweep", true)
	derive("model_path", h.Deploy.Model, h.Deploy.Model != "")
	if _, older := kept["tensor_parallel_size"]; !older {
		derive("tp_size", h.Deploy.TensorParallel, h.Deploy.TensorParallel > 0)
	}
	if _, older := kept["pipeline_parallel_size"]; !older {
		derive("pp_size", h.Deploy.PipelineParallel, h.Deploy.PipelineParallel > 0)
	}
	name := h.Device.Reported
	if name == "" {
		name = h.Device.Name
	}
	derive("gpu_type", name, name != "")

	batches, inputs, outputs := map[int]bool{}, map[int]bool{}, map[int]bool{}
	add := func(s *profile.Step) {
		if s == nil {
			return
		}
		for _, c := range []struct {
			set   map[int]bool
			value int
		}{{batches, s.BatchSize}, {inputs, s.InputLen}, {outputs, s.OutputLen}} {
			if c.value > 0 {
				c.set[c.value] = true
			}
		}
	}
	for _, r := range rows {
		add(r.step)
	}
	for _, f := range failed {
		add(f.Step)
	}
	sizes, lengths := slices.Sorted(maps.Keys(batches)), slices.Sorted(maps.Keys(inputs))
	derive("batch_sizes_tested", sizes, len(sizes) > 0)
	derive("input_lens_tested", lengths, len(lengths) > 0)
	if len(sizes) > 0 {
		derive("max_batch_size", sizes[len(sizes)-1], true)
	}
	if len(lengths) > 0 {
		derive("max_input_tokens", lengths[len(lengths)-1], true)
	}
	if len(outputs) == 1 {
		derive("output_len", slices.Collect(maps.Keys(outputs))[0], true)
	}
	return ordered(kept, known)
}

// ordered writes metadata in the order of the original, further keys after
// them by name.
func ordered(kept map[string]json.RawMessage, known map[string]any) object {
	all := maps.Clone(known)
	for key, v := range kept {
		if _, counted := known[key]; !counted {
			all[key] = v
		}
	}
	order := []string{
		"benchmark_type", "model_path", "max_batch_size", "max_input_tokens", "output_len",
		"tp_size", "pp_size", "tensor_parallel_size", "pipeline_parallel_size",
		"gpu_type", "gpu_count", "gpu_distribution",
		"batch_sizes_tested", "input_lens_tested", "num_runs", "failed_configs", "successful_configs",
	}
	var out object
	for _, key := range order {
		if v, ok := all[key]; ok {
			out = append(out, member{key, v})
			delete(all, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out = append(out, member{key, all[key]})
	}
	return out
}

// failedConfigs writes the failed configurations.
func failedConfigs(failed []*profile.Point) []object {
	out := make([]object, 0, len(failed))
	for _, f := range failed {
		var o object
		if f.Step != nil {
			o = (&benchRow{step: f.Step}).grid()
		}
		o = append(o, member{"reason", f.Reason})
		for _, key := range slices.Sorted(maps.Keys(f.Extra)) {
			o = append(o, member{key, f.Extra[key]})
		}
		out = append(out, o)
	}
	return out
}
