package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/load"
)

// targetFlags say who is asked and how.
type targetFlags struct {
	accessFlags
	model, endpoint      string
	endpointGiven        bool
	extra                string
	text, unary, running bool
	tokenChunks          bool
	low, high            int
}

func (f *targetFlags) register(cmd *cobra.Command) {
	f.accessFlags.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.model, "model", "", "model to ask for (default: the first that the server names)")
	flags.StringVar(&f.endpoint, "endpoint", string(load.Completions), "completions or chat, or their paths")
	flags.StringVar(&f.extra, "extra-body", "", "JSON object with further fields of every request")
	flags.BoolVar(&f.text, "text-prompts", false, "send words even where the server takes token ids")
	flags.BoolVar(&f.unary, "no-stream", false, "ask for whole answers: there is no TTFT then")
	flags.BoolVar(&f.running, "running-usage", false, "ask for token counts in every chunk, where chunks hold several tokens")
	flags.BoolVar(&f.tokenChunks, "token-chunks", false, "ask vLLM for the token ids of chunks, and count those without text too (random weights)")
	flags.IntVar(&f.low, "token-low", 0, "least random token id (default 100, or what the model has)")
	flags.IntVar(&f.high, "token-high", 0, "token id below which random ones stay (default 10000, or what the model has)")
	completeWith(cmd, "endpoint", "completions", "chat")
	onlyOnCommandLine(flags, "model", "endpoint")
}

// targets builds the targets of some URLs, and what their servers say of
// themselves.
func (f *targetFlags) targets(ctx context.Context, urls []string) ([]load.Target, []load.Facts, error) {
	t := load.Target{
		Model: f.model, Text: f.text, Unary: f.unary, RunningUsage: f.running, TokenChunks: f.tokenChunks,
		TokenLow: f.low, TokenHigh: f.high,
	}
	switch strings.TrimPrefix(strings.Trim(f.endpoint, "/"), "v1/") {
	case "completions", "":
		t.Endpoint = load.Completions
	case "chat", "chat/completions":
		t.Endpoint = load.Chat
	default:
		return nil, nil, usage("", "unknown --endpoint %q: want completions or chat", f.endpoint)
	}
	if err := f.reach(&t); err != nil {
		return nil, nil, err
	}
	if f.kind == "openai-chat" {
		t.Endpoint = load.Chat
	}
	if f.extra != "" {
		if err := json.Unmarshal([]byte(f.extra), &t.Extra); err != nil {
			return nil, nil, usage(`for example --extra-body '{"top_k": 1}'`, "--extra-body: want a JSON object: %w", err)
		}
	}
	var out []load.Target
	var facts []load.Facts
	for _, url := range urls {
		one := t
		one.URL = url
		if !strings.Contains(url, "://") {
			one.URL = "http://" + url
		}
		if chat := strings.HasSuffix(strings.TrimRight(one.URL, "/"), "/chat/completions"); chat && !f.endpointGiven {
			one.Endpoint = load.Chat // the address says it
		}
		about, err := f.ask(ctx, &one)
		if err != nil {
			return nil, nil, err
		}
		out, facts = append(out, one), append(facts, about)
	}
	return out, facts, nil
}

// ask fills in what the server says of itself: its model and its kind.
func (f *targetFlags) ask(ctx context.Context, t *load.Target) (load.Facts, error) {
	about, err := load.About(ctx, *t)
	if err != nil && t.Model == "" {
		return about, err
	}
	if t.Model == "" {
		t.Model = about.Model
	}
	if t.Engine == "" {
		t.Engine = about.Engine
	}
	return about, nil
}

// workloadFlags say what load is made, or what file holds it.
type workloadFlags struct {
	madeFlags
	input, output counts
	dataset, path string
	speed         float64
	limit         int
	schedule      string
}

func (f *workloadFlags) register(cmd *cobra.Command) {
	f.madeFlags.register(cmd)
	f.input, f.output = newCount(1, 1024), newCount(1, 128)
	flags := cmd.Flags()
	flags.Var(&f.input, "random-input-len", "prompt tokens (--input-len)")
	flags.Var(&f.output, "random-output-len", "tokens to generate (--output-len)")
	// vllm bench serve has both names.
	flags.Var(&f.input, "input-len", "the same as --random-input-len")
	flags.Var(&f.output, "output-len", "the same as --random-output-len")
	_, _ = flags.MarkHidden("input-len"), flags.MarkHidden("output-len") // they are there
	flags.Float64Var(&f.ratio, "random-range-ratio", 0, "spread of both lengths: uniform from length×(1−r) to length×(1+r)")
	flags.StringVar(&f.dataset, "dataset-name", "random", "random, or what --dataset-path is: trace for its times and lengths, lengths, or sharegpt, burstgpt, azure, mooncake, custom")
	flags.StringVar(&f.path, "dataset-path", "", "trace: Azure, Mooncake, BurstGPT, ShareGPT, vLLM's own result, CSV or JSON Lines")
	flags.Float64Var(&f.speed, "trace-speed", 1, "how much faster than recorded a trace is replayed")
	flags.Var(newWhole(&f.limit, 0), "trace-limit", "rows of the trace to take; 0 for all")
	flags.StringVar(&f.schedule, "schedule", "", "replay a schedule that a run has written (schedule.jsonl)")
	var names []string
	for _, d := range datasets() {
		names = append(names, d.name)
	}
	completeWith(cmd, "dataset-name", names...)
	onlyOnCommandLine(flags, "dataset-path", "dataset-name", "schedule", "seed", "input-len", "output-len")
}

// foreignFlag is what stands here for a flag of vllm bench serve and its like that
// llmprof does not have; empty for every other flag.
func foreignFlag(command, name string) string {
	if command != "bench" {
		return ""
	}
	const address = "the server's address is an argument: llmprof bench http://127.0.0.1:8000"
	return map[string]string{
		"base-url": address, "host": address, "port": address, "url": address, "target": address,
		"endpoint-type":      "--backend says what the server is, --endpoint what of it is asked",
		"save-result":        "-o FOLDER keeps a run, and --export vllm-serve=FILE writes it as vllm bench serve does",
		"save-detailed":      "-o FOLDER keeps a run, and --export vllm-serve=FILE writes it as vllm bench serve does",
		"result-dir":         "-o FOLDER keeps a run, and --export vllm-serve=FILE writes it as vllm bench serve does",
		"result-filename":    "-o FOLDER keeps a run, and --export vllm-serve=FILE writes it as vllm bench serve does",
		"ignore-eos":         "leave it out: servers that can are always told to generate the length asked for",
		"tokenizer":          "leave it out: prompts are token ids, and the server counts tokens",
		"metric-percentiles": "leave it out: p50, p90, p95 and p99 are shown",
		"api-key":            "the environment's OPENAI_API_KEY is sent: a key on a command line is seen by all",
		"temperature":        "--extra-body takes it: --extra-body '{\"temperature\": 0.5}'",
		"top-p":              "--extra-body takes it: --extra-body '{\"top_p\": 0.9}'",
		"disable-tqdm":       "-q shows no progress",
	}[name]
}
