// Package layerscsv reads and writes layer profiles that are one CSV file: the
// table of LLM-Profile (casys-kaist/llm-profile) and those that LLMServingSim
// used before it had bundles.
//
// Five layouts are told apart by their column names, in any order: [Seed]
//
//	hardware,model,layer_name,input,kv_cache,latency(ns)
//	RTX3090,meta-llama/Llama-3.1-8B,q_proj,128,0,154031
//
// with or without scaled_latency(ns), [Layers], [Attention],
// [PrefillPredictions] and [DecodePredictions]. Every row becomes one point of
// a [profile.Profile], in the order of the file, repeated rows included: which
// of them counts is for the reader of the profile to say. input is the tokens
// computed, kv_cache the tokens already cached; so a prefill row has kv_cache
// 0 and a decode row input 1. Times become seconds by moving the decimal point
// in the text. A cell that would not come back as it stood, and every column
// that has no place in a point, is kept verbatim in Extra; what such a column
// says in all rows alike stands once in the header's metadata. A file that is
// read and written in its own layout has equal bytes again.
//
// A CSV does not say with which clock it was timed, and old files hold CPU
// time: points carry no clock. See [profile.Lint].
//
//	p, warnings, err := layerscsv.Read("RTX3090.csv.gz", file, layerscsv.Options{})
//	err = layerscsv.Write(out, p, layerscsv.WriteOptions{})
package layerscsv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/unit"
)

// Options says how a file is read.
type Options struct {
	// Device finds the canonical catalog name of a device by the name that
	// the file gives. Without it, and where it knows no name, the profile
	// holds the reported name alone.
	Device func(reported string) (canonical string, ok bool)
	// Limits bounds what is taken in; Values counts cells.
	Limits format.Limits
}

// MetadataKey is the key of the profile's metadata under which [Read] keeps
// what it needs to write the file again.
const MetadataKey = "layers_csv"

// metadata is the value under MetadataKey.
type metadata struct {
	Variant Variant  `json:"variant"`
	Columns []string `json:"columns"`
	Newline string   `json:"newline"`
	// Constants are the columns that say the same in every row.
	Constants map[string]string `json:"constants,omitempty"`
}

// VariantOf is the layout that a profile was read from; ok is false where it
// does not come from one.
func VariantOf(h profile.Header) (v Variant, ok bool) {
	m, err := metadataOf(h)
	return m.Variant, err == nil && m.Variant != ""
}

// metadataOf is what Read kept; empty where there is nothing.
func metadataOf(h profile.Header) (metadata, error) {
	var m metadata
	kept, ok := h.Metadata[MetadataKey]
	if !ok {
		return m, nil
	}
	if err := json.Unmarshal(kept, &m); err != nil {
		return metadata{}, fmt.Errorf("metadata %s: %w", MetadataKey, err)
	}
	return m, nil
}

// HeadSize is the number of bytes of a file with which [Detect] can decide.
const HeadSize = 64 << 10

// Detect tells from the first bytes of a file, plain or gzip, whether [Read]
// knows its columns. The file's name is not looked at.
func Detect(head []byte) bool {
	text, err := profile.Expand(bytes.NewReader(head), profile.Bounds{})
	if err != nil {
		return false
	}
	// The head may end anywhere: what can be read of it decides.
	part := make([]byte, HeadSize)
	n, _ := io.ReadFull(text, part)
	line, _, whole := bytes.Cut(bytes.TrimPrefix(part[:n], []byte("\ufeff")), []byte{'\n'})
	if !whole {
		return false
	}
	t, err := format.OpenTable("", line, format.Limits{})
	if err != nil {
		return false
	}
	_, err = recognise(t.Columns())
	return err == nil
}

// Read reads a layer profile. The name stands in errors and as the source of
// the profile; the layout is told by the columns. Warnings are remarks on the
// whole file. A fault is a [*format.Error] that names file and line.
func Read(name string, r io.Reader, opts Options) (*profile.Profile, []error, error) {
	text, err := format.ReadText(name, r, opts.Limits)
	if err != nil {
		return nil, nil, err
	}
	t, err := format.OpenTable(name, text, opts.Limits)
	if err != nil {
		return nil, nil, err
	}
	l, err := recognise(t.Columns())
	if err != nil {
		return nil, nil, t.Errorf("", "%w", err)
	}
	b := &reader{
		name: name, table: t, layout: l, opts: opts, at: map[string]int{},
		profile: &profile.Profile{Header: profile.Header{Schema: profile.Schema, Version: profile.Version, Source: name}},
	}
	if err := b.read(); err != nil {
		return nil, nil, err
	}
	return b.profile, b.warnings, nil
}

// reader turns the rows of one file into a profile.
type reader struct {
	name     string
	table    *format.Table
	row      []string // the present one
	layout   layout
	opts     Options
	profile  *profile.Profile
	warnings []error
	at       map[string]int // index of each column that the layout knows
	others   []otherColumn
	tp       int  // of all rows so far, 0 for none
	mixedTP  bool // rows differ in it
}

// otherColumn is a column without a place in a point.
type otherColumn struct {
	name  string
	index int
	cells []string
}

func (b *reader) read() error {
	for i, column := range b.table.Columns() {
		key := strings.TrimSpace(column)
		if b.layout.own(key) {
			b.at[key] = i
		} else {
			b.others = append(b.others, otherColumn{name: key, index: i})
		}
	}
	for row, err := range b.table.Rows() {
		if err != nil {
			return err
		}
		b.row = row
		if err := b.point(); err != nil {
			return err
		}
		for i := range b.others {
			o := &b.others[i]
			o.cells = append(o.cells, row[o.index])
		}
	}
	b.warnings = b.table.Warnings()
	if len(b.profile.Points) == 0 {
		return &format.Error{File: b.name, Err: fmt.Errorf("holds no rows below the column names")}
	}
	return b.finish()
}

// finish fills in the header and stores the columns without a place.
func (b *reader) finish() error {
	m := metadata{Variant: b.layout.variant, Columns: b.table.Columns(), Newline: b.table.Newline()}
	for _, o := range b.others {
		first := o.cells[0]
		if !slices.ContainsFunc(o.cells, func(c string) bool { return c != first }) {
			if m.Constants == nil {
				m.Constants = map[string]string{}
			}
			m.Constants[o.name] = first
			continue
		}
		for i, cell := range o.cells {
			if cell != "" { // an empty cell says nothing
				format.KeepCell(&b.profile.Points[i], o.name, cell)
			}
		}
	}
	kept, err := json.Marshal(m)
	if err != nil {
		return &format.Error{File: b.name, Err: err}
	}
	h := &b.profile.Header
	h.Metadata = map[string]json.RawMessage{MetadataKey: kept}
	if h.Device.Reported == "" && h.Deploy.Model == "" {
		h.Device.Reported, h.Deploy.Model = fromPath(b.name)
	}
	if b.opts.Device != nil && h.Device.Reported != "" {
		if canonical, ok := b.opts.Device(h.Device.Reported); ok {
			h.Device.Name, h.Deploy.Device = canonical, canonical
		}
	}
	if !b.mixedTP {
		h.Deploy.TensorParallel = b.tp
	}
	if b.layout.variant == PrefillPredictions || b.layout.variant == DecodePredictions {
		b.warnings = append(b.warnings, &format.Error{File: b.name, Err: fmt.Errorf("the times are what a regression predicted, not measurements")})
	}
	return nil
}

// fromPath finds device and model in the path that LLMServingSim 1.0 keeps its
// tables under: perf_models/<hardware>/<model>/tp<N>/… Its files do not say
// either.
func fromPath(name string) (hardware, model string) {
	parts := strings.Split(strings.ReplaceAll(name, "\\", "/"), "/")
	start := slices.Index(parts, "perf_models")
	end := slices.IndexFunc(parts, func(p string) bool {
		return len(p) > 2 && strings.HasPrefix(p, "tp") && strings.Trim(p[2:], "0123456789") == ""
	})
	if start < 0 || end < start+3 {
		return "", ""
	}
	return parts[start+1], strings.Join(parts[start+2:end], "/")
}

// cell is the text of a column in the present row; empty where the file does
// not have it.
func (b *reader) cell(column string) string {
	if at, ok := b.at[column]; ok {
		return b.row[at]
	}
	return ""
}

// size reads a whole number into p and keeps a spelling that would not come
// back.
func (b *reader) size(p *profile.Point, column string, least int) (int, error) {
	text := b.cell(column)
	n, err := format.ParseSize(text, least)
	if err != nil {
		return 0, b.table.Errorf(column, "%w", err)
	}
	if strconv.Itoa(n) != text {
		format.KeepCell(p, column, text)
	}
	return n, nil
}

// time reads a positive time, likewise.
func (b *reader) time(p *profile.Point, column string, in format.TimeUnit) (unit.Seconds, error) {
	text := b.cell(column)
	t, err := format.ParseTime(text, in)
	if err != nil {
		return 0, b.table.Errorf(column, "%w", err)
	}
	if b.layout.timeText(t, in) != text {
		format.KeepCell(p, column, text)
	}
	return t, nil
}

// timeText writes a time as the layout does: nanoseconds are whole.
func (l layout) timeText(t unit.Seconds, in format.TimeUnit) string {
	text := format.TimeText(t, in)
	if in == format.Nanoseconds {
		return whole(text)
	}
	return text
}

// whole cuts off the digits after the decimal point.
func whole(text string) string {
	text, _, _ = strings.Cut(text, ".")
	return text
}

// same holds a column that must say the same in every row.
func (b *reader) same(column string, to *string) error {
	cell := b.cell(column)
	if len(b.profile.Points) == 0 {
		*to = cell
	} else if cell != *to {
		return b.table.Errorf(column, "%q after rows of %q: a profile is of one %s; split the file", cell, *to, column)
	}
	return nil
}

// ranks notes the tensor parallel size of a row.
func (b *reader) ranks(tp int) {
	b.mixedTP = b.mixedTP || b.tp != 0 && b.tp != tp
	b.tp = tp
}

// point reads the present row.
func (b *reader) point() error {
	p := profile.Point{Kind: profile.KindLayer, Layer: &profile.Layer{}}
	var err error
	switch b.layout.variant {
	case Seed, Layers:
		err = b.layer(&p)
	case Attention:
		err = b.attention(&p)
	case PrefillPredictions, DecodePredictions:
		err = b.prediction(&p)
	}
	if err != nil {
		return err
	}
	b.profile.Points = append(b.profile.Points, p)
	return nil
}

// layer reads a row of one layer's time.
func (b *reader) layer(p *profile.Point) error {
	h := &b.profile.Header
	if _, ok := b.at[colHardware]; ok {
		if err := b.same(colHardware, &h.Device.Reported); err != nil {
			return err
		}
	}
	if _, ok := b.at[colModel]; ok {
		if err := b.same(colModel, &h.Deploy.Model); err != nil {
			return err
		}
	}
	p.Layer.Name = b.cell(colLayer)
	if p.Layer.Name == "" {
		return b.table.Errorf(colLayer, "missing: want the name of a layer")
	}
	p.Layer.Name = strings.Clone(p.Layer.Name) // else it would hold the whole row
	var err error
	if p.Layer.Tokens, err = b.size(p, colInput, 1); err != nil {
		return err
	}
	if p.Layer.Context, err = b.size(p, colKV, 0); err != nil {
		return err
	}
	if _, ok := b.at[colTP]; ok {
		if p.Layer.TensorParallel, err = b.size(p, colTP, 1); err != nil {
			return err
		}
		b.ranks(p.Layer.TensorParallel)
	}
	t, err := b.time(p, colLatency, format.Nanoseconds)
	if err != nil {
		return err
	}
	p.Samples = []float64{float64(t)}
	return nil
}

// attentionName is the layer that the tables of attention alone are about.
const attentionName = "attention"

// attention reads a row of statistics of attention.
func (b *reader) attention(p *profile.Point) error {
	p.Layer.Name = attentionName
	var prefill bool
	switch b.cell(colIsPrefill) {
	case "True", "true":
		prefill = true
	case "False", "false":
	default:
		return b.table.Errorf(colIsPrefill, "want True or False, got %q", b.cell(colIsPrefill))
	}
	if text := b.cell(colIsPrefill); text != pythonBool(prefill) {
		format.KeepCell(p, colIsPrefill, text)
	}
	phase, other := colDecode, colPrefill
	var err error
	if p.Layer.Tokens, err = b.size(p, colChunk, 0); err != nil {
		return err
	}
	batch, err := b.size(p, colBatch, 1)
	if err != nil {
		return err
	}
	kv, err := b.size(p, colKVSize, 0)
	if err != nil {
		return err
	}
	if prefill {
		if batch != 1 {
			return b.table.Errorf(colBatch, "a prefill of %d sequences has no place in a layer's point: want 1", batch)
		}
		phase, other = colPrefill, colDecode
		p.Layer.Context = kv
	} else {
		p.Layer.Sequences, p.Layer.SequenceContext = batch, kv
	}
	if _, ok := b.at[colWorkers]; ok {
		if p.Layer.TensorParallel, err = b.size(p, colWorkers, 1); err != nil {
			return err
		}
		b.ranks(p.Layer.TensorParallel)
	}
	mean, err := b.time(p, phase+statMean, format.Milliseconds)
	if err != nil {
		return err
	}
	if text := b.cell(other + statMean); text != "" {
		format.KeepCell(p, other+statMean, text)
	}
	p.Summary = &profile.Summary{Mean: float64(mean)}
	// The deviation stays in Extra, as text, with the other statistics.
	if at := b.table.Column(phase + statStd); at >= 0 {
		if std, err := format.ParseTime(b.row[at], format.Milliseconds); err == nil {
			p.Summary.Std = float64(std)
		}
	}
	return nil
}

// pythonBool is a truth as Python writes it.
func pythonBool(v bool) string {
	if v {
		return "True"
	}
	return "False"
}

// prediction reads a row of predicted times of attention.
func (b *reader) prediction(p *profile.Point) error {
	p.Layer.Name = attentionName
	kv, err := b.size(p, colKVSize, 0)
	if err != nil {
		return err
	}
	if b.layout.variant == PrefillPredictions {
		p.Layer.Context = kv
		p.Layer.Tokens, err = b.size(p, colChunk, 1)
	} else {
		p.Layer.SequenceContext = kv
		p.Layer.Sequences, err = b.size(p, colBatch, 1)
	}
	if err != nil {
		return err
	}
	t, err := b.time(p, colPrediction, format.Nanoseconds)
	if err != nil {
		return err
	}
	p.Summary = &profile.Summary{Mean: float64(t)}
	return nil
}
