package fit

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

func step(mode string, b, i int, samples ...float64) profile.Point {
	pass := forward.Prefill(b, i, 0)
	if mode == profile.Decode {
		pass = forward.Decode(b, i+16)
	}
	return profile.Point{
		Kind: profile.KindStep, Samples: samples, Origin: "x.json: results[7]",
		Step: &profile.Step{Mode: mode, BatchSize: b, InputLen: i, OutputLen: 32, Pass: pass},
	}
}

func TestObservationsOfA100(t *testing.T) {
	d := a100(t)
	if n := len(d.Rows); n != 188 {
		t.Errorf("%d rows, want 94 of each mode", n)
	}
	first := d.Mode(Prefill)[0]
	if math.Abs(first.Mean-0.037927) > 1e-6 || math.Abs(first.Median-0.011442) > 1e-6 || first.Runs != 3 || first.Cold != 1 {
		t.Errorf("row (1,1): mean %v, median %v, %d runs of which %d cold", first.Mean, first.Median, first.Runs, first.Cold)
	}
	if got := d.Mode(Decode)[0].Context; got != 17 {
		t.Errorf("a decode after 1 token timed over 32 has mean context %v, want 17", got)
	}
	_, report, err := Train(t.Context(), d.Rows, Options{Model: LinearModel})
	if err != nil {
		t.Fatal(err)
	}
	if report.ColdRuns != 5 || report.ColdRows != 5 {
		t.Errorf("%d cold runs in %d rows, want 5 in 5", report.ColdRuns, report.ColdRows)
	}
}

func TestObservationsMerge(t *testing.T) {
	d, err := ObservationsOf([]profile.Point{
		step("prefill", 2, 8, 1, 2), step("decode", 2, 8, 5), step("prefill", 2, 8, 1.1, 1.2),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Rows) != 2 || d.Merged != 1 {
		t.Fatalf("%d rows, %d merged, want 2 and 1", len(d.Rows), d.Merged)
	}
	// Runs 1, 1.1, 1.2 and 2: the last is cold; means 1.5 and 1.15.
	if r := d.Rows[0]; math.Abs(r.Median-1.15) > 1e-12 || r.Runs != 4 || r.Cold != 1 || math.Abs(r.Mean-1.325) > 1e-12 {
		t.Errorf("merged row %+v", r)
	}
}

// TestObservationsMixed: what is no homogeneous step is a mixed row.
func TestObservationsMixed(t *testing.T) {
	mixed := step("mixed", 2, 8, 1)
	mixed.Step.Pass.Decode = forward.Sequences{Count: 1, SumContext: 5}
	cached := step("prefill", 2, 8, 1)
	cached.Step.Pass = forward.Prefill(2, 8, 100)
	lengths := step("prefill", 2, 8, 1)
	lengths.Step.Pass.Prefill = append(lengths.Step.Pass.Prefill, forward.Chunk{Count: 1, New: 9})
	logged := profile.Point{Kind: profile.KindStep, Samples: []float64{1}, Clock: profile.ClockWall, Step: &profile.Step{
		Mode: profile.Decode, Totals: &forward.Totals{DecodeRequests: 4, DecodeTokens: 4, KVTokens: 400},
	}}
	shapeless := step("mixed", 2, 8, 1)
	shapeless.Step.Pass = forward.Pass{}
	failed := profile.Point{Kind: profile.KindFailure, Reason: "oom"}
	d, err := ObservationsOf([]profile.Point{mixed, cached, lengths, logged, logged, shapeless, failed, step("prefill", 1, 1, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{skipUnknown: 1, skipFailure: 1}, d.Skipped); diff != "" || d.Merged != 0 {
		t.Errorf("%d merged, skipped (-want +got)\n%s", d.Merged, diff)
	}
	var got []work
	for _, r := range d.Mode(Mixed) {
		got = append(got, r.work())
	}
	want := []work{
		{prefillTokens: 16, prefillRequests: 2, decodeTokens: 1, decodeRequests: 1, cached: 22, pairs: 64},
		{prefillTokens: 16, prefillRequests: 2, cached: 216, pairs: 1664},
		{prefillTokens: 25, prefillRequests: 3, cached: 25, pairs: 104.5},
		{decodeTokens: 4, decodeRequests: 4, cached: 400},
		{decodeTokens: 4, decodeRequests: 4, cached: 400},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(work{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if r := d.Mode(Mixed)[3]; r.BatchSize != 4 || r.Context != 100 || r.Clock != profile.ClockWall || !r.series() {
		t.Errorf("a logged step is %+v", r)
	}
	if len(d.Mode(Prefill)) != 1 {
		t.Errorf("%d homogeneous rows, want 1", len(d.Mode(Prefill)))
	}
}

func TestObservationsRefuse(t *testing.T) {
	for _, c := range []struct {
		why   string
		point profile.Point
	}{
		{"a time of zero is a failed clock", step("prefill", 1, 1, 0)},
		{"a negative time is a failed clock", step("prefill", 1, 1, 1, -1)},
		{"NaN spoils every sum", step("decode", 1, 1, math.NaN())},
		{"infinity spoils every sum", step("decode", 1, 1, math.Inf(1))},
		{"no sample and no summary is no time", step("decode", 1, 1)},
		{"an empty batch computes nothing", step("prefill", 0, 1, 1)},
		{"a mode of its own cannot be sorted in", step("training", 1, 1, 1)},
		{"prompt tokens of no request", profile.Point{Kind: profile.KindStep, Samples: []float64{1}, Origin: "x.json: results[7]", Step: &profile.Step{Mode: "mixed", Totals: &forward.Totals{PrefillTokens: 4}}}},
		{"products of huge sizes overflow", step("prefill", 1<<41, 1, 1)},
	} {
		t.Run(c.why, func(t *testing.T) {
			_, err := ObservationsOf([]profile.Point{c.point})
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), "results[7]") {
				t.Errorf("%v: does not name the origin", err)
			}
		})
	}
	broken := errors.New("line 3 is cut off")
	_, err := Observations(func(yield func(profile.Point, error) bool) { yield(profile.Point{}, broken) })
	if !errors.Is(err, broken) {
		t.Errorf("error of the stream: %v", err)
	}
}

func TestColdRunOfTwo(t *testing.T) {
	d, err := ObservationsOf([]profile.Point{step("prefill", 1, 1, 9, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if r := d.Rows[0]; r.Median != 1 || r.Cold != 1 || r.Mean != 5 {
		t.Errorf("of two runs the cold one is left out of the median: %+v", r)
	}
}

// TestIndex: rows are numbered as in the file, whatever a mode is missing of
// them.
func TestIndex(t *testing.T) {
	at := func(p profile.Point, origin string) profile.Point {
		p.Origin = origin
		return p
	}
	mixed := step("mixed", 2, 8, 1)
	mixed.Step.Pass.Decode = forward.Sequences{Count: 1, SumContext: 5}
	prefill, decode := profile.Prefill, profile.Decode
	for _, c := range []struct {
		why    string
		points []profile.Point
		want   map[Mode][]int
	}{
		{
			"prefill and decode of a row of a file share it, also where decode is missing in between",
			[]profile.Point{
				at(step(prefill, 1, 8, 1), "f: results[0]"), at(step(decode, 1, 8, 1), "f: results[0]"),
				at(step(prefill, 2, 8, 1), "f: results[1]"),
				{Kind: profile.KindFailure, Reason: "oom", Origin: "f: results[1]"},
				at(step(prefill, 4, 8, 1), "f: results[2]"), at(step(decode, 4, 8, 1), "f: results[2]"),
			},
			map[Mode][]int{Prefill: {0, 1, 2}, Decode: {0, 2}},
		},
		{
			"without origins the next point of the same coordinates belongs to the row",
			[]profile.Point{
				at(step(prefill, 1, 8, 1), ""), at(step(prefill, 2, 8, 1), ""), at(step(decode, 1, 8, 1), ""), at(step(decode, 2, 8, 1), ""),
			},
			map[Mode][]int{Prefill: {0, 1}, Decode: {0, 1}},
		},
		{
			"a repeated configuration keeps the number of the first, but its row counts",
			[]profile.Point{
				at(step(prefill, 1, 8, 1), "f: results[0]"), at(step(prefill, 1, 8, 1), "f: results[1]"), at(step(prefill, 2, 8, 1), "f: results[2]"),
			},
			map[Mode][]int{Prefill: {0, 2}},
		},
		{
			"a row that cannot be fitted is one in the file all the same",
			[]profile.Point{at(mixed, ""), at(mixed, ""), at(step(prefill, 2, 8, 1), "")},
			map[Mode][]int{Mixed: {0, 1}, Prefill: {2}},
		},
		{
			"a second file of the same name goes on counting",
			[]profile.Point{at(step(decode, 1, 8, 1), "f: results[0]"), at(step(decode, 1, 8, 1), "f: results[0]"), at(step(decode, 2, 8, 1), "f: results[1]")},
			map[Mode][]int{Decode: {0, 2}},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			d, err := ObservationsOf(c.points)
			if err != nil {
				t.Fatal(err)
			}
			got := map[Mode][]int{}
			for _, r := range d.Rows {
				got[r.Mode] = append(got[r.Mode], r.Index)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
