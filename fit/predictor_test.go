package fit

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/stat"
)

func train(tb testing.TB, rows []Row) *Predictor {
	tb.Helper()
	p, _, err := Train(tb.Context(), rows, Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// trained are predictors of very different data, by name.
func trained(t *testing.T) map[string]*Predictor {
	t.Helper()
	out := map[string]*Predictor{"A100": train(t, a100(t).Rows), "legacy": train(t, legacy(t).Rows)}
	for k, c := range campaigns() {
		d, err := ObservationsOf(c.measure(machines()[k%len(machines())], 5))
		if err != nil {
			t.Fatal(err)
		}
		out[c.name] = train(t, d.Rows)
	}
	return out
}

// TestMonotone: more sequences or longer inputs never take less time, and no
// step takes none, in the measured range and a little beyond.
func TestMonotone(t *testing.T) {
	for name, p := range trained(t) {
		t.Run(name, func(t *testing.T) {
			for _, m := range p.Modes() {
				form, _ := p.Form(m)
				maxB, maxI := 2*int(form.Range.MaxBatch), 2*int(form.Range.MaxSize)
				at := func(t *rapid.T, b, i int) float64 {
					got, err := p.Predict(Query{Mode: m, BatchSize: b, InputLen: i})
					if err != nil {
						t.Fatal(err)
					}
					if !(got.Value > 0) || got.Low > got.Value || got.High < got.Value {
						t.Fatalf("%s at (%d, %d): %v in %v to %v", m, b, i, got.Value, got.Low, got.High)
					}
					return float64(got.Value)
				}
				rapid.Check(t, func(t *rapid.T) {
					b := rapid.IntRange(1, maxB).Draw(t, "b")
					i := rapid.IntRange(1, maxI).Draw(t, "i")
					moreB := rapid.IntRange(b, maxB).Draw(t, "more b")
					moreI := rapid.IntRange(i, maxI).Draw(t, "more i")
					base := at(t, b, i) * (1 - 1e-12)
					if at(t, moreB, i) < base || at(t, b, moreI) < base || at(t, b+1, i) < base || at(t, b, i+1) < base {
						t.Fatalf("%s falls from (%d, %d) to (%d, %d)", m, b, i, moreB, moreI)
					}
				})
			}
		})
	}
}

func TestPredictBasis(t *testing.T) {
	p := train(t, a100(t).Rows)
	context := 5000
	for _, c := range []struct {
		why   string
		query Query
		want  stat.Basis
	}{
		{"measured itself", Query{Mode: Prefill, BatchSize: 4, InputLen: 512}, stat.Interpolated},
		{"between measured ones", Query{Mode: Decode, BatchSize: 3, InputLen: 700}, stat.Interpolated},
		{"a larger batch", Query{Mode: Prefill, BatchSize: 65, InputLen: 512}, stat.Extrapolated},
		{"a longer input", Query{Mode: Decode, BatchSize: 1, InputLen: 20000}, stat.Extrapolated},
		{"more tokens together than fitted into memory", Query{Mode: Prefill, BatchSize: 64, InputLen: 16384}, stat.Extrapolated},
		{"a context instead of an input length", Query{Mode: Decode, BatchSize: 4, Context: &context}, stat.Interpolated},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, err := p.Predict(c.query)
			if err != nil {
				t.Fatal(err)
			}
			if got.Basis != c.want {
				t.Errorf("basis %s, want %s", got.Basis, c.want)
			}
			wide, err := p.PredictAt(c.query, 0.95)
			if err != nil {
				t.Fatal(err)
			}
			if got.Level < 0.8 || wide.Level < 0.95 || wide.High-wide.Low <= got.High-got.Low {
				t.Errorf("intervals %+v and %+v", got, wide)
			}
		})
	}
	near, _ := p.Predict(Query{Mode: Decode, BatchSize: 64, InputLen: 512})
	far, _ := p.Predict(Query{Mode: Decode, BatchSize: 512, InputLen: 512})
	if far.High/far.Low <= near.High/near.Low {
		t.Errorf("three octaves outside the interval is %v to %v, not wider than %v to %v", far.Low, far.High, near.Low, near.High)
	}
	if math.Abs(float64(near.Value)/0.0123777-1) > 0.03 {
		t.Errorf("(64, 512) takes %v, measured are 12.378 ms", near.Value)
	}
}

// TestFar: the interval widens ever faster, and beyond four octaves nothing
// is claimed any more.
func TestFar(t *testing.T) {
	p := train(t, a100(t).Rows)
	last, gained := 1.0, 0.0
	for octave := range 5 {
		got, err := p.Predict(Query{Mode: Decode, BatchSize: 64 << octave, InputLen: 512})
		if err != nil {
			t.Fatal(err)
		}
		if !got.HasInterval() || len(got.Warnings) > 0 {
			t.Fatalf("%d octaves outside: %+v", octave, got)
		}
		wide := math.Log(float64(got.High / got.Value))
		if octave > 0 && (wide-last <= gained || wide < 0.02*float64(octave)) {
			t.Errorf("%d octaves outside: half-width %.3f after %.3f, which gained %.3f", octave, wide, last, gained)
		}
		if octave > 0 {
			gained = wide - last
		}
		last = wide
	}
	for _, c := range []struct {
		why   string
		query Query
	}{
		{"a batch five octaves above", Query{Mode: Decode, BatchSize: 64 << 5, InputLen: 512}},
		{"an input five octaves above", Query{Mode: Prefill, BatchSize: 1, InputLen: 16384 << 5}},
		{"three octaves each, and more together", Query{Mode: Prefill, BatchSize: 64 << 3, InputLen: 16384 << 3}},
		{"an absurd step", Query{Mode: Decode, BatchSize: 1_000_000, InputLen: 1_000_000}},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, err := p.Predict(c.query)
			if err != nil {
				t.Fatal(err)
			}
			if got.HasInterval() || got.Low != got.Value || got.Basis != stat.Extrapolated || !(got.Value > 0) {
				t.Errorf("%+v", got)
			}
			if len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "far outside the measured range") {
				t.Errorf("warnings %q", got.Warnings)
			}
		})
	}
}

// countdown is a context that ends after it was asked some times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestCancel: whatever takes long ends soon after its context.
func TestCancel(t *testing.T) {
	rows := a100(t).Rows
	models := []string{LinearModel, Auto}
	for why, run := range map[string]func(context.Context) error{
		"Train":         func(ctx context.Context) error { _, _, err := Train(ctx, rows, Options{}); return err },
		"CrossValidate": func(ctx context.Context) error { _, err := CrossValidate(ctx, rows, 5, models, Median); return err },
		"HoldOut": func(ctx context.Context) error {
			_, err := HoldOut(ctx, rows, shortInputs(), models, Median)
			return err
		},
		"HeldOut": func(ctx context.Context) error { _, err := HeldOut(ctx, rows, 5, Options{}); return err },
	} {
		t.Run(why, func(t *testing.T) {
			for _, asked := range []int{0, 1, 30} {
				if err := run(&countdown{t.Context(), asked}); !errors.Is(err, context.Canceled) {
					t.Errorf("ended after %d questions: %v", asked, err)
				}
			}
		})
	}
}

func TestPredictRefuses(t *testing.T) {
	data := a100(t)
	p := train(t, data.Rows)
	cached := 8
	for _, q := range []Query{
		{Mode: Prefill, BatchSize: 0, InputLen: 1},
		{Mode: Prefill, BatchSize: 1, InputLen: 0},
		{Mode: Decode, BatchSize: -1, InputLen: 1},
		{Mode: "mixed", BatchSize: 1, InputLen: 1},
		{Mode: Decode, BatchSize: 1 << 41, InputLen: 1},
	} {
		if _, err := p.Predict(q); err == nil {
			t.Errorf("%+v: accepted", q)
		}
	}
	if _, err := p.PredictAt(Query{Mode: Decode, BatchSize: 1, InputLen: 1}, 0.5); err == nil {
		t.Error("an interval of a level that is not stored: accepted")
	}
	var missing *NotMeasuredError
	if _, err := p.Predict(Query{Mode: Prefill, BatchSize: 1, InputLen: 8, Context: &cached}); !errors.As(err, &missing) {
		t.Errorf("prefill on cached tokens: %v", err)
	}
	half := train(t, data.Mode(Prefill))
	if _, err := half.Predict(Query{Mode: Decode, BatchSize: 1, InputLen: 1}); !errors.As(err, &missing) {
		t.Errorf("decode of a predictor that saw prefill only: %v", err)
	}
}

func TestStepTime(t *testing.T) {
	p := train(t, a100(t).Rows)
	want, err := p.Predict(Query{Mode: Prefill, BatchSize: 4, InputLen: 512})
	if err != nil {
		t.Fatal(err)
	}
	for _, pass := range []forward.Pass{
		forward.Prefill(4, 512, 0),
		{Prefill: []forward.Chunk{{Count: 1, New: 512}, {Count: 3, New: 512, Last: true}}},
	} {
		got, err := p.StepTime(pass)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.Seconds()-float64(want.Value)) > 1e-9 {
			t.Errorf("%+v takes %v, want %v", pass, got, want.Value)
		}
	}
	even, err := p.StepTime(forward.Decode(8, 1000))
	if err != nil {
		t.Fatal(err)
	}
	uneven, err := p.StepTime(forward.Pass{Decode: forward.Sequences{Count: 8, SumContext: 8000}, DecodeContexts: []int{500, 1500, 1000, 1000, 1000, 1000, 1000, 1000}})
	if err != nil || uneven != even || even < 8*time.Millisecond || even > 9*time.Millisecond {
		t.Errorf("decode takes %v at even and %v at uneven contexts, error %v", even, uneven, err)
	}
	for _, c := range []struct {
		why  string
		pass forward.Pass
	}{
		{"parts of a mixed step do not add up", forward.Pass{Prefill: []forward.Chunk{{Count: 1, New: 8}}, Decode: forward.Sequences{Count: 1, SumContext: 9}}},
		{"a cached prefix was not timed", forward.Prefill(1, 8, 100)},
		{"prompts of two lengths were not timed", forward.Pass{Prefill: []forward.Chunk{{Count: 1, New: 8}, {Count: 1, New: 9}}}},
	} {
		var missing *NotMeasuredError
		if _, err := p.StepTime(c.pass); !errors.As(err, &missing) {
			t.Errorf("%s: %v", c.why, err)
		}
	}
	if _, err := p.StepTime(forward.Pass{}); err == nil {
		t.Error("an empty pass: accepted")
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = p.StepTime(forward.Decode(8, 1000)) }); n > 0 {
		t.Errorf("%v allocations for a step", n)
	}
}

// TestDegenerate: whatever rows there are, training answers or says why not.
func TestDegenerate(t *testing.T) {
	rows := a100(t).Rows
	constant := append([]Row(nil), rows...)
	for i := range constant {
		constant[i].Median, constant[i].Mean = 0.01, 0.01
	}
	only := func(keep func(Row) bool) (out []Row) {
		for _, r := range rows {
			if keep(r) {
				out = append(out, r)
			}
		}
		return out
	}
	for _, c := range []struct {
		why       string
		rows      []Row
		query     Query
		least, to float64 // seconds
	}{
		{"one row answers for itself", rows[:1], Query{Mode: Prefill, BatchSize: 1, InputLen: 1}, 0.0114, 0.0115},
		{"one row has no slope", rows[:1], Query{Mode: Prefill, BatchSize: 64, InputLen: 4096}, 0.0114, 0.0115},
		{"two rows", only(func(r Row) bool { return r.InputLen >= 8192 && r.BatchSize == 1 }), Query{Mode: Prefill, BatchSize: 1, InputLen: 12000}, 0.45, 0.75},
		{"constant times stay constant", constant, Query{Mode: Decode, BatchSize: 200, InputLen: 30000}, 0.0099, 0.0101},
		{"a single batch size still tells lengths apart", only(func(r Row) bool { return r.BatchSize == 1 }), Query{Mode: Prefill, BatchSize: 1, InputLen: 3000}, 0.105, 0.125},
		{"a single batch size knows that tokens add up", only(func(r Row) bool { return r.BatchSize == 1 }), Query{Mode: Prefill, BatchSize: 4, InputLen: 2048}, 0.24, 0.4},
		{"a single length still tells batches apart", only(func(r Row) bool { return r.InputLen == 256 }), Query{Mode: Decode, BatchSize: 24, InputLen: 256}, 0.0085, 0.0089},
	} {
		t.Run(c.why, func(t *testing.T) {
			for _, model := range []string{Auto, LinearModel} {
				p, _, err := Train(t.Context(), c.rows, Options{Model: model})
				if err != nil {
					t.Fatal(err)
				}
				got, err := p.Predict(c.query)
				if err != nil {
					t.Fatal(err)
				}
				if model == Auto && !(float64(got.Value) >= c.least && float64(got.Value) <= c.to) {
					t.Errorf("%v, want %v to %v s", got.Value, c.least, c.to)
				}
			}
		})
	}
	if _, _, err := Train(t.Context(), nil, Options{}); !errors.Is(err, stat.ErrNoData) {
		t.Errorf("no rows: %v", err)
	}
	bad := append([]Row(nil), rows[0])
	bad[0].Median = math.NaN()
	if _, _, err := Train(t.Context(), bad, Options{}); err == nil {
		t.Error("a row of NaN: accepted")
	}
	if _, _, err := Train(t.Context(), rows, Options{Model: "forest", LinearTarget: "mode"}); err == nil {
		t.Error("unknown options: accepted")
	}
	if _, err := CrossValidate(t.Context(), rows[:3], 5, []string{Auto}, Median); err == nil {
		t.Error("more folds than rows: accepted")
	}
	even := only(func(r Row) bool { return r.Index%2 == 0 })
	if _, err := CrossValidate(t.Context(), even, 2, []string{Auto}, Median); err == nil || !strings.Contains(err.Error(), "remainder 0") {
		t.Errorf("all rows in one fold: %v", err)
	}
}

// TestDeterministic: the same rows give the same predictor.
func TestDeterministic(t *testing.T) {
	var first File
	rows := a100(t).Rows
	if err := first.Set("x", train(t, rows), nil); err != nil {
		t.Fatal(err)
	}
	var second File
	if err := second.Set("x", train(t, rows), nil); err != nil {
		t.Fatal(err)
	}
	if string(first.entries[0].raw) != string(second.entries[0].raw) {
		t.Error("two trainings on the same rows differ")
	}
}

// TestInnerMAPE: what is reported of the search is the error itself, and what
// candidates are compared by is clipped.
func TestInnerMAPE(t *testing.T) {
	rows := a100(t).Rows
	rows[20].Median *= 10 // a disturbance that no shape can meet
	_, report, err := Train(t.Context(), rows, Options{})
	if err != nil {
		t.Fatal(err)
	}
	clipped := false
	for _, m := range report.Modes {
		for _, c := range m.Candidates {
			if !(c.Clipped <= c.MAPE) || math.IsInf(c.MAPE, 0) {
				t.Errorf("%s %s: %v %%, clipped %v %%", m.Mode, c.Name, c.MAPE, c.Clipped)
			}
			clipped = clipped || c.Clipped < c.MAPE
		}
	}
	if !clipped {
		t.Error("no candidate misses any row by more than half")
	}
}

// TestStepTimeRanged holds it against the basis of predictions, and its time
// against StepTime.
func TestStepTimeRanged(t *testing.T) {
	p, _, err := Train(t.Context(), vllmRows(t, "b-burst-prefix"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why  string
		pass forward.Pass
		want bool
	}{
		{"decodes as the server had", forward.Decode(4, 200), false},
		{"a prompt that fits in a step", forward.Prefill(1, 300, 0), false},
		{"more decodes than the server has seats", forward.Decode(200, 200), true},
		{"a step larger than its budget", forward.Prefill(1, 8192, 0), true},
	} {
		took, got, err := p.StepTimeRanged(c.pass)
		if plain, _ := p.StepTime(c.pass); err != nil || took != plain {
			t.Errorf("%s: %v (%v), StepTime says %v", c.why, took, err, plain)
		}
		e, err := p.Predict(Query{Pass: &c.pass})
		if err != nil {
			t.Fatalf("%s: %v", c.why, err)
		}
		if got != c.want || got != (e.Basis == stat.Extrapolated) {
			t.Errorf("%s: %v, want %v; predicted %s", c.why, got, c.want, e.Basis)
		}
	}
}

// TestRangeHolds holds the quick answer against the distance.
func TestRangeHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Custom(func(t *rapid.T) float64 {
			return rapid.SampledFrom([]float64{0, 1, 2, 7, 16, 17, 100, math.NaN()}).Draw(t, "size")
		})
		number := size.Filter(func(v float64) bool { return v == v })
		r := MixedRange{
			MaxPrefillTokens: number.Draw(t, "prefill"), MaxDecodeTokens: number.Draw(t, "decode"), MaxPrefillRequests: number.Draw(t, "prompts"),
			MaxDecodeRequests: number.Draw(t, "decodes"), MaxCached: number.Draw(t, "cached"), MaxPairs: number.Draw(t, "pairs"),
		}
		w := work{number.Draw(t, "a"), number.Draw(t, "b"), number.Draw(t, "c"), number.Draw(t, "d"), size.Draw(t, "e"), size.Draw(t, "f")}
		if got, want := r.holds(&w), r.outside(&w).inside(); got != want {
			t.Fatalf("%+v of %+v: %v, the distance says %v", w, r, got, want)
		}
		plain := Range{MinBatch: 1, MaxBatch: 16, MinSize: 2, MaxSize: 100, MaxWork: 160}
		b, x := max(number.Draw(t, "batch"), 1), number.Draw(t, "length")
		if got, want := plain.holds(b, x), plain.outside(b, x).inside(); got != want {
			t.Fatalf("%g of %g: %v, the distance says %v", b, x, got, want)
		}
	})
}
