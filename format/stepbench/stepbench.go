// Package stepbench reads and writes the benchmark files of the forward-time
// predictor (vikranth22446/llm_execution_time_predictor): the time of whole
// forward passes over a grid of batch sizes and input lengths.
//
// A file is a JSON object {metadata, results}, or rows alone: JSON Lines, a
// list, objects one after the other; plain or gzip. Latencies are in seconds.
// Every row becomes two points of a [profile.Profile]: the prefill, which
// computes batch × input tokens at once, and the decode step, which stands for
// output − 1 single steps and so is taken at their mean context, input +
// output/2 tokens. A row that keeps its runs gives their times as samples; a
// row that does not gives a summary. Failed configurations become points of
// their own. What no field of a point holds is kept verbatim in Extra, and
// comes back out of [Write].
//
//	p, warnings, err := stepbench.Read("bench.json.gz", file, stepbench.Options{})
package stepbench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// Options says how a file is read.
type Options struct {
	// Device finds the canonical catalog name of a device by the name that
	// the file gives. Without it, and where it knows no name, the profile
	// holds the reported name alone.
	Device func(reported string) (canonical string, ok bool)
	// Limits bounds what is taken in.
	Limits format.Limits
}

// Bounds of what a row may say. A latency beyond a day or a sequence beyond
// 2^30 tokens is a mistaken unit or a broken file.
const (
	maxBatch   = 1 << 20
	maxTokens  = 1 << 30
	maxPass    = 1 << 46
	maxRanks   = 1 << 14
	maxSeconds = 24 * 60 * 60
)

// Read reads a benchmark file. The name stands in errors and in the origin of
// the points; the file is told from others by its content. Warnings are
// remarks on values that were left out or contradict each other. A fault is a
// [*format.Error] that names file and place.
func Read(name string, r io.Reader, opts Options) (*profile.Profile, []error, error) {
	text, err := format.ReadText(name, r, opts.Limits)
	if err != nil {
		return nil, nil, err
	}
	nodes, err := format.ParseJSON(name, text, opts.Limits)
	b := &reader{name: name, opts: opts, profile: &profile.Profile{Header: profile.Header{
		Schema: profile.Schema, Version: profile.Version, Source: name,
	}}}
	if err != nil {
		// Only rows of JSON Lines survive a cut-off end.
		bad, _ := errors.AsType[*format.Error](err)
		if bad == nil || !bad.Truncated || len(nodes) == 0 || nodes[0].Has("results") || nodes[0].Kind() != format.Object {
			return nil, nil, err
		}
		b.warnings = append(b.warnings, err)
	}
	if err := b.file(nodes); err != nil {
		return nil, nil, err
	}
	return b.profile, b.warnings, nil
}

// reader turns the nodes of one file into a profile.
type reader struct {
	name      string
	opts      Options
	profile   *profile.Profile
	warnings  []error
	outputLen int // the metadata's, for rows without their own; 0 for none
}

func (b *reader) warn(err error) { b.warnings = append(b.warnings, err) }

// file reads the values of a file: one document, or rows.
func (b *reader) file(nodes []format.Node) error {
	first := nodes[0]
	switch {
	case first.Kind() == format.Object && (first.Has("results") || first.Has("metadata")):
		if len(nodes) > 1 {
			return nodes[1].Errorf("a second value after the benchmark object: want one benchmark a file")
		}
		return b.document(first)
	case first.Kind() == format.Array && len(nodes) == 1:
		return b.rows(first.At("rows"))
	}
	for _, n := range nodes {
		if err := b.row(n.At(fmt.Sprintf("line %d", n.Line()))); err != nil {
			return err
		}
	}
	return nil
}

// document reads {metadata, results}.
func (b *reader) document(top format.Node) error {
	meta, results := top.Get("metadata"), top.Get("results")
	if meta.Present() {
		if err := b.metadata(meta); err != nil {
			return err
		}
	}
	if !results.Present() {
		return results.Errorf("missing: want a list of rows")
	}
	for key, n := range top.Members() {
		if key == "metadata" || key == "results" || n.Kind() == format.Null {
			continue
		}
		if _, taken := b.profile.Header.Metadata[key]; taken {
			b.warn(n.Errorf("left out: metadata holds this key as well"))
		} else {
			b.profile.Header.Metadata = b.keep(n, b.profile.Header.Metadata, key)
		}
	}
	return b.rows(results)
}

// rows reads a list of rows.
func (b *reader) rows(list format.Node) error {
	if list.Kind() != format.Array {
		return list.Errorf("want a list of rows, got %s", list.Got())
	}
	if list.Len() == 0 && len(b.profile.Points) == 0 {
		return list.Errorf("holds no rows")
	}
	for _, n := range list.Elements() {
		if err := b.row(n); err != nil {
			return err
		}
	}
	return nil
}

// keep stores a foreign value verbatim in a map, which it makes where there is
// none. What JSON cannot hold is left out
// with a warning.
func (b *reader) keep(n format.Node, into map[string]json.RawMessage, key string) map[string]json.RawMessage {
	text, ok := n.JSON()
	if !ok {
		b.warn(n.Errorf("left out: %s is not valid JSON", n.Got()))
		return into
	}
	if into == nil {
		into = map[string]json.RawMessage{}
	}
	into[key] = text
	return into
}

// metadata reads what the file says about itself. Everything stays verbatim
// in the header, except failed_configs, which become points.
func (b *reader) metadata(meta format.Node) error {
	if meta.Kind() != format.Object {
		return meta.Errorf("want an object, got %s", meta.Got())
	}
	h := &b.profile.Header
	for key, n := range meta.Members() {
		if key != "failed_configs" && n.Kind() != format.Null {
			h.Metadata = b.keep(n, h.Metadata, key)
		}
	}
	if n := meta.Get("model_path"); n.Present() {
		model, err := n.Text()
		if err != nil {
			return err
		}
		h.Deploy.Model = model
	}
	var err error
	if h.Deploy.TensorParallel, err = eitherInt(meta, "tp_size", "tensor_parallel_size"); err != nil {
		return err
	}
	if h.Deploy.PipelineParallel, err = eitherInt(meta, "pp_size", "pipeline_parallel_size"); err != nil {
		return err
	}
	if n := meta.Get("output_len"); n.Present() {
		if b.outputLen, err = n.Int(1, maxTokens); err != nil {
			return err
		}
	}
	if err := b.device(meta); err != nil {
		return err
	}
	return b.failures(meta.Get("failed_configs"))
}

// eitherInt reads a count of ranks under the newer or the older key; 0 where
// neither stands.
func eitherInt(meta format.Node, newer, older string) (int, error) {
	value := 0
	for _, key := range []string{newer, older} {
		n := meta.Get(key)
		if !n.Present() {
			continue
		}
		v, err := n.Int(1, maxRanks)
		if err != nil {
			return 0, err
		}
		if value != 0 && v != value {
			return 0, n.Errorf("is %d, but %s is %d", v, newer, value)
		}
		value = v
	}
	return value, nil
}

// device reads the device's name and number.
func (b *reader) device(meta format.Node) error {
	d := &b.profile.Header.Device
	if n := meta.Get("gpu_type"); n.Present() {
		name, err := n.Text()
		if err != nil {
			return err
		}
		d.Reported = name
	} else if n := meta.Get("gpu_distribution"); n.Kind() == format.Object && n.Len() == 1 {
		for name := range n.Members() {
			d.Reported = name
		}
	}
	if b.opts.Device != nil && d.Reported != "" {
		if canonical, ok := b.opts.Device(d.Reported); ok {
			d.Name = canonical
			b.profile.Header.Deploy.Device = canonical
		}
	}
	if n := meta.Get("gpu_count"); n.Present() {
		count, err := n.Int(1, maxRanks)
		if err != nil {
			return err
		}
		d.Count = count
	} else if c := b.profile.Header.Deploy; c.TensorParallel > 0 {
		d.Count = c.TensorParallel * max(c.PipelineParallel, 1)
	}
	return nil
}

// failures reads the failed configurations.
func (b *reader) failures(list format.Node) error {
	if !list.Present() {
		return nil
	}
	if list.Kind() != format.Array {
		return list.Errorf("want a list, got %s", list.Got())
	}
	for _, n := range list.Elements() {
		if n.Kind() != format.Object {
			return n.Errorf("want an object, got %s", n.Got())
		}
		step, err := b.grid(n)
		if err != nil {
			return err
		}
		p := profile.Point{Kind: profile.KindFailure, Step: step, Origin: b.origin(n)}
		for key, value := range n.Members() {
			switch key {
			case "batch_size", "input_len", "output_len":
			case "reason":
				if value.Kind() != format.Null {
					if p.Reason, err = value.Text(); err != nil {
						return err
					}
				}
			default:
				p.Extra = b.keep(value, p.Extra, key)
			}
		}
		if p.Reason == "" {
			p.Reason = "reason not stated"
		}
		b.profile.Points = append(b.profile.Points, p)
	}
	return nil
}

func (b *reader) origin(n format.Node) string { return b.name + ": " + n.Path() }

// grid reads the coordinates of a row. Output length may be left out.
func (b *reader) grid(n format.Node) (*profile.Step, error) {
	s := &profile.Step{OutputLen: b.outputLen}
	for _, field := range []struct {
		key      string
		to       *int
		most     int
		required bool
	}{
		{"batch_size", &s.BatchSize, maxBatch, true},
		{"input_len", &s.InputLen, maxTokens, true},
		{"output_len", &s.OutputLen, maxTokens, false},
	} {
		value := n.Get(field.key)
		if !value.Present() {
			if field.required {
				return nil, value.Errorf("missing: want a whole number from 1 to %d", field.most)
			}
			continue
		}
		v, err := value.Int(1, field.most)
		if err != nil {
			return nil, err
		}
		*field.to = v
	}
	if int64(s.BatchSize)*(int64(s.InputLen)+int64(s.OutputLen)) > maxPass {
		return nil, n.Errorf("batch size %d times %d tokens is more than any device computes", s.BatchSize, s.InputLen+s.OutputLen)
	}
	return s, nil
}

// Format is what a file holds.
type Format string

// The formats that [Detect] tells apart.
const (
	// Unknown: none of the others.
	Unknown Format = ""
	// Native: a profile of llmprof.
	Native Format = "llmprof profile"
	// Benchmark: the object {metadata, results}.
	Benchmark Format = "benchmark JSON"
	// Rows: benchmark rows without metadata.
	Rows Format = "benchmark rows"
)

// HeadSize is the number of bytes of a file with which [Detect] can decide.
const HeadSize = 64 << 10

// Detect tells from the first bytes of a file, plain or gzip, what it holds.
// The file's name is not looked at.
func Detect(head []byte) Format {
	text, err := profile.Expand(bytes.NewReader(head), profile.Bounds{})
	if err != nil {
		return Unknown
	}
	// The head may end anywhere: what can be read of it decides.
	part := make([]byte, HeadSize)
	n, _ := io.ReadFull(text, part)
	keys, schema := format.TopKeys(bytes.TrimPrefix(part[:n], []byte("\ufeff")))
	switch {
	case schema == profile.Schema:
		return Native
	case keys["results"], keys["metadata"]:
		return Benchmark
	case keys["batch_size"] && keys["input_len"]:
		return Rows
	}
	return Unknown
}
