package fit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
)

// MaxFileBytes bounds a predictor file; a config takes some 10 kB.
const MaxFileBytes = 64 << 20

// maxNestedLists bounds the range lists read from a foreign file's metadata.
const maxNestedLists = 4096

// File is a predictor file: any number of configs by name, in the format of
// the forward-time predictor,
//
//	{"<config>": {"prefill": {"weights": [w0,w1,w2,w3], "bias": b, "model_type": "linear"},
//	              "decode": {…}, "metadata": {…}, "llmprof": {…}}}
//
// with weights in seconds per feature unit ([Linear]). "metadata", a copy of
// the benchmark's, and "mse" are optional. "llmprof" is ours: it holds the
// native [Form] of each mode beside the linear weights, with a hash of every
// configuration that was trained on, the [MixedForm] and the host [Gap], and
// other readers pass over it: a config of nothing but mixed steps is one
// without modes to them. Entries are kept byte for byte and in order until
// they are replaced. The zero value is an empty file.
type File struct {
	entries []entry
}

// numberLists matches a list of numbers that is spread over several lines.
// No string of a JSON text holds a line break, so it never matches in one.
var numberLists = regexp.MustCompile(`\[\n[-+0-9.eE,\s]*\n\s*\]`)

type entry struct {
	name string
	raw  json.RawMessage
}

// UnknownConfigError says that a file has no usable config of a name.
type UnknownConfigError struct {
	// Name was asked for; Known are the configs that the file has.
	Name  string
	Known []string
}

// Error implements error.
func (e *UnknownConfigError) Error() string {
	return "config " + e.Name + ": not in the predictor file"
}

// Hint lists what is there.
func (e *UnknownConfigError) Hint() string {
	if len(e.Known) == 0 {
		return "the file has no configs"
	}
	return "available configs: " + strings.Join(e.Known, ", ")
}

// ReadPredictors reads a predictor file. It checks that the text is one JSON
// object with distinct names; what a config holds is checked by
// [File.Predictor], so that one bad config does not cost the rest.
func ReadPredictors(r io.Reader) (*File, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read predictor file: %w", err)
	}
	if len(text) > MaxFileBytes {
		return nil, fmt.Errorf("read predictor file: larger than %d bytes", MaxFileBytes)
	}
	f := &File{}
	if at, err := f.parse(text); err != nil {
		return nil, fmt.Errorf("read predictor file: line %d: %w", 1+bytes.Count(text[:min(at, int64(len(text)))], []byte("\n")), err)
	}
	return f, nil
}

// parse fills f; at is the offset of an error.
func (f *File) parse(text []byte) (at int64, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	place := func(err error) (int64, error) {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return syntax.Offset, err
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return int64(len(text)), io.ErrUnexpectedEOF
		}
		return d.InputOffset(), err
	}
	open, err := d.Token()
	if err != nil {
		return place(err)
	}
	if open != json.Delim('{') {
		return d.InputOffset(), errors.New("want an object of configs")
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return place(err)
		}
		name, _ := token.(string)
		if seen[name] {
			return d.InputOffset(), fmt.Errorf("config %q is there twice", name)
		}
		seen[name] = true
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			at, err := place(err)
			return at, fmt.Errorf("config %q: %w", name, err)
		}
		f.entries = append(f.entries, entry{name, raw})
	}
	if _, err := d.Token(); err != nil {
		return place(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return d.InputOffset(), errors.New("more text after the object")
	}
	return 0, nil
}

// Write writes the file. Entries that were read and not replaced come out
// byte for byte.
func (f *File) Write(w io.Writer) error {
	var out bytes.Buffer
	out.WriteString("{")
	for i, e := range f.entries {
		name, err := json.Marshal(e.name)
		if err != nil {
			return fmt.Errorf("write predictor file: config %q: %w", e.name, err)
		}
		if i > 0 {
			out.WriteString(",")
		}
		out.WriteString("\n  ")
		out.Write(name)
		out.WriteString(": ")
		out.Write(e.raw)
	}
	out.WriteString("\n}\n")
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write predictor file: %w", err)
	}
	return nil
}

// modeJSON is a mode of a config, in the original's keys. The pointers tell a
// missing key from a zero.
type modeJSON struct {
	Weights   []float64 `json:"weights"`
	Bias      *float64  `json:"bias"`
	ModelType string    `json:"model_type"`
}

type configJSON struct {
	Prefill  *modeJSON                  `json:"prefill,omitempty"`
	Decode   *modeJSON                  `json:"decode,omitempty"`
	Metadata map[string]json.RawMessage `json:"metadata,omitempty"`
	LLMProf  json.RawMessage            `json:"llmprof,omitempty"`
}

// Set puts the predictor under the name config: in the place of the config of
// that name, or at the end. metadata is kept with it and may be nil.
func (f *File) Set(config string, p *Predictor, metadata map[string]json.RawMessage) error {
	c := configJSON{Metadata: metadata}
	native := nativeJSON{Schema: Schema, Version: firstVersion, Mixed: p.mixed.toJSON(), HostGap: p.gap.toJSON()}
	if native.Mixed != nil || native.HostGap != nil {
		native.Version = Version
	}
	for k, m := range modes() {
		own := p.fits[k]
		if own == nil {
			continue
		}
		mode := &modeJSON{Weights: own.linear.Weights[:], Bias: &own.linear.Bias, ModelType: LinearModel}
		if m == Prefill {
			c.Prefill, native.Prefill = mode, own.toJSON()
		} else {
			c.Decode, native.Decode = mode, own.toJSON()
		}
	}
	if native.Prefill != nil || native.Decode != nil || native.Version == Version {
		raw, err := json.Marshal(native)
		if err != nil {
			return fmt.Errorf("config %s: %w", config, err)
		}
		c.LLMProf = raw
	}
	raw, err := json.MarshalIndent(c, "  ", "  ")
	if err != nil {
		return fmt.Errorf("config %s: %w", config, err)
	}
	raw = numberLists.ReplaceAllFunc(raw, func(list []byte) []byte {
		return bytes.Join(bytes.Fields(list), nil)
	})
	for i := range f.entries {
		if f.entries[i].name == config {
			f.entries[i].raw = raw
			return nil
		}
	}
	f.entries = append(f.entries, entry{config, raw})
	return nil
}

// Configs lists the entries that look like configs, in file order.
func (f *File) Configs() []string {
	var out []string
	for _, e := range f.entries {
		if e.config() {
			out = append(out, e.name)
		}
	}
	return out
}

// Ignored lists the other entries, such as a "metadata" of the whole file.
func (f *File) Ignored() []string {
	var out []string
	for _, e := range f.entries {
		if !e.config() {
			out = append(out, e.name)
		}
	}
	return out
}

// config reports whether an entry is an object with at least one mode, or with
// mixed steps in its native form.
func (e entry) config() bool {
	var keys map[string]json.RawMessage
	if json.Unmarshal(e.raw, &keys) != nil {
		return false
	}
	for _, m := range modes() {
		if value := bytes.TrimSpace(keys[string(m)]); len(value) > 0 && value[0] == '{' {
			return true
		}
	}
	var native struct {
		Schema string          `json:"schema"`
		Mixed  json.RawMessage `json:"mixed"`
	}
	return json.Unmarshal(keys["llmprof"], &native) == nil && native.Schema == Schema && len(native.Mixed) > 0 && native.Mixed[0] == '{'
}

// Predictor reads one config. warnings tell of what was read with doubt. The
// error is an [UnknownConfigError], a [VersionError], or names what is wrong
// with the config: a model type other than "linear", weights that are missing
// or not four, a native form that is out of bounds.
func (f *File) Predictor(config string) (p *Predictor, warnings []string, err error) {
	for _, e := range f.entries {
		if e.name == config && e.config() {
			return e.predictor()
		}
	}
	return nil, nil, &UnknownConfigError{Name: config, Known: f.Configs()}
}

func (e entry) predictor() (p *Predictor, warnings []string, err error) {
	var c configJSON
	if err := json.Unmarshal(e.raw, &c); err != nil {
		return nil, nil, fmt.Errorf("config %s: %w", e.name, err)
	}
	var native nativeJSON
	if len(c.LLMProf) > 0 && string(c.LLMProf) != "null" {
		var warning string
		native, warning, err = parseNative(e.name, c.LLMProf)
		if err != nil {
			return nil, nil, err
		}
		if warning != "" {
			warnings = append(warnings, warning)
		}
	}
	p = &Predictor{from: originIn(c.Metadata)}
	if p.mixed, err = native.Mixed.model(); err != nil {
		return nil, nil, fmt.Errorf("config %s: mixed: native form: %w", e.name, err)
	}
	if p.gap, err = native.HostGap.gap(); err != nil {
		return nil, nil, fmt.Errorf("config %s: %w", e.name, err)
	}
	forms := [2]*formJSON{native.Prefill, native.Decode}
	for k, mode := range [2]*modeJSON{c.Prefill, c.Decode} {
		if mode == nil {
			continue
		}
		m := modes()[k]
		linear, err := mode.linear()
		if err == nil {
			p.fits[k], err = loadFitted(linear, forms[k], c.Metadata)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("config %s: %s: %w", e.name, m, err)
		}
	}
	return p, warnings, nil
}

// linear checks the original's part of a mode.
func (j *modeJSON) linear() (Linear, error) {
	switch {
	case j.ModelType != LinearModel:
		return Linear{}, fmt.Errorf("model type %q: want %q", j.ModelType, LinearModel)
	case len(j.Weights) != 4:
		return Linear{}, fmt.Errorf("%d weights: want 4", len(j.Weights))
	case j.Bias == nil:
		return Linear{}, errors.New("no bias")
	}
	for _, v := range append([]float64{*j.Bias}, j.Weights...) {
		if math.Abs(v) > 1e12 {
			return Linear{}, fmt.Errorf("weights %v and bias %v: out of range", j.Weights, *j.Bias)
		}
	}
	return Linear{Weights: [4]float64(j.Weights), Bias: *j.Bias}, nil
}

// loadFitted builds a mode. Without a native form the measured range is taken
// from the benchmark's metadata, if that is there.
func loadFitted(linear Linear, j *formJSON, metadata map[string]json.RawMessage) (*fitted, error) {
	if j == nil {
		if r, ok := testedRange(metadata); ok {
			return newFitted(linear, &Form{Model: LinearModel, Range: r}, 0)
		}
		return newFitted(linear, nil, 0)
	}
	form, err := j.form()
	if err != nil {
		return nil, fmt.Errorf("native form: %w", err)
	}
	trained, err := j.Trained.fingerprint()
	if err != nil {
		return nil, fmt.Errorf("native form: %w", err)
	}
	f, err := newFitted(linear, form, j.Offset)
	if err != nil {
		return nil, err
	}
	f.trained = trained
	return f, nil
}

// Keys of the benchmark's metadata that name what was measured.
const (
	MetadataModel          = "model_path"
	MetadataDevice         = "gpu_type"
	MetadataTensorParallel = "tp_size"
)

// originIn reads what the metadata say was measured.
func originIn(metadata map[string]json.RawMessage) Origin {
	name := func(key string) string {
		var text string
		if json.Unmarshal(metadata[key], &text) != nil {
			return ""
		}
		return strings.TrimSpace(text)
	}
	from := Origin{Model: name(MetadataModel), Device: name(MetadataDevice)}
	if json.Unmarshal(metadata[MetadataTensorParallel], &from.TensorParallel) != nil || from.TensorParallel < 0 {
		from.TensorParallel = 0
	}
	return from
}

// testedRange reads batch_sizes_tested and input_lens_tested.
func testedRange(metadata map[string]json.RawMessage) (Range, bool) {
	bounds := func(key string) (low, high float64, ok bool) {
		var list []float64
		if json.Unmarshal(metadata[key], &list) != nil || len(list) == 0 || len(list) > maxNestedLists {
			return 0, 0, false
		}
		low, high = list[0], list[0]
		for _, v := range list {
			low, high = min(low, v), max(high, v)
		}
		return low, high, low >= 1 && high <= maxCount
	}
	var r Range
	var okBatch, okSize bool
	r.MinBatch, r.MaxBatch, okBatch = bounds("batch_sizes_tested")
	r.MinSize, r.MaxSize, okSize = bounds("input_lens_tested")
	return r, okBatch && okSize
}
