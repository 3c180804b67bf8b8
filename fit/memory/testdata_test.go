package memory_test

import (
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost/llmsizer"
	"github.com/llmprof/llmprof/fit/memory"
	"github.com/llmprof/llmprof/unit"
)

// gb is a size of so many 1e9 bytes.
func gb(v float64) *unit.Bytes {
	b := unit.Bytes(math.Round(v * 1e9))
	return &b
}

func builtin(t testing.TB) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// hi is the golden profile of the original: 37 GB above the baseline, cut by
// the original's own rule.
func hi() memory.Measured {
	return memory.Measured{
		Source: "hi.json", Model: "meta-llama/Llama-2-7b-hf",
		Shape:       llmsizer.Model{Params: 6.7e9, Layers: 32, Heads: 32, Hidden: 4096},
		WeightDType: catalog.FP16, ActivationDType: catalog.FP16, KVDType: catalog.FP16,
		GPUs: 1, Device: "h100", Batch: 8, Input: 512, Output: 512,
		Total: gb(37.5), Weights: gb(13.40), KVCache: gb(4.29), Activations: gb(0.54), Overhead: gb(18.77),
	}
}

// fixed is a calculator with one answer.
type fixed struct {
	name string
	of   func(memory.Measured) (memory.Prediction, error)
}

func (f fixed) Name() string { return f.name }

func (f fixed) Calculate(m memory.Measured) (memory.Prediction, error) { return f.of(m) }

// says is a calculator that expects the same of every run.
func says(p memory.Prediction) fixed {
	return fixed{"fixed", func(memory.Measured) (memory.Prediction, error) { return p, nil }}
}

// of finds the comparison of a component.
func of(t *testing.T, v memory.Verdict, c memory.Component) memory.Comparison {
	t.Helper()
	for _, found := range v.Comparisons {
		if found.Component == c {
			return found
		}
	}
	t.Fatalf("%s is not compared: %+v", c, v)
	return memory.Comparison{}
}

// row reads a golden CSV of one row by column.
func row(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 2 {
		t.Fatalf("%s: %d lines", file, len(lines))
	}
	names, cells := strings.Split(lines[0], ","), strings.Split(lines[1], ",")
	out := map[string]string{}
	for i, name := range names {
		out[strings.TrimSpace(name)] = strings.TrimSpace(cells[i])
	}
	return out
}

// number reads a cell.
func number(t *testing.T, cells map[string]string, column string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(cells[column], 64)
	if err != nil {
		t.Fatalf("%s: %v", column, err)
	}
	return v
}
