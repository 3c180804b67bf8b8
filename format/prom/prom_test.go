package prom_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/format/prom"
)

const (
	before     = "vllm-metrics-before.recorded-vllm-0.32.0-cpu.prom.gz"
	after      = "vllm-metrics-after.recorded-vllm-0.32.0-cpu.prom.gz"
	stepBefore = "vllm-iterations-metrics-before.recorded-vllm-0.32.0-cpu.prom.gz"
	stepAfter  = "vllm-iterations-metrics-after.recorded-vllm-0.32.0-cpu.prom.gz"
)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func read(t testing.TB, name string) *prom.Scrape {
	t.Helper()
	s, warnings, err := prom.Read(name, bytes.NewReader(fixture(t, name)))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%s: warnings %v, error %v", name, warnings, err)
	}
	return s
}

func parse(t *testing.T, text string) *prom.Scrape {
	t.Helper()
	s, _, err := prom.Read("x", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRecordedVLLM(t *testing.T) {
	s := read(t, after)
	if s.Engine() != "vllm" {
		t.Errorf("engine %q", s.Engine())
	}
	v := s.VLLM()
	if v.PromptTokens.Value != 2106 || v.GenerationTokens.Value != 556 {
		t.Errorf("prompt %g, generated %g: want 2106, 556", v.PromptTokens.Value, v.GenerationTokens.Value)
	}
	if h := v.IterationTokens.Histogram; h.Sum != 2662 || h.Count != 465 {
		t.Errorf("iteration tokens: sum %g, count %g: want 2662, 465", h.Sum, h.Count)
	}
	if d := cmp.Diff(map[string]float64{"0": 2106}, v.PromptTokens.Parts); d != "" {
		t.Error(d)
	}
	if len(v.Cache) != 1 {
		t.Fatalf("%d cache configurations", len(v.Cache))
	}
	c := v.Cache[0]
	c.Labels = nil
	want := prom.CacheConfig{Engine: "0", BlockSize: 128, Blocks: 4096, Tokens: 524288, Bytes: 1 << 30, GPUMemoryUtilization: 0.92, DType: "auto"}
	if d := cmp.Diff(want, c); d != "" {
		t.Error(d)
	}
	if tokens, ok := v.KVTokens(); !ok || tokens != 524288 {
		t.Errorf("KV tokens %d, %v", tokens, ok)
	}
	for _, name := range s.Names() {
		if strings.HasSuffix(name, "_created") {
			t.Errorf("%s was kept", name)
		}
	}
	// What a running server publishes has a field here.
	for what, there := range map[string]bool{
		"running": v.Running != nil, "waiting": v.Waiting != nil, "waiting by": v.WaitingBy != nil, "use": v.KVUsage != nil,
		"prefix": v.PrefixQueries != nil && v.PrefixHits != nil, "external": v.ExternalQueries != nil, "multimodal": v.MultimodalHits != nil,
		"by source": v.PromptTokensBy != nil && v.CachedTokensBy != nil, "finished": v.Finished["length"] > 0, "rejections": v.Rejections != nil,
		"times": v.TTFT != nil && v.TokenGap != nil && v.RequestGap != nil && v.EndToEnd != nil && v.QueueTime != nil && v.InferenceTime != nil && v.PrefillTime != nil && v.DecodeTime != nil,
		"sizes": v.RequestPrompt != nil && v.RequestGeneration != nil && v.RequestMaxNumbers != nil && v.RequestN != nil && v.RequestMaxTokens != nil && v.RequestPrefillComputed != nil && v.RequestPreemptions != nil,
		"sleep": v.SleepState["awake"] == 1, "preemptions": v.Preemptions != nil, "not swapped": v.Swapped == nil, "not speculative": v.Drafts == nil,
	} {
		if !there {
			t.Errorf("%s: not as published", what)
		}
	}
}

func TestStepsBetweenScrapes(t *testing.T) {
	load, warnings := read(t, stepAfter).Since(read(t, stepBefore))
	if len(warnings) > 0 {
		t.Error(warnings)
	}
	v := load.VLLM()
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"prompt tokens", v.PromptTokens.Value, 9238},
		{"prompt tokens found in the cache", v.PrefixHits.Value, 1024},
		{"generated tokens", v.GenerationTokens.Value, 738},
		{"first tokens", v.TTFT.Histogram.Count, 32},
		{"iteration tokens", v.IterationTokens.Histogram.Sum, 8952},
		{"iterations with output", v.IterationTokens.Histogram.Count, 190},
		{"finished", v.Finished["length"], 32},
	} {
		if c.got != c.want {
			t.Errorf("%s: %g, want %g", c.what, c.got, c.want)
		}
	}
	if tokens, ok := v.ScheduledTokens(); !ok || tokens != 8920 {
		t.Errorf("scheduled tokens %g, want 8920 as the log of the steps says", tokens)
	}
	if v.FLOPs.Or(0) <= 0 || v.ReadBytes.Or(0) <= 0 || v.WriteBytes.Or(0) <= 0 {
		t.Error("the estimates of --enable-mfu-metrics are missing")
	}
}

func TestRenamedMetrics(t *testing.T) {
	for _, c := range []struct {
		file               string
		gap, usage, prefix string
		engine             string
		iterations         bool
	}{
		{"vllm-metrics-v0.synthetic.prom", "vllm:time_per_output_token_seconds", "vllm:gpu_cache_usage_perc", "", "", false},
		{"vllm-metrics-v1-early.synthetic.prom", "vllm:time_per_output_token_seconds", "vllm:gpu_cache_usage_perc", "vllm:gpu_prefix_cache_hits_total", "", true},
		{"vllm-metrics-v1-new.synthetic.prom", "vllm:inter_token_latency_seconds", "vllm:kv_cache_usage_perc", "vllm:prefix_cache_hits_total", "0", true},
	} {
		t.Run(c.file, func(t *testing.T) {
			v := read(t, c.file).VLLM()
			if v.TokenGap.Name != c.gap || v.KVUsage.Name != c.usage || v.KVUsage.Value != 0.4137 {
				t.Errorf("gap from %s, use %g from %s", v.TokenGap.Name, v.KVUsage.Value, v.KVUsage.Name)
			}
			if c.prefix == "" != (v.PrefixHits == nil) || v.PrefixHits != nil && (v.PrefixHits.Name != c.prefix || v.PrefixHits.Value != 20480) {
				t.Errorf("prefix hits %+v", v.PrefixHits)
			}
			if d := cmp.Diff(map[string]float64{c.engine: 12}, v.Running.Parts); d != "" {
				t.Error(d)
			}
			if got := v.Cache[0]; got.Tokens != 443840 || got.BlockSize != 16 || got.Blocks != 27740 {
				t.Errorf("cache %+v", got)
			}
			mean, ok := v.IterationTokens.Mean()
			if ok != c.iterations || ok && math.Abs(mean-63.116) > 1e-9 {
				t.Errorf("mean iteration tokens %g, %v: want 63.116", mean, ok)
			}
			if d := cmp.Diff(map[string]float64{"length": 190, "stop": 10}, v.Finished); d != "" {
				t.Error(d)
			}
		})
	}
	v := read(t, "vllm-metrics-v1-new.synthetic.prom").VLLM()
	if d := cmp.Diff(map[string]float64{"capacity": 2, "deferred": 1}, v.WaitingBy); d != "" {
		t.Error(d)
	}
	if v.Drafts.Or(0) != 40 || v.DraftTokens.Or(0) != 80 || v.AcceptedTokens.Or(0) != 50 || v.AcceptedBy["1"] != 20 {
		t.Errorf("speculative: %v %v %v %v", v.Drafts, v.DraftTokens, v.AcceptedTokens, v.AcceptedBy)
	}
}

func TestEnginesAreAddedUp(t *testing.T) {
	text := `# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 3
vllm:num_requests_running{engine="1"} 4
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:kv_cache_usage_perc{engine="1"} 0.25
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens{engine="0"} 10
vllm:prompt_tokens{engine="1"} NaN
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 5
vllm:num_requests_waiting_by_reason{engine="1",reason="deferred"} 6
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{engine="1",block_size="16",num_gpu_blocks="100"} 1
vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="None"} 1
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{engine="0",le="1"} 1
vllm:e2e_request_latency_seconds_bucket{engine="0",le="+Inf"} 2
vllm:e2e_request_latency_seconds_sum{engine="0"} 3
vllm:e2e_request_latency_seconds_count{engine="0"} 2
vllm:e2e_request_latency_seconds_bucket{engine="1",le="1"} 2
vllm:e2e_request_latency_seconds_bucket{engine="1",le="+Inf"} 2
vllm:e2e_request_latency_seconds_sum{engine="1"} 1
vllm:e2e_request_latency_seconds_count{engine="1"} 2
`
	v := parse(t, text).VLLM()
	if d := cmp.Diff(&prom.Number{Value: 7, Parts: map[string]float64{"0": 3, "1": 4}, Name: "vllm:num_requests_running"}, v.Running); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(&prom.Number{Value: 0.375, Parts: map[string]float64{"0": 0.5, "1": 0.25}, Name: "vllm:kv_cache_usage_perc"}, v.KVUsage); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(&prom.Number{Value: 10, Parts: map[string]float64{"0": 10}, Name: "vllm:prompt_tokens"}, v.PromptTokens); d != "" {
		t.Error("without _total, and with a figure that is none: ", d)
	}
	if v.Waiting.Value != 11 {
		t.Errorf("waiting %g from its reasons, want 11", v.Waiting.Value)
	}
	want := prom.Histogram{Sum: 4, Count: 4, Buckets: []prom.Bucket{{Bound: 1, Count: 3}, {Bound: math.Inf(1), Count: 4}}}
	if d := cmp.Diff(want, v.EndToEnd.Histogram); d != "" {
		t.Error(d)
	}
	if len(v.Cache) != 2 || v.Cache[0].Tokens != 0 || v.Cache[1].Tokens != 1600 {
		t.Errorf("cache %+v", v.Cache)
	}
	if _, ok := v.KVTokens(); ok {
		t.Error("a capacity although one engine does not say")
	}
}

func TestSGLangRanksAreNotAdded(t *testing.T) {
	s := read(t, "sglang-metrics.synthetic.prom")
	v := s.SGLang()
	if s.Engine() != "sglang" || v.Running.Value != 12 || v.KVTokens.Value != 443842 || v.TokenUsage.Value != 0.025 {
		t.Errorf("%s: running %g, KV tokens %g, use %g: want 12, 443842, 0.025", s.Engine(), v.Running.Value, v.KVTokens.Value, v.TokenUsage.Value)
	}
	if v.PromptTokens.Value != 102400 || v.TokensBy["decode"] != 25400 || v.AcceptRate != nil {
		t.Errorf("prompt %v, by mode %v, accept rate %v", v.PromptTokens, v.TokensBy, v.AcceptRate)
	}
	if mean, ok := v.TTFT.Mean(); !ok || mean <= 0 {
		t.Error("no time to first token")
	}
	parallel := `# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{dp_rank="0",tp_rank="0",pp_rank="0"} 1
sglang:num_running_reqs{dp_rank="0",tp_rank="1",pp_rank="0"} 1
sglang:num_running_reqs{dp_rank="1",tp_rank="2",pp_rank="0"} 10
sglang:num_running_reqs{dp_rank="1",tp_rank="3",pp_rank="1"} 10
`
	if d := cmp.Diff(map[string]float64{"0": 1, "1": 10}, parse(t, parallel).SGLang().Running.Parts); d != "" {
		t.Error(d)
	}
}

func TestLlamaCPP(t *testing.T) {
	plain, quoted := read(t, "llama-server-metrics.synthetic.prom"), read(t, "llama-server-metrics-quoted.synthetic.txt")
	v := plain.LlamaCPP()
	if plain.Engine() != "llama.cpp" || v.PromptTokens.Value != 5130 || v.PromptTime.Value != 1.6 || v.PredictedTokens.Value != 640 || v.MaxTokens.Value != 577 || v.KVUsage != nil {
		t.Errorf("%s: %+v", plain.Engine(), v)
	}
	if d := cmp.Diff(v, quoted.LlamaCPP()); d != "" {
		t.Error("in a JSON string: ", d)
	}
}

func TestRestart(t *testing.T) {
	old := parse(t, "# TYPE a_total counter\na_total 10\n# TYPE g gauge\ng 1\n")
	now := parse(t, "# TYPE a_total counter\na_total 4\n# TYPE g gauge\ng 7\n# TYPE b_total counter\nb_total 3\n")
	diff, warnings := now.Since(old)
	if len(warnings) != 1 || !strings.Contains(warnings[0].Error(), "a_total") {
		t.Errorf("warnings %v", warnings)
	}
	for name, want := range map[string]float64{"a": 4, "g": 7, "b_total": 3} {
		if samples, _ := diff.Samples(name); len(samples) != 1 || samples[0].Value != want {
			t.Errorf("%s: %+v, want %g", name, samples, want)
		}
	}
	if samples, _ := now.Samples("a_total"); samples[0].Value != 4 {
		t.Error("a difference changed the scrape")
	}
}

func TestDamaged(t *testing.T) {
	const good = "# TYPE a_total counter\na_total 10\n"
	s, warnings, err := prom.Read("x", strings.NewReader(good+"# TYPE b_total counter\nb_total 12"))
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].Error(), "no end") {
		t.Fatalf("cut off: warnings %v, error %v", warnings, err)
	}
	if samples, _ := s.Samples("b_total"); len(samples) != 0 {
		t.Errorf("half a number was read: %+v", samples)
	}
	if _, _, err := prom.Read("x", strings.NewReader(strings.ReplaceAll(good, "\n", "\r\n"))); err != nil {
		t.Errorf("CRLF: %v", err)
	}
	for why, text := range map[string]string{
		"empty": "", "no metrics": "# nothing\n", "other text": "hello world, this is no metric\n", "half a JSON string": `"# TYPE a`, "HTML": "<html>\n",
	} {
		if _, _, err := prom.Read("x", strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), "x: ") {
			t.Errorf("%s: error %v", why, err)
		}
	}
}

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		name string
		want bool
	}{
		{after, true},
		{"llama-server-metrics.synthetic.prom", true},
		{"llama-server-metrics-quoted.synthetic.txt", true},
		{"README.md", false},
	} {
		if got := prom.Detect(fixture(t, c.name)); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func ExampleScrape_Since() {
	earlier, _, err := prom.Read("before.prom", strings.NewReader("# TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total{engine=\"0\"} 100\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	later, _, err := prom.Read("after.prom", strings.NewReader("# TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total{engine=\"0\"} 350\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	load, _ := later.Since(earlier)
	fmt.Println(load.VLLM().PromptTokens.Value, "prompt tokens")
	// Output: 250 prompt tokens
}

func FuzzRead(f *testing.F) {
	for _, name := range []string{"sglang-metrics.synthetic.prom", "vllm-metrics-v1-new.synthetic.prom", "llama-server-metrics-quoted.synthetic.txt"} {
		text := fixture(f, name)
		f.Add(text[:min(len(text), 3000)])
	}
	f.Add([]byte("# TYPE a histogram\na_bucket{le=\"1\"} NaN\na_count -1\na_sum 3\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		prom.Detect(text)
		s, _, err := prom.Read("x", bytes.NewReader(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "x: ") {
				t.Errorf("error does not name the file: %v", err)
			}
			return
		}
		diff, _ := s.Since(s)
		v := diff.VLLM()
		if n := v.PromptTokens.Or(0); n != 0 {
			t.Errorf("nothing happened, but %g prompt tokens", n)
		}
		v.ScheduledTokens()
		v.KVTokens()
		s.SGLang()
		s.LlamaCPP()
		s.Engine()
	})
}
