package memory

import (
	"errors"
	"fmt"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost/llmsizer"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/unit"
)

// sizer is a calculator of the tool llm-sizer.
type sizer struct{ version llmsizer.Version }

// Sizer is a calculator of the tool llm-sizer; see package llmsizer for the
// formulas. Parts that it counts for one GPU are multiplied.
func Sizer(v llmsizer.Version) Calculator { return sizer{v} }

// Name names the version.
func (s sizer) Name() string { return "llm-sizer " + string(s.version) }

// Calculate applies the formula to what the profile tells of the model, and
// beyond that to what the catalog knows by its id.
func (s sizer) Calculate(m Measured) (Prediction, error) {
	if m.Shape.Params == 0 || m.Shape.Layers == 0 || m.Shape.Hidden == 0 {
		return Prediction{}, &UnknownModelError{s.Name(), m.Model, "the profile does not tell parameters, layers and hidden size, and the catalog does not know the id"}
	}
	weights, note, err := sizerFormat(m)
	if err != nil {
		return Prediction{}, fmt.Errorf("calculate %s with %s: %w", m.Model, s.Name(), err)
	}
	kv := m.KVDType
	if kv == "" {
		kv = m.ActivationDType
	}
	r, err := llmsizer.Calculate(llmsizer.Input{
		Version: s.version, Model: m.Shape, Weights: weights, KV: kv,
		Batch: m.Batch, Tokens: m.tokens(), GPUs: m.gpus(),
	})
	if err != nil {
		return Prediction{}, fmt.Errorf("calculate %s with %s: %w", m.Model, s.Name(), err)
	}
	var out Prediction
	n := 1
	if s.version.PerGPU() {
		n = m.gpus()
	}
	for _, part := range []struct {
		into **unit.Bytes
		gb   float64
	}{
		{&out.Weights, r.Memory.Weights},
		{&out.KVCache, r.Memory.KVCache},
		{&out.Activations, r.Memory.Activations},
		{&out.Overhead, r.Memory.Overhead + r.Memory.MultiGPU},
		{&out.Total, r.Memory.Total()},
	} {
		if *part.into, err = bytesOf(part.gb * float64(n)); err != nil {
			return Prediction{}, fmt.Errorf("calculate %s with %s: %w", m.Model, s.Name(), err)
		}
	}
	if note != "" {
		out.Notes = append(out.Notes, note)
	}
	if n > 1 {
		out.Notes = append(out.Notes, fmt.Sprintf("the formula is for one GPU: its figures times %d", n))
	}
	return out, nil
}

// rule is the breakdown of the tool's profiler.
type rule struct{}

// Rule is the rule by which the profiler of the tool llm-sizer splits a measured
// total, held to the parts that were measured. It says nothing of the total. It
// sees what the profile and the user tell of the model, and not the catalog.
func Rule() Calculator { return rule{} }

// Name is "llm-sizer script-rule".
func (rule) Name() string { return "llm-sizer script-rule" }

// Calculate splits the total. What the rule computes for one GPU is multiplied.
func (r rule) Calculate(m Measured) (Prediction, error) {
	fail := func(err error) (Prediction, error) {
		return Prediction{}, fmt.Errorf("calculate %s with %s: %w", m.Model, r.Name(), err)
	}
	if m.Absolute == nil {
		return fail(errors.New("it splits the measured peak, and there is none"))
	}
	weights, note, err := sizerFormat(m)
	if err != nil {
		return fail(err)
	}
	reading := llmsizer.Reading{
		PeakGB: float64(*m.Absolute) / 1e9, Model: m.told, Weights: weights, Activations: m.ActivationDType, KV: m.KVDType,
		Batch: m.Batch, Tokens: m.tokens(), GPUs: m.gpus(),
	}
	if m.Baseline != nil {
		reading.BaselineGB = float64(*m.Baseline) / 1e9
	}
	parts, err := llmsizer.Split(reading)
	if err != nil {
		return fail(err)
	}
	out := Prediction{Notes: []string{fmt.Sprintf("the measured %.2f GB, split: weights %s, KV cache %s, activations %s", parts.NetGB, parts.Weights.Confidence, parts.KVCache.Confidence, parts.Activations.Confidence)}}
	if note != "" {
		out.Notes = append(out.Notes, note)
	}
	for _, part := range []struct {
		into **unit.Bytes
		part llmsizer.Part
	}{{&out.Weights, parts.Weights}, {&out.KVCache, parts.KVCache}, {&out.Activations, parts.Activations}, {&out.Overhead, parts.Overhead}} {
		gb := part.part.GB
		if part.part.Confidence == llmsizer.High {
			gb *= float64(m.gpus())
		}
		if *part.into, err = bytesOf(gb); err != nil {
			return fail(err)
		}
	}
	return out, nil
}

// sizerFormat is the weight format as llm-sizer has it: by bytes per weight,
// up to 0.6 for int4 and up to 1.2 for 8 bits.
func sizerFormat(m Measured) (t catalog.DType, note string, err error) {
	name := m.Quantization
	if name == "" && m.Architecture != nil && m.WeightDType == "" {
		name = m.Architecture.Quantization
	}
	if name == "" {
		return m.WeightDType, "", nil
	}
	base := m.ActivationDType
	if base == "" {
		base = catalog.BF16
	}
	format, err := deploy.ParseWeightFormat(name, base)
	if err != nil {
		return "", "", err
	}
	switch width := format.Bits / 8; {
	case width <= 0.6:
		t = catalog.INT4
	case width <= 1.2 && format.Compute == catalog.FP8:
		t = catalog.FP8
	case width <= 1.2:
		t = catalog.INT8
	default:
		return base, "", nil
	}
	return t, fmt.Sprintf("weights in %s count as %s", format.Name, t), nil
}
