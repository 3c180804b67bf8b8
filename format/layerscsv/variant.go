package layerscsv

import (
	"fmt"
	"slices"
	"strings"
)

// Variant is one of the layouts, told by the column names.
type Variant string

// The layouts.
const (
	// Seed: one model on one device, batch 1, latency(ns); LLM-Profile and
	// LLMServingSim before 1.0.
	Seed Variant = "seed"
	// Layers: LLMServingSim 1.0 layers.csv, latency(ns) with tp_size.
	Layers Variant = "layers"
	// Attention: LLMServingSim 1.0 attention.csv, statistics in ms.
	Attention Variant = "attention"
	// PrefillPredictions and DecodePredictions: LLMServingSim 1.0
	// predictions/attn_*_predictions.csv, in ns. They are what a regression
	// said, not measurements.
	PrefillPredictions Variant = "attention prefill predictions"
	DecodePredictions  Variant = "attention decode predictions"

	// AsRead stands in [WriteOptions] for the layout that the profile was
	// read from.
	AsRead Variant = "as read"
)

// The columns that have a place in a point or the header.
const (
	colHardware   = "hardware"
	colModel      = "model"
	colLayer      = "layer_name"
	colInput      = "input"
	colKV         = "kv_cache"
	colTP         = "tp_size"
	colLatency    = "latency(ns)"
	colScaled     = "scaled_latency(ns)"
	colBatch      = "batch_size"
	colChunk      = "prefill_chunk_size"
	colKVSize     = "kv_cache_size"
	colPrediction = "prediction"
	colIsPrefill  = "is_prefill"
	colWorkers    = "num_tensor_parallel_workers"
	colPrefill    = "time_stats.attn_prefill."
	colDecode     = "time_stats.attn_decode."
	statMean      = "mean"
	statStd       = "std"
)

// layout is what one variant looks like.
type layout struct {
	variant Variant
	// required are the columns without which a file is not of the variant.
	required []string
	// columns are those of a new file, in order.
	columns []string
	newline string
}

func layouts() []layout {
	seed := []string{colHardware, colModel, colLayer, colInput, colKV, colLatency}
	layers := []string{colLayer, colInput, colKV, colTP, colLatency}
	var attention []string
	for _, phase := range []string{colPrefill, colDecode} {
		for _, stat := range []string{"min", "max", statMean, "median", statStd} {
			attention = append(attention, phase+stat)
		}
	}
	attention = append(attention, "n_embd", "n_q_head", "n_kv_head", colWorkers, "max_model_len", colBatch, colChunk, colKVSize, colIsPrefill, "attention_backend")
	prefill := []string{colKVSize, colChunk, colPrediction}
	decode := []string{colBatch, colKVSize, colPrediction}
	return []layout{
		{Seed, seed, seed, "\r\n"},
		{Layers, layers, layers, "\n"},
		{Attention, []string{colPrefill + statMean, colDecode + statMean, colBatch, colChunk, colKVSize, colIsPrefill}, attention, "\n"},
		{PrefillPredictions, prefill, prefill, "\n"},
		{DecodePredictions, decode, decode, "\n"},
	}
}

func layoutOf(v Variant) (layout, error) {
	var known []string
	for _, l := range layouts() {
		if l.variant == v {
			return l, nil
		}
		known = append(known, string(l.variant))
	}
	return layout{}, fmt.Errorf("unknown layout %q: want %s", v, strings.Join(known, ", "))
}

// recognise tells the layout by its columns, in any order.
func recognise(columns []string) (layout, error) {
	has := map[string]bool{}
	for _, c := range columns {
		has[strings.TrimSpace(c)] = true
	}
	nearest, share, missing := layout{}, 0.0, []string(nil)
	for _, l := range layouts() {
		var lacks []string
		for _, c := range l.required {
			if !has[c] {
				lacks = append(lacks, c)
			}
		}
		if len(lacks) == 0 {
			return l, nil
		}
		if s := 1 - float64(len(lacks))/float64(len(l.required)); s > share {
			nearest, share, missing = l, s, lacks
		}
	}
	if has["time_us"] && (has["layer"] || has["n_decode"] || has["activated_experts"]) || has["t_skew_us"] {
		return layout{}, fmt.Errorf("the file is part of an LLMServingSim bundle: read the folder that holds its meta.yaml")
	}
	if share >= 0.5 {
		return layout{}, fmt.Errorf("column %s is missing: a layer profile of layout %q has %s", strings.Join(missing, ", "), nearest.variant, strings.Join(nearest.required, ", "))
	}
	return layout{}, fmt.Errorf("the columns %s are not those of a layer profile: want %s", shorten(columns), strings.Join(layouts()[0].required, ", "))
}

// shorten shows the first columns.
func shorten(columns []string) string {
	const few = 8
	var shown []string
	for _, c := range columns[:min(len(columns), few)] {
		shown = append(shown, fmt.Sprintf("%.40q", c))
	}
	if len(columns) > few {
		shown = append(shown, "…")
	}
	return strings.Join(shown, ", ")
}

// own reports whether a column of this layout is held by points and header,
// so that Extra need not keep it.
func (l layout) own(column string) bool {
	switch l.variant {
	case Seed, Layers:
		return slices.Contains([]string{colHardware, colModel, colLayer, colInput, colKV, colTP, colLatency}, column)
	case Attention:
		return slices.Contains([]string{colPrefill + statMean, colDecode + statMean, colWorkers, colBatch, colChunk, colKVSize, colIsPrefill}, column)
	}
	return slices.Contains(l.columns, column)
}
