package llamacpp

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

// The keys of a record that differ from test to test.
const (
	keyPrompt    = "n_prompt"
	keyGenerated = "n_gen"
	keyDepth     = "n_depth"
	keyTime      = "test_time"
	keyAverage   = "avg_ns"
	keyDeviation = "stddev_ns"
	keyRate      = "avg_ts"
	keyRateDev   = "stddev_ts"
	keySamples   = "samples_ns"
	keyRates     = "samples_ts"
)

// conditions are the keys that say under which conditions a test ran, those of
// all builds together.
func conditions() []string {
	return []string{
		"build_commit", "build_number", "cpu_info", "gpu_info", "backends",
		"model_filename", "model_type", "model_size", "model_n_params",
		"n_batch", "n_ubatch", "n_threads", "cpu_mask", "cpu_strict", "poll",
		"type_k", "type_v", "n_gpu_layers", "n_cpu_moe", "split_mode", "main_gpu", "no_kv_offload", "flash_attn",
		"devices", "tensor_split", "tensor_buft_overrides", "use_mmap", "use_direct_io", "load_mode", "embeddings", "no_op_offload", "no_host",
	}
}

// Tolerances, as shares: of the rate that a record states against the one that
// follows from its times (it is a mean of rates, not the rate of the mean), and
// of its mean time against its samples.
const (
	rateTolerance = 0.01
	meanTolerance = 1e-3
)

// record reads one test.
func (b *reader) record(n format.Node) error {
	if n.Kind() != format.Object {
		return n.Errorf("want a test as an object, got %s", n.Got())
	}
	prompt, err := tokens(n, keyPrompt)
	if err != nil {
		return err
	}
	generated, err := tokens(n, keyGenerated)
	if err != nil {
		return err
	}
	depth, err := tokens(n, keyDepth)
	if err != nil {
		return err
	}
	if prompt+generated == 0 {
		return n.Errorf("neither %s nor %s says what was run", keyPrompt, keyGenerated)
	}
	average, err := nanoseconds(n.Get(keyAverage))
	if err != nil {
		return err
	}
	if prompt > 0 && generated > 0 {
		b.warn(n.Errorf("left out: a combined test of %d prompt and %d generated tokens cannot be taken apart", prompt, generated))
		return nil
	}
	b.checkRate(n, prompt+generated, average)
	point := profile.Point{Kind: profile.KindStep, Clock: profile.ClockWall, Origin: b.name + ": " + n.Path()}
	steps := 1
	if generated > 0 {
		steps = generated
		point.Step = &profile.Step{
			Mode: profile.Decode, BatchSize: 1, InputLen: depth, OutputLen: generated,
			Pass: forward.Decode(1, depth+generated/2),
		}
	} else {
		point.Step = &profile.Step{Mode: profile.Prefill, BatchSize: 1, InputLen: prompt, Pass: forward.Prefill(1, prompt, depth)}
	}
	if err := b.times(n, &point, average, steps); err != nil {
		return err
	}
	if point.Extra, err = b.extra(n); err != nil {
		return err
	}
	p, err := b.into(n)
	if err != nil {
		return err
	}
	p.Points = append(p.Points, point)
	return nil
}

// tokens reads a number of tokens; 0 where it is absent.
func tokens(n format.Node, key string) (int, error) {
	value := n.Get(key)
	if !value.Present() {
		return 0, nil
	}
	return value.Int(0, maxTokens)
}

// nanoseconds reads a time.
func nanoseconds(n format.Node) (float64, error) {
	if !n.Present() {
		return 0, n.Errorf("missing: want a positive number of nanoseconds")
	}
	t, err := n.Float()
	if err != nil || !(t > 0) || t > maxNanoseconds {
		return 0, n.Errorf("want a positive number of nanoseconds, got %s", n.Got())
	}
	return t, nil
}

// times fills in samples and summary, in seconds a step.
func (b *reader) times(n format.Node, p *profile.Point, average float64, steps int) error {
	seconds := func(ns float64) float64 { return ns / 1e9 / float64(steps) }
	samples := n.Get(keySamples)
	if samples.Present() && samples.Kind() != format.Array {
		return samples.Errorf("want a list of nanoseconds, got %s", samples.Got())
	}
	for _, sample := range samples.Elements() {
		t, err := nanoseconds(sample)
		if err != nil {
			return err
		}
		p.Samples = append(p.Samples, seconds(t))
	}
	p.Summary = &profile.Summary{Mean: seconds(average), Runs: len(p.Samples)}
	if dev := n.Get(keyDeviation); dev.Present() {
		std, err := dev.Float()
		if err != nil {
			return err
		}
		if !(std >= 0) || std > maxNanoseconds {
			return dev.Errorf("want 0 or more nanoseconds, got %s", dev.Got())
		}
		p.Summary.Std = seconds(std)
		if runs := float64(len(p.Samples)); runs > 0 { // theirs divides by runs - 1
			p.Summary.Std *= math.Sqrt((runs - 1) / runs)
		}
	}
	if len(p.Samples) == 0 {
		return nil
	}
	if m := stat.Mean(p.Samples); math.Abs(m-p.Summary.Mean) > meanTolerance*m {
		b.warn(n.Get(keyAverage).Errorf("is %g ns, but the mean of its %d samples is %.6g ns", average, len(p.Samples), m*1e9*float64(steps)))
	}
	return nil
}

// checkRate holds the rate that the record states against its time.
func (b *reader) checkRate(n format.Node, tokens int, average float64) {
	rate := n.Get(keyRate)
	if !rate.Present() {
		return
	}
	stated, err := rate.Float()
	follows := float64(tokens) / (average / 1e9)
	if err != nil || !(math.Abs(stated-follows) <= rateTolerance*follows) {
		b.warn(rate.Errorf("is %s tokens/s, but %d tokens in %g ns are %.6g tokens/s", rate.Got(), tokens, average, follows))
	}
}

// extra keeps the keys that are neither conditions nor read.
func (b *reader) extra(n format.Node) (map[string]json.RawMessage, error) {
	known := map[string]bool{
		keyPrompt: true, keyGenerated: true, keyDepth: true, keyAverage: true, keyDeviation: true,
		keyRate: true, keyRateDev: true, keySamples: true, keyRates: true,
	}
	for _, key := range conditions() {
		known[key] = true
	}
	var extra map[string]json.RawMessage
	for key, value := range n.Members() {
		if known[key] || value.Kind() == format.Null {
			continue
		}
		text, ok := value.JSON()
		if !ok {
			b.warn(value.Errorf("left out: %s is not valid JSON", value.Got()))
			continue
		}
		if extra == nil {
			extra = map[string]json.RawMessage{}
		}
		extra[key] = text
	}
	return extra, nil
}

// header says what a record says of engine, device and model.
func (b *reader) header(n format.Node) (profile.Header, error) {
	h := profile.Header{Schema: profile.Schema, Version: profile.Version, Source: b.name}
	h.Deploy.Engine = "llama.cpp"
	texts := map[string]string{}
	for _, key := range []string{"model_filename", "model_type", "cpu_info", "gpu_info", "backends", "type_k", "type_v"} {
		value := n.Get(key)
		if !value.Present() {
			continue
		}
		text, err := value.Text()
		if err != nil {
			return h, err
		}
		texts[key] = strings.TrimSpace(text)
	}
	if number := n.Get("build_number"); number.Present() {
		build, err := number.Int(0, maxTokens)
		if err != nil {
			return h, err
		}
		if build > 0 {
			h.Deploy.EngineVersion = "b" + strconv.Itoa(build)
		}
	}
	h.Deploy.Model = texts["model_filename"]
	h.Deploy.DType, h.Deploy.Quantization = weights(texts["model_type"])
	if texts["type_k"] == texts["type_v"] {
		h.Deploy.KVCacheDType = plain(texts["type_k"])
	}
	h.Device = profile.Device{Reported: texts["cpu_info"], Count: 1}
	layers, _ := n.Get("n_gpu_layers").Int(-1, maxTokens) // what it is stays in the metadata
	if gpus := texts["gpu_info"]; gpus != "" && layers != 0 {
		h.Device = profile.Device{Reported: gpus, Count: 1}
		if names := strings.Split(gpus, ", "); same(names) { // one name for each GPU
			h.Device = profile.Device{Reported: names[0], Count: len(names)}
		}
	}
	if h.Device.Reported == "" {
		h.Device.Count = 0
	} else if b.opts.Device != nil {
		if canonical, ok := b.opts.Device(h.Device.Reported); ok {
			h.Device.Name, h.Deploy.Device = canonical, canonical
		}
	}
	return h, nil
}

func same(names []string) bool {
	for _, name := range names {
		if name != names[0] {
			return false
		}
	}
	return true
}

// weights reads the format at the end of a model's description: "llama 8B
// Q4_K - Medium", "qwen3 4B F16".
func weights(description string) (dtype catalog.DType, quantization string) {
	words := strings.Fields(strings.ReplaceAll(description, " mostly ", " "))
	if len(words) < 3 {
		return "", ""
	}
	if dtype = plain(words[2]); dtype != "" {
		return dtype, ""
	}
	if f, err := deploy.ParseWeightFormat(words[2], catalog.FP16); err == nil {
		return catalog.FP16, f.Name // what llama.cpp computes in
	}
	return "", ""
}

// plain is a number format that llama.cpp and the catalog both know; empty for
// others.
func plain(name string) catalog.DType {
	switch strings.ToLower(name) {
	case "f16":
		return catalog.FP16
	case "bf16":
		return catalog.BF16
	case "f32":
		return catalog.FP32
	}
	return ""
}
