package catalog

import "fmt"

// DType is a number format of weights, activations, KV cache or arithmetic.
type DType string

// The number formats that devices and engines name. FP8 stands for both e4m3
// and e5m2: they cost the same.
const (
	FP32 DType = "fp32"
	TF32 DType = "tf32"
	FP16 DType = "fp16"
	BF16 DType = "bf16"
	FP8  DType = "fp8"
	INT8 DType = "int8"
	FP6  DType = "fp6"
	FP4  DType = "fp4"
	INT4 DType = "int4"
)

// DTypes lists every format, widest first.
func DTypes() []DType {
	return []DType{FP32, TF32, BF16, FP16, FP8, INT8, FP6, FP4, INT4}
}

// Bits is the storage of one number, scales not counted; 0 for a format that
// is not known. TF32 is a compute mode whose numbers are stored in 32 bits.
func (t DType) Bits() int {
	switch t {
	case FP32, TF32:
		return 32
	case FP16, BF16:
		return 16
	case FP8, INT8:
		return 8
	case FP6:
		return 6
	case FP4, INT4:
		return 4
	}
	return 0
}

// Bytes is the storage of one number in bytes (0.5 for a 4-bit format).
func (t DType) Bytes() float64 { return float64(t.Bits()) / 8 }

// ParseDType reads the spellings of PyTorch, vLLM and SGLang: "bfloat16",
// "torch.float16", "half", "fp8_e4m3".
func ParseDType(s string) (DType, error) {
	switch normalise(s) {
	case "fp32", "float32", "float", "torch.float32":
		return FP32, nil
	case "tf32":
		return TF32, nil
	case "fp16", "float16", "half", "torch.float16":
		return FP16, nil
	case "bf16", "bfloat16", "torch.bfloat16":
		return BF16, nil
	case "fp8", "fp8-e4m3", "fp8-e5m2", "float8", "float8-e4m3fn", "torch.float8-e4m3fn", "e4m3", "e5m2", "fp8-inc":
		return FP8, nil
	case "int8":
		return INT8, nil
	case "fp6":
		return FP6, nil
	case "fp4", "nvfp4", "mxfp4":
		return FP4, nil
	case "int4":
		return INT4, nil
	}
	return "", fmt.Errorf("unknown dtype %q: want one of fp32, bf16, fp16, fp8, int8, fp4, int4", s)
}
