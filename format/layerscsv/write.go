package layerscsv

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// WriteOptions says how a profile is written.
type WriteOptions struct {
	// Variant is the layout. Default [Seed]; [AsRead] is that of the file
	// which the profile was read from.
	Variant Variant
	// Scale multiplies every latency(ns), which is cut to whole nanoseconds
	// after it; 0 leaves the latencies alone. It is a ratio.
	Scale float64
	// KeepUnscaled leaves latency(ns) as it is and writes the scaled one
	// into scaled_latency(ns), a column after the others.
	KeepUnscaled bool
}

// PlaceError says that a point has no place in the layout.
type PlaceError struct {
	// Point is the index into the profile's points, Count the number of
	// points without a place.
	Point, Count int
	// Variant is the layout.
	Variant Variant
	// Why says what does not fit.
	Why string
}

// Error names the first such point.
func (e *PlaceError) Error() string {
	return fmt.Sprintf("write layer profile: %d points have no place in layout %q, the first of them point %d: %s", e.Count, e.Variant, e.Point+1, e.Why)
}

// Hint says where such points can be kept.
func (e *PlaceError) Hint() string {
	return "a .llmprof profile and an LLMServingSim bundle hold batches, ranks and experts; filter the points, or export to one of those"
}

// Write writes a profile of layers as CSV, by default in the layout of the
// seed. A point with several samples is written with their mean, in whole
// nanoseconds. Points that were not read from such a file come in the order
// of the original: those without a context, its prefill sweep, before the
// others. A point that says more than the layout can hold is a [*PlaceError];
// memory readings and failures are not written.
func Write(w io.Writer, p *profile.Profile, opts WriteOptions) error {
	fail := func(err error) error { return fmt.Errorf("write layer profile: %w", err) }
	read, err := metadataOf(p.Header)
	if err != nil {
		return fail(err)
	}
	switch {
	case opts.Variant == "":
		opts.Variant = Seed
	case opts.Variant == AsRead && read.Variant == "":
		opts.Variant = Seed
	case opts.Variant == AsRead:
		opts.Variant = read.Variant
	}
	l, err := layoutOf(opts.Variant)
	if err != nil {
		return fail(err)
	}
	scaling := opts.Scale != 0
	if scaling && (!(opts.Scale > 0) || math.IsInf(opts.Scale, 0)) {
		return fail(fmt.Errorf("scale %g: want a positive factor", opts.Scale))
	}
	if scaling && l.variant != Seed && l.variant != Layers {
		return fail(fmt.Errorf("layout %q holds no latency to scale", l.variant))
	}
	if opts.KeepUnscaled && !scaling {
		return fail(errors.New("no factor was given for scaled_latency(ns)"))
	}
	if read.Variant != l.variant || len(read.Columns) == 0 {
		known := read.Variant
		read = metadata{Variant: known, Columns: l.columns, Newline: l.newline}
	}
	if scaling && opts.KeepUnscaled && !slices.ContainsFunc(read.Columns, func(c string) bool { return strings.TrimSpace(c) == colScaled }) {
		read.Columns = append(slices.Clone(read.Columns), colScaled)
	}
	out := &writer{layout: l, opts: opts, read: read, header: &p.Header}
	rows, err := out.rows(p)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(w)
	lines := format.NewTableWriter(buffered, read.Newline)
	if err := lines.Write(read.Columns); err != nil {
		return fail(err)
	}
	columns := make([]string, len(read.Columns))
	for i, c := range read.Columns {
		columns[i] = strings.TrimSpace(c)
	}
	cells := make([]string, len(columns))
	for _, i := range rows {
		for k, column := range columns {
			if cells[k], err = out.cell(&p.Points[i], column); err != nil {
				return fail(fmt.Errorf("point %d: %w", i+1, err))
			}
		}
		if err := lines.Write(cells); err != nil {
			return fail(err)
		}
	}
	lines.Flush()
	if err := errors.Join(lines.Error(), buffered.Flush()); err != nil {
		return fail(err)
	}
	return nil
}

// writer writes the points of one profile in one layout.
type writer struct {
	layout layout
	opts   WriteOptions
	read   metadata
	header *profile.Header
}

// rows are the points to write, in the order of the file.
func (w *writer) rows(p *profile.Profile) ([]int, error) {
	var rows, later []int
	var misfit *PlaceError
	for i := range p.Points {
		point := &p.Points[i]
		if point.Kind == profile.KindMemory || point.Kind == profile.KindFailure {
			continue
		}
		if why := w.misfit(point); why != "" {
			if misfit == nil {
				misfit = &PlaceError{Point: i, Variant: w.layout.variant, Why: why}
			}
			misfit.Count++
			continue
		}
		if _, kv := w.coordinates(point.Layer); kv > 0 && w.read.Variant == "" {
			later = append(later, i)
		} else {
			rows = append(rows, i)
		}
	}
	if misfit != nil {
		return nil, misfit
	}
	if rows = append(rows, later...); len(rows) == 0 {
		return nil, errors.New("write layer profile: the profile holds no layers")
	}
	return rows, nil
}

// misfit says why a point has no place in the layout, if it has none.
func (w *writer) misfit(p *profile.Point) string {
	if p.Kind != profile.KindLayer || p.Layer == nil {
		return fmt.Sprintf("it is a %s", p.Kind)
	}
	if _, ok := p.Mean(); !ok {
		return "it holds no time"
	}
	l := p.Layer
	if l.LongSequences > 0 || l.ActivatedExperts > 0 {
		return "sequences of unequal length and experts have no column"
	}
	switch w.layout.variant {
	case Seed, Layers:
		switch input, _ := w.coordinates(l); {
		case l.Sequences > 1:
			return fmt.Sprintf("%d sequences: rows are of one", l.Sequences)
		case l.Tokens > 0 && l.SequenceContext > 0:
			return "a prompt chunk and a decoding sequence at once"
		case input < 1:
			return "it computes no token"
		case w.layout.variant == Seed && w.ranks(l) > 1 && !slices.Contains(w.read.Columns, colTP):
			return fmt.Sprintf("one of %d ranks: the layout has no column for it, %q has", w.ranks(l), Layers)
		}
		return ""
	case Attention:
		if l.Name != attentionName {
			return "layer " + strconv.Quote(l.Name) + ": rows are of attention"
		}
		if l.Sequences > 0 && l.Context > 0 {
			return "a chunk with context and decoding sequences at once"
		}
	case PrefillPredictions:
		if l.Name != attentionName || l.Tokens < 1 || l.Sequences > 0 {
			return "it is no prefill of attention"
		}
	case DecodePredictions:
		if l.Name != attentionName || l.Sequences < 1 || l.Tokens > 0 {
			return "it is no decode of attention"
		}
	}
	return ""
}

// coordinates are input and kv_cache of a layer at batch 1: a decoding
// sequence computes one token.
func (w *writer) coordinates(l *profile.Layer) (input, kv int) {
	if l.Tokens == 0 && l.Sequences == 1 {
		return 1, l.SequenceContext
	}
	return l.Tokens, l.Context
}

// ranks is the tensor parallel size of a layer.
func (w *writer) ranks(l *profile.Layer) int {
	if l.TensorParallel > 0 {
		return l.TensorParallel
	}
	return max(w.header.Deploy.TensorParallel, 1)
}

// cell is what stands in a column of a point's row.
func (w *writer) cell(p *profile.Point, column string) (string, error) {
	if !w.layout.own(column) {
		if column == colScaled && w.opts.Scale != 0 {
			return w.scaled(p)
		}
		if kept, ok := format.KeptCell(p, column); ok {
			return kept, nil
		}
		return w.read.Constants[column], nil
	}
	l := p.Layer
	input, kv := w.coordinates(l)
	if l.Name == attentionName && w.layout.variant != Seed && w.layout.variant != Layers {
		input, kv = l.Tokens, max(l.Context, l.SequenceContext)
	}
	switch column {
	case colHardware:
		if w.header.Device.Reported != "" {
			return w.header.Device.Reported, nil
		}
		return w.header.Device.Name, nil
	case colModel:
		return w.header.Deploy.Model, nil
	case colLayer:
		return l.Name, nil
	case colInput, colChunk:
		return format.SizeCell(p, column, input), nil
	case colKV, colKVSize:
		return format.SizeCell(p, column, kv), nil
	case colTP, colWorkers:
		return format.SizeCell(p, column, w.ranks(l)), nil
	case colBatch:
		return format.SizeCell(p, column, max(l.Sequences, 1)), nil
	case colIsPrefill:
		prefill := l.Sequences == 0
		if kept, ok := format.KeptCell(p, column); ok && strings.EqualFold(kept, pythonBool(prefill)) {
			return kept, nil
		}
		return pythonBool(prefill), nil
	case colLatency:
		if w.opts.Scale != 0 && !w.opts.KeepUnscaled {
			return w.scaled(p)
		}
		return w.timeCell(p, column, format.Nanoseconds)
	case colPrediction:
		return w.timeCell(p, column, format.Nanoseconds)
	case colPrefill + statMean, colDecode + statMean:
		if (column == colPrefill+statMean) == (l.Sequences == 0) {
			return w.timeCell(p, column, format.Milliseconds)
		}
		if kept, ok := format.KeptCell(p, column); ok {
			return kept, nil
		}
	}
	return "", nil
}

// timeCell writes the point's time, as it was spelled where that is the same
// time.
func (w *writer) timeCell(p *profile.Point, column string, in format.TimeUnit) (string, error) {
	mean, ok := format.MeanTime(p)
	if !ok {
		return "", errors.New("the point holds no time")
	}
	if kept, ok := format.KeptCell(p, column); ok {
		if t, err := format.ParseTime(kept, in); err == nil && t == mean {
			return kept, nil
		}
	}
	text := w.layout.timeText(mean, in)
	if text == "0" {
		return "", fmt.Errorf("%v is less than a nanosecond", mean)
	}
	return text, nil
}

// scaled is the latency times the factor: whole nanoseconds before and after,
// as the original computes it.
func (w *writer) scaled(p *profile.Point) (string, error) {
	mean, ok := format.MeanTime(p)
	if !ok {
		return "", errors.New("the point holds no time")
	}
	ns, err := strconv.ParseInt(whole(format.TimeText(mean, format.Nanoseconds)), 10, 64)
	if err != nil {
		return "", fmt.Errorf("%v is no time in nanoseconds", mean)
	}
	v := float64(ns) * w.opts.Scale
	if v > float64(format.MaxTime)*1e9 {
		return "", fmt.Errorf("%v times %g is more than a day", mean, w.opts.Scale)
	}
	if v < 1 {
		return "", fmt.Errorf("%v times %g is less than a nanosecond", mean, w.opts.Scale)
	}
	return strconv.FormatInt(int64(v), 10), nil
}
