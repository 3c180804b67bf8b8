package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/mock"
)

// mockFlags are those of llmprof mock.
type mockFlags struct {
	host     string
	port     int
	duration time.Duration
	faults   []string
	timing   mock.Timing
	options  mock.Options
	rule     string
	role     string
	replica  mockReplica
}

func (a *app) mockCommand() *cobra.Command {
	f := &mockFlags{}
	cmd := &cobra.Command{
		Use:   "mock [MODEL]",
		Short: "Serve an OpenAI-compatible API on an exact schedule or at simulated speed, without a model",
		Long: `Mock is the reference server: it streams tokens on an exact schedule and writes
into each chunk when it was due (due_ns) and when it was sent (emit_ns), in
nanoseconds of the system's monotonic clock. Clients, autoscalers and load
generators can be tried against it without a device.

The first line on stdout is its address. It serves until Ctrl-C, or for
--duration, and says on stderr what it has done.

With --simulate it answers when a real server would: requests enter the queue of
vLLM's scheduler, decided as the release decides, and every step takes the time
that a predictor (--predictor-file), or the datasheet of MODEL on --gpu, gives
it. /metrics, prefix hits, preemptions, priorities and refusals are those of the
simulation; /truth says when each request entered it. What is not given of the
engine is as vLLM would start; without --simulate nothing has a limit but
--max-model-len (1 Mi), and blocks have 16 tokens.

Faults are KIND:SETTING=VALUE,… separated by semicolons, for all requests with
--fault, for one with the header X-Llmprof-Mock-Fault or ?fault=…:
  stall:token=3,for=2s             server-stall:at=5s,for=2s,period=10s
  cut:at=headers                   cut:at=chunk,token=3    cut:at=done
  429:retry-after=2s               500, 503, status:code=418
  error-event:token=3              slow-headers:for=1s
  garbage:token=3                  half-event:token=3,for=5ms
  wrong-usage:by=1                 duplicate:token=3       no-done
each with every=N or share=0.1.`,
		Example: `  llmprof mock --ttft 40ms --gap 10ms
  llmprof mock --port 8000 --ttft-per-token 50us --gap 8ms --gap-per-request 200us --max-num-seqs 64
  llmprof mock --fault '500:every=10; stall:token=5,for=1s,share=0.05'
  llmprof mock --simulate Llama-3.1-8B --gpu h100 --port 8000
  llmprof mock --simulate --predictor-file predictors.json --num-gpu-blocks 2049 --iteration-log steps.log`,
		Args: atMostOneModel,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.replica.check(args); err != nil {
				return err
			}
			options, err := f.settings()
			if err != nil {
				return err
			}
			return a.mock(cmd.Context(), options, f)
		},
		ValidArgsFunction: a.completeModels,
	}
	f.register(cmd)
	f.replica.register(a, cmd)
	return cmd
}

// register adds the flags to the command.
func (f *mockFlags) register(cmd *cobra.Command) {
	flags, o := cmd.Flags(), &f.options
	flags.StringVar(&f.host, "host", "127.0.0.1", "address to listen on")
	flags.IntVar(&f.port, "port", 0, "port to listen on, 0 for a free one")
	flags.DurationVar(&f.duration, "duration", 0, "how long to serve, 0 until Ctrl-C")
	flags.StringVar(&o.APIKey, "api-key", "", "key that clients must send (better: $LLMPROF_API_KEY)")
	flags.StringVar(&o.CertFile, "tls-cert", "", "PEM `file` of a certificate, for https")
	flags.StringVar(&o.KeyFile, "tls-key", "", "PEM `file` of its key")
	flags.StringVar(&o.Model, "served-model-name", "mock", "name of the model")

	flags.DurationVar(&f.timing.First, "ttft", 50*time.Millisecond, "time to the first token")
	flags.DurationVar(&f.timing.PerPromptToken, "ttft-per-token", 0, "and for each token of the prompt that is not cached")
	flags.DurationVar(&f.timing.Gap, "gap", 10*time.Millisecond, "time between two chunks")
	flags.DurationVar(&f.timing.PerRunning, "gap-per-request", 0, "and for each other request that runs")
	flags.IntVar(&o.TokensPerChunk, "tokens-per-chunk", 1, "tokens in a chunk")
	flags.IntVar(&o.EventsPerWrite, "events-per-write", 1, "chunks that are sent together")
	flags.StringVar(&f.role, "role-chunk", string(mock.RoleWithFirst), "when a chat sends its chunk without text: first (with the first token), at-once or none")
	flags.StringVar(&f.rule, "token-rule", string(mock.FourCharacters), "how text is counted: chars (four to a token) or words")
	flags.IntVar(&o.NaturalTokens, "natural-tokens", mock.Unlimited, "where answers end by themselves without ignore_eos, 0 never")
	flags.IntVar(&o.DefaultTokens, "default-max-tokens", 16, "max_tokens of requests without it")

	flags.IntVar(&o.KVBlocks, "kv-blocks", mock.Unlimited, "blocks of the KV cache, 0 for no limit")
	flags.BoolVar(&o.NoPrefixCache, "no-prefix-cache", false, "do not remember prompts")
	flags.StringArrayVar(&f.faults, "fault", nil, "`faults` of the answers (repeatable)")
	flags.Uint64Var(&o.Seed, "seed", 0, "seed of faults with a share")
	completeWith(cmd, "role-chunk", roleChunks()...)
	completeWith(cmd, "token-rule", tokenRules()...)
	// The other commands mean an engine's settings and their own time by these.
	onlyOnCommandLine(flags, "port", "duration", "fault", "kv-blocks", "tls-cert", "tls-key", "seed")
}

// atMostOneModel wants a model or nothing.
func atMostOneModel(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usage("see llmprof mock --help", "%s takes one model at most, and got %s", cmd.Name(), strings.Join(args, " "))
	}
	return nil
}

func roleChunks() []string {
	return []string{string(mock.RoleWithFirst), string(mock.RoleAtOnce), string(mock.RoleNever)}
}

func tokenRules() []string { return []string{string(mock.FourCharacters), string(mock.Words)} }

// settings are the options of the server.
func (f *mockFlags) settings() (mock.Options, error) {
	o := f.options
	r := &f.replica.replica
	o.MaxModelLen, o.MaxNumSeqs, o.BlockSize = r.maxModelLen.values[0], r.maxSeqs.values[0], r.blockSize.values[0]
	const most = 1 << 30
	count := func(flag string, v, least int) flagRange {
		return flagRange{flag, v, v >= least && v <= most, fmt.Sprintf("%d to %d", least, most)} // 0 may stand for the default there
	}
	delay := func(flag string, v time.Duration) flagRange {
		return flagRange{flag, v, v >= 0 && v <= time.Hour, "0 to 1 h"}
	}
	err := checkRanges([]flagRange{
		{"port", f.port, f.port >= 0 && f.port <= 65535, "0 to 65535"},
		{"duration", f.duration, f.duration >= 0, "0 or more"},
		delay("ttft", f.timing.First),
		delay("ttft-per-token", f.timing.PerPromptToken),
		delay("gap", f.timing.Gap),
		delay("gap-per-request", f.timing.PerRunning),
		count("tokens-per-chunk", o.TokensPerChunk, 1),
		count("events-per-write", o.EventsPerWrite, 1),
		count("natural-tokens", o.NaturalTokens, mock.Unlimited),
		count("default-max-tokens", o.DefaultTokens, 1),
		count("kv-blocks", o.KVBlocks, mock.Unlimited),
		{"role-chunk", f.role, slices.Contains(roleChunks(), f.role), strings.Join(roleChunks(), ", ")},
		{"token-rule", f.rule, slices.Contains(tokenRules(), f.rule), strings.Join(tokenRules(), " or ")},
		{"served-model-name", o.Model, o.Model != "", "a name"},
		{"host", f.host, f.host != "", "an address"},
	})
	if err != nil {
		return o, err
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return o, usage("", "--tls-cert and --tls-key go together: one is missing")
	}
	o.Listen = net.JoinHostPort(f.host, strconv.Itoa(f.port))
	o.Timer, o.Role, o.Rule = f.timing, mock.RoleChunk(f.role), mock.TokenRule(f.rule)
	for _, text := range f.faults {
		faults, err := mock.ParseFaults(text)
		if err != nil {
			return o, usage("llmprof mock --help lists the faults", "--fault: %w", err)
		}
		o.Faults = append(o.Faults, faults...)
	}
	if err := o.Validate(); err != nil {
		return o, usage("", "%w", err)
	}
	return o, nil
}

// mock serves until the command is interrupted or its time is over.
func (a *app) mock(ctx context.Context, o mock.Options, f *mockFlags) (err error) {
	if f.replica.simulate {
		var log *os.File
		if o, log, err = a.simulatedMock(ctx, o, &f.replica); err != nil {
			return err
		}
		if log != nil {
			defer func() {
				if fault := log.Close(); err == nil && fault != nil {
					err = fileError("write", f.replica.log, fault)
				}
			}()
		}
	}
	server, err := mock.New(o)
	if err != nil {
		return err
	}
	err = server.Start(ctx)
	if err == nil {
		err = a.sayReady(server, o.Model)
	}
	if err == nil {
		var over <-chan time.Time
		if f.duration > 0 {
			over = time.After(f.duration)
		}
		select {
		case <-over:
		case <-server.Failed():
		case <-ctx.Done(): // the way to end a server: no failure
		}
	}
	if fault := server.Close(); err == nil {
		err = fault
	}
	if err != nil {
		return &codedError{code: codeOutside, err: err}
	}
	a.sayDone(server.Summary())
	return nil
}

// sayReady tells where the server is.
func (a *app) sayReady(server *mock.Server, model string) error {
	if a.format != formatJSON && a.format != formatYAML { // the address is no table
		if _, err := fmt.Fprintln(a.stdout, server.URL()); err != nil {
			return &outputError{err}
		}
		return nil
	}
	return a.write(mockDocument{Schema: "llmprof/mock", Version: "1.0", URL: server.URL(), Address: server.Addr(), Model: model})
}

// mockDocument says where a mock is, for programs that start one.
type mockDocument struct {
	Schema  string `json:"schema"`
	Version string `json:"version"`
	URL     string `json:"url"`
	Address string `json:"address"`
	Model   string `json:"model"`
}

// sayDone tells what the server has done.
func (a *app) sayDone(s mock.Summary) {
	a.log().Info(fmt.Sprintf("%d requests: %d complete, %d refused, %d failed, %d left by their client; %d preemptions",
		s.Requests, s.Completed, s.Refused, s.Failed, s.Aborted, s.Preemptions))
	a.log().Info(fmt.Sprintf("%d tokens of prompts, %d of them cached; %d tokens of answers", s.PromptTokens, s.CachedTokens, s.OutputTokens))
	if s.Writes > 0 {
		a.log().Info(fmt.Sprintf("%d writes, after their due time by %v at the median, %v at p99, %v at most",
			s.Writes, s.LateP50.Round(time.Microsecond), s.LateP99.Round(time.Microsecond), s.LateMax.Round(time.Microsecond)))
	}
}
