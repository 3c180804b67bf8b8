package report_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// The note below scores claims of held-out rows only what is true.
func TestScoreNotes(t *testing.T) {
	score := func(model string, mode fit.Mode, target fit.Target, trainedOn *int) fit.Score {
		percent := 80.0
		return fit.Score{Model: model, Mode: mode, Split: "s", Target: target, N: 10, TrainedOn: trainedOn, WithInterval: 10, Coverage80: &percent}
	}
	count := func(n int) *int { return &n }
	far := score("auto", fit.Decode, fit.Median, count(0))
	far.WithInterval = 7
	const heldOut = "Errors in percent of the measured time, on rows that were not trained on; coverage is the share of them inside the interval."
	const given = "Errors in percent of the measured time; coverage is the share of rows inside the interval."
	for _, c := range []struct {
		why    string
		scores []fit.Score
		want   []string
	}{
		{"folds", []fit.Score{score("linear", fit.Prefill, fit.Median, count(0)), score("auto", fit.Prefill, fit.Median, count(0))}, []string{heldOut}},
		{"a predictor on other data", []fit.Score{score("c", fit.Prefill, fit.Median, count(0))}, []string{heldOut}},
		{
			"a predictor on its own training file, each row counted once for both targets",
			[]fit.Score{
				score("c", fit.Prefill, fit.Median, count(10)), score("c", fit.Prefill, fit.Mean, count(10)),
				score("c", fit.Decode, fit.Median, count(4)), score("c", fit.Decode, fit.Mean, count(4)),
			},
			[]string{given, "c: 14 of 20 rows are of configurations that it was trained on, so these are not held-out errors."},
		},
		{"a bare file", []fit.Score{score("c", fit.Prefill, fit.Median, nil)}, []string{given, "c: not known how many of the 10 rows it was trained on."}},
		{
			"one mode known, the other not",
			[]fit.Score{score("c", fit.Prefill, fit.Median, nil), score("c", fit.Decode, fit.Median, count(3))},
			[]string{given, "c: at least 3 of 20 rows are of configurations that it was trained on; of 10 that is not known."},
		},
		{"far outside", []fit.Score{far}, []string{heldOut, "3 predictions lie far outside the rows trained on and have no interval; coverage leaves them out."}},
	} {
		t.Run(c.why, func(t *testing.T) {
			if diff := cmp.Diff(c.want, report.ScoreTable(c.scores).Notes); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// Of an extrapolated interval no share of outcomes is claimed.
func TestPredictionText(t *testing.T) {
	e := stat.Estimate[unit.Seconds]{Value: 0.01, Low: 0.009, High: 0.012, Level: 0.8, Basis: stat.Interpolated}
	for _, c := range []struct {
		why   string
		basis stat.Basis
		want  string
	}{
		{"inside the range the level was checked on held-out rows", stat.Interpolated, "  Interval: 9.00 .. 12.00 ms (80 % of outcomes)\n"},
		{"outside it could not be", stat.Extrapolated, "  Interval: 9.00 .. 12.00 ms (extrapolated: not calibrated)\n"},
	} {
		t.Run(c.why, func(t *testing.T) {
			e.Basis = c.basis
			p := report.Prediction("c", "decode", 8, 1024, e)
			var b strings.Builder
			if err := report.PredictionText(&b, p); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(b.String(), c.want) {
				t.Errorf("%s, want %q", b.String(), c.want)
			}
			if p.Latency.Level == nil || *p.Latency.Level != 0.8 {
				t.Errorf("the document lost its level: %+v", p.Latency)
			}
		})
	}
}
