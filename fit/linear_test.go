package fit

import (
	"math"
	"testing"
)

func TestLinearWeights(t *testing.T) {
	p, _, err := Train(t.Context(), a100(t).Rows, Options{Model: LinearModel})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why     string
		mode    Mode
		weights [4]float64
		bias    float64
		pairs   [][2]int
	}{
		{
			why: "prefill repeats b·i", mode: Prefill, pairs: [][2]int{{0, 2}},
			weights: [4]float64{1.5786500231e-05, 1.2963939488e-09, 1.5786500231e-05, -5.5596552622e-06}, bias: 0.0085533697440,
		},
		{
			why: "decode repeats b and b·i", mode: Decode, pairs: [][2]int{{0, 3}, {1, 2}},
			weights: [4]float64{8.5130389502e-06, 4.3535835379e-08, 4.3535835379e-08, 8.5130389502e-06}, bias: 0.0074907794569,
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			l, ok := p.Linear(c.mode)
			if !ok {
				t.Fatal("not trained")
			}
			for j, want := range c.weights {
				if math.Abs(l.Weights[j]/want-1) > 1e-6 {
					t.Errorf("weight %d: %v, want %v", j, l.Weights[j], want)
				}
			}
			if math.Abs(l.Bias/c.bias-1) > 1e-6 {
				t.Errorf("bias %v, want %v", l.Bias, c.bias)
			}
			for _, pair := range c.pairs {
				if a, b := l.Weights[pair[0]], l.Weights[pair[1]]; math.Abs(a/b-1) > 1e-9 {
					t.Errorf("weights %v: %v and %v, want equal", pair, a, b)
				}
			}
		})
	}
}

func TestLinearPredictions(t *testing.T) {
	p, _, err := Train(t.Context(), a100(t).Rows, Options{Model: LinearModel})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		batch, input    int
		prefill, decode float64 // milliseconds
	}{
		{4, 512, 74.552, 7.737},
		{8, 1024, 278.030, 8.340},
		{1, 1, 8.579, 7.508},
		{64, 512, 1064.532, 11.434},
		{1, 16384, 873.838, 8.934},
		{16, 4096, 2425.631, 13.470},
	} {
		for k, want := range [2]float64{c.prefill, c.decode} {
			got, err := p.Predict(Query{Mode: modes()[k], BatchSize: c.batch, InputLen: c.input})
			if err != nil {
				t.Fatal(err)
			}
			if ms := got.Value.Milliseconds(); math.Abs(ms-want) > 0.001 {
				t.Errorf("%s at batch size %d, input length %d: %.4f ms, want %.3f", modes()[k], c.batch, c.input, ms, want)
			}
		}
	}
}
