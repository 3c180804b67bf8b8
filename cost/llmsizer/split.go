package llmsizer

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/llmprof/llmprof/catalog"
)

// Confidence is the profiler's word for where a part comes from.
type Confidence string

// The confidences.
const (
	// High is a formula with the architecture given.
	High Confidence = "high"
	// Medium is a rule of thumb with the architecture given.
	Medium Confidence = "medium"
	// Low is a fixed share of the total.
	Low Confidence = "low"
	// Residual is what the other parts leave.
	Residual Confidence = "calculated_residual"
)

// Reading is what the profiler of the tool has measured and been told.
type Reading struct {
	// PeakGB and BaselineGB are device memory in GB of 1e9 bytes.
	PeakGB, BaselineGB float64
	// Model is what was told of the architecture; KVHeads and Intermediate
	// are not looked at.
	Model Model
	// Weights, Activations and KV are formats; empty means 16 bits.
	Weights, Activations, KV catalog.DType
	// Batch is the number of sequences, Tokens the length of each, prompt and
	// output together.
	Batch, Tokens int
	// GPUs is the number of GPUs; 0 means 1.
	GPUs int
}

// Part is one part of a measured total.
type Part struct {
	// GB is in GB of 1e9 bytes, with two decimals.
	GB         float64
	Confidence Confidence
}

// Parts is a total, cut by the profiler's rule. None of the parts is measured.
type Parts struct {
	// NetGB is peak less baseline in GB of 1e9 bytes, with two decimals.
	NetGB                                   float64
	Weights, KVCache, Activations, Overhead Part
	// OverheadPercent is the overhead in percent of the peak, with one
	// decimal; nil where the peak is zero.
	OverheadPercent *float64
	// Overall is high wherever the number of parameters is given.
	Overall Confidence
}

// Shares of the total that stand for parts without an architecture.
const (
	weightsShare     = 0.65
	cacheShare       = 0.20
	activationsShare = 0.12
)

// Split cuts a reading into parts: formulas where the architecture is given,
// fixed shares where it is not, and the rest is overhead. The parts may exceed
// the total: the rule does not look.
func Split(r Reading) (Parts, error) {
	if err := r.validate(); err != nil {
		return Parts{}, fmt.Errorf("split a reading as llm-sizer: %w", err)
	}
	m, n := r.Model, float64(max(r.GPUs, 1))
	net := r.PeakGB - r.BaselineGB
	tokens := float64(r.Batch) * float64(r.Tokens)
	cacheWidth := float64(m.Hidden)
	if m.Hidden == 0 {
		cacheWidth = float64(m.Heads) * float64(m.HeadDim)
	}
	part := func(known bool, gb float64, c Confidence, share float64) Part {
		if known {
			return Part{gb, c}
		}
		return Part{share * net, Low}
	}
	out := Parts{
		NetGB:       round(net, 2),
		Weights:     part(m.Params > 0, m.Params*or16(r.Weights).Bytes()/(n*1e9), High, weightsShare),
		KVCache:     part(m.Layers > 0 && cacheWidth > 0, 2*float64(m.Layers)*cacheWidth*tokens*or16(r.KV).Bytes()/(n*1e9), High, cacheShare),
		Activations: part(m.Hidden > 0, tokens*float64(m.Hidden)*8*or16(r.Activations).Bytes()/1e9, Medium, activationsShare),
		Overall:     Low,
	}
	if m.Params > 0 {
		out.Overall = High
	}
	rest := max(0, net-out.Weights.GB-out.KVCache.GB-out.Activations.GB)
	out.Overhead = Part{rest, Residual}
	if r.PeakGB > 0 {
		percent := round(rest/r.PeakGB*100, 1)
		out.OverheadPercent = &percent
	}
	for _, p := range []*Part{&out.Weights, &out.KVCache, &out.Activations, &out.Overhead} {
		p.GB = round(p.GB, 2)
	}
	return out, nil
}

func (r Reading) validate() error {
	var f faults
	f.figure("peak in GB", r.PeakGB, false)
	f.figure("baseline in GB", r.BaselineGB, false)
	if r.BaselineGB > r.PeakGB {
		f = append(f, fmt.Errorf("baseline %g GB exceeds the peak of %g GB", r.BaselineGB, r.PeakGB))
	}
	f.figure("number of parameters", r.Model.Params, false)
	f.size("layers", r.Model.Layers, 0)
	f.size("heads", r.Model.Heads, 0)
	f.size("head size", r.Model.HeadDim, 0)
	f.size("hidden size", r.Model.Hidden, 0)
	f.size("batch size", r.Batch, 1)
	f.size("tokens", r.Tokens, 1)
	f.size("GPUs", r.GPUs, 0)
	for _, t := range []catalog.DType{or16(r.Weights), or16(r.Activations), or16(r.KV)} {
		if t.Bits() == 0 {
			f = append(f, fmt.Errorf("format %q is not known", t))
		}
	}
	return errors.Join(f...)
}

// round rounds to so many decimals, exactly as the value would be printed.
func round(v float64, decimals int) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'f', decimals, 64), 64)
	if err != nil {
		return v // cannot happen: the text is a number
	}
	return r
}
