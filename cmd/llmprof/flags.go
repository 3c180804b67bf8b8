package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/pflag"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// normaliseFlag maps the spellings of engines and of older tools onto one:
// underscores, and the short names of vLLM, SGLang and others.
func normaliseFlag(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	name = strings.ReplaceAll(name, "_", "-")
	switch name {
	case "tp", "tp-size":
		name = "tensor-parallel-size"
	case "pp", "pp-size":
		name = "pipeline-parallel-size"
	case "dp", "dp-size":
		name = "data-parallel-size"
	case "ep", "ep-size", "enable-expert-parallel":
		name = "expert-parallel-size"
	case "bs":
		name = "batch-size"
	case "isl", "seq-len":
		name = "input-len"
	case "osl", "generate-len":
		name = "output-len"
	case "system", "hardware", "gpu-name":
		name = "gpu"
	case "chunked-prefill-size":
		name = "max-num-batched-tokens"
	case "context-length":
		name = "max-model-len"
	case "page-size":
		name = "block-size"
	case "max-batch-size", "max-running-requests":
		name = "max-num-seqs"
	case "schedule-policy":
		name = "scheduling-policy"
	case "disable-radix-cache":
		name = "no-enable-prefix-caching"
	case "disable-cuda-graph":
		name = "enforce-eager"
	case "num-gpu-blocks-override":
		name = "num-gpu-blocks"
	case "kv-cache-memory":
		name = "kv-cache-memory-bytes"
	case "predictor":
		name = "predictor-file"
	}
	return pflag.NormalizedName(name)
}

// joinValues lets flags whose value is optional take it as the next word too,
// "--ep 8" as "--ep=8", for batch the lists of sizes as many words,
// "--input-len 256 512" as "--input-len=256,512", and limits as many words too,
// "--goodput ttft:50 tpot:20" as vLLM's bench has it.
func joinValues(args []string) []string {
	batch := slices.Contains(args, "batch")
	var joined []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return append(joined, args[i:]...)
		}
		name, isFlag := strings.CutPrefix(arg, "--")
		name, value, given := strings.Cut(name, "=")
		most, fits := 0, isCounts
		switch normaliseFlag(nil, name) {
		case "goodput", "slo":
			most, fits = len(args), isLimit
		case "expert-parallel-size":
			if !given {
				most = 1
			}
		case "input-len", "output-len", "batch-size", "block-sizes":
			if batch {
				most = len(args)
			}
		}
		var words []string
		for isFlag && len(words) < most && i+1 < len(args) && fits(args[i+1]) {
			i++
			words = append(words, args[i])
		}
		if len(words) > 0 {
			if given {
				words = append([]string{value}, words...)
			}
			arg = "--" + name + "=" + strings.Join(words, ",")
		}
		joined = append(joined, arg)
	}
	return joined
}

// isCounts tells "8", "1,8" and "4k" from words.
func isCounts(text string) bool {
	for part := range strings.SplitSeq(text, ",") {
		if _, err := unit.ParseCount(part); err != nil {
			return false
		}
	}
	return true
}

// isLimit tells "ttft:50" and "ttft:p99<500ms" from addresses and other words.
func isLimit(text string) bool {
	limits, err := workload.ParseSLOs(text)
	return err == nil && len(limits) > 0
}

// counts is a flag of one or more whole numbers: "8", "1,8,32", "512,4k".
type counts struct {
	values []int
	least  int
	set    bool
	// single says that a list makes no sense.
	single bool
	// engine says that K, M and G are powers of 1024, as in vLLM's flag of that
	// name.
	engine bool
}

func newCounts(least int, values ...int) counts { return counts{values: values, least: least} }

func (c *counts) String() string {
	texts := make([]string, len(c.values))
	for i, v := range c.values {
		texts[i] = strconv.Itoa(v)
	}
	return strings.Join(texts, ",")
}

func (c *counts) Type() string {
	if c.single {
		return "count"
	}
	return "counts"
}

func newCount(least, value int) counts {
	return counts{values: []int{value}, least: least, single: true}
}

// newEngineCount is one number as vLLM reads it.
func newEngineCount(least, value int) counts {
	return counts{values: []int{value}, least: least, single: true, engine: true}
}

func (c *counts) Set(text string) error {
	var values []int
	for part := range strings.SplitSeq(text, ",") {
		parse := unit.ParseCount
		if c.engine {
			parse = unit.ParseEngineCount
		}
		v, err := parse(part)
		if err != nil {
			return err
		}
		if v < c.least {
			return fmt.Errorf("%d is too small: want at least %d", v, c.least)
		}
		if v > 1<<30 {
			return fmt.Errorf("%d is too large: want at most %d", v, 1<<30)
		}
		values = append(values, v)
	}
	if c.single && len(values) > 1 {
		return fmt.Errorf("%q is a list: want one number", text)
	}
	if len(values) > 10_000 {
		return fmt.Errorf("%d values: want at most 10000", len(values))
	}
	if c.set && !c.single {
		values = append(c.values, values...)
	}
	c.values, c.set = values, true
	return nil
}

// bytesFlag is a memory size with its unit.
type bytesFlag struct{ value *unit.Bytes }

func (b bytesFlag) String() string {
	if b.value == nil || *b.value == 0 {
		return ""
	}
	return b.value.String()
}
func (b bytesFlag) Type() string { return "size" }
func (b bytesFlag) Set(text string) error {
	if text == "0" {
		*b.value = 0
		return nil
	}
	v, err := unit.ParseBytes(text)
	if err == nil {
		*b.value = v
	}
	return err
}

// configFile is the path of the user's configuration file; empty if there is
// no home.
func configFile() string {
	if dir := configDir(); dir != "" {
		return filepath.Join(dir, "config.yaml")
	}
	return ""
}

// commandLineOnly annotates flags that neither the environment nor the
// configuration file fill in: they name this run's files, or mean something
// else in other commands.
const commandLineOnly = "command-line-only"

// onlyOnCommandLine marks flags as [commandLineOnly].
func onlyOnCommandLine(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if f := flags.Lookup(name); f != nil {
			f.Annotations = map[string][]string{commandLineOnly: {"true"}}
		}
	}
}

// applyDefaults gives flags that the command line left open the values of the
// environment (LLMPROF_GPU for --gpu) and then of the configuration file,
// whose keys are flag names, and returns the names of those it filled in.
// known lists the flags of all commands, environ the process's environment.
func applyDefaults(flags *pflag.FlagSet, known, environ []string, file string) (map[string]bool, error) {
	config, err := readConfig(file)
	if err != nil {
		return nil, err
	}
	for key := range config {
		if !slices.Contains(known, key) {
			return nil, usage("did you mean "+strings.Join(catalog.Nearest(key, known, 3), ", ")+"?", "configuration %s: no command has a flag %q", file, key)
		}
	}
	type origin struct{ name, value string }
	values := map[string]origin{}
	for key, value := range config {
		values[key] = origin{file, value}
	}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if key, ok := strings.CutPrefix(name, "LLMPROF_"); ok && value != "" {
			values[string(normaliseFlag(nil, strings.ToLower(key)))] = origin{name, value}
		}
	}
	filled := map[string]bool{}
	var faults []error
	flags.VisitAll(func(f *pflag.Flag) {
		from, ok := values[f.Name]
		if !ok || f.Changed || f.Annotations[commandLineOnly] != nil {
			return
		}
		if err := flags.Set(f.Name, from.value); err != nil {
			faults = append(faults, fmt.Errorf("%s: --%s: %w", from.name, f.Name, err))
		}
		filled[f.Name] = true
	})
	if len(faults) > 0 {
		return nil, usage("", "%w", errors.Join(faults...))
	}
	return filled, nil
}

// maxConfigBytes bounds the configuration file: it holds a few flags, and the
// YAML parser's time grows faster than its text.
const maxConfigBytes = 16 << 10

// readConfig reads the configuration file; one that is not there holds
// nothing.
func readConfig(file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	text, err := readBounded(file, maxConfigBytes+1)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseConfig(file, text)
}

// parseConfig reads a flat map of flag names and values.
func parseConfig(file string, text []byte) (map[string]string, error) {
	const hint = `it holds flag names and values, such as "gpu: h100"`
	if len(text) > maxConfigBytes {
		return nil, usage(hint, "configuration %s: larger than %d bytes", file, maxConfigBytes)
	}
	var raw map[string]any
	if err := yaml.Unmarshal(text, &raw); err != nil {
		return nil, usage(hint, "configuration %s: %s", file, yaml.FormatError(err, false, true))
	}
	config := map[string]string{}
	for key, value := range raw {
		switch v := value.(type) {
		case nil:
		case string, bool, int, int64, uint64, float64:
			config[string(normaliseFlag(nil, key))] = fmt.Sprint(v)
		case []any:
			parts := make([]string, len(v))
			for i, part := range v {
				parts[i] = fmt.Sprint(part)
			}
			config[string(normaliseFlag(nil, key))] = strings.Join(parts, ",")
		default:
			return nil, usage(hint, "configuration %s: %s: want a value or a list of values", file, key)
		}
	}
	return config, nil
}

// plainHandler writes log records as lines for people: "warning: …".
type plainHandler struct {
	w     io.Writer
	level slog.Level
}

func (h *plainHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

func (h *plainHandler) Handle(_ context.Context, r slog.Record) error {
	prefix := ""
	switch {
	case r.Level >= slog.LevelError:
		prefix = "error: "
	case r.Level >= slog.LevelWarn:
		prefix = "warning: "
	}
	var b strings.Builder
	b.WriteString(prefix + r.Message)
	r.Attrs(func(a slog.Attr) bool {
		b.WriteString(" " + a.Key + "=" + a.Value.String())
		return true
	})
	b.WriteByte('\n')
	_, err := io.WriteString(h.w, b.String())
	return err
}
func (h *plainHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *plainHandler) WithGroup(string) slog.Handler      { return h }
