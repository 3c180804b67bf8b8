package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/load"
)

// targetFlags say who is asked and how.
type targetFlags struct {
	model, kind, endpoint string
	headers               []string
	extra                 string
	caFile                string
	certFile, keyFile     string
	insecure              bool
	text, unary, running  bool
	tokenChunks           bool
	low, high             int
}

func (f *targetFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.model, "model", "", "model to ask for (default: the first that the server names)")
	flags.StringVar(&f.kind, "backend", "", "what the server is: openai, vllm, sglang, llamacpp, ollama (default: found out)")
	flags.StringVar(&f.endpoint, "endpoint", string(load.Completions), "completions or chat, or their paths")
	flags.StringArrayVar(&f.headers, "header", nil, "further `NAME=VALUE` with every request (repeatable)")
	flags.StringVar(&f.extra, "extra-body", "", "JSON object with further fields of every request")
	flags.StringVar(&f.caFile, "tls-ca", "", "PEM `file` of certificates to trust")
	flags.StringVar(&f.certFile, "tls-cert", "", "PEM `file` of the client's certificate")
	flags.StringVar(&f.keyFile, "tls-key", "", "PEM `file` of its key")
	flags.BoolVar(&f.insecure, "insecure", false, "trust any certificate")
	flags.BoolVar(&f.text, "text-prompts", false, "send words even where the server takes token ids")
	flags.BoolVar(&f.unary, "no-stream", false, "ask for whole answers: there is no TTFT then")
	flags.BoolVar(&f.running, "running-usage", false, "ask for token counts in every chunk, where chunks hold several tokens")
	flags.BoolVar(&f.tokenChunks, "token-chunks", false, "ask vLLM for the token ids of chunks, and count those without text too (random weights)")
	flags.IntVar(&f.low, "token-low", 0, "least random token id (default 100, or what the model has)")
	flags.IntVar(&f.high, "token-high", 0, "token id below which random ones stay (default 10000, or what the model has)")
	completeWith(cmd, "backend", "openai", "vllm", "sglang", "llamacpp", "ollama")
	completeWith(cmd, "endpoint", "completions", "chat")
	onlyOnCommandLine(flags, "model", "backend", "endpoint")
}

// targets builds the targets of some URLs.
func (f *targetFlags) targets(ctx context.Context, urls []string) ([]load.Target, error) {
	t := load.Target{
		Model: f.model, Engine: load.Engine(f.kind), APIKey: os.Getenv("OPENAI_API_KEY"), Text: f.text, Unary: f.unary, RunningUsage: f.running, TokenChunks: f.tokenChunks,
		TokenLow: f.low, TokenHigh: f.high,
		TLS: load.TLS{CAFile: f.caFile, Insecure: f.insecure, CertFile: f.certFile, KeyFile: f.keyFile},
	}
	switch strings.TrimPrefix(strings.Trim(f.endpoint, "/"), "v1/") {
	case "completions", "":
		t.Endpoint = load.Completions
	case "chat", "chat/completions":
		t.Endpoint = load.Chat
	default:
		return nil, usage("", "unknown --endpoint %q: want completions or chat", f.endpoint)
	}
	backends := map[string]load.Engine{
		"": "", "openai": load.OpenAI, "openai-chat": load.OpenAI, "vllm": load.VLLM, "sglang": load.SGLang,
		"llamacpp": load.LlamaCpp, "llama.cpp": load.LlamaCpp, "llama-server": load.LlamaCpp, "ollama": load.Ollama,
	}
	kind, ok := backends[f.kind]
	if !ok {
		return nil, usage("", "unknown --backend %q: want openai, vllm, sglang, llamacpp or ollama", f.kind)
	}
	if (f.certFile == "") != (f.keyFile == "") {
		return nil, usage("", "--tls-cert and --tls-key go together: one is missing")
	}
	if f.kind == "openai-chat" {
		t.Endpoint = load.Chat
	}
	t.Engine = kind
	for _, pair := range f.headers {
		name, value, found := strings.Cut(pair, "=")
		if !found || name == "" {
			return nil, usage("for example --header X-Team=search", "--header %q: want NAME=VALUE", name)
		}
		if t.Headers == nil {
			t.Headers = map[string]string{}
		}
		t.Headers[name] = value
	}
	if f.extra != "" {
		if err := json.Unmarshal([]byte(f.extra), &t.Extra); err != nil {
			return nil, usage(`for example --extra-body '{"top_k": 1}'`, "--extra-body: want a JSON object: %w", err)
		}
	}
	var out []load.Target
	for _, url := range urls {
		one := t
		one.URL = url
		if !strings.Contains(url, "://") {
			one.URL = "http://" + url
		}
		if err := f.ask(ctx, &one); err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// ask fills in what the server says of itself: its model and its kind.
func (f *targetFlags) ask(ctx context.Context, t *load.Target) error {
	about, err := load.About(ctx, *t)
	if err != nil && t.Model == "" {
		return err
	}
	if t.Model == "" {
		t.Model = about.Model
	}
	if t.Engine == "" {
		t.Engine = about.Engine
	}
	return nil
}

// workloadFlags say what load is made.
type workloadFlags struct {
	prompts          int
	rate             string
	burstiness       float64
	duration         time.Duration
	seed             uint64
	input, output    counts
	ratio            float64
	prefixLen        counts
	prefixShare      float64
	prefixGroups     int
	turns            int
	think            time.Duration
	rampFrom, rampTo float64
	rampShape        string
	rampOver         time.Duration
	dataset, path    string
	speed            float64
	limit            int
	schedule         string
	// given tells of a flag whether it stands on the command line.
	given func(name string) bool
}

func (f *workloadFlags) register(cmd *cobra.Command) {
	f.input, f.output, f.prefixLen = newCount(1, 1024), newCount(1, 128), newCount(0, 0)
	flags := cmd.Flags()
	flags.IntVar(&f.prompts, "num-prompts", 1000, "requests of the run")
	flags.StringVar(&f.rate, "request-rate", "inf", "requests a second, or inf: all at once, or as --max-concurrency lets them")
	flags.Float64Var(&f.burstiness, "burstiness", 1, "1 for Poisson arrivals, below for bursts, above for even gaps, inf for equal ones")
	flags.DurationVar(&f.duration, "duration", 0, "end of the arrivals, in place of --num-prompts")
	flags.Uint64Var(&f.seed, "seed", 0, "seed of times, lengths and prompts")
	flags.Var(&f.input, "random-input-len", "prompt tokens (--input-len)")
	flags.Var(&f.output, "random-output-len", "tokens to generate (--output-len)")
	flags.Float64Var(&f.ratio, "random-range-ratio", 0, "spread of both lengths: uniform from length×(1−r) to length×(1+r)")
	flags.Var(&f.prefixLen, "random-prefix-len", "tokens that prompts share, ahead of their own")
	flags.Float64Var(&f.prefixShare, "prefix-share", 1, "share of requests with a shared prefix, 0..1")
	flags.IntVar(&f.prefixGroups, "num-prefixes", 1, "different shared prefixes")
	flags.IntVar(&f.turns, "session-turns", 0, "make each arrival a conversation of so many turns; the prompt grows with them")
	flags.DurationVar(&f.think, "think-time", 0, "pause of a client, or between two turns")
	flags.StringVar(&f.rampShape, "ramp-up-strategy", "", "let the rate rise: linear or exponential")
	flags.Float64Var(&f.rampFrom, "ramp-up-start-rps", 0, "rate at the start of the ramp, requests/s")
	flags.Float64Var(&f.rampTo, "ramp-up-end-rps", 0, "rate at its end, requests/s")
	flags.DurationVar(&f.rampOver, "ramp-up-duration", 0, "length of the ramp")
	flags.StringVar(&f.dataset, "dataset-name", "random", "random, or what --dataset-path is: trace for its times and lengths, lengths, or sharegpt, burstgpt, azure, mooncake, custom")
	flags.StringVar(&f.path, "dataset-path", "", "trace: Azure, Mooncake, BurstGPT, ShareGPT, vLLM's own result, CSV or JSON Lines")
	flags.Float64Var(&f.speed, "trace-speed", 1, "how much faster than recorded a trace is replayed")
	flags.IntVar(&f.limit, "trace-limit", 0, "rows of the trace to take; 0 for all")
	flags.StringVar(&f.schedule, "schedule", "", "replay a schedule that a run has written (schedule.jsonl)")
	var names []string
	for _, d := range datasets() {
		names = append(names, d.name)
	}
	completeWith(cmd, "dataset-name", names...)
	completeWith(cmd, "ramp-up-strategy", "linear", "exponential")
	onlyOnCommandLine(flags, "dataset-path", "dataset-name", "schedule", "seed")
}
