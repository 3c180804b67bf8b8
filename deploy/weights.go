package deploy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/catalog"
)

// WeightFormat says how the matrices of a model are stored and multiplied.
// Embeddings, head, norms and router keep the activation format.
type WeightFormat struct {
	// Name is the canonical spelling.
	Name string
	// Bits is the storage of one weight with its share of scales and zero
	// points, in bits.
	Bits float64
	// RowScaleBytes is the storage of one scale per output row in bytes,
	// beside Bits; 0 where scales are per block.
	RowScaleBytes int
	// Compute is the format in which the multiplication runs: the activation
	// format for weight-only formats.
	Compute catalog.DType
	// ActivationBytes is the storage of one input element of a quantised
	// multiplication.
	ActivationBytes float64
	// ExpertsOnly says that only routed experts are stored so.
	ExpertsOnly bool
}

// formats lists the known weight formats; Compute "" stands for the
// activation format. Sources: the formats' own definitions (OCP microscaling
// specification, GGUF block layouts, AWQ and GPTQ with groups of 128).
func formats() []WeightFormat {
	return []WeightFormat{
		{Name: "fp8", Bits: 8, RowScaleBytes: 4, Compute: catalog.FP8},
		{Name: "fp8-block", Bits: 8 + 32.0/(128*128), Compute: catalog.FP8},
		{Name: "fp8-weight-only", Bits: 8, RowScaleBytes: 4},
		{Name: "int8", Bits: 8, RowScaleBytes: 4, Compute: catalog.INT8},
		{Name: "int8-weight-only", Bits: 8, RowScaleBytes: 4},
		{Name: "awq", Bits: 4 + 16.0/128 + 4.0/128},
		{Name: "gptq", Bits: 4 + 16.0/128 + 4.0/128},
		{Name: "gptq-int8", Bits: 8 + 16.0/128 + 8.0/128},
		{Name: "mxfp4", Bits: 4 + 8.0/32, ExpertsOnly: true},
		{Name: "mxfp4-all", Bits: 4 + 8.0/32},
		{Name: "nvfp4", Bits: 4 + 8.0/16, Compute: catalog.FP4},
		{Name: "bitsandbytes-nf4", Bits: 4 + 32.0/64},
		{Name: "q4_0", Bits: 4.5},
		{Name: "q4_k", Bits: 4.5},
		{Name: "q5_k", Bits: 5.5},
		{Name: "q6_k", Bits: 6.5625},
		{Name: "q8_0", Bits: 8.5},
		{Name: "q4_1", Bits: 5},
		{Name: "q5_0", Bits: 5.5},
		{Name: "q5_1", Bits: 6},
		{Name: "q2_k", Bits: 2.625},
		{Name: "q3_k", Bits: 3.4375},
		{Name: "iq1_s", Bits: 1.5625},
		{Name: "iq1_m", Bits: 1.75},
		{Name: "iq2_xxs", Bits: 2.0625},
		{Name: "iq2_xs", Bits: 2.3125},
		{Name: "iq2_s", Bits: 2.5625},
		{Name: "iq3_xxs", Bits: 3.0625},
		{Name: "iq3_s", Bits: 3.4375},
		{Name: "iq4_nl", Bits: 4.5},
		{Name: "iq4_xs", Bits: 4.25},
		{Name: "tq1_0", Bits: 1.6875},
		{Name: "tq2_0", Bits: 2.0625},
	}
}

// WeightFormats lists the names that [ParseWeightFormat] knows.
func WeightFormats() []string {
	names := []string{"none"}
	for _, f := range formats() {
		names = append(names, f.Name)
	}
	return names
}

// ParseWeightFormat reads a format by the names that vLLM, SGLang and GGUF
// files use. "" and "none" mean the plain activation format dtype.
func ParseWeightFormat(name string, dtype catalog.DType) (WeightFormat, error) {
	key := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "_", "-")
	plain := WeightFormat{Name: "none", Bits: float64(dtype.Bits()), Compute: dtype, ActivationBytes: dtype.Bytes()}
	switch key {
	case "", "none", string(dtype):
		return plain, nil
	case "w8a8-fp8", "fbgemm-fp8", "modelopt", "compressed-tensors-fp8":
		key = "fp8"
	case "deepseek-fp8", "fp8-128x128", "blockwise-fp8":
		key = "fp8-block"
	case "w8a16-fp8":
		key = "fp8-weight-only"
	case "w8a8-int8", "w8a8", "smoothquant", "int8-w8a8":
		key = "int8"
	case "w8a16":
		key = "int8-weight-only"
	case "awq-marlin", "w4a16", "int4", "compressed-tensors-w4a16":
		key = "awq"
	case "gptq-marlin", "gptq-int4", "autoround":
		key = "gptq"
	case "modelopt-fp4", "w4a4":
		key = "nvfp4"
	case "bitsandbytes", "bnb", "nf4":
		key = "bitsandbytes-nf4"
	}
	for _, f := range formats() {
		if strings.ReplaceAll(f.Name, "_", "-") != key {
			continue
		}
		if f.Compute == "" {
			f.Compute = dtype
		}
		f.ActivationBytes = f.Compute.Bytes()
		if f.Name == "fp8-block" {
			f.ActivationBytes += 4.0 / 128 // one fp32 scale for each 128 inputs
		}
		return f, nil
	}
	known := WeightFormats()
	slices.Sort(known)
	return WeightFormat{}, fmt.Errorf("unknown quantization %q: want one of %s", name, strings.Join(known, ", "))
}
