package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/internal/tinymodel"
)

// The shape of every request, in tokens.
const (
	inputTokens  = 32
	outputTokens = 128
)

// model is the name under which the server and the tokenizer are known.
const model = "llmprof/tiny"

// load is one run to be done.
type load struct {
	level

	url       string // of the server
	tokenizer string // folder
	dir       string // for the results
}

// client is how a load generator is told what to do, and how its answer is
// read.
type client struct {
	name string
	help []string // arguments that print its help
	// config is written to the file config.yaml of the run's folder.
	config func(load) string
	args   func(load) []string
	report report
}

// report says where a client has left its result.
type report struct {
	file                 string  // in the run's folder
	mean, p99, completed string  // paths within the JSON document
	unit                 float64 // of the times, in ms
}

// clients lists ours and its peers.
func clients() []client {
	return []client{
		{
			name: "llmprof", help: []string{"bench", "--help"}, args: llmprofArgs,
			report: report{"stdout", "whole/ttft_ms/mean", "whole/ttft_ms/p99", "whole/completed", 1},
		},
		{
			name: "guidellm", help: []string{"run", "--help"}, args: guidellmArgs,
			report: report{
				"result.json", "benchmarks/0/metrics/time_to_first_token_ms/successful/mean",
				"benchmarks/0/metrics/time_to_first_token_ms/successful/percentiles/p99",
				"benchmarks/0/metrics/request_totals/successful", 1,
			},
		},
		{
			name: "aiperf", help: []string{"profile", "--help"}, args: aiperfArgs,
			report: report{"profile_export_aiperf.json", "time_to_first_token/avg", "time_to_first_token/p99", "request_count/avg", 1},
		},
		{
			name: "inference-perf", help: []string{"--help"}, config: inferencePerfConfig, args: inferencePerfArgs,
			report: report{
				"summary_lifecycle_metrics.json", "successes/latency/time_to_first_token/mean",
				"successes/latency/time_to_first_token/p99", "successes/count", 1000,
			},
		},
		{
			name: "vllm", help: []string{"bench", "serve", "--help"}, args: vllmArgs,
			report: report{"result.json", "mean_ttft_ms", "p99_ttft_ms", "completed", 1},
		},
	}
}

func llmprofArgs(l load) []string {
	return []string{
		"bench", l.url, "--json",
		"--max-concurrency", strconv.Itoa(l.clients), "--num-prompts", strconv.Itoa(l.requests),
		"--random-input-len", strconv.Itoa(inputTokens), "--random-output-len", strconv.Itoa(outputTokens),
	}
}

func guidellmArgs(l load) []string {
	return []string{
		"run", "--disable-console-interactive",
		"--backend", "kind=openai_http,target=" + l.url + ",model=" + model + ",request_format=/v1/completions",
		"--profile", fmt.Sprint("kind=concurrent,streams=", l.clients),
		"--constraint", fmt.Sprint("kind=max_requests,count=", l.requests),
		"--tokenizer", "kind=huggingface_auto,model=" + l.tokenizer,
		"--data", fmt.Sprintf("kind=synthetic_text,prompt_tokens=%d,output_tokens=%d", inputTokens, outputTokens),
		"--output", "kind=json,path=" + filepath.Join(l.dir, "result.json"),
	}
}

func aiperfArgs(l load) []string {
	return []string{
		"profile", "--model", model, "--url", l.url, "--endpoint-type", "completions", "--streaming",
		"--tokenizer", model, // without a hub it takes no folder
		"--concurrency", strconv.Itoa(l.clients), "--request-count", strconv.Itoa(l.requests),
		"--synthetic-input-tokens-mean", strconv.Itoa(inputTokens), "--synthetic-input-tokens-stddev", "0",
		"--output-tokens-mean", strconv.Itoa(outputTokens), "--output-tokens-stddev", "0",
		"--extra-inputs", "ignore_eos:true", "--use-legacy-max-tokens",
		"--artifact-dir", l.dir, "--ui", "none",
	}
}

func inferencePerfConfig(l load) string {
	lengths := func(n int) string {
		return fmt.Sprintf("{min: %d, max: %[1]d, mean: %[1]d, std_dev: 0, total_count: %d}", n, l.requests)
	}
	return fmt.Sprintf(`api: {type: completion, streaming: true}
data: {type: random, input_distribution: %s, output_distribution: %s}
load: {type: concurrent, stages: [{num_requests: %d, concurrency_level: %d}]}
server: {type: vllm, model_name: %s, base_url: %s, ignore_eos: true}
tokenizer: {pretrained_model_name_or_path: %s}
storage: {local_storage: {path: %s}}
`, lengths(inputTokens), lengths(outputTokens), l.requests, l.clients, model, l.url, l.tokenizer, l.dir)
}

func inferencePerfArgs(l load) []string { return []string{"-c", filepath.Join(l.dir, "config.yaml")} }

func vllmArgs(l load) []string {
	return []string{
		"bench", "serve", "--backend", "openai", "--base-url", l.url, "--model", model, "--tokenizer", l.tokenizer,
		"--dataset-name", "random", "--ignore-eos", "--disable-tqdm",
		"--random-input-len", strconv.Itoa(inputTokens), "--random-output-len", strconv.Itoa(outputTokens),
		"--max-concurrency", strconv.Itoa(l.clients), "--num-prompts", strconv.Itoa(l.requests),
		"--percentile-metrics", "ttft", "--metric-percentiles", "99",
		"--save-result", "--result-filename", filepath.Join(l.dir, "result.json"),
	}
}

// writeTokenizer writes a small tokenizer the way a hub's cache below dir would
// hold it, so that no hub is asked.
func writeTokenizer(dir string) error {
	refs := filepath.Join(tokenizerCache(dir), "refs")
	if err := os.MkdirAll(refs, 0o755); err != nil {
		return fmt.Errorf("make a folder for the tokenizer: %w", err)
	}
	if err := os.WriteFile(filepath.Join(refs, "main"), []byte("tiny"), 0o600); err != nil {
		return fmt.Errorf("write the tokenizer: %w", err)
	}
	return tinymodel.WriteFolder(tokenizerFolder(dir), tinymodel.Tiny())
}

func tokenizerCache(dir string) string {
	return filepath.Join(dir, "hf", "hub", "models--"+strings.ReplaceAll(model, "/", "--"))
}

func tokenizerFolder(dir string) string {
	return filepath.Join(tokenizerCache(dir), "snapshots", "tiny")
}

// ttft is a summary of the times to the first token.
type ttft struct {
	mean, p99 float64 // ms
	requests  int     // that ended well
}

// read takes the summary from the folder of a run.
func (r report) read(dir string) (ttft, error) {
	text, err := os.ReadFile(filepath.Join(dir, r.file))
	if err != nil {
		return ttft{}, fmt.Errorf("read the result: %w", err)
	}
	var document any
	if err := json.Unmarshal(text, &document); err != nil {
		return ttft{}, fmt.Errorf("read the result %s: %w", r.file, err)
	}
	var values [3]float64
	for i, path := range []string{r.mean, r.p99, r.completed} {
		if values[i], err = number(document, path); err != nil {
			return ttft{}, fmt.Errorf("read the result %s: %w", r.file, err)
		}
	}
	return ttft{values[0] * r.unit, values[1] * r.unit, int(values[2])}, nil
}

// number finds a number by the names and indices that lead to it.
func number(document any, path string) (float64, error) {
	at := document
	for _, step := range strings.Split(path, "/") {
		switch inner := at.(type) {
		case map[string]any:
			at = inner[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(inner) {
				return 0, fmt.Errorf("%s: no element %s", path, step)
			}
			at = inner[i]
		default:
			return 0, fmt.Errorf("%s: nothing holds %s", path, step)
		}
	}
	value, ok := at.(float64)
	if !ok {
		return 0, fmt.Errorf("%s: no number", path)
	}
	return value, nil
}
