package llmservingsim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// metaValues are the plain values of a meta.yaml by their path: "model",
// "engine_effective.block_size". Only "key: value" lines in block style are
// read, which is how the profiler writes them; lists, and mappings in braces,
// are left alone. The text itself is kept whole.
func metaValues(text []byte) map[string]string {
	const mostDepth = 8
	type level struct {
		indent int
		path   string
	}
	values := map[string]string{}
	var open []level
	for line := range bytes.Lines(text) {
		row := strings.TrimRight(string(line), " \t\r\n")
		body := strings.TrimLeft(row, " ")
		key, value, ok := strings.Cut(body, ":")
		if !ok || key == "" || strings.ContainsAny(key[:1], "#-[]{}'\"") || value != "" && value[0] != ' ' {
			continue
		}
		indent := len(row) - len(body)
		for len(open) > 0 && open[len(open)-1].indent >= indent {
			open = open[:len(open)-1]
		}
		path := key
		if len(open) > 0 {
			path = open[len(open)-1].path + "." + key
		} else if indent > 0 {
			continue // inside something that was not understood
		}
		if value = plainScalar(strings.TrimSpace(value)); value == "" {
			if len(open) < mostDepth {
				open = append(open, level{indent, path})
			}
			continue
		}
		if _, twice := values[path]; !twice {
			values[path] = value
		}
	}
	return values
}

// plainScalar is the text of a YAML scalar; empty for none.
func plainScalar(text string) string {
	switch {
	case text == "" || text == "null" || text == "~" || text[0] == '#' || text[0] == '[' || text[0] == '{':
		return ""
	case text[0] == '\'':
		if end := strings.LastIndexByte(text, '\''); end > 0 {
			return strings.ReplaceAll(text[1:end], "''", "'")
		}
		return ""
	case text[0] == '"':
		var out string
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			return ""
		}
		return out
	}
	text, _, _ = strings.Cut(text, " #")
	return strings.TrimSpace(text)
}

// header fills in what meta.yaml says of device and deployment. What it says
// of the grid is not looked at: the rows tell.
func header(h *profile.Header, values map[string]string, device func(string) (string, bool)) {
	h.Device.Reported = values["gpu"]
	if h.Device.Reported == "" {
		h.Device.Reported = values["hardware"]
	}
	findDevice(h, device, values["gpu"], values["hardware"])
	c := &h.Deploy
	c.Model = values["model"]
	if version := values["vllm_version"]; version != "" {
		c.Engine, c.EngineVersion = "vllm", version
	} else {
		c.Engine, c.EngineVersion = values["engine"], values["engine_version"]
	}
	engine := func(key string) string { return values["engine_effective."+key] }
	for _, number := range []struct {
		key string
		to  *int
	}{
		{"block_size", &c.BlockSize}, {"max_num_batched_tokens", &c.MaxNumBatchedTokens}, {"max_model_len", &c.MaxModelLen},
	} {
		if n, err := format.ParseSize(engine(number.key), 1); err == nil {
			*number.to = n
		}
	}
	if share, err := strconv.ParseFloat(engine("gpu_memory_utilization"), 64); err == nil && share > 0 && share <= 1 {
		c.GPUMemoryUtilization = share
	}
	formats(c, values["variant"])
	if t, err := catalog.ParseDType(engine("dtype")); err == nil {
		c.DType = t
	}
	if t, err := catalog.ParseDType(engine("kv_cache_dtype")); err == nil {
		c.KVCacheDType = t
	}
	if q := engine("quantization"); q != "" {
		if _, err := deploy.ParseWeightFormat(q, c.DType); err == nil {
			c.Quantization = q
		}
	}
}

// findDevice sets the canonical name by the first of the reported names that
// is known.
func findDevice(h *profile.Header, device func(string) (string, bool), reported ...string) {
	if device == nil {
		return
	}
	for _, name := range reported {
		if name == "" {
			continue
		}
		if canonical, ok := device(name); ok {
			h.Device.Name, h.Deploy.Device = canonical, canonical
			return
		}
	}
}

// formats reads a variant: "bf16", "bf16-kvfp8", "fp8-kvfp8".
func formats(c *deploy.Config, variant string) {
	for i, part := range strings.Split(variant, "-") {
		name, kv := strings.CutPrefix(part, "kv")
		t, err := catalog.ParseDType(name)
		switch {
		case err != nil:
		case kv:
			c.KVCacheDType = t
		case i == 0 && t.Bits() < 16:
			c.Quantization = name // of the weights; the activations' format is not said
		case i == 0:
			c.DType = t
		}
	}
}

// variantOf spells the formats of a deployment as a variant; empty where they
// are not known.
func variantOf(c deploy.Config) string {
	name := string(c.DType)
	if c.Quantization != "" && c.Quantization != "none" {
		name = c.Quantization
	}
	if name != "" && c.KVCacheDType != "" && c.KVCacheDType != c.DType {
		name += "-kv" + string(c.KVCacheDType)
	}
	return name
}

// newMeta writes the meta.yaml of a profile that did not come from a bundle:
// what its header states, and the grid that its rows show. What is not known,
// as the architecture and a rank's share of the model's sizes, is left out.
func newMeta(h *profile.Header, rows map[string][]row) []byte {
	var b bytes.Buffer
	line := func(indent int, key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s%s: %s\n", strings.Repeat("  ", indent), key, yamlScalar(value))
		}
	}
	number := func(indent int, key string, n int) {
		if n > 0 {
			fmt.Fprintf(&b, "%s%s: %d\n", strings.Repeat("  ", indent), key, n)
		}
	}
	c := h.Deploy
	line(0, "profiler_version", strings.TrimSpace("llmprof "+h.Tool))
	if c.Engine == "vllm" {
		line(0, "vllm_version", c.EngineVersion)
	} else {
		line(0, "engine", c.Engine)
		line(0, "engine_version", c.EngineVersion)
	}
	line(0, "gpu", h.Device.Reported)
	hardware := h.Device.Name
	if hardware == "" {
		hardware = h.Device.Reported
	}
	line(0, "hardware", hardware)
	line(0, "profiled_at", h.Created)
	line(0, "model", c.Model)
	line(0, "variant", variantOf(c))
	fmt.Fprintf(&b, "tp_degrees: [%s]\n", strings.Join(texts(ranksOf(rows)), ", "))

	start := b.Len()
	line(1, "dtype", string(c.DType))
	line(1, "kv_cache_dtype", string(c.KVCacheDType))
	line(1, "quantization", c.Quantization)
	number(1, "tensor_parallel_size", c.TensorParallel)
	number(1, "block_size", c.BlockSize)
	number(1, "max_num_batched_tokens", c.MaxNumBatchedTokens)
	number(1, "max_model_len", c.MaxModelLen)
	if c.GPUMemoryUtilization > 0 {
		line(1, "gpu_memory_utilization", strconv.FormatFloat(c.GPUMemoryUtilization, 'g', -1, 64))
	}
	if settings := string(b.Bytes()[start:]); settings != "" {
		b.Truncate(start)
		b.WriteString("engine_effective:\n" + settings)
	}

	chunks, counts, contexts := map[int]bool{}, map[int]bool{}, map[int]bool{}
	fewest := -1
	for name, list := range rows {
		for _, r := range list {
			if fewest < 0 || r.samples < fewest {
				fewest = r.samples
			}
			if strings.HasSuffix(name, "/"+attentionFile) {
				chunks[r.layer.Tokens], counts[r.layer.Sequences] = true, true
				contexts[r.layer.Context], contexts[r.layer.SequenceContext] = true, true
			}
		}
	}
	if len(chunks) > 0 {
		b.WriteString("attention_grid:\n")
		number(1, "max_kv", slices.Max(slices.Collect(maps.Keys(contexts))))
		fmt.Fprintf(&b, "  chunks: %s\n  n_decode: %s\n  kv: %s\n", spans(chunks), spans(counts), spans(contexts))
	}
	if fewest > 1 {
		number(0, "measurement_iterations", fewest)
	}
	b.WriteString("skew_profile:\n  enabled: false\nskew_fit:\n  enabled: false\n")
	return b.Bytes()
}

func texts(values []int) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = strconv.Itoa(v)
	}
	return out
}

// spans spells a set of numbers: "0, 16, 32-64".
func spans(set map[int]bool) string {
	const most = 64
	values := slices.Sorted(maps.Keys(set))
	var out []string
	for i := 0; i < len(values); {
		end := i
		for end+1 < len(values) && values[end+1] == values[end]+1 {
			end++
		}
		if end > i+1 {
			out = append(out, fmt.Sprintf("%d-%d", values[i], values[end]))
			i = end + 1
		} else {
			out = append(out, strconv.Itoa(values[i]))
			i++
		}
	}
	if len(out) > most {
		return fmt.Sprintf("%d values from %d to %d", len(values), values[0], values[len(values)-1])
	}
	return strings.Join(out, ", ")
}

// yamlScalar quotes a text where YAML would take it for something else.
func yamlScalar(text string) string {
	_, err := strconv.ParseFloat(text, 64)
	plain := err == nil || text[0] >= 'A' && text[0] <= 'Z' || text[0] >= 'a' && text[0] <= 'z'
	for _, c := range text {
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', strings.ContainsRune(" ._/+-,()", c):
		case c < ' ' || c == 0x7f || c > 0x7e:
			quoted, err := json.Marshal(text)
			if err != nil { // a string always has a JSON form
				return `""`
			}
			return string(quoted)
		default:
			plain = false
		}
	}
	if plain && text == strings.TrimSpace(text) && !slices.Contains([]string{"true", "false", "yes", "no", "on", "off", "null", "y", "n"}, strings.ToLower(text)) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}
