package deploy_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
)

func TestValidateReportsEveryFault(t *testing.T) {
	c := deploy.Config{TensorParallel: -1, BlockSize: -4, GPUMemoryUtilization: 1.5, DType: "bf17", Quantization: "int3", MaxModelLen: -1}
	err := c.Validate()
	if err == nil {
		t.Fatal("want an error")
	}
	for _, part := range []string{"tensor parallel size", "block size", "utilization", "bf17", "int3", "max model len"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in %q", part, err)
		}
	}
	if err := (deploy.Config{}).Validate(); err != nil {
		t.Errorf("the zero value is usable: %v", err)
	}
}

func TestWeightFormats(t *testing.T) {
	for _, c := range []struct {
		name, canonical string
		bits            float64
		compute         catalog.DType
	}{
		{"", "none", 16, catalog.BF16},
		{"bf16", "none", 16, catalog.BF16},
		{"fp8", "fp8", 8, catalog.FP8},
		{"fp8-block", "fp8-block", 8 + 32.0/16384, catalog.FP8},
		{"AWQ_Marlin", "awq", 4.15625, catalog.BF16},
		{"mxfp4", "mxfp4", 4.25, catalog.BF16},
		{"nvfp4", "nvfp4", 4.5, catalog.FP4},
		{"Q4_K", "q4_k", 4.5, catalog.BF16},
		{"q6_k", "q6_k", 6.5625, catalog.BF16},
		{"w8a8", "int8", 8, catalog.INT8},
	} {
		f, err := deploy.ParseWeightFormat(c.name, catalog.BF16)
		if err != nil {
			t.Error(err)
			continue
		}
		if f.Name != c.canonical || math.Abs(f.Bits-c.bits) > 1e-12 || f.Compute != c.compute {
			t.Errorf("%q: got %s with %g bits multiplied in %s, want %s, %g, %s", c.name, f.Name, f.Bits, f.Compute, c.canonical, c.bits, c.compute)
		}
	}
	for _, name := range deploy.WeightFormats() {
		if f, err := deploy.ParseWeightFormat(name, catalog.FP16); err != nil || f.Name != name {
			t.Errorf("listed format %q reads as %q, %v", name, f.Name, err)
		}
	}
}

func ExampleConfig_WithDefaults() {
	c := deploy.Config{Model: "Qwen3-14B", TensorParallel: 2}.WithDefaults()
	fmt.Println(c.Devices(), c.DType, c.KVCacheDType, c.BlockSize, c.GPUMemoryUtilization)
	// Output: 2 bf16 bf16 16 0.9
}
