package memory_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/fit/memory"
	"github.com/llmprof/llmprof/format"
)

const header = "model,batch,input_len,output_len,total_gb\n"

func parse(t *testing.T, text string) *memory.Expectations {
	t.Helper()
	e, warnings, err := memory.ParseExpectations("x.csv", strings.NewReader(text), format.Limits{}, builtin(t))
	if err != nil || len(warnings) != 0 {
		t.Fatal(err, warnings)
	}
	return e
}

func TestExpectations(t *testing.T) {
	e := parse(t, `model,batch,input_len,output_len,dtype,gpus,gpu,total_gb,weights_gb,kv_cache_gb,activations_gb,overhead_gb
meta-llama/Llama-2-7b-hf,8,512,512,,,,20,13.5,4.3,0.5,1.7
meta-llama/Llama-2-7b-hf,8,512,512,fp8,,,14,,,,
meta-llama/Llama-2-7b-hf,8,512,512,,2,,22,,,,
llama-2-7b,8,512,512,,,NVIDIA A100-SXM4-80GB,21,,,,
My/Own,1,1,1,,,,1.5,,,,
`)
	for _, test := range []struct {
		why    string
		change func(*memory.Measured)
		want   float64 // total in GB; 0: an error
		fault  string
	}{
		{"no condition", nil, 20, ""},
		{"an alias in another case", func(m *memory.Measured) { m.Model = "nousresearch/llama-2-7b-HF" }, 20, ""},
		{"the format is a condition", func(m *memory.Measured) { m.WeightDType = catalog.FP8 }, 14, ""},
		{"the GPU is a condition under any of its names", func(m *memory.Measured) { m.Device = "a100-sxm-80gb" }, 21, ""},
		{"the number of GPUs is a condition", func(m *memory.Measured) { m.GPUs = 2 }, 22, ""},
		{"an id that the catalog does not know", func(m *memory.Measured) { m.Model, m.Batch, m.Input, m.Output = "my/own", 1, 1, 1 }, 1.5, ""},
		{"two rows fit", func(m *memory.Measured) { m.GPUs, m.WeightDType = 2, catalog.FP8 }, 0, "2 rows fit"},
		{"another batch", func(m *memory.Measured) { m.Batch = 9 }, 0, "no row for batch 9 with 512 + 512 tokens"},
		{"another model of this size", func(m *memory.Measured) { m.Model = "other/7b" }, 0, "no row with this id"},
	} {
		t.Run(test.why, func(t *testing.T) {
			m := hi()
			if test.change != nil {
				test.change(&m)
			}
			p, err := e.Calculate(m)
			if test.fault != "" {
				if err == nil || !strings.Contains(err.Error(), test.fault) {
					t.Errorf("got %v, want %q", err, test.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if *p.Total != *gb(test.want) {
				t.Errorf("total %v, want %v GB", *p.Total, test.want)
			}
		})
	}
	p, err := e.Calculate(hi())
	if err != nil || *p.Weights != *gb(13.5) || *p.KVCache != *gb(4.3) || *p.Activations != *gb(0.5) || *p.Overhead != *gb(1.7) || p.KVCapacity != nil {
		t.Errorf("%+v, %v", p, err)
	}
	if e.Name() != "x.csv" {
		t.Errorf("name %q", e.Name())
	}
}

func TestExpectationsHeader(t *testing.T) {
	for _, test := range []struct{ why, text, want, hint string }{
		{"a column that is close", "model,batch,input_len,output_len,total_mb\n", `column "total_mb" is not known`, "total_gb"},
		{"a column that is not", "model,batch,input_len,output_len,total_gb,zzzzzzzzzzzz\n", `column "zzzzzzzzzzzz" is not known`, ""},
		{"a column is missing", "model,batch,input_len,total_gb\n", "column output_len is missing", "optional: dtype"},
	} {
		t.Run(test.why, func(t *testing.T) {
			_, _, err := memory.ParseExpectations("x.csv", strings.NewReader(test.text), format.Limits{}, nil)
			bad, ok := errors.AsType[*memory.HeaderError](err)
			if !ok || !strings.Contains(err.Error(), test.want) || !strings.Contains(bad.Hint(), test.hint) {
				t.Errorf("got %v, want %q with hint %q", err, test.want, test.hint)
			}
		})
	}
}

func TestExpectationsRefuse(t *testing.T) {
	for _, test := range []struct{ why, text, want string }{
		{"empty", "", "the file is empty"},
		{"no rows", header, "holds no rows"},
		{"a column twice", "model,model\n", "stands twice"},
		{"no model", header + ",1,1,1,1\n", "line 2, model: missing"},
		{"no batch", header + "m,0,1,1,1\n", "line 2, batch"},
		{"a fraction of a token", header + "m,1,1.5,1,1\n", "line 2, input_len"},
		{"no total", header + "m,1,1,1,\n", "line 2, total_gb: missing"},
		{"a unit in the cell", header + "m,1,1,1,20GB\n", `line 2, total_gb: want a size in GB, got "20GB"`},
		{"negative", header + "m,1,1,1,-2\n", "line 2, total_gb"},
		{"not a number", header + "m,1,1,1,NaN\n", "line 2, total_gb"},
		{"infinite", header + "m,1,1,1,inf\n", "line 2, total_gb"},
		{"an unknown format", "dtype," + header + "float17,m,1,1,1,1\n", "line 2, dtype"},
		{"the same run twice", header + "m,1,1,1,1\nM,1,1,1,2\n", "line 3: the same run"},
	} {
		t.Run(test.why, func(t *testing.T) {
			_, _, err := memory.ParseExpectations("x.csv", strings.NewReader(test.text), format.Limits{}, nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	_, _, err := memory.ParseExpectations("x.csv", strings.NewReader(header+strings.Repeat("m,1,1,1,1\n", 100)), format.Limits{Bytes: 100}, nil)
	if err == nil {
		t.Error("beyond the limit: no error")
	}
}

func FuzzParseExpectations(f *testing.F) {
	f.Add([]byte(header + "m,1,512,512,20\n"))
	f.Add([]byte("\"mo\ndel\",batch\n"))
	f.Add([]byte("gpu,dtype,gpus," + header + "h100,bf16,2,m,1,1,1,1e300\n"))
	f.Add([]byte("model,batch,input_len,output_len,total_gb,kv_cache_gb\nm,1,0,0,0,0x1p3\n"))
	c := builtin(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		e, _, err := memory.ParseExpectations("x", bytes.NewReader(text), format.Limits{Bytes: 1 << 16, Values: 1 << 12}, c)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "x: ") {
				t.Fatalf("no place: %v", err)
			}
			return
		}
		if p, err := e.Calculate(hi()); err == nil && (p.Total == nil || *p.Total < 0) {
			t.Fatalf("%+v", p)
		}
	})
}
