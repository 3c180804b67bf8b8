package llmservingsim

import (
	"slices"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// The keys of a point's Extra that hold what skew.csv says beside the time:
// a batch whose decoding sequences have unequal contexts, next to what the
// same batch takes with all contexts at their mean and at their maximum.
// They are numbers, in the units of the file, except the regime; a key that
// is absent was an empty cell.
const (
	// KeyRegime is "pure" (decode alone) or "mixed" (with a prompt chunk).
	KeyRegime = "regime"
	// KeyRatio is the share of long sequences, KeySkew their context over
	// that of the others, KeyMeanContext the mean context in tokens.
	KeyRatio       = "ratio"
	KeySkew        = "skew"
	KeyMeanContext = "kv_mean"
	// KeyMeanTime and KeyMaxTime are microseconds.
	KeyMeanTime = "t_mean_us"
	KeyMaxTime  = "t_max_us"
	// KeyAlpha is where the time lies between those two.
	KeyAlpha = "alpha"
	// KeySheet names the file of a point whose layer does not tell it.
	KeySheet = "bundle_file"
)

// AttentionLayer and MoELayer are the names of the layers whose files do not
// name one.
const (
	AttentionLayer = "attention"
	MoELayer       = "moe"
)

const (
	colLayer = "layer"
	fitFile  = "skew_fit.csv"
	skewFile = "skew.csv"
)

// sizeColumn is a column that holds one of a layer's sizes.
type sizeColumn struct {
	name  string
	least int
	of    func(*profile.Layer) *int
}

// sheet is one of the CSV files of a rank.
type sheet struct {
	file    string
	newline string
	layer   string // name of the layer where no column has it
	sizes   []sizeColumn
	time    string
	// columns are those of a new file, in order.
	columns []string
	// python says that a whole number of microseconds is written "12.0".
	python bool
}

func tokens(l *profile.Layer) *int          { return &l.Tokens }
func context(l *profile.Layer) *int         { return &l.Context }
func sequences(l *profile.Layer) *int       { return &l.Sequences }
func sequenceContext(l *profile.Layer) *int { return &l.SequenceContext }
func longSequences(l *profile.Layer) *int   { return &l.LongSequences }
func longContext(l *profile.Layer) *int     { return &l.LongContext }
func experts(l *profile.Layer) *int         { return &l.ActivatedExperts }

// sheets are the files of a rank in the order in which their points come.
func sheets() []sheet {
	const crlf = "\r\n"
	return []sheet{
		{
			file: denseFile, newline: crlf, time: "time_us",
			sizes:   []sizeColumn{{"tokens", 1, tokens}},
			columns: []string{colLayer, "tokens", "time_us"},
		},
		{
			file: sequenceFile, newline: crlf, time: "time_us",
			sizes:   []sizeColumn{{"sequences", 1, sequences}},
			columns: []string{colLayer, "sequences", "time_us"},
		},
		{
			file: attentionFile, newline: crlf, time: "time_us", layer: AttentionLayer,
			sizes: []sizeColumn{
				{"prefill_chunk", 0, tokens}, {"kv_prefill", 0, context}, {"n_decode", 0, sequences}, {"kv_decode", 0, sequenceContext},
			},
			columns: []string{"prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"},
		},
		{
			file: moeFile, newline: crlf, time: "time_us", layer: MoELayer, python: true,
			sizes:   []sizeColumn{{"tokens", 1, tokens}, {"activated_experts", 0, experts}},
			columns: []string{"tokens", "activated_experts", "time_us"},
		},
		{
			file: skewFile, newline: "\n", time: "t_skew_us", layer: AttentionLayer, python: true,
			sizes: []sizeColumn{
				{"n", 1, sequences},
				{"nb", 0, longSequences},
				{"pc", 0, tokens},
				{"kp", 0, context},
				{"kvs", 0, sequenceContext},
				{"kv_big", 0, longContext},
			},
			columns: []string{
				KeyRegime, "n", "nb", KeyRatio, KeySkew, "pc", "kp", "kvs", "kv_big", KeyMeanContext, KeyMeanTime, KeyMaxTime, "t_skew_us", KeyAlpha,
			},
		},
	}
}

// required are the columns without which a file cannot be read.
func (s sheet) required() []string {
	var out []string
	if s.layer == "" {
		out = append(out, colLayer)
	}
	for _, c := range s.sizes {
		out = append(out, c.name)
	}
	return append(out, s.time)
}

// own reports whether a column is held by the fields of a point.
func (s sheet) own(column string) bool { return slices.Contains(s.required(), column) }

// timeText writes a time as the sheet does.
func (s sheet) timeText(p *profile.Point) string {
	mean, ok := format.MeanTime(p)
	if !ok {
		return ""
	}
	text := format.TimeText(mean, format.Microseconds)
	if s.python && !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// sheetOf is the file that a point's layer belongs to by its sizes.
func sheetOf(p *profile.Point) string {
	if kept, ok := format.KeptCell(p, KeySheet); ok {
		return kept
	}
	switch l := p.Layer; {
	case l.LongSequences > 0:
		return skewFile
	case l.Name == AttentionLayer:
		return attentionFile
	case l.Name == MoELayer:
		return moeFile
	case l.Sequences > 0 && l.Tokens == 0:
		return sequenceFile
	}
	return denseFile
}
