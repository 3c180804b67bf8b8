package memory

import (
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
