package layers

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/profile"
)

// linked is a bundle with collectives of 10 µs and 10 GB/s, measured from 1 kB
// to 1 MB.
func linked(t *testing.T) *Table {
	t.Helper()
	points := bundle(t, "RTXPRO6000", 2)
	for _, name := range []string{"all_reduce", "all_gather"} {
		for bytes := int64(1000); bytes <= 1_000_000; bytes *= 10 {
			points = append(points, layerPoint(profile.Layer{Name: name, MessageBytes: bytes, TensorParallel: 2}, 10e-6+float64(bytes)/10e9))
		}
	}
	return mustTable(t, points, Options{})
}

func TestExchange(t *testing.T) {
	table := linked(t)
	e, err := table.Exchange(32, 2, Messages{Token: 8192, Row: 128_256})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why       string
		got, want float64
		near      float64
	}{
		{"within: after the embedding and twice a block", float64(e.Tokens(100)), 65 * (10e-6 + 819_200/10e9), 1e-9},
		{"beyond: bandwidth goes on", float64(e.Tokens(2048)), 65 * (10e-6 + 2048*8192/10e9), 0.03},
		{"logits", float64(e.Rows(4)), 10e-6 + 4*128_256/10e9, 1e-9},
		{"below the smallest message", float64(e.Rows(0)), 10.1e-6, 1e-9},
	} {
		if math.Abs(c.got/c.want-1) > c.near {
			t.Errorf("%s: got %v s, want %v", c.why, c.got, c.want)
		}
	}
	if one, err := table.Exchange(32, 1, Messages{Token: 1, Row: 1}); err != nil || one.Tokens != nil || one.Rows != nil {
		t.Errorf("one rank: got %+v, %v; want nothing to exchange", one, err)
	}
	if _, err := table.Exchange(0, 2, Messages{}); err == nil {
		t.Error("no blocks and no bytes: want an error")
	}
	_, err = tables(t)["RTXPRO6000"].Exchange(32, 2, Messages{Token: 8192, Row: 128_256})
	if _, ok := errors.AsType[*fit.NotMeasuredError](err); !ok {
		t.Errorf("without collectives: got %v, want that they were not measured", err)
	}
}

// Collectives change no answer of the layers, and the table lists them.
func TestMessagesAreNoLayers(t *testing.T) {
	with, without := linked(t), mustTable(t, bundle(t, "RTXPRO6000", 2), Options{})
	a, err := with.Iteration(busy(), 32, 2, false)
	if err != nil {
		t.Fatal(err)
	}
	b, err := without.Iteration(busy(), 32, 2, false)
	if err != nil || a.Value != b.Value {
		t.Errorf("a step takes %v with collectives in the table and %v, %v without", a.Value, b.Value, err)
	}
	i := slices.IndexFunc(with.Layers(), func(l Info) bool { return l.Name == "all_gather" })
	if i < 0 || with.Layers()[i].Points != 4 || with.Layers()[i].Axes[0] != (Axis{"message_bytes", 4, 1000, 1_000_000}) {
		t.Errorf("layers are %+v: want all_gather of 4 sizes among them", with.Layers())
	}
}
