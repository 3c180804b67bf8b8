package memory_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/cost/llmsizer"
	"github.com/llmprof/llmprof/fit/memory"
)

// The original matched a model of 7.0 B parameters by size and compared with
// that; with that number given, its figures come out.
func TestBatchValidateGoldens(t *testing.T) {
	for file, version := range map[string]llmsizer.Version{"batch-validate.2c8af80.csv": llmsizer.AppEarly, "batch-validate.head.csv": llmsizer.AppLate} {
		t.Run(file, func(t *testing.T) {
			golden := row(t, file)
			m := hi()
			m.Shape.Params = 7.0e9
			r := memory.Judge([]memory.Measured{m}, []memory.Calculator{memory.Sizer(version)}, memory.Options{Scheme: memory.BatchValidate})
			if len(r.Verdicts) != 1 {
				t.Fatalf("%+v", r)
			}
			for c, name := range map[memory.Component]string{
				memory.Total: "total", memory.Weights: "weights", memory.KVCache: "kv", memory.Activations: "activations", memory.Overhead: "overhead",
			} {
				got := of(t, r.Verdicts[0], c)
				percent, ok := got.Percent(r.Scheme)
				if want := number(t, golden, "diff_"+name+"_pct"); !ok || fmt.Sprintf("%.1f", percent) != fmt.Sprintf("%.1f", want) {
					t.Errorf("%s: %.1f %%, want %.1f", c, percent, want)
				}
				if want := number(t, golden, "calculator_"+name+"_gb"); math.Abs(float64(got.Calculated)/1e9-want) > 0.005 {
					t.Errorf("%s: calculated %v, want %v GB", c, got.Calculated, want)
				}
				if want := number(t, golden, "profiled_"+name+"_gb"); math.Abs(float64(got.Measured)/1e9-want) > 0.005 {
					t.Errorf("%s: measured %v, want %v GB", c, got.Measured, want)
				}
			}
			total := of(t, r.Verdicts[0], memory.Total)
			if want := number(t, golden, "diff_total_gb"); math.Abs(float64(total.Diff)/1e9-want) > 0.005 {
				t.Errorf("difference %v, want %v GB", total.Diff, want)
			}
			if class := r.Verdicts[0].Class; class != strings.Fields(golden["match_quality"])[0] {
				t.Errorf("class %s, want %s", class, golden["match_quality"])
			}
		})
	}
}

// The original subtracts the other way round; the sizes are the same.
func TestValidateProfileGolden(t *testing.T) {
	golden := row(t, "validate-profile.csv")
	total := gb(number(t, golden, "calculator_total_gb"))
	r := memory.Judge([]memory.Measured{hi()}, []memory.Calculator{says(memory.Prediction{Total: total})}, memory.Options{Scheme: memory.ValidateProfile})
	got := of(t, r.Verdicts[0], memory.Total)
	if diff := float64(got.Diff) / 1e9; math.Abs(diff+number(t, golden, "diff_gb")) > 1e-9 {
		t.Errorf("difference %v GB, want minus %s", diff, golden["diff_gb"])
	}
	if math.Abs(*got.OfMeasured+number(t, golden, "pct_diff")) > 1e-9 {
		t.Errorf("%v %% of measured, want minus %s", *got.OfMeasured, golden["pct_diff"])
	}
	if got.Class != strings.Fields(golden["match_quality"])[0] {
		t.Errorf("class %s, want %s", got.Class, golden["match_quality"])
	}
}

// The errors that the original's scripts report for themselves are those of
// calculated less measured, in percent of measured.
func TestScriptErrors(t *testing.T) {
	r := memory.Judge([]memory.Measured{hi()}, []memory.Calculator{memory.Sizer(llmsizer.ScriptV1), memory.Sizer(llmsizer.ScriptV2)}, memory.Options{})
	for i, want := range []string{"47.5", "11.3"} {
		got := of(t, r.Verdicts[i], memory.Total)
		if fmt.Sprintf("%.1f", *got.OfMeasured) != want {
			t.Errorf("%s: %v %% of measured, want %s", r.Verdicts[i].Calculator, *got.OfMeasured, want)
		}
	}
	if r.Verdicts[0].Class != "bad" || r.Verdicts[1].Class != "poor" {
		t.Errorf("classes %s and %s", r.Verdicts[0].Class, r.Verdicts[1].Class)
	}
}
