package vllmlog_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/format/vllmlog"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

const (
	startup    = "vllm-startup.recorded-vllm-0.32.0-cpu.log"
	iterations = "vllm-iterations.recorded-vllm-0.32.0-cpu.log"
)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func read(t *testing.T, text []byte, opts vllmlog.Options) (*profile.Profile, []error) {
	t.Helper()
	p, warnings, err := vllmlog.Read("x.log", bytes.NewReader(text), opts)
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.Points {
		if err := p.Points[i].Validate(); err != nil {
			t.Errorf("point %d: %v", i, err)
		}
	}
	return p, warnings
}

// parts are the memory points by worker and part.
func parts(p *profile.Profile) map[string]profile.Memory {
	all := map[string]profile.Memory{}
	for _, point := range p.Points {
		if m := point.Memory; m != nil {
			all[strings.TrimSpace(m.Worker+" "+m.Part)] = *m
		}
	}
	return all
}

func steps(p *profile.Profile) []profile.Point {
	return p.Filter(profile.ByKind(profile.KindStep)).Points
}

func words(warnings []error) string {
	var all strings.Builder
	for _, w := range warnings {
		fmt.Fprintln(&all, w)
	}
	return all.String()
}

func TestEras(t *testing.T) {
	const step = 10737418 // 0.01 GiB
	weights := profile.Memory{Part: "weights", Bytes: 16063177687, Resolution: 107374}
	activation := profile.Memory{Part: "activation", Bytes: 1352914698, Resolution: step}
	nonTorch := profile.Memory{Part: "non-torch", Bytes: 848256041, Resolution: step}
	graphs := profile.Memory{Part: "graphs", Bytes: 665719931, Resolution: step}
	total := profile.Memory{Part: "total", Bytes: 84932978278, Resolution: step}
	budget := profile.Memory{Part: "budget", Bytes: 76439680451, Resolution: step}
	free := profile.Memory{Part: "free", Bytes: 84288733184, Resolution: step}
	cache := profile.Memory{Part: "kv-cache", Bytes: 58175332024, Resolution: step, Tokens: 443840}
	inBlocks := cache
	inBlocks.Blocks, inBlocks.BlockSize = 27740, 16

	tp2 := map[string]profile.Memory{"EngineCore_DP0 kv-cache": {Part: "kv-cache", Tokens: 1010224, Worker: "EngineCore_DP0"}}
	for _, worker := range []string{"Worker_TP0", "Worker_TP1"} {
		for _, m := range []profile.Memory{
			{Part: "weights", Bytes: 8031588844, Resolution: 107374},
			activation, nonTorch, graphs, total, budget, free,
			{Part: "kv-cache", Bytes: 66206040064},
		} {
			m.Worker = worker
			tp2[worker+" "+m.Part] = m
		}
	}
	list := func(figures ...profile.Memory) map[string]profile.Memory {
		all := map[string]profile.Memory{}
		for _, m := range figures {
			all[m.Part] = m
		}
		return all
	}
	for _, c := range []struct {
		why, file string
		want      map[string]profile.Memory
		header    deploy.Config
	}{
		{"a table, and blocks without their size", "vllm-startup-1-v0-2024-12.synthetic.log", list(weights, activation, nonTorch, inBlocks), deploy.Config{}},
		{"one sentence", "vllm-startup-2-v0-2025-03.synthetic.log", list(weights, activation, nonTorch, graphs, total, budget, inBlocks), deploy.Config{GPUMemoryUtilization: 0.9}},
		{"tokens at last", "vllm-startup-3-v1-2025-06.synthetic.log", list(weights, graphs, cache), deploy.Config{}},
		{"two ranks", "vllm-startup-4-v1-2025-10-tp2.synthetic.log", tp2, deploy.Config{GPUMemoryUtilization: 0.9}},
		{
			"weights and the rest in one figure", "vllm-startup-5-2026.synthetic.log",
			list(profile.Memory{Part: "weights", Bytes: 16063177687, Resolution: step}, profile.Memory{Part: "consumed", Bytes: 16911433728, Resolution: step},
				activation, profile.Memory{Part: "graphs", Bytes: 279172874, Resolution: step}, profile.Memory{Part: "kv-cache", Bytes: 57896075264, Tokens: 441712}),
			deploy.Config{},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			p, warnings := read(t, fixture(t, c.file), vllmlog.Options{})
			if d := cmp.Diff(c.want, parts(p)); d != "" {
				t.Error(d)
			}
			c.header.Engine, c.header.MaxModelLen = "vllm", 32768
			if d := cmp.Diff(c.header, p.Header.Deploy); d != "" {
				t.Error(d)
			}
			if len(warnings) > 0 {
				t.Errorf("warnings: %v", warnings)
			}
			// The same in colours, with Windows line ends and behind a collector.
			text := strings.ReplaceAll(string(fixture(t, c.file)), "\n", "\x1b[0m\r\n")
			text = strings.ReplaceAll(text, "INFO ", "\x1b[32mINFO\x1b[0m ")
			if !strings.Contains(text, "(") || !strings.Contains(text, "take   ") {
				text = strings.ReplaceAll(text, "\n", "\n2026-06-01T10:15:06.123Z stderr F ")
			}
			again, _ := read(t, []byte(text), vllmlog.Options{})
			if d := cmp.Diff(c.want, parts(again)); d != "" {
				t.Error("coloured: ", d)
			}
		})
	}
}

func TestRecordedStartup(t *testing.T) {
	p, warnings := read(t, fixture(t, startup), vllmlog.Options{})
	if len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
	want := map[string]profile.Memory{"kv-cache": {Part: "kv-cache", Bytes: 1 << 30, Resolution: 107374182, Tokens: 524288}}
	if d := cmp.Diff(want, parts(p)); d != "" {
		t.Error(d)
	}
	yes := true
	header := deploy.Config{
		Model: "tiny", Engine: "vllm", EngineVersion: "0.32.0", DType: catalog.BF16, MaxModelLen: 2048,
		TensorParallel: 1, PipelineParallel: 1, DataParallel: 1, ChunkedPrefill: &yes, PrefixCaching: &yes,
	}
	if d := cmp.Diff(header, p.Header.Deploy); d != "" {
		t.Error(d)
	}
	for _, key := range []string{"args", "engine_config"} {
		if !bytes.Contains(p.Header.Metadata[key], []byte(`"load_format":"dummy"`)) {
			t.Errorf("metadata %s: %s", key, p.Header.Metadata[key])
		}
	}
}

func TestIterations(t *testing.T) {
	p, warnings := read(t, fixture(t, iterations), vllmlog.Options{})
	if len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
	var context, generation, largest int
	modes := map[string]int{}
	for _, point := range p.Points {
		totals := point.Step.Sums()
		context += totals.PrefillTokens
		generation += totals.DecodeTokens
		largest = max(largest, totals.Tokens())
		modes[point.Step.Mode]++
		if totals.KVTokens != 0 {
			t.Errorf("%s: %d KV tokens though the log does not tell the capacity", point.Origin, totals.KVTokens)
		}
	}
	if len(p.Points) != 190 || context != 8214 || generation != 706 || largest != 512 {
		t.Errorf("%d steps, %d context and %d generation tokens, largest %d: want 190, 8214, 706, 512", len(p.Points), context, generation, largest)
	}
	first := profile.Point{
		Kind: profile.KindStep, Samples: []float64{0.05322}, Clock: profile.ClockWall, Origin: "x.log: line 1",
		Step: &profile.Step{Mode: profile.Prefill, Totals: &forward.Totals{PrefillRequests: 1, PrefillTokens: 395}},
	}
	got := p.Points[0]
	if string(got.Extra["iteration"]) != "332" || string(got.Extra["kv_cache_usage"]) != "0.001" {
		t.Errorf("extra %s", got.Extra)
	}
	got.Extra = nil
	if d := cmp.Diff(first, got); d != "" {
		t.Error(d)
	}
	if modes[profile.Prefill] == 0 || modes[profile.Decode] == 0 || modes[profile.Mixed] == 0 {
		t.Errorf("modes %v", modes)
	}
	if got := string(p.Header.Metadata["source"]); got != `"Engine 000"` {
		t.Errorf("source %s", got)
	}
}

func TestKVTokens(t *testing.T) {
	start := string(fixture(t, startup))
	line := iterationLine + ", CPU KV cache usage: 12.5%\n"
	for _, c := range []struct {
		why, text string
		opts      vllmlog.Options
		want      int64
	}{
		{"capacity from the log", start + line, vllmlog.Options{}, 65536},
		{"capacity given", line, vllmlog.Options{KVTokens: 32768}, 4096},
		{"the given one counts", start + line, vllmlog.Options{KVTokens: 32768}, 4096},
		{"capacity not known", line, vllmlog.Options{}, 0},
		{"use not told", start + iterationLine, vllmlog.Options{}, 0},
		{
			"two engines of different size",
			"(EngineCore_DP0 pid=1) INFO 06-01 10:15:20 [kv.py:1] GPU KV cache size: 8,000 tokens\n" +
				"(EngineCore_DP1 pid=2) INFO 06-01 10:15:20 [kv.py:1] GPU KV cache size: 4,000 tokens\n" +
				"(APIServer pid=3) INFO 06-01 10:15:21 [loggers.py:1] Engine 001: " + line,
			vllmlog.Options{},
			500,
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			p, _ := read(t, []byte(c.text), c.opts)
			if got := steps(p)[0].Step.Sums().KVTokens; got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		why, file, text string
		reason          vllmlog.Refusal
		count           int
		says, hint      string
	}{
		{why: "block size", file: "vllm-startup-refused-block-size.recorded-vllm-0.32.0-cpu.log", reason: vllmlog.RefusedBlockSize, count: 1, says: "No common block size for 16): it allows CPU_ATTN: [MultipleOf(32)]", hint: "--block-size"},
		{why: "length", file: "vllm-startup-refused-max-len.recorded-vllm-0.32.0-cpu.log", reason: vllmlog.RefusedLength, count: 1, says: "maximum model length is 992", hint: "--max-model-len 992"},
		{why: "memory, with and without a device", file: "vllm-startup-refused.synthetic.log", reason: vllmlog.RefusedMemory, count: 2, says: "does not fit: of 31.50 GiB of device cuda:0, 20.00 GiB are free and 28.35 GiB", hint: "--gpu-memory-utilization"},
		{why: "host memory", text: "ValueError: Available memory on node 0 (30.78/32.72 GiB) on startup is less than desired CPU memory utilization (0.95, 31.08 GiB).", reason: vllmlog.RefusedMemory, count: 1, says: "of node 0", hint: "--gpu-memory-utilization"},
		{why: "the older wording of length", text: "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache (12032). Try", reason: vllmlog.RefusedLength, count: 1, says: "12032", hint: "--max-model-len 12032"},
		{why: "length without brackets", text: "ValueError: To serve at least one request with the model's max seq len (131072), 8.18 GiB KV cache is needed, which is larger than the available KV cache memory (7.04 GiB). Try", reason: vllmlog.RefusedLength, count: 1, says: "8.18 GiB", hint: "--max-model-len"},
		{why: "no cache", text: "Available KV cache memory: -0.25 GiB\nValueError: No available memory for the cache blocks. Try", reason: vllmlog.RefusedNoCache, count: 1, says: "nothing is left", hint: "--gpu-memory-utilization"},
		{why: "allocation", text: "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has", reason: vllmlog.RefusedOutOfMemory, count: 1, says: "2.00 GiB", hint: "--max-num-batched-tokens"},
	} {
		t.Run(c.why, func(t *testing.T) {
			text := []byte(c.text)
			if c.file != "" {
				text = fixture(t, c.file)
			}
			p, warnings := read(t, text, vllmlog.Options{})
			failures := p.Filter(profile.ByKind(profile.KindFailure)).Points
			if len(failures) != c.count || len(warnings) != c.count {
				t.Fatalf("%d failures, warnings %v: want %d of each", len(failures), warnings, c.count)
			}
			refused, ok := errors.AsType[*vllmlog.RefusedError](warnings[0])
			if !ok || refused.Reason != c.reason || refused.File != "x.log" || refused.Line == 0 {
				t.Fatalf("%#v", warnings[0])
			}
			if !strings.Contains(refused.Error(), c.says) || !strings.Contains(failures[0].Reason, c.says) {
				t.Errorf("%v: want %q in it", refused, c.says)
			}
			if !strings.Contains(refused.Hint(), c.hint) {
				t.Errorf("hint %q: want %q in it", refused.Hint(), c.hint)
			}
		})
	}
}

func TestSelfChecks(t *testing.T) {
	era2 := string(fixture(t, "vllm-startup-2-v0-2025-03.synthetic.log"))
	era3 := string(fixture(t, "vllm-startup-3-v1-2025-06.synthetic.log"))
	era5 := string(fixture(t, "vllm-startup-5-2026.synthetic.log"))
	tp2 := string(fixture(t, "vllm-startup-4-v1-2025-10-tp2.synthetic.log"))
	model := &catalog.Model{Name: "example-8b", NumLayers: 32, NumHeads: 32, NumKVHeads: 8, HeadDim: 128}
	wider := &catalog.Model{Name: "example-8b", NumLayers: 32, NumHeads: 32, NumKVHeads: 8, HeadDim: 256}
	split := "(APIServer pid=1) INFO 10-23 15:14:00 [utils.py:1] non-default args: {'model': 'm', 'tensor_parallel_size': 2, 'block_size': 16}\n"
	for _, c := range []struct {
		why, text string
		opts      vllmlog.Options
		want      string
	}{
		{"parts that do not add up", strings.Replace(era2, "non_torch_memory takes 0.79", "non_torch_memory takes 1.79", 1), vllmlog.Options{}, "line 4: the budget is 71.19 GiB, its parts add up to 72.19 GiB"},
		{"graphs within the budget", strings.Replace(era5, "Actual usage", "Desired: Free memory on device (78.50/79.10 GiB) on startup. Desired GPU memory utilization is (0.9, 71.19 GiB). Actual usage", 1), vllmlog.Options{}, ""},
		{"layers of several kinds", strings.Replace(era3, "13.54x", "27.00x", 1), vllmlog.Options{}, "443840 tokens, 13.54 requests of 32768, and the log says 27.00"},
		{"bytes as the model needs them", era3, vllmlog.Options{Model: model}, ""},
		{"bytes of another model", era3, vllmlog.Options{Model: wider}, "443840 tokens take 58175332024 B, and example-8b needs 262144 B a token"},
		{"half of them on each of two ranks", split + tp2, vllmlog.Options{Model: model}, ""},
		{"all of them on each of two ranks", strings.ReplaceAll(split+tp2, "1,010,224", "505,112"), vllmlog.Options{Model: model}, "needs 65536 B a token"},
	} {
		t.Run(c.why, func(t *testing.T) {
			_, warnings := read(t, []byte(c.text), c.opts)
			if got := words(warnings); c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("warnings %q: want %q", got, c.want)
			}
		})
	}
}

func TestSeveralEngines(t *testing.T) {
	core := func(rank, n int) string {
		return fmt.Sprintf("(EngineCore_DP%d pid=%d) INFO 07-09 03:15:05 [v1/engine/core.py:359] Iteration(%d): 0 context requests, 0 context tokens, 2 generation requests, 2 generation tokens, iteration elapsed time: 4.15 ms\n", rank, 100+rank, n)
	}
	text := core(0, 1) + core(1, 1) + core(0, 1) + core(0, 2) + core(1, 2) + core(1, 2) +
		strings.Replace(core(0, 3), "2 generation requests, 2 generation tokens", "0 generation requests, 0 generation tokens", 1) +
		strings.Replace(core(1, 3), " ms", " ms (dummy)", 1) +
		strings.Replace(core(1, 4), "4.15 ms", "0.00 ms", 1)
	p, warnings := read(t, []byte(text), vllmlog.Options{})
	var sources []string
	for _, point := range p.Points {
		sources = append(sources, string(point.Extra["source"])+string(point.Extra["iteration"]))
	}
	if d := cmp.Diff([]string{`"EngineCore_DP0"1`, `"EngineCore_DP1"1`, `"EngineCore_DP0"2`, `"EngineCore_DP1"2`}, sources); d != "" {
		t.Error(d)
	}
	for _, want := range []string{"2 lines of steps stand twice", "1 steps without tokens", "1 steps without requests of their own", "1 steps with impossible"} {
		if !strings.Contains(words(warnings), want) {
			t.Errorf("warnings %v: want %q", warnings, want)
		}
	}
}

func TestSeveralServers(t *testing.T) {
	first := string(fixture(t, startup)) + iterationLine + ", CPU KV cache usage: 10.0%\n"
	second := strings.NewReplacer("524,288 tokens", "65,536 tokens", "256.00x", "64.00x", "'max_model_len': 2048", "'max_model_len': 1024", "max_seq_len=2048", "max_seq_len=1024", "2,048 tokens", "1,024 tokens", "max model len 2048", "max model len 1024").Replace(first)
	second = strings.Replace(second, "53.22 ms", "53.23 ms", 1)
	p, warnings := read(t, []byte(first+second), vllmlog.Options{})
	for _, want := range []string{"2 servers one after the other", "max_model_len 1024, one before it 2048"} {
		if !strings.Contains(words(warnings), want) {
			t.Errorf("warnings %v: want %q", warnings, want)
		}
	}
	if p.Header.Deploy.MaxModelLen != 2048 {
		t.Errorf("header %+v", p.Header.Deploy)
	}
	var tokens []int64
	for _, point := range p.Points {
		if point.Memory != nil {
			tokens = append(tokens, point.Memory.Tokens)
		} else {
			tokens = append(tokens, point.Step.Sums().KVTokens)
		}
	}
	if d := cmp.Diff([]int64{524288, 65536, 52429, 6554}, tokens); d != "" {
		t.Error(d)
	}
}

func TestBounds(t *testing.T) {
	text := iterationLine + "\n" + strings.Repeat("x", 300) + iterationLine + "\n" + strings.Replace(iterationLine, "332", "333", 1)
	p, warnings := read(t, []byte(text), vllmlog.Options{MaxSteps: 1, MaxLine: 300})
	if len(p.Points) != 1 || !strings.Contains(words(warnings), "1 steps beyond") || !strings.Contains(words(warnings), "1 lines beyond") {
		t.Errorf("%d points, warnings %v", len(p.Points), warnings)
	}
	long := strings.Repeat("y", 200<<10) + iterationLine
	if p, _ := read(t, []byte(long), vllmlog.Options{}); len(p.Points) != 1 {
		t.Errorf("a line longer than the buffer: %d points", len(p.Points))
	}
}

func TestGzip(t *testing.T) {
	whole := fixture(t, "a-poisson.iterations.log.gz")
	p, _ := read(t, whole, vllmlog.Options{})
	if len(p.Points) != 3703 {
		t.Errorf("%d steps, want 3703", len(p.Points))
	}
	p, warnings := read(t, whole[:len(whole)/2], vllmlog.Options{})
	if len(p.Points) < 1000 || !strings.Contains(words(warnings), "cut off") {
		t.Errorf("cut off: %d steps, warnings %v", len(p.Points), warnings)
	}
}

func TestRefusesWhatIsNoLog(t *testing.T) {
	for why, text := range map[string]string{
		"an empty file": "",
		"another text":  "hello\nworld\n",
		"a cut gzip":    "\x1f\x8b\x08\x00",
		"only periodic": "Engine 000: Avg prompt throughput: 800.0 tokens/s, Avg generation throughput: 200.0 tokens/s, Running: 12 reqs, Waiting: 3 reqs",
	} {
		_, _, err := vllmlog.Read("x.log", strings.NewReader(text), vllmlog.Options{})
		if err == nil || !strings.HasPrefix(err.Error(), "x.log: ") {
			t.Errorf("%s: error %v", why, err)
		}
	}
}

func TestSecretsStayOut(t *testing.T) {
	text := "INFO 06-01 10:15:06 [api_utils.py:286] non-default args: {'model': 'm', 'api_key': ['sk-123'], 'hf_token': 'hf_456', 'max_num_batched_tokens': 512}\n" + iterationLine
	p, _ := read(t, []byte(text), vllmlog.Options{})
	var file bytes.Buffer
	if err := p.Write("x.jsonl", &file); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(file.String(), "sk-123") || strings.Contains(file.String(), "hf_456") {
		t.Error("a key of the command line went into the profile")
	}
	if p.Header.Deploy.MaxNumBatchedTokens != 512 || p.Header.Deploy.Model != "m" {
		t.Errorf("header %+v", p.Header.Deploy)
	}
}

func TestOldArguments(t *testing.T) {
	text := "INFO 12-05 10:15:01 api_server.py:219] vLLM API server version 0.6.4\n" +
		"INFO 12-05 10:15:01 api_server.py:220] args: Namespace(host=None, api_key='sk-1', model='org/m', dtype='auto', quantization='awq_marlin', kv_cache_dtype='fp8', lora_modules=None, tensor_parallel_size=2, block_size=16, gpu_memory_utilization=0.85, ssl=<function f at 0x1>, max_num_batched_tokens=None)\n" +
		"INFO 12-05 10:15:02 llm_engine.py:249] Initializing an LLM engine (v0.6.4.post1) with config: model='org/m', dtype=torch.float16, max_seq_len=8192, decoding_config=DecodingConfig(guided_decoding_backend='outlines'), kv_cache_dtype=fp8,\n" + iterationLine
	p, _ := read(t, []byte(text), vllmlog.Options{})
	want := deploy.Config{
		Model: "org/m", Engine: "vllm", EngineVersion: "0.6.4.post1", DType: catalog.FP16, KVCacheDType: catalog.FP8, Quantization: "awq_marlin",
		TensorParallel: 2, BlockSize: 16, GPUMemoryUtilization: 0.85, MaxModelLen: 8192,
	}
	if d := cmp.Diff(want, p.Header.Deploy); d != "" {
		t.Error(d)
	}
}

func TestDetect(t *testing.T) {
	packed := fixture(t, "a-poisson.iterations.log.gz")
	for _, c := range []struct {
		why  string
		head []byte
		want bool
	}{
		{"steps", fixture(t, iterations), true},
		{"steps, compressed and cut", packed[:2000], true},
		{"start-up", fixture(t, startup), true},
		{"a refusal", fixture(t, "vllm-startup-refused.synthetic.log"), true},
		{"an old start-up", fixture(t, "vllm-startup-1-v0-2024-12.synthetic.log"), true},
		{"metrics", []byte("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1\n"), false},
		{"JSON that quotes a log", []byte(`{"log":"` + iterationLine + `"}`), false},
		{"another log", []byte("[2026-06-01 10:00:00] Load weight end. avail mem=1.00 GB\n"), false},
		{"nothing", nil, false},
	} {
		if got := vllmlog.Detect(c.head); got != c.want {
			t.Errorf("%s: %v", c.why, got)
		}
	}
}

func ExampleRead() {
	log := `(EngineCore pid=77) INFO 06-01 10:15:20 [kv_cache_utils.py:1300] GPU KV cache size: 441,712 tokens
(APIServer pid=70) INFO 06-01 10:16:14 [loggers.py:199] Engine 000: Iteration(7): 1 context requests, 395 context tokens, 2 generation requests, 2 generation tokens, iteration elapsed time: 53.22 ms, GPU KV cache usage: 25.0%
`
	p, _, err := vllmlog.Read("server.log", strings.NewReader(log), vllmlog.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, point := range p.Points {
		switch point.Kind {
		case profile.KindMemory:
			fmt.Println(point.Memory.Part, point.Memory.Tokens, "tokens")
		case profile.KindStep:
			totals := point.Step.Sums()
			fmt.Println(point.Step.Mode, totals.PrefillTokens, "+", totals.DecodeTokens, "tokens in", point.Samples[0], "s, cache", totals.KVTokens)
		}
	}
	// Output:
	// kv-cache 441712 tokens
	// mixed 395 + 2 tokens in 0.05322 s, cache 110428
}

func FuzzRead(f *testing.F) {
	names, err := filepath.Glob("testdata/*.log*")
	if err != nil || len(names) == 0 {
		f.Fatal("no fixtures", err)
	}
	for _, name := range names {
		text := fixture(f, filepath.Base(name))
		f.Add(text[:min(len(text), 6000)])
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte(iterationLine)); err != nil {
		f.Fatal(err)
	}
	f.Add(packed.Bytes())
	f.Add([]byte("non-default args: {'a': [1, (2, {'b': 'c'})], 'model': \"x\", 'gpu_memory_utilization': 0.9}\nModel loading took 1 GiB"))
	f.Add([]byte("# GPU blocks: 9223372036854775807\nMaximum concurrency for 9,223,372,036,854,775,807 tokens per request: 99999999999999999999.99x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		vllmlog.Detect(text)
		p, _, err := vllmlog.Read("x", bytes.NewReader(text), vllmlog.Options{Model: &catalog.Model{Name: "m", NumLayers: 1, NumKVHeads: 1, HeadDim: 1}})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "x: ") {
				t.Errorf("error does not name the file: %v", err)
			}
			return
		}
		if len(p.Points) == 0 {
			t.Error("neither points nor an error")
		}
		var file bytes.Buffer
		if err := p.Write("x.jsonl", &file); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
	})
}

func FuzzParseLine(f *testing.F) {
	f.Add(iterationLine + ", CPU KV cache usage: 0.1%")
	f.Add("Engine 000: Avg prompt throughput: 800.0 tokens/s, Avg generation throughput: 200.0 tokens/s, Running: 12 reqs, Waiting: 3 reqs, GPU KV cache usage: 41.4%")
	f.Fuzz(func(t *testing.T, line string) {
		if it, ok := vllmlog.ParseIteration(line); ok && (it.Seconds < 0 || it.KVUsage < 0 || it.KVUsage > 1 || it.Totals.Tokens() < 0) {
			t.Errorf("%+v", it)
		}
		if p, ok := vllmlog.ParsePeriodic(line); ok && (p.Running < 0 || p.PromptRate < 0) {
			t.Errorf("%+v", p)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	text := bytes.Repeat(fixture(b, iterations), 100)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := vllmlog.Read("x", bytes.NewReader(text), vllmlog.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestFurtherWordings(t *testing.T) {
	for _, c := range []struct {
		why, text string
		want      map[string]profile.Memory
	}{
		{
			"V0 of November 2024", "INFO 11-20 10:15:11 worker.py:232] Memory profiling results: total_gpu_memory=79.10GiB initial_memory_usage=15.20GiB peak_torch_memory=16.22GiB memory_usage_post_profile=15.90GiB non_torch_memory=0.79GiB kv_cache_size=54.18GiB gpu_memory_utilization=0.90",
			map[string]profile.Memory{
				"total":     {Part: "total", Bytes: 84932978278, Resolution: 10737418},
				"non-torch": {Part: "non-torch", Bytes: 848256041, Resolution: 10737418},
				"kv-cache":  {Part: "kv-cache", Bytes: 58175332024, Resolution: 10737418},
			},
		},
		{
			"workers named by rank", "(VllmWorker rank=0 pid=271) INFO 06-16 10:15:20 [gpu_worker.py:217] Available KV cache memory: 2.00 GiB\n(VllmWorker rank=1 pid=272) INFO 06-16 10:15:20 [gpu_worker.py:217] Available KV cache memory: 1.00 GiB",
			map[string]profile.Memory{
				"VllmWorker rank=0 kv-cache": {Part: "kv-cache", Bytes: 2 << 30, Resolution: 10737418, Worker: "VllmWorker rank=0"},
				"VllmWorker rank=1 kv-cache": {Part: "kv-cache", Bytes: 1 << 30, Resolution: 10737418, Worker: "VllmWorker rank=1"},
			},
		},
		{
			"workers of one name", "(VllmWorkerProcess pid=271) INFO 06-16 10:15:20 worker.py:217] Loading model weights took 2.00 GB\n(VllmWorkerProcess pid=272) INFO 06-16 10:15:20 worker.py:217] Loading model weights took 1.00 GB",
			map[string]profile.Memory{
				"VllmWorkerProcess pid=271 weights": {Part: "weights", Bytes: 2 << 30, Resolution: 10737418, Worker: "VllmWorkerProcess pid=271"},
				"VllmWorkerProcess pid=272 weights": {Part: "weights", Bytes: 1 << 30, Resolution: 10737418, Worker: "VllmWorkerProcess pid=272"},
			},
		},
		{
			"a CPU that sets its cache itself", "(Worker pid=1) INFO 06-13 20:03:57 [cpu_worker.py:235] Auto set (1.5/18.0) GiB for KV cache on node 0, with 5.5 GiB requested memory for the worker. 4.0 GiB memory was consumed by non-kv usages.\n" +
				"(EngineCore pid=2) INFO 06-13 20:03:57 [kv_cache_utils.py:2078] GPU KV cache size: 55,424 tokens",
			map[string]profile.Memory{
				"kv-cache": {Part: "kv-cache", Bytes: 3 << 29, Resolution: 107374182, Tokens: 55424},
				"budget":   {Part: "budget", Bytes: 11 << 29, Resolution: 107374182},
				"consumed": {Part: "consumed", Bytes: 4 << 30, Resolution: 107374182},
			},
		},
		{
			"what is below zero is no size", "(Worker_TP0 pid=1) INFO 10-23 15:15:20 [gpu_worker.py:391] Actual usage is 2.00 GiB for weight, 1.00 GiB for peak activation, -0.05 GiB for non-torch memory, and -0.62 GiB for CUDAGraph memory.",
			map[string]profile.Memory{
				"weights":    {Part: "weights", Bytes: 2 << 30, Resolution: 10737418},
				"activation": {Part: "activation", Bytes: 1 << 30, Resolution: 10737418},
			},
		},
		{
			"small sizes in MiB", "INFO 06-16 10:15:20 [gpu_model_runner.py:1391] Model loading took 850.25 MiB and 3.1 seconds\nINFO 06-16 10:15:20 [gpu_worker.py:217] Available KV cache memory: 512.0 MiB\n" +
				"INFO 06-16 10:15:45 [gpu_model_runner.py:1933] Graph capturing finished in 2 secs, took 64 MiB",
			map[string]profile.Memory{
				"weights":  {Part: "weights", Bytes: 891551744, Resolution: 10486},
				"kv-cache": {Part: "kv-cache", Bytes: 512 << 20, Resolution: 104858},
				"graphs":   {Part: "graphs", Bytes: 64 << 20, Resolution: 1 << 20},
			},
		},
		{
			"bytes with commas", "INFO 10-23 15:15:20 [gpu_worker.py:391] Current kv cache memory in use is 58,175,332,024 bytes.",
			map[string]profile.Memory{"kv-cache": {Part: "kv-cache", Bytes: 58175332024}},
		},
		{
			"graphs expected only", "(EngineCore pid=77) INFO 06-01 10:15:18 [gpu_worker.py:350] Estimated CUDA graph memory: 0.50 GiB total",
			map[string]profile.Memory{"graphs": {Part: "graphs", Bytes: 1 << 29, Resolution: 10737418}},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			p, warnings := read(t, []byte(c.text), vllmlog.Options{})
			if d := cmp.Diff(c.want, parts(p)); d != "" || len(warnings) > 0 {
				t.Error(d, warnings)
			}
		})
	}
}
