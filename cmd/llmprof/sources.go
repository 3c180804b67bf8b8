package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/aiperf"
	"github.com/llmprof/llmprof/format/guidellm"
	"github.com/llmprof/llmprof/format/inferenceperf"
	"github.com/llmprof/llmprof/format/layerscsv"
	"github.com/llmprof/llmprof/format/llamacpp"
	"github.com/llmprof/llmprof/format/llmservingsim"
	"github.com/llmprof/llmprof/format/sglang"
	"github.com/llmprof/llmprof/format/stepbench"
	"github.com/llmprof/llmprof/format/vllmbench"
	"github.com/llmprof/llmprof/format/vllmlog"
	"github.com/llmprof/llmprof/profile"
)

// readOptions are what the user knows beside a file.
type readOptions struct {
	cat *catalog.Catalog
	// kvTokens is the capacity of a server's KV cache in tokens; 0 where the
	// log must say it.
	kvTokens int64
}

// source is one kind of file that measurements are read from.
type source struct {
	// name is what the kind is called in messages.
	name   string
	detect func(head []byte) bool
	read   func(name string, in io.Reader, opts readOptions) (*profile.Profile, []error, error)
}

// sources lists the kinds of files, told apart by content.
func sources() []source {
	steps := func(name string, in io.Reader, opts readOptions) (*profile.Profile, []error, error) {
		return stepbench.Read(name, in, stepbench.Options{Device: deviceNamer(opts.cat)})
	}
	return append(loadSources(), []source{
		{
			"llmprof profile", func(head []byte) bool { return stepbench.Detect(head) == stepbench.Native },
			func(name string, in io.Reader, _ readOptions) (*profile.Profile, []error, error) {
				return profile.Read(name, in)
			},
		},
		{
			"benchmark of the forward-time predictor or of sglang.bench_one_batch", func(head []byte) bool {
				f := stepbench.Detect(head)
				return (f == stepbench.Benchmark || f == stepbench.Rows) && !ofLoadTool(head)
			}, steps,
		},
		{
			"layer CSV of LLM-Profile or LLMServingSim", layerscsv.Detect,
			func(name string, in io.Reader, opts readOptions) (*profile.Profile, []error, error) {
				return layerscsv.Read(name, in, layerscsv.Options{Device: deviceNamer(opts.cat)})
			},
		},
		{
			serverLogKind, vllmlog.Detect,
			func(name string, in io.Reader, opts readOptions) (*profile.Profile, []error, error) {
				return vllmlog.Read(name, in, vllmlog.Options{KVTokens: opts.kvTokens})
			},
		},
		{
			"SGLang server log", sglang.Detect,
			func(name string, in io.Reader, _ readOptions) (*profile.Profile, []error, error) {
				return sglang.ReadLog(name, in)
			},
		},
		{
			"requests of a run of LLMServingSim's bench", llmservingsim.DetectRequests,
			func(name string, in io.Reader, _ readOptions) (*profile.Profile, []error, error) {
				return llmservingsim.ReadRequests(name, in, format.Limits{})
			},
		},
		{
			"hardware.yaml of LLMServingSim", llmservingsim.DetectHardware,
			func(name string, in io.Reader, opts readOptions) (*profile.Profile, []error, error) {
				return llmservingsim.ReadHardware(name, in, llmservingsim.Options{Device: deviceNamer(opts.cat)})
			},
		},
		{
			"llama-bench output", llamacpp.Detect,
			func(name string, in io.Reader, opts readOptions) (*profile.Profile, []error, error) {
				return llamacpp.Read(name, in, llamacpp.Options{Device: deviceNamer(opts.cat)})
			},
		},
	}...)
}

// loadSources lists the results of load tools.
func loadSources() []source {
	plain := func(read func(string, io.Reader, format.Limits) (*profile.Profile, []error, error)) func(string, io.Reader, readOptions) (*profile.Profile, []error, error) {
		return func(name string, in io.Reader, _ readOptions) (*profile.Profile, []error, error) {
			return read(name, in, format.Limits{})
		}
	}
	return []source{
		{"result of vllm bench serve", vllmbench.DetectServe, plain(vllmbench.ReadServeProfile)},
		{"result of sglang.bench_serving", sglang.DetectServing, plain(sglang.ReadServingProfile)},
		{"result of guidellm", guidellm.Detect, plain(guidellm.Read)},
		{"result of aiperf", aiperf.Detect, plain(aiperf.Read)},
		{"result of inference-perf", inferenceperf.Detect, plain(inferenceperf.Read)},
	}
}

// ofLoadTool reports whether a file is the result of a load tool: some have
// keys in common with a benchmark of the forward-time predictor.
func ofLoadTool(head []byte) bool {
	return slices.ContainsFunc(loadSources(), func(s source) bool { return s.detect(head) })
}

// Kinds that are asked for by name: the log of a server, and a folder.
const (
	serverLogKind = "vLLM server log"
	bundleKind    = "bundle of LLMServingSim"
	runKind       = "run of LLMServingSim's bench"
)

// knownKinds lists the kinds for an error.
func knownKinds() string {
	var names []string
	for _, s := range sources() {
		names = append(names, s.name)
	}
	return strings.Join(append(names, bundleKind+" (a folder)", runKind+" (a folder)"), ", ")
}

// readParts reads files of any known kind, told apart by content.
func (a *app) readParts(names []string, opts readOptions) ([]*profile.Profile, error) {
	var parts []*profile.Profile
	for _, name := range names {
		part, _, err := a.readMeasurement(name, opts)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// readMeasurements is readParts with the profiles merged.
func (a *app) readMeasurements(names []string, opts readOptions) (*profile.Profile, error) {
	parts, err := a.readParts(names, opts)
	if err != nil {
		return nil, err
	}
	return merged(parts)
}

// merged joins the profiles of one command line; a single one stays as it is,
// with its own header.
func merged(parts []*profile.Profile) (*profile.Profile, error) {
	if len(parts) == 1 {
		return parts[0], nil
	}
	return profile.Merge(parts...)
}

// readMeasurement reads one file, or folder, and says what kind it is.
func (a *app) readMeasurement(name string, opts readOptions) (*profile.Profile, string, error) {
	p, warnings, kind, err := a.readKind(name, opts)
	if err != nil {
		return nil, "", err
	}
	a.log().Debug("read measurements", "file", name, "kind", kind, "points", len(p.Points), "model", p.Header.Deploy.Model, "device", p.Header.Device.Reported)
	for _, w := range warnings {
		a.warn(w.Error())
	}
	return p, kind, nil
}

// unknownKindError is a file that no reader knows, with what the reader of the
// most common kind says of it.
type unknownKindError struct{ error }

func (e *unknownKindError) Unwrap() error { return e.error }

func (a *app) readKind(name string, opts readOptions) (*profile.Profile, []error, string, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		if folder := os.DirFS(name); llmservingsim.IsRun(folder) {
			p, warnings, err := llmservingsim.ReadRun(name, folder, llmservingsim.Options{Device: deviceNamer(opts.cat)})
			return p, warnings, runKind, err
		}
		p, warnings, err := llmservingsim.ReadFS(name, os.DirFS(name), llmservingsim.Options{Device: deviceNamer(opts.cat)})
		if err != nil {
			return nil, nil, "", usage("a folder is read as a bundle of LLMServingSim: meta.yaml beside tp1, tp2, …; or as a run of its bench: requests.jsonl", "%w", err)
		}
		return p, warnings, bundleKind, nil
	}
	file, err := a.openInput(name)
	if err != nil {
		return nil, nil, "", err
	}
	defer func() { _ = file.Close() }() // read only
	return readOpened(name, bufio.NewReaderSize(file, stepbench.HeadSize), opts)
}

// readOpened reads an open file of any known kind.
func readOpened(name string, in *bufio.Reader, opts readOptions) (*profile.Profile, []error, string, error) {
	head, err := in.Peek(stepbench.HeadSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, "", fileError("read", name, err)
	}
	var kinds []source
	var names []string
	for _, s := range sources() {
		if s.detect(head) {
			kinds = append(kinds, s)
			names = append(names, s.name)
		}
	}
	if len(kinds) > 1 {
		return nil, nil, "", usage("", "read %s: it could be %s", name, strings.Join(names, " or "))
	}
	if len(kinds) == 0 && format.AmbiguousITL(format.Head(head)) {
		return nil, nil, "", usage("read here are: "+knownKinds(), "read %s: it %w", name, format.ErrAmbiguousITL)
	}
	if len(kinds) == 0 {
		// The reader of the most common kind says what is wrong with the text.
		_, _, err := stepbench.Read(name, in, stepbench.Options{})
		if err == nil {
			err = errors.New(name + ": of no known kind")
		}
		return nil, nil, "", usage("read here are: "+knownKinds(), "%w", &unknownKindError{err})
	}
	p, warnings, err := kinds[0].read(name, in, opts)
	if err != nil {
		return nil, nil, "", err
	}
	return p, warnings, kinds[0].name, nil
}
