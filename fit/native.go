package fit

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The schema of the native form inside a predictor file. A config without
// mixed steps and host gap, which came with version 1.1, is written as 1.0;
// version 1.2 brought the variable of steps that follow idle time, and the mean
// delay of steps.
const (
	Schema  = "llmprof/predictor"
	Version = "1.2"

	minorVersion = 2
	firstVersion = "1.0"
)

// Limits on what a file may hold, far above what training writes.
const (
	maxTerms       = 1024
	maxFileCentres = 1024
	maxBands       = 16
)

// VersionError says that a config was written by a later major version.
type VersionError struct {
	// Config is the config's name, Version the version that it carries.
	Config, Version string
}

// Error implements error.
func (e *VersionError) Error() string {
	return fmt.Sprintf("config %s: %s version %s: this program reads version %s", e.Config, Schema, e.Version, Version)
}

// Hint says what to do.
func (e *VersionError) Hint() string { return "train the config again, or use a newer llmprof" }

// nativeJSON is the "llmprof" entry of a config.
type nativeJSON struct {
	Schema  string     `json:"schema"`
	Version string     `json:"version"`
	Prefill *formJSON  `json:"prefill,omitempty"`
	Decode  *formJSON  `json:"decode,omitempty"`
	Mixed   *mixedJSON `json:"mixed,omitempty"`
	HostGap *gapJSON   `json:"host_gap,omitempty"`
}

type formJSON struct {
	Model    string        `json:"model"`
	Rows     int           `json:"rows"`
	Range    rangeJSON     `json:"range"`
	Offset   float64       `json:"context_offset_tokens,omitempty"`
	Floor    float64       `json:"floor_s,omitempty"`
	Terms    []termJSON    `json:"terms,omitempty"`
	Residual *residualJSON `json:"residual,omitempty"`
	Bands    []bandJSON    `json:"intervals,omitempty"`
	Trained  *trainedJSON  `json:"trained_on,omitempty"`
}

type rangeJSON struct {
	Batch [2]float64 `json:"batch_size"`
	Size  [2]float64 `json:"length_tokens"`
	Work  float64    `json:"max_work_tokens"`
}

type termJSON struct {
	Variable    Variable `json:"variable"`
	From        float64  `json:"from"`
	To          *float64 `json:"to,omitempty"`
	Coefficient float64  `json:"coefficient"`
	Unit        string   `json:"unit"`
}

type residualJSON struct {
	Kernel  string       `json:"kernel"`
	LengthB float64      `json:"length_batch_octaves"`
	LengthX float64      `json:"length_size_octaves"`
	Centres [][3]float64 `json:"centres"` // log2 batch size, log2 length, weight
}

type bandJSON struct {
	Asked          float64 `json:"level"`
	Level          float64 `json:"level_reached"`
	HalfWidth      float64 `json:"half_width_log"`
	PerBatchOctave float64 `json:"per_batch_octave_log"`
	PerSizeOctave  float64 `json:"per_length_octave_log"`
}

const kernelName = "matern32"

// toJSON writes a fitted mode; nil for one without a native form.
func (f *fitted) toJSON() *formJSON {
	if f == nil || f.form == nil {
		return nil
	}
	form := f.form
	out := &formJSON{
		Model: form.Model, Rows: form.Rows, Offset: f.offset, Floor: form.Floor,
		Range: rangeJSON{
			Batch: [2]float64{form.Range.MinBatch, form.Range.MaxBatch},
			Size:  [2]float64{form.Range.MinSize, form.Range.MaxSize}, Work: form.Range.MaxWork,
		},
	}
	out.Terms = termsToJSON(form.Terms)
	if r := form.Residual; r != nil {
		out.Residual = &residualJSON{Kernel: kernelName, LengthB: r.LengthB, LengthX: r.LengthX}
		for _, c := range r.Centres {
			out.Residual.Centres = append(out.Residual.Centres, [3]float64{c.LogB, c.LogX, c.Weight})
		}
	}
	for _, b := range form.Bands {
		out.Bands = append(out.Bands, bandJSON(b))
	}
	out.Trained = f.trained.toJSON()
	return out
}

// form reads a native form back and checks every number.
func (j *formJSON) form() (*Form, error) {
	form := &Form{Model: j.Model, Rows: j.Rows, Floor: j.Floor, Range: Range{
		MinBatch: j.Range.Batch[0], MaxBatch: j.Range.Batch[1],
		MinSize: j.Range.Size[0], MaxSize: j.Range.Size[1], MaxWork: j.Range.Work,
	}}
	var faults []error
	wrong := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	r := form.Range
	if !(r.MinBatch >= 1 && r.MinBatch <= r.MaxBatch && r.MaxBatch <= maxCount && r.MinSize > 0.01 && r.MinSize <= r.MaxSize && r.MaxSize <= maxCount && r.MaxWork > 0) {
		wrong("range: batch size %v, length %v, work %v: want rising bounds of 1 to 2^40", j.Range.Batch, j.Range.Size, j.Range.Work)
	}
	if !(math.Abs(j.Offset) <= maxCount) {
		wrong("context offset %v tokens: want at most 2^40", j.Offset)
	}
	if len(j.Terms) > maxTerms || len(j.Bands) > maxBands || (j.Residual != nil && len(j.Residual.Centres) > maxFileCentres) {
		wrong("more than %d terms, %d intervals or %d centres", maxTerms, maxBands, maxFileCentres)
		return nil, errors.Join(faults...)
	}
	if len(j.Terms) > 0 && !possibleTime(j.Floor) {
		wrong("floor of %v s: want a positive time", j.Floor)
	}
	for i, t := range j.Terms {
		term, err := t.term(known)
		if err != nil {
			wrong("term %d: %w", i, err)
		}
		form.Terms = append(form.Terms, term)
	}
	if j.Residual != nil {
		if err := j.Residual.check(); err != nil {
			faults = append(faults, err)
		}
		form.Residual = &Residual{LengthB: j.Residual.LengthB, LengthX: j.Residual.LengthX}
		for _, c := range j.Residual.Centres {
			form.Residual.Centres = append(form.Residual.Centres, Centre{c[0], c[1], c[2]})
		}
	}
	for i, b := range j.Bands {
		if err := b.check(); err != nil {
			wrong("interval %d: %w", i, err)
		}
		form.Bands = append(form.Bands, Band(b))
	}
	return form, errors.Join(faults...)
}

// known reports whether v is a variable of some mode.
func known(v Variable) bool {
	for _, m := range modes() {
		if slices.Contains(variablesOf(m), v) {
			return true
		}
	}
	return false
}

func (r *residualJSON) check() error {
	if r.Kernel != kernelName {
		return fmt.Errorf("residual kernel %q: want %s", r.Kernel, kernelName)
	}
	if !(r.LengthB >= 0.01 && r.LengthB <= 1e3 && r.LengthX >= 0.01 && r.LengthX <= 1e3) {
		return fmt.Errorf("residual lengths %v and %v octaves: want 0.01 to 1000", r.LengthB, r.LengthX)
	}
	for i, c := range r.Centres {
		if !(math.Abs(c[0]) <= 64 && math.Abs(c[1]) <= 64 && math.Abs(c[2]) <= 1e6) {
			return fmt.Errorf("residual centre %d: %v: out of range", i, c)
		}
	}
	return nil
}

// parseNative reads the "llmprof" entry of a config. A newer minor version is
// read with a warning.
func parseNative(config string, raw json.RawMessage) (n nativeJSON, warning string, err error) {
	// The version comes first: a later major may have any other shape.
	var head struct {
		Schema  string `json:"schema"`
		Version string `json:"version"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return n, "", fmt.Errorf("config %s: llmprof entry: %w", config, err)
	}
	if head.Schema != Schema {
		return n, "", fmt.Errorf("config %s: llmprof entry of schema %q: want %s", config, head.Schema, Schema)
	}
	majorText, minorText, ok := strings.Cut(head.Version, ".")
	major, errMajor := strconv.Atoi(majorText)
	minor, errMinor := strconv.Atoi(minorText)
	if !ok || errMajor != nil || errMinor != nil || major < 1 || minor < 0 {
		return n, "", fmt.Errorf("config %s: llmprof entry of version %q: want major.minor", config, head.Version)
	}
	if major > 1 {
		return n, "", &VersionError{Config: config, Version: head.Version}
	}
	if minor > minorVersion {
		warning = fmt.Sprintf("config %s: %s version %s is newer than %s: what it added is ignored", config, Schema, head.Version, Version)
	}
	if err := json.Unmarshal(raw, &n); err != nil {
		return n, "", fmt.Errorf("config %s: llmprof entry: %w", config, err)
	}
	return n, warning, nil
}
