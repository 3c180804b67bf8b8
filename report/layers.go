package report

import (
	"fmt"

	"github.com/llmprof/llmprof/fit/layers"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// RequestTimeKeys is the predicted time of a request that is alone on its device.
type RequestTimeKeys struct {
	InputLen  int           `json:"input_len"`
	OutputLen int           `json:"output_len"`
	NumLayers int           `json:"num_layers"`
	Prefill   EstimateKeys  `json:"prefill_ms"`
	TPOT      *EstimateKeys `json:"tpot_ms"`
	EndToEnd  EstimateKeys  `json:"e2e_ms"`
	Warnings  []string      `json:"warnings,omitempty"`
}

// Request builds the keys of a request.
func Request(numLayers, input, output int, t layers.RequestTime) RequestTimeKeys {
	k := RequestTimeKeys{
		InputLen: input, OutputLen: output, NumLayers: numLayers,
		Prefill: Milliseconds(t.Prefill), EndToEnd: Milliseconds(t.EndToEnd), Warnings: t.EndToEnd.Warnings,
	}
	if t.TPOT != nil {
		tpot := Milliseconds(*t.TPOT)
		k.TPOT = &tpot
	}
	return k
}

// RequestsDocument is the JSON of predicted requests.
type RequestsDocument struct {
	Head
	Predictions []RequestTimeKeys `json:"predictions"`
}

// Requests builds the document.
func Requests(predictions []RequestTimeKeys, tool string) RequestsDocument {
	return RequestsDocument{NewHead("predictions", tool), predictions}
}

// RequestTables shows predicted requests.
func RequestTables(d RequestsDocument) []Table {
	t := Table{Columns: []Column{
		{Name: "input", Key: "input_len"},
		{Name: "output", Key: "output_len"},
		{Name: "prefill ms", Key: "prefill_ms"},
		{Name: "TPOT ms", Key: "tpot_ms"},
		{Name: "E2E ms", Key: "e2e_ms"},
		{Name: "low", Key: "e2e_low_ms"},
		{Name: "high", Key: "e2e_high_ms"},
		{Name: "basis", Left: true},
	}}
	seen := map[string]bool{}
	for _, p := range d.Predictions {
		row := []Cell{Whole(p.InputLen), Whole(p.OutputLen), known(3, &p.Prefill.Value), Missing(), known(3, &p.EndToEnd.Value), known(3, p.EndToEnd.Low), known(3, p.EndToEnd.High), Say(string(p.EndToEnd.Basis))}
		if p.TPOT != nil {
			row[3] = known(3, &p.TPOT.Value)
		}
		t.Rows = append(t.Rows, row)
		for _, w := range p.Warnings {
			if !seen[w] {
				t.Notes = append(t.Notes, w)
			}
			seen[w] = true
		}
	}
	return []Table{t}
}

// LayerKeys is the predicted time of one call of a layer.
type LayerKeys struct {
	Layer string `json:"layer"`
	// Tokens, Context, Sequences, SequenceContext and ActivatedExperts are the
	// sizes that were asked for, as in a profile.
	Tokens           int          `json:"tokens,omitempty"`
	Context          int          `json:"context,omitempty"`
	Sequences        int          `json:"sequences,omitempty"`
	SequenceContext  int          `json:"sequence_context,omitempty"`
	ActivatedExperts int          `json:"activated_experts,omitempty"`
	TensorParallel   int          `json:"tensor_parallel_size"`
	Latency          EstimateKeys `json:"latency_ms"`
	Extrapolated     bool         `json:"extrapolated"`
	Warnings         []string     `json:"warnings,omitempty"`
}

// Layer builds the keys of one call.
func Layer(l profile.Layer, e stat.Estimate[unit.Seconds]) LayerKeys {
	return LayerKeys{
		Layer: l.Name, Tokens: l.Tokens, Context: l.Context, Sequences: l.Sequences, SequenceContext: l.SequenceContext,
		ActivatedExperts: l.ActivatedExperts, TensorParallel: max(l.TensorParallel, 1),
		Latency: Milliseconds(e), Extrapolated: e.Basis == stat.Extrapolated, Warnings: e.Warnings,
	}
}

// LayersDocument is the JSON of predicted layers.
type LayersDocument struct {
	Head
	Predictions []LayerKeys `json:"predictions"`
}

// Layers builds the document.
func Layers(predictions []LayerKeys, tool string) LayersDocument {
	return LayersDocument{NewHead("predictions", tool), predictions}
}

// LayerTables shows predicted layers.
func LayerTables(d LayersDocument) []Table {
	t := Table{Columns: []Column{
		{Name: "layer", Left: true},
		{Name: "TP", Key: "tensor_parallel_size"},
		{Name: "tokens", Idle: idle("0")},
		{Name: "context", Idle: idle("0")},
		{Name: "sequences", Idle: idle("0")},
		{Name: "their context", Key: "sequence_context", Idle: idle("0")},
		{Name: "experts", Key: "activated_experts", Idle: idle("0")},
		{Name: "ms", Key: "latency_ms"},
		{Name: "low", Key: "low_ms"},
		{Name: "high", Key: "high_ms"},
		{Name: "basis", Left: true},
	}}
	seen := map[string]bool{}
	for _, p := range d.Predictions {
		t.Rows = append(t.Rows, []Cell{
			Say(p.Layer), Whole(p.TensorParallel), Whole(p.Tokens), Whole(p.Context), Whole(p.Sequences), Whole(p.SequenceContext), Whole(p.ActivatedExperts),
			known(6, &p.Latency.Value), known(6, p.Latency.Low), known(6, p.Latency.High), Say(string(p.Latency.Basis)),
		})
		for _, w := range p.Warnings {
			if !seen[w] {
				t.Notes = append(t.Notes, w)
			}
			seen[w] = true
		}
	}
	return []Table{t}
}

// known is a figure with that many decimals, which may be missing.
func known(decimals int, v *float64) Cell {
	if v == nil {
		return Missing()
	}
	return Fixed(*v, decimals)
}

// ScalingKeys compares one request of the whole model with its layers.
type ScalingKeys struct {
	InputLen  int `json:"input_len"`
	OutputLen int `json:"output_len"`
	// MeasuredMs and EstimatedMs are means in milliseconds, Factor is their
	// ratio.
	MeasuredMs  float64 `json:"measured_ms"`
	EstimatedMs float64 `json:"estimated_ms"`
	Factor      float64 `json:"factor"`
}

// ScalingDocument is the JSON of a validation of a layer profile.
type ScalingDocument struct {
	Head
	Model     string `json:"model,omitempty"`
	Device    string `json:"device,omitempty"`
	NumLayers int    `json:"num_layers"`
	// Compat says that lm_head was counted twice.
	Compat bool          `json:"compat"`
	Pairs  []ScalingKeys `json:"pairs"`
	// Factor is the mean of the pairs' factors, PrefillFactor that of the pairs
	// with one token of output, DecodeFactor that of what the others take
	// beyond their prompt; nil where the pairs do not tell.
	Factor        float64  `json:"factor"`
	PrefillFactor *float64 `json:"prefill_factor"`
	DecodeFactor  *float64 `json:"decode_factor"`
	// File is the scaled table that was written, if any.
	File string `json:"file,omitempty"`
}

// Scaling builds the document.
func Scaling(pairs []ScalingKeys, factor float64, tool string) ScalingDocument {
	return ScalingDocument{Head: NewHead("scaling", tool), Pairs: pairs, Factor: factor}
}

// ScalingTables shows a validation.
func ScalingTables(d ScalingDocument) []Table {
	t := Table{Columns: []Column{{Name: "input", Key: "input_len"}, {Name: "output", Key: "output_len"}, {Name: "measured ms", Key: "measured_ms"}, {Name: "layers add up to ms", Key: "estimated_ms"}, {Name: "factor"}}}
	for _, p := range d.Pairs {
		t.Rows = append(t.Rows, []Cell{Whole(p.InputLen), Whole(p.OutputLen), known(3, &p.MeasuredMs), known(3, &p.EstimatedMs), Fixed(p.Factor, 4)})
	}
	t.Notes = append(t.Notes, fmt.Sprintf("average scaling factor %.4f over %d pairs, %d layers", d.Factor, len(d.Pairs), d.NumLayers))
	if d.PrefillFactor != nil {
		t.Notes = append(t.Notes, fmt.Sprintf("prefill alone: %.4f", *d.PrefillFactor))
	}
	if d.DecodeFactor != nil {
		t.Notes = append(t.Notes, fmt.Sprintf("decode alone: %.4f", *d.DecodeFactor))
	}
	if d.Compat {
		t.Notes = append(t.Notes, "lm_head is counted twice in every generated token, as LLM-Profile does")
	}
	if d.File != "" {
		t.Notes = append(t.Notes, "wrote "+d.File)
	}
	return []Table{t}
}
