package campaign_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/campaign"
)

// entry is a right entry whose lines a test changes: "" takes a line out.
func entry(changes map[string]string) string {
	var b strings.Builder
	b.WriteString("models:\n")
	for i, line := range []string{"model_id: a/b", "container_name: c", "input_lengths: [1]", "output_lengths: [1]", "batch_sizes: [1]"} {
		key, _, _ := strings.Cut(line, ":")
		if change, ok := changes[key]; ok {
			line = change
		}
		switch {
		case line == "" && i > 0:
			continue
		case i == 0 && line == "":
			line = "dtype: auto"
		}
		lead := "    "
		if i == 0 {
			lead = "  - "
		}
		b.WriteString(lead + line + "\n")
	}
	if more, ok := changes["+"]; ok {
		b.WriteString("    " + more + "\n")
	}
	return b.String()
}

func more(line string) string { return entry(map[string]string{"+": line}) }

// faultCases are files that are wrong: each with the place, a part of the text
// and of the hint of its one fault.
func faultCases() []struct{ why, text, at, says, hint string } {
	with := func(key, line string) string { return entry(map[string]string{key: line}) }
	return []struct{ why, text, at, says, hint string }{
		{"misspelt field", with("input_lengths", "input_lengts: [1]"), "4:5", `unknown field "input_lengts"`, "input_lengths"},
		{"singular field", with("batch_sizes", "batch_size: [1]"), "6:5", `unknown field "batch_size"`, "batch_sizes"},
		{"field of nobody", more("zzz: 1"), "7:5", `unknown field "zzz"`, "nearest known: "},
		{"empty list", with("input_lengths", "input_lengths: []"), "4:20", "input_lengths: the list is empty", ""},
		{"word in a list", with("input_lengths", "input_lengths: [x]"), "4:21", `input_lengths: want a whole number, got the text "x"`, ""},
		{"second word in a list", with("input_lengths", "input_lengths: [1, 2.5]"), "4:24", "input_lengths: want a whole number, got the number 2.5", ""},
		{"number for a list", with("batch_sizes", "batch_sizes: 8"), "6:18", "batch_sizes: want a list, got the number 8", "write [8]"},
		{"list in a list", with("batch_sizes", "batch_sizes: [[8]]"), "6:19", "want a whole number, got a list", ""},
		{"null in a list", with("batch_sizes", "batch_sizes: [~]"), "6:19", "want a whole number, got nothing", ""},
		{"zero length", with("output_lengths", "output_lengths: [0]"), "5:22", "output_lengths: 0 is out of range", ""},
		{"negative batch", with("batch_sizes", "batch_sizes: [1, -2]"), "6:22", "batch_sizes: -2 is out of range", ""},
		{"huge batch", with("batch_sizes", "batch_sizes: [99999999]"), "6:19", "out of range: want 1 to 1048576", ""},
		{"beyond an int", with("batch_sizes", "batch_sizes: [99999999999999999999999]"), "6:19", "want a whole number", ""},
		{"value twice", with("batch_sizes", "batch_sizes: [1, 8, 1]"), "6:25", "batch_sizes: 1 stands twice", ""},
		{"number as a name", with("container_name", "container_name: 12"), "3:21", "want a text, got the number 12", "quotes"},
		{"mapping as a name", with("model_id", "model_id: {a: 1}"), "2:15", "want a text, got a mapping", ""},
		{"an empty text of several lines", with("container_name", "container_name: |"), "3:21", "container_name: it is empty", ""},
		{"empty name", with("container_name", `container_name: ""`), "3:21", "container_name: it is empty", ""},
		{"image as a container", with("container_name", "container_name: vllm/vllm-openai"), "3:21", "not the name of a container", "place"},
		{"option as a container", with("container_name", "container_name: --rm"), "3:21", "names nothing", ""},
		{"escape in a name", with("model_id", `model_id: "a\e[31m"`), "2:15", "cannot be printed", ""},
		{"no such place", with("container_name", "place: nowhere"), "3:12", `"nowhere" is no place`, "docker:NAME"},
		{"place without name", with("container_name", "place: 'ssh:'"), "3:12", "names nothing", "a place is"},
		{"no model", with("model_id", ""), "2:5", "models[0]: model_id is missing", ""},
		{"no container", with("container_name", ""), "2:5", "models[0]: container_name is missing", "place: local"},
		{"no inputs", with("input_lengths", ""), "2:5", "models[0]: input_lengths is missing", ""},
		{"no outputs", with("output_lengths", ""), "2:5", "models[0]: output_lengths is missing", ""},
		{"no batches", with("batch_sizes", ""), "2:5", "models[0]: batch_sizes is missing", ""},
		{"inputs are null", with("input_lengths", "input_lengths:"), "2:5", "models[0]: input_lengths is missing", ""},
		{"both names", more("hf_model_id: a/c"), "7:18", "give one of them", ""},
		{"key twice", more("batch_sizes: [2]"), "7:5", "batch_sizes stands twice", ""},
		{"TP of nothing", more("tensor_parallel_size: 0"), "7:27", "tensor_parallel_size: 0 is out of range", ""},
		{"TP as a word", more("tensor_parallel_size: two"), "7:27", "want a whole number", ""},
		{"utilization in percent", more("gpu_memory_utilization: 90"), "7:29", "90 is out of range: want more than 0 and at most 1", ""},
		{"utilization not a number", more("gpu_memory_utilization: .nan"), "7:29", "want a number, got the number .nan", ""},
		{"parameters infinite", more("model_params: .inf"), "7:19", "want a number", ""},
		{"parameters as a word", more("model_params: 7B"), "7:19", `want a number, got the text "7B"`, ""},
		{"parameters negative", more("model_params: -1"), "7:19", "out of range", ""},
		{"a yes for true", more("trust_remote_code: yes"), "7:24", `want true or false, got the text "yes"`, "write true"},
		{"an off for false", more("trust_remote_code: off"), "7:24", `want true or false, got the text "off"`, "write false"},
		{"a number for true", more("weights: 1"), "7:14", "want true or false", ""},
		{"unknown format", more("dtype: fp12"), "7:12", `unknown format "fp12"`, "bfloat16"},
		{"unknown format of the cache", more("kv_cache_dtype: fp8_e5m3"), "7:21", `kv_cache_dtype: unknown format "fp8_e5m3"`, "nearest known: fp8_e5m2; known formats: auto, float16"},
		{"a cache wider than any", more("kv_cache_dtype: float32"), "7:21", `unknown format "float32"`, "bfloat16"},
		{"no such stages", more("pipeline_parallel_size: 9999"), "7:29", "out of range", ""},
		{"a step of less than nothing", more("max_num_batched_tokens: -1"), "7:29", "out of range", ""},
		{"threads as a word", more("threads: many"), "7:14", "want a whole number", ""},
		{"a seed of less than nothing", more("seed: -1"), "7:11", "out of range: want 0 to 4294967295", ""},
		{"graphs and none", more("cuda_graphs: true\n    enforce_eager: true"), "8:20", "cuda_graphs and enforce_eager: give one of them", ""},
		{"too few devices for stages", more("gpu_ids: 0,1\n    pipeline_parallel_size: 4"), "7:14", "2 devices are too few for tensor_parallel_size 1 with pipeline_parallel_size 4", ""},
		{"too short a model", more("max_model_len: 1"), "7:20", "input 1 and output 1 make 2 tokens", ""},
		{"too few devices", entry(map[string]string{"+": `gpu_ids: "0,1"`, "batch_sizes": "batch_sizes: [1]\n    tensor_parallel_size: 4"}), "8:14", "2 devices are too few for tensor_parallel_size 4", ""},
		{"devices of a wrong kind", more("gpu_ids: true"), "7:14", "want devices", ""},
		{"no iterations", more("num_iters: 0"), "7:16", "out of range", ""},
		{"more KV heads than heads", entry(map[string]string{"+": "num_kv_heads: 9", "batch_sizes": "batch_sizes: [1]\n    num_heads: 8"}), "8:19", "more than num_heads 8", ""},
		{"a secret", more("engine_env: {HF_TOKEN: abc}"), "7:17", "HF_TOKEN holds a secret", "environment"},
		{"a secret as an argument", more("engine_args: [--hf-token, mysecretvalue123]"), "7:31", "engine_args: --hf-token holds a secret", "environment"},
		{"a short secret as an argument", more("engine_args: [--api-key, abc]"), "7:30", "engine_args: --api-key holds a secret", "environment"},
		{"a secret in an argument", more("engine_args: [-v, --api-key=mysecretvalue123]"), "7:23", "engine_args: --api-key holds a secret", "environment"},
		{"a secret in one word", more("engine_args: ['--password mysecretvalue123']"), "7:19", "engine_args: --password holds a secret", "environment"},
		{"a secret by its looks", more("engine_args: [hf_abcdefghijklmnopqrstuvwxyz]"), "7:19", "engine_args: word 1 looks like a secret", "environment"},
		{"a secret in a variable of another name", more("engine_env: {A: hf_abcdefghijklmnopqrstuvwxyz}"), "7:17", "engine_env: A holds what looks like a secret", "environment"},
		{"environment as a list", more("engine_env: [A=1]"), "7:17", "want a mapping, got a list", ""},
		{"variable of a wrong kind", more("engine_env: {A: [1]}"), "7:21", "want a text, got a list", ""},
		{"arguments as a text", more("engine_args: --x"), "7:18", "want a list, got the text", "write [--x]"},
		{"entry is a text", "models:\n  - abc\n", "2:5", `models[0]: want a mapping, got the text "abc"`, ""},
		{"models is a mapping", "models:\n  model_id: a\n", "2:3", "models: want a list of at least one model, got a mapping", ""},
		{"no models", "models: []\n", "1:9", "got an empty list", ""},
		{"models is null", "models:\n", "", "got nothing", ""},
		{"another top level", "modells: []\n", "1:1", `unknown field "modells"`, "nearest known: models; a file has models"},
		{"a list at the top", "- model_id: a\n", "1:1", "want a mapping with models, got a list", ""},
		{"only defaults", "defaults: {dtype: auto}\n", "1:1", "there is no field models", ""},
		{"models twice", entry(nil) + "models: []\n", "7:1", "models stands twice", ""},
		{"a model shared", "defaults: {model_id: a}\n" + entry(nil), "1:12", "model_id: each model has its own", ""},
		{"a wrong default, told once", "defaults: {num_iters: 0}\n" + entry(nil) + strings.Replace(strings.TrimPrefix(entry(nil), "models:\n"), "a/b", "a/c", 1), "1:23", "num_iters: 0 is out of range", ""},
		{"list not closed", "models:\n  - model_id: [\n", "2:15", "not valid YAML in line 2", ""},
		{"wrong indent", "models:\n  - a: 1\n b: 2\n", "3:2", "not valid YAML in line 3", ""},
		{"quote not closed", "models: 'abc\n", "1:9", "not valid YAML in line 1", ""},
		{"a tab", "models:\n\t- a: 1\n", "2:1", "not valid YAML in line 2", ""},
		{"second document", entry(nil) + "---\n" + entry(nil), "8:1", "a second document", ""},
		{"an alias of nothing", with("batch_sizes", "batch_sizes: *b"), "6:18", "there is no anchor &b above", ""},
		{"a merge of nothing", more("<<: *b"), "7:9", "there is no anchor &b above", ""},
		{"an alias of what it stands in", with("batch_sizes", "batch_sizes: &b [*b]"), "6:22", "there is no anchor &b above", ""},
		{"a merge of a list of numbers", more("<<: [1]"), "7:10", "<<: want a mapping, got the number 1", ""},
		{"a merge of a text", more("<<: x"), "7:9", "<<: want a mapping or a list of them, got the text", ""},
		{"two merges", more("<<: {dtype: auto}\n    <<: {seed: 1}"), "8:5", "<< stands twice", "merge a list"},
		{"aliases that multiply", "x-a: &a [1, 1, 1, 1, 1, 1, 1, 1]\nx-b: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nx-c: &c [*b, *b, *b, *b, *b, *b, *b, *b]\nx-d: &d [*c, *c, *c, *c, *c, *c, *c, *c]\nx-e: &e [*d, *d, *d, *d, *d, *d, *d, *d]\nx-f: [*e, *e, *e, *e, *e, *e, *e, *e]\n" + entry(nil), "6:11", "more than 100000 values", "defaults"},
		{"a key that is an alias of a list", "x-a: &a [0]\nmodels: [{*a : 1}]\n", "2:11", "a key is a text", ""},
		{"a wrong value that is shared stands at the anchor", "x-a: &a [0]\n" + with("batch_sizes", "batch_sizes: *a"), "1:10", "batch_sizes: 0 is out of range", ""},
		{"tag", more("num_iters: !!int 3"), "7:16", "tags are not supported", "quotes"},
		{"octal by accident", with("batch_sizes", "batch_sizes: [1,024]"), "6:21", "024 begins with a zero, which makes it octal", "write 24"},
		{"octal with a sign", with("batch_sizes", "batch_sizes: [+024]"), "6:19", "+024 begins with a zero, which makes it octal", "write 24"},
		{"a parameter with a zero in front", more("num_layers: 032"), "7:17", "octal", "write 32"},
		{"a device twice", more("gpu_ids: [0, 0]"), "7:14", `gpu_ids: "0" stands twice`, ""},
		{"a misspelt key without effect", more("num_expert: 8"), "7:5", `unknown field "num_expert"`, "nearest known: num_experts"},
		{"a required field in capitals is not missing too", with("batch_sizes", "Batch_Sizes: [1]"), "6:5", `unknown field "Batch_Sizes"`, "nearest known: batch_sizes"},
		{"nor one with a letter less at its front", with("output_lengths", "utput_lengths: [1]"), "5:5", `unknown field "utput_lengths"`, "nearest known: output_lengths"},
		{"the same model twice", entry(nil) + strings.TrimPrefix(entry(nil), "models:\n"), "7:5", "models[1] repeats 1 cell of models[0] in line 2, the first with input 1, output 1, batch size 1", "measured once"},
		{"column in characters", more("notes: é\n    dtype: ü"), "8:12", `unknown format "ü"`, ""},
		{"empty file", "", "", "the file is empty", ""},
		{"only comments", "# nothing\n", "", "the file is empty", ""},
		{"binary", "models:\x00", "", "not UTF-8 text", ""},
		{"too long", strings.Repeat("#\n", 10_001), "", "more than 10000 lines", ""},
		{"too deep", "models: " + strings.Repeat("[", 40), "", "nested deeper", ""},
		{"too many cells", strings.NewReplacer("input_lengths: [1]", "input_lengths: "+counted(400), "output_lengths: [1]", "output_lengths: "+counted(400)).Replace(entry(nil)), "2:5", "more than 100000 cells", "cut"},
	}
}

// counted is a list of the numbers 1 to n.
func counted(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ",%d", i+1)
	}
	return "[" + b.String()[1:] + "]"
}

func TestFaults(t *testing.T) {
	for _, c := range faultCases() {
		t.Run(c.why, func(t *testing.T) {
			file, _, err := campaign.Parse("x.yaml", []byte(c.text))
			var bad *campaign.FileError
			if file != nil || !errors.As(err, &bad) {
				t.Fatalf("%s: got %v, %v", c.text, file, err)
			}
			if len(bad.Faults) != 1 || bad.ExitCode() != 2 {
				t.Fatalf("want one fault and exit code 2, got code %d:\n%v", bad.ExitCode(), err)
			}
			fault := bad.Faults[0]
			first, _, _ := strings.Cut(err.Error(), "\n")
			if c.at != "" && !strings.HasPrefix(first, "x.yaml:"+c.at+": ") || !strings.Contains(first, c.says) || !strings.Contains(bad.Hint(), c.hint) {
				t.Errorf("got  %s\nhint %s\nwant x.yaml:%s: … %s …\nhint … %s …", first, bad.Hint(), c.at, c.says, c.hint)
			}
			if strings.Contains(c.says, "secret") {
				if shown := err.Error() + bad.Hint(); fault.Excerpt != "" || strings.Contains(shown, "mysecret") || strings.Contains(shown, "hf_abc") {
					t.Errorf("the error shows the secret: %s", shown)
				}
			} else if c.at != "" {
				checkExcerpt(t, fault, c.text)
			}
		})
	}
}

// checkExcerpt looks whether the caret stands under the place.
func checkExcerpt(t *testing.T, fault *campaign.LineError, text string) {
	t.Helper()
	source, caret, ok := strings.Cut(fault.Excerpt, "\n")
	line := []rune(strings.ReplaceAll(strings.Split(text, "\n")[fault.Line-1], "\t", " "))
	_, shown, _ := strings.Cut(source, " | ")
	if !ok || !strings.HasPrefix(string(line), shown) && len(line) < 80 {
		t.Fatalf("excerpt %q of line %q", fault.Excerpt, string(line))
	}
	if at := len([]rune(caret)) - len("        ") - 1; len(line) < 80 && at != fault.Column-1 {
		t.Errorf("the caret stands under column %d, want %d:\n%s", at+1, fault.Column, fault.Excerpt)
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	text := `models:
  - model_id: a/b
    container_name: c
    input_lengts: [256]
    output_lengths: [0, x]
    batch_sizes: []
    dtype: fp12
  - hf_model_id: a/c
    place: local
    input_lengths: [1]
    output_lengths: [1]
    batch_size: [1]
extra: 1
`
	_, _, err := campaign.Parse("x.yaml", []byte(text))
	var got []string
	var bad *campaign.FileError
	if !errors.As(err, &bad) {
		t.Fatal(err)
	}
	for _, fault := range bad.Faults {
		got = append(got, fmt.Sprintf("%d:%d %s", fault.Line, fault.Column, fault.Text))
	}
	want := []string{
		`4:5 unknown field "input_lengts"`,
		`5:25 output_lengths: want a whole number, got the text "x"`,
		"6:18 batch_sizes: the list is empty: want at least one value",
		`7:12 dtype: unknown format "fp12"`,
		`12:5 unknown field "batch_size"`,
		`13:1 unknown field "extra"`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if hint := bad.Hint(); !strings.Contains(hint, "line 4: nearest known: input_lengths; ") {
		t.Errorf("hint %q", hint)
	}
	if !strings.Contains(err.Error(), "    4 |     input_lengts: [256]\n            ^") {
		t.Errorf("no line with a caret:\n%v", err)
	}
}

// TestRightFiles reads what is unusual but right.
func TestRightFiles(t *testing.T) {
	for _, c := range []struct {
		why, text string
		want      func(campaign.Cell) bool
	}{
		{"null is the default", more("dtype: null\n    quantization: ~\n    gpu_memory_utilization:"), func(c campaign.Cell) bool {
			return c.DType == "float16" && c.Quantization == "" && c.GPUMemoryUtilization == 0.9
		}},
		{"a file of llama.cpp has formats of its own", more("engine: node-llama-cpp"), func(c campaign.Cell) bool { return c.DType == "auto" }},
		{"a format that is stated stays for the engine to judge", more("engine: llama-bench\n    dtype: float16"), func(c campaign.Cell) bool { return c.DType == "float16" }},
		{"numbers in quotes", more(`model_params: "6.7e9"`), func(c campaign.Cell) bool { return c.Architecture.Params == 6.7e9 }},
		{"an exponent without a point", more("model_params: 70e9"), func(c campaign.Cell) bool { return c.Architecture.Params == 70e9 }},
		{"an int for a number", more("gpu_memory_utilization: 1"), func(c campaign.Cell) bool { return c.GPUMemoryUtilization == 1 }},
		{"lengths in Ki", entry(map[string]string{"input_lengths": "input_lengths: [4Ki]"}), func(c campaign.Cell) bool { return c.InputLen == 4096 }},
		{"spellings of one format", more("dtype: BF16"), func(c campaign.Cell) bool { return c.DType == "bfloat16" }},
		{"null beside a name", more("hf_model_id: null"), func(c campaign.Cell) bool { return c.ModelID == "a/b" }},
		{"null beside the other name", "models: [{model_id: null, hf_model_id: a, place: local, input_lengths: [1], output_lengths: [2], batch_sizes: [3]}]", func(c campaign.Cell) bool {
			return c.ModelID == "a"
		}},
		{"kinds of fp8 in the cache", more("kv_cache_dtype: FP8-E5M2"), func(c campaign.Cell) bool { return c.KVCacheDType == "fp8_e5m2" }},
		{"spellings of the cache's format", more("kv_cache_dtype: bf16"), func(c campaign.Cell) bool { return c.KVCacheDType == "bfloat16" }},
		{"whole numbers in the cache", more("kv_cache_dtype: int8"), func(c campaign.Cell) bool { return c.KVCacheDType == "int8" }},
		{"what decides beside the model", more("pipeline_parallel_size: 2\n    max_num_batched_tokens: 2Ki\n    threads: 4\n    seed: 7\n    enforce_eager: true"), func(c campaign.Cell) bool {
			return c.PipelineParallel == 2 && c.MaxNumBatchedTokens == 2048 && c.Threads == 4 && c.Seed == 7 && c.EnforceEager
		}},
		{"one stage is the default", more("pipeline_parallel_size: 1"), func(c campaign.Cell) bool { return c.PipelineParallel == 0 }},
		{"no graphs, in other words", more("cuda_graphs: false"), func(c campaign.Cell) bool { return c.EnforceEager && !c.CUDAGraphs }},
		{"graphs are the default", more("cuda_graphs: true"), func(c campaign.Cell) bool { return !c.EnforceEager && !c.CUDAGraphs }},
		{"graphs on a CPU are not", more("cuda_graphs: true\n    device: cpu"), func(c campaign.Cell) bool { return c.CUDAGraphs }},
		{"graphs in spite of the defaults", "defaults: {enforce_eager: true}\n" + more("cuda_graphs: true"), func(c campaign.Cell) bool { return !c.EnforceEager }},
		{"arguments that hold no secret", more("engine_args: [--tokenizer, a/b, --max-num-batched-tokens=8, --api-key, --seed, '1']"), func(c campaign.Cell) bool { return len(c.EngineArgs) == 6 }},
		{"auto is no format of its own", more("kv_cache_dtype: auto"), func(c campaign.Cell) bool { return c.KVCacheDType == "" }},
		{"devices in a list", more("gpu_ids: [0, 1]"), func(c campaign.Cell) bool { return strings.Join(c.GPUIDs, "+") == "0+1" }},
		{"devices without quotes", more("gpu_ids: 0,1"), func(c campaign.Cell) bool { return strings.Join(c.GPUIDs, "+") == "0+1" }},
		{"one device", more("gpu_ids: 3"), func(c campaign.Cell) bool { return strings.Join(c.GPUIDs, "+") == "3" }},
		{"arguments and variables", more("engine_args: [--max-num-seqs, '8']\n    engine_env: {A: 1, B: x}"), func(c campaign.Cell) bool {
			return len(c.EngineArgs) == 2 && c.EngineEnv["A"] == "1" && c.EngineEnv["B"] == "x"
		}},
		{"a place beside the container names the files only", more("place: podman:c"), func(c campaign.Cell) bool {
			return c.Place == "podman:c" && strings.HasPrefix(c.Name(), "c_1in_1out_bs1")
		}},
		{"defaults hold for all", "defaults:\n  num_iters: 5\n  dtype: auto\n" + more("dtype: float32"), func(c campaign.Cell) bool {
			return c.NumIters == 5 && c.DType == "float32"
		}},
		{"a container of its own beats a shared place", "defaults: {place: local}\n" + entry(nil), func(c campaign.Cell) bool { return c.Place == "docker:c" }},
		{"a place of its own beats a shared container", "defaults: {container_name: d}\n" + entry(map[string]string{"container_name": "place: local"}), func(c campaign.Cell) bool {
			return c.Place == "local" && c.ContainerName == ""
		}},
		{"a shared container will do", "defaults: {container_name: d}\n" + entry(map[string]string{"container_name": ""}), func(c campaign.Cell) bool { return c.Place == "docker:d" }},
		{"windows line ends", strings.ReplaceAll(entry(nil), "\n", "\r\n"), func(c campaign.Cell) bool { return c.BatchSize == 1 && c.ContainerName == "c" }},
		{"byte order mark", "\ufeff" + entry(nil), func(c campaign.Cell) bool { return c.BatchSize == 1 }},
		{"block sizes", more("block_sizes: [32]"), func(c campaign.Cell) bool {
			return c.BlockSize == 32 && c.Name() == "c_1in_1out_bs1_block32"
		}},
		{"flow style", "{models: [{model_id: a, place: local, input_lengths: [1], output_lengths: [2], batch_sizes: [3]}]}", func(c campaign.Cell) bool {
			return c.InputLen == 1 && c.OutputLen == 2 && c.BatchSize == 3
		}},
	} {
		t.Run(c.why, func(t *testing.T) {
			file, warnings, err := campaign.Parse("x.yaml", []byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if cells := file.Cells(); len(cells) != 1 || !c.want(cells[0]) || len(warnings) > 0 {
				t.Errorf("cells %+v, warnings %v", cells, warnings)
			}
		})
	}
}

func TestUnknownWordsOfTheEngine(t *testing.T) {
	_, warnings, err := campaign.Parse("x.yaml", []byte(more("quantization: aqw")))
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].String(), "x.yaml:7:19: quantization: \"aqw\" is passed on") {
		t.Errorf("got %v, %v", warnings, err)
	}
}

func TestOrderOfCells(t *testing.T) {
	text := `models:
  - model_id: a
    place: local
    input_lengths: [2, 1]
    output_lengths: [3, 4]
    batch_sizes: [8, 1]
    block_sizes: [16, 32]
`
	file, _, err := campaign.Parse("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range file.Cells() {
		got = append(got, fmt.Sprint(c.BlockSize, c.InputLen, c.OutputLen, c.BatchSize))
	}
	want := "16 2 3 8,16 2 3 1,16 2 4 8,16 2 4 1,16 1 3 8,16 1 3 1,16 1 4 8,16 1 4 1," +
		"32 2 3 8,32 2 3 1,32 2 4 8,32 2 4 1,32 1 3 8,32 1 3 1,32 1 4 8,32 1 4 1"
	if strings.Join(got, ",") != want {
		t.Errorf("got %s", strings.Join(got, ","))
	}
}

func TestFromFlags(t *testing.T) {
	flags := campaign.Flags{Cell: campaign.Defaults(), InputLengths: []int{256, 512, 1024}, OutputLengths: []int{256, 512}, BatchSizes: []int{1, 8, 16}}
	flags.Cell.ModelID, flags.Cell.ContainerName = "meta-llama/Llama-2-7b-hf", "vllm-inference"
	file, err := campaign.FromFlags(flags)
	if err != nil {
		t.Fatal(err)
	}
	cells := file.Cells()
	if len(cells) != 18 || cells[0].Name() != "vllm-inference_256in_256out_bs1" || cells[0].Place != "docker:vllm-inference" {
		t.Errorf("%d cells, the first %+v", len(cells), cells[0])
	}
	flags.InputLengths, flags.OutputLengths, flags.BatchSizes = nil, nil, nil
	if file, err = campaign.FromFlags(flags); err != nil || len(file.Cells()) != 1 || file.Cells()[0].Tokens() != 512 {
		t.Errorf("without lists: %v, %v", file, err)
	}
	_, err = campaign.FromFlags(campaign.Flags{Cell: campaign.Defaults(), InputLengths: []int{0}, BatchSizes: []int{2, 2}})
	var bad *campaign.FileError
	if !errors.As(err, &bad) || len(bad.Faults) != 4 || bad.ExitCode() != 2 {
		t.Fatalf("got %v", err)
	}
	for i, want := range []string{"--model is missing", "--container is missing", "--input-len: 0 is out of range: want 1 to 16777216", "--batch-size: 2 stands twice"} {
		if got := bad.Faults[i].Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestManyFaults bounds what a hostile file can cost.
func TestManyFaults(t *testing.T) {
	row := "    " + strings.Repeat("x,", 5000) + "\n"
	_, _, err := campaign.Parse("x.yaml", []byte(entry(map[string]string{"batch_sizes": "batch_sizes: [\n" + strings.Repeat(row, 20) + "    1]"})))
	var bad *campaign.FileError
	if !errors.As(err, &bad) || len(bad.Faults) != 1000 || strings.Count(err.Error(), "x.yaml:") != 40 || !strings.HasSuffix(err.Error(), "and 960 more faults") {
		t.Errorf("%d faults, %d bytes of text", len(bad.Faults), len(err.Error()))
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range faultCases() {
		f.Add([]byte(c.text))
	}
	f.Add([]byte(more("hf_model_id: null")))
	f.Add([]byte(more("model_id:\n    cuda_graphs: ~\n    enforce_eager: true")))
	f.Add([]byte(more("engine_args: [--hf-token, x]\n    seed: 1\n    threads: 2\n    kv_cache_dtype: e4m3")))
	f.Add([]byte(more("engine_env: {A: 1}\n    gpu_ids: 0,1\n    block_sizes: [1, 2]")))
	f.Add([]byte("x-a: &a {dtype: auto, seed: &s 1}\nmodels:\n  - &m {<<: [*a, {threads: *s}], model_id: a/b, place: local, input_lengths: &l [1], output_lengths: *l, batch_sizes: *l}\n  - {<<: *m, model_id: c}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, warnings, err := campaign.Parse("x", text)
		var bad *campaign.FileError
		switch {
		case err == nil && file == nil, err != nil && !errors.As(err, &bad):
			t.Fatalf("got %v, %v", file, err)
		case err != nil:
			if len(bad.Faults) == 0 || bad.Error() == "" || strings.ContainsAny(bad.Error(), "\x00\x1b") {
				t.Fatalf("%q", err.Error())
			}
			return
		}
		_ = warnings
		for _, c := range file.Cells() {
			if c.ModelID == "" || c.Place == "" || c.Tokens() < 2 || len(c.Hash()) != 16 || c.Name() == "" {
				t.Fatalf("%+v", c)
			}
		}
	})
}

// TestForms: other ways to write the same file are the same.
func TestForms(t *testing.T) {
	plain := "models:\n  - {model_id: a/b, container_name: c, input_lengths: [1, 2], output_lengths: [3], batch_sizes: [4, 5], dtype: bfloat16}\n" +
		"  - {model_id: c/d, container_name: c, input_lengths: [1, 2], output_lengths: [3], batch_sizes: [6], dtype: bfloat16}\n"
	want, _, err := campaign.Parse("x.yaml", []byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ why, text string }{
		{"a directive and a begin of the document", "%YAML 1.1\n---\n" + plain},
		{"JSON", `{"models": [{"model_id": "a/b", "container_name": "c", "input_lengths": [1, 2], "output_lengths": [3], "batch_sizes": [4, 5], "dtype": "bfloat16"},` +
			`{"model_id": "c/d", "container_name": "c", "input_lengths": [1, 2], "output_lengths": [3], "batch_sizes": [6], "dtype": "bfloat16"}]}`},
		{"an entry merged into the next, whose own fields win", "models:\n  - &a\n    model_id: a/b\n    container_name: c\n    input_lengths: [1, 2]\n    output_lengths: [3]\n    batch_sizes: [4, 5]\n    dtype: bfloat16\n" +
			"  - <<: *a\n    model_id: c/d\n    batch_sizes: [6]\n"},
		{"anchors at the top", "x-lengths: &in [1, 2]\nx-rest: &rest {container_name: c, output_lengths: [3], dtype: float32}\nx-type: &type {dtype: bfloat16}\nmodels:\n" +
			"  - {<<: [*type, *rest], model_id: a/b, input_lengths: *in, batch_sizes: [4, 5]}\n  - {model_id: c/d, input_lengths: *in, batch_sizes: [6], <<: [*type, *rest]}\n"},
		{"an anchor of a scalar", "defaults: {dtype: &t bfloat16, container_name: c}\nmodels:\n  - {model_id: a/b, input_lengths: [1, 2], output_lengths: [3], batch_sizes: [4, 5], dtype: *t}\n" +
			"  - {model_id: c/d, input_lengths: [1, 2], output_lengths: [3], batch_sizes: [6]}\n"},
		{"anchors of keys", "defaults: {&t dtype : bfloat16, container_name: c}\nmodels:\n  - {model_id: a/b, &in input_lengths : [1, 2], output_lengths: [3], batch_sizes: [4, 5]}\n" +
			"  - {model_id: c/d, *in : [1, 2], output_lengths: [3], batch_sizes: [6], *t : bfloat16}\n"},
	} {
		got, warnings, err := campaign.Parse("x.yaml", []byte(c.text))
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v, %v", c.why, err, warnings)
			continue
		}
		if diff := cmp.Diff(want.Cells(), got.Cells()); diff != "" {
			t.Errorf("%s: %s", c.why, diff)
		}
	}
}
