package profile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Merge joins profiles of the same conditions into one: the points of all, in
// order. Merging is associative. A condition that one profile leaves out and
// another states is taken as stated; points whose own file does not name the
// device carry a warning that says so. Two different values of the device or
// of any field of the deployment are a [*ClashError]. Hosts, drivers, tools and
// sources are collected; of foreign metadata the first value of a key stays.
func Merge(profiles ...*Profile) (*Profile, error) {
	out := &Profile{}
	var headers []*Header
	for _, p := range profiles {
		headers = append(headers, &p.Header)
	}
	header, err := mergeHeaders(headers)
	if err != nil {
		return nil, fmt.Errorf("merge profiles: %w", err)
	}
	out.Header = header
	stated := deviceIdentity(header.Device) != ""
	for _, p := range profiles {
		if !stated || deviceIdentity(p.Header.Device) != "" {
			out.Points = append(out.Points, p.Points...)
			continue
		}
		for _, point := range p.Points {
			if !slices.Contains(point.Warnings, warnDeviceNotStated) {
				point.Warnings = append(slices.Clone(point.Warnings), warnDeviceNotStated)
			}
			out.Points = append(out.Points, point)
		}
	}
	return out, nil
}

const warnDeviceNotStated = "device not stated by the point's own file"

// deviceIdentity is the name by which two devices are compared.
func deviceIdentity(d Device) string {
	if d.Name != "" {
		return d.Name
	}
	return d.Reported
}

// condition is one field of a header in which merged profiles must agree.
type condition struct {
	field string
	value func(*Header) string
	set   func(out, from *Header)
}

// RunKey is the key of a header's Metadata under which a measurement keeps how
// its engine was asked to run: the number of layers, threads, the clock.
// Profiles that differ in it do not belong together.
const RunKey = "run"

// conditions lists the fields that must agree; an empty or zero value is not
// stated and agrees with all.
func conditions() []condition {
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	either := func(b *bool) string {
		if b == nil {
			return ""
		}
		return strconv.FormatBool(*b)
	}
	return []condition{
		{"device", func(h *Header) string { return deviceIdentity(h.Device) }, func(o, h *Header) {
			o.Device.Name, o.Device.Reported = h.Device.Name, h.Device.Reported
		}},
		{"device.count", func(h *Header) string { return number(h.Device.Count) }, func(o, h *Header) { o.Device.Count = h.Device.Count }},
		{"deploy.model", func(h *Header) string { return h.Deploy.Model }, func(o, h *Header) { o.Deploy.Model = h.Deploy.Model }},
		{"deploy.device", func(h *Header) string { return h.Deploy.Device }, func(o, h *Header) { o.Deploy.Device = h.Deploy.Device }},
		{"deploy.engine", func(h *Header) string { return h.Deploy.Engine }, func(o, h *Header) { o.Deploy.Engine = h.Deploy.Engine }},
		{"deploy.engine_version", func(h *Header) string { return h.Deploy.EngineVersion }, func(o, h *Header) { o.Deploy.EngineVersion = h.Deploy.EngineVersion }},
		{"deploy.tensor_parallel_size", func(h *Header) string { return number(h.Deploy.TensorParallel) }, func(o, h *Header) { o.Deploy.TensorParallel = h.Deploy.TensorParallel }},
		{"deploy.pipeline_parallel_size", func(h *Header) string { return number(h.Deploy.PipelineParallel) }, func(o, h *Header) { o.Deploy.PipelineParallel = h.Deploy.PipelineParallel }},
		{"deploy.data_parallel_size", func(h *Header) string { return number(h.Deploy.DataParallel) }, func(o, h *Header) { o.Deploy.DataParallel = h.Deploy.DataParallel }},
		{"deploy.expert_parallel_size", func(h *Header) string { return number(h.Deploy.ExpertParallel) }, func(o, h *Header) { o.Deploy.ExpertParallel = h.Deploy.ExpertParallel }},
		{"deploy.dtype", func(h *Header) string { return string(h.Deploy.DType) }, func(o, h *Header) { o.Deploy.DType = h.Deploy.DType }},
		{"deploy.quantization", func(h *Header) string { return h.Deploy.Quantization }, func(o, h *Header) { o.Deploy.Quantization = h.Deploy.Quantization }},
		{"deploy.kv_cache_dtype", func(h *Header) string { return string(h.Deploy.KVCacheDType) }, func(o, h *Header) { o.Deploy.KVCacheDType = h.Deploy.KVCacheDType }},
		{"deploy.gpu_memory_utilization", func(h *Header) string {
			if h.Deploy.GPUMemoryUtilization == 0 {
				return ""
			}
			return fmt.Sprint(h.Deploy.GPUMemoryUtilization)
		}, func(o, h *Header) { o.Deploy.GPUMemoryUtilization = h.Deploy.GPUMemoryUtilization }},
		{"deploy.block_size", func(h *Header) string { return number(h.Deploy.BlockSize) }, func(o, h *Header) { o.Deploy.BlockSize = h.Deploy.BlockSize }},
		{"deploy.max_model_len", func(h *Header) string { return number(h.Deploy.MaxModelLen) }, func(o, h *Header) { o.Deploy.MaxModelLen = h.Deploy.MaxModelLen }},
		{"metadata." + RunKey, func(h *Header) string { return string(h.Metadata[RunKey]) }, func(_, _ *Header) {}},
		{"deploy.max_num_batched_tokens", func(h *Header) string { return number(h.Deploy.MaxNumBatchedTokens) }, func(o, h *Header) { o.Deploy.MaxNumBatchedTokens = h.Deploy.MaxNumBatchedTokens }},
		{"deploy.max_num_seqs", func(h *Header) string { return number(h.Deploy.MaxNumSeqs) }, func(o, h *Header) { o.Deploy.MaxNumSeqs = h.Deploy.MaxNumSeqs }},
		{"deploy.enable_chunked_prefill", func(h *Header) string { return either(h.Deploy.ChunkedPrefill) }, func(o, h *Header) { o.Deploy.ChunkedPrefill = h.Deploy.ChunkedPrefill }},
		{"deploy.enable_prefix_caching", func(h *Header) string { return either(h.Deploy.PrefixCaching) }, func(o, h *Header) { o.Deploy.PrefixCaching = h.Deploy.PrefixCaching }},
		{"deploy.scheduling_policy", func(h *Header) string { return h.Deploy.SchedulingPolicy }, func(o, h *Header) { o.Deploy.SchedulingPolicy = h.Deploy.SchedulingPolicy }},
	}
}

// mergeHeaders joins headers, first to last.
func mergeHeaders(headers []*Header) (Header, error) {
	out := Header{Schema: Schema, Version: Version}
	for _, c := range conditions() {
		from := -1
		for i, h := range headers {
			value := c.value(h)
			switch {
			case value == "":
			case from < 0:
				from = i
				c.set(&out, h)
			case c.value(headers[from]) != value:
				return Header{}, &ClashError{
					Field: c.field,
					A:     c.value(headers[from]), AOrigin: originOf(headers[from], from),
					B: value, BOrigin: originOf(h, i),
				}
			}
		}
	}
	for _, h := range headers {
		out.Tool = union(out.Tool, h.Tool)
		out.Host = union(out.Host, h.Host)
		out.Driver = union(out.Driver, h.Driver)
		out.Source = union(out.Source, h.Source)
		if out.Created == "" || h.Created != "" && h.Created < out.Created {
			out.Created = h.Created
		}
		for _, key := range slices.Sorted(maps.Keys(h.Metadata)) {
			if out.Metadata == nil {
				out.Metadata = map[string]json.RawMessage{}
			}
			if _, ok := out.Metadata[key]; !ok {
				out.Metadata[key] = h.Metadata[key]
			}
		}
	}
	return out, nil
}

// originOf names a header's origin in a clash.
func originOf(h *Header, index int) string {
	if h.Source != "" {
		return h.Source
	}
	return fmt.Sprintf("profile %d", index+1)
}

// union joins two lists of names, each once, in order of first occurrence.
func union(a, b string) string {
	var names []string
	for _, list := range []string{a, b} {
		for name := range strings.SplitSeq(list, ", ") {
			if name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return strings.Join(names, ", ")
}
