package fit

import (
	"math"
	"testing"
)

// inputs up to 2048 tokens → longer ones, and batches up to 16 → larger ones.
func shortInputs() Split {
	return Split{
		Name:  "input<=2048",
		Train: func(r Row) bool { return r.InputLen <= 2048 },
		Test:  func(r Row) bool { return r.InputLen >= 4096 },
	}
}

func smallBatches() Split {
	return Split{
		Name:  "batch<=16",
		Train: func(r Row) bool { return r.BatchSize <= 16 },
		Test:  func(r Row) bool { return r.BatchSize >= 32 },
	}
}

func scores(t *testing.T, rows []Row, split string, target Target) map[string]Score {
	t.Helper()
	models := []string{LinearModel, Auto}
	var list []Score
	var err error
	switch split {
	case "mod5":
		list, err = CrossValidate(t.Context(), rows, 5, models, target)
	case "input<=2048":
		list, err = HoldOut(t.Context(), rows, shortInputs(), models, target)
	default:
		list, err = HoldOut(t.Context(), rows, smallBatches(), models, target)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Score{}
	for _, s := range list {
		if s.Coverage80 != nil {
			t.Logf("%-7s %-6s %-11s %-6s n=%3d mape %6.2f median %6.2f p90 %6.2f max %6.2f bias %6.2f  cover80 %5.1f cover95 %5.1f width80 %5.2f",
				s.Mode, s.Model, s.Split, s.Target, s.N, s.MAPE, s.Median, s.P90, s.Max, s.Bias, *s.Coverage80, *s.Coverage95, *s.Width80)
		} else {
			t.Logf("%-7s %-6s %-11s %-6s n=%3d mape %6.2f", s.Mode, s.Model, s.Split, s.Target, s.N, s.MAPE)
		}
		out[string(s.Mode)+" "+s.Model] = s
	}
	return out
}

// TestA100 holds both models to what is known of the A100 measurements: the
// regression reproduces the errors of the original, and auto beats them.
func TestA100(t *testing.T) {
	rows := a100(t).Rows
	for _, c := range []struct {
		why             string
		split           string
		target          Target
		n               [2]int     // prefill, decode
		linear          [2]float64 // MAPE of the original, percent
		auto            [2]float64 // bound for auto, percent
		least, greatest float64    // coverage of the 80 % interval, percent; 0 for no claim
	}{
		{
			why: "inside the grid, warm steps", split: "mod5", target: Median,
			n: [2]int{94, 94}, linear: [2]float64{8.29, 2.53}, auto: [2]float64{2.0, 0.8}, least: 74, greatest: 90,
		},
		{
			why: "inside the grid, means that hold cold runs", split: "mod5", target: Mean,
			n: [2]int{94, 94}, linear: [2]float64{9.18, 2.52}, auto: [2]float64{3.0, 0.8}, least: 70, greatest: 90,
		},
		{
			why: "longer inputs than measured, warm steps", split: "input<=2048", target: Median,
			n: [2]int{12, 12}, linear: [2]float64{1.10, 2.85}, auto: [2]float64{1.10, 2.85},
		},
		{
			why: "longer inputs than measured, means", split: "input<=2048", target: Mean,
			n: [2]int{12, 12}, linear: [2]float64{1.41, 2.86}, auto: [2]float64{1.41, 2.86},
		},
		{
			why: "larger batches than measured, warm steps", split: "batch<=16", target: Median,
			n: [2]int{22, 22}, linear: [2]float64{7.49, 1.81}, auto: [2]float64{3.0, 1.81},
		},
		{
			why: "larger batches than measured, means", split: "batch<=16", target: Mean,
			n: [2]int{22, 22}, linear: [2]float64{6.97, 1.80}, auto: [2]float64{3.0, 1.80},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			got := scores(t, rows, c.split, c.target)
			for k, m := range modes() {
				linear, auto := got[string(m)+" linear"], got[string(m)+" auto"]
				if linear.N != c.n[k] || auto.N != c.n[k] {
					t.Errorf("%s: %d and %d rows scored, want %d", m, linear.N, auto.N, c.n[k])
				}
				if math.Abs(linear.MAPE-c.linear[k]) > 0.01 {
					t.Errorf("%s: linear %.3f %%, the original's is %.2f %%", m, linear.MAPE, c.linear[k])
				}
				if auto.MAPE > c.auto[k] {
					t.Errorf("%s: auto %.3f %%, want at most %.2f %%", m, auto.MAPE, c.auto[k])
				}
				if c.greatest > 0 && (*auto.Coverage80 < c.least || *auto.Coverage80 > c.greatest) {
					t.Errorf("%s: 80 %% intervals cover %.1f %%, want %.0f to %.0f", m, *auto.Coverage80, c.least, c.greatest)
				}
			}
		})
	}
}
