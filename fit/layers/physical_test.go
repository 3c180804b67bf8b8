package layers

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

func TestBeyondTheGrid(t *testing.T) {
	all := tables(t)
	for _, d := range devices() {
		at := func(name string, x int) stat.Estimate[float64] {
			e, err := all[d.name].LayerTime(name, x, d.tp, false)
			if err != nil {
				t.Fatal(err)
			}
			return stat.Estimate[float64]{Value: float64(e.Value), Low: float64(e.Low), High: float64(e.High), Level: e.Level, Basis: e.Basis, Warnings: e.Warnings}
		}
		for _, name := range []string{"gate_up_proj", "down_proj", "o_proj"} {
			far, end := at(name, 4096), at(name, 2048)
			if r := far.Value / end.Value; r < 1.8 || r > 2.2 || far.Basis != stat.Extrapolated || !far.HasInterval() {
				t.Errorf("%s on %s tp%d: 4096 tokens take %.2f times 2048, %s: want 1.8 to 2.2, extrapolated with an interval", name, d.name, d.tp, r, far.Basis)
			}
			wider := at(name, 16384)
			if wider.High/wider.Low <= far.High/far.Low {
				t.Errorf("%s: interval at 16384 tokens no wider than at 4096", name)
			}
		}
		if gone := at("gate_up_proj", 1<<20); gone.HasInterval() || len(gone.Warnings) != 1 {
			t.Errorf("nine octaves beyond: got %+v, want a warning and no interval", gone)
		}
		if head := at("lm_head", 512); head.Value < at("lm_head", 256).Value*1.1 {
			t.Errorf("lm_head of 512 on %s tp%d: %v: want it to turn into arithmetic", d.name, d.tp, head.Value)
		}
	}
	got, err := all["RTX4090"].Attention(2048, 20000, 0, 0, 1, false)
	if compat, _ := all["RTX4090"].Attention(2048, 20000, 0, 0, 1, true); err != nil || got.Basis != stat.Extrapolated || math.Abs(float64(got.Value/compat.Value)-1) > 0.1 {
		t.Errorf("attention beyond the grid: got %v %s, %v; want near the line, %v", got.Value, got.Basis, err, compat.Value)
	}
}

func TestPhysicalBasis(t *testing.T) {
	table := tables(t)["RTX4090"]
	for _, c := range []struct {
		why   string
		ask   profile.Layer
		basis stat.Basis
	}{
		{"a point", profile.Layer{Name: "gate_up_proj", Tokens: 1}, stat.Measured},
		{"between points", profile.Layer{Name: "gate_up_proj", Tokens: 777}, stat.Interpolated},
		{"a point that noise made fall", profile.Layer{Name: "gate_up_proj", Tokens: 336}, stat.Interpolated},
		{"beyond", profile.Layer{Name: "gate_up_proj", Tokens: 2049}, stat.Extrapolated},
		{"decodes", profile.Layer{Name: "attention", Sequences: 32, SequenceContext: 1500}, stat.Interpolated},
		{"a chunk below the first", profile.Layer{Name: "attention", Tokens: 3}, stat.Extrapolated},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, err := table.Time(c.ask, false)
			if err != nil {
				t.Fatal(err)
			}
			if got.Basis != c.basis || got.HasInterval() != (c.basis != stat.Measured) {
				t.Errorf("got %+v, want basis %s", got, c.basis)
			}
			if got.HasInterval() && !(got.Low > 0 && got.Low < got.Value && got.Value < got.High && got.Level >= 0.79) {
				t.Errorf("interval %v to %v of level %v around %v", got.Low, got.High, got.Level, got.Value)
			}
		})
	}
}

// Intervals made without some points cover about as many of them as promised.
func TestCoverage(t *testing.T) {
	rows := attentionRows(t, "RTX4090", 1)
	var train, test []timed
	for i, r := range rows {
		if i%17 == 3 {
			test = append(test, r)
		} else {
			train = append(train, r)
		}
	}
	m := &attentionModel{rows: train, level: 0.8}
	covered := 0
	for _, r := range test {
		a, ok := m.ask(r.batch)
		if !ok {
			t.Fatal(r)
		}
		if e := a.estimate(nil); r.t >= float64(e.Low) && r.t <= float64(e.High) {
			covered++
		}
	}
	if share := float64(covered) / float64(len(test)); share < 0.75 || share > 0.9 {
		t.Errorf("intervals of level 0.8 cover %.3f of %d batches", share, len(test))
	}
}

func TestNeverFalls(t *testing.T) {
	table := tables(t)["RTX4090"]
	// Of these, measured times fall by noise only.
	for _, name := range []string{"qkv_proj", "gate_up_proj", "down_proj", "layernorm", "final_layernorm", "lm_head", "sampler"} {
		last := 0.0
		for x := 1; x < 5000; x++ {
			e, err := table.LayerTime(name, x, 1, false)
			if err != nil {
				t.Fatal(err)
			}
			if float64(e.Value) < last {
				t.Errorf("%s: %d: %v after %v", name, x, e.Value, last)
				break
			}
			last = float64(e.Value)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		sizes := [4]int{
			rapid.IntRange(0, 4096).Draw(r, "chunk"), rapid.IntRange(0, 40000).Draw(r, "context"),
			rapid.IntRange(1, 512).Draw(r, "decodes"), rapid.IntRange(0, 40000).Draw(r, "their context"),
		}
		grown := sizes
		d := rapid.IntRange(0, 3).Draw(r, "axis")
		grown[d] += rapid.IntRange(1, 1000).Draw(r, "growth")
		a, err := table.Attention(sizes[0], sizes[1], sizes[2], sizes[3], 1, false)
		b, err2 := table.Attention(grown[0], grown[1], grown[2], grown[3], 1, false)
		if err != nil || err2 != nil {
			r.Fatal(err, err2)
		}
		if float64(b.Value) < float64(a.Value)*(1-1e-9) {
			r.Fatalf("%v: %v, %v: %v", sizes, a.Value, grown, b.Value)
		}
	})
}

// TestRequestOfBundle: a request is its prompt and then one step a token.
func TestRequestOfBundle(t *testing.T) {
	table := tables(t)["RTX4090"]
	for _, compat := range []bool{false, true} {
		got, err := table.Estimate(32, 512, 3, compat)
		if err != nil {
			t.Fatal(err)
		}
		want := unit.Seconds(0)
		for i, pass := range []forward.Pass{forward.Prefill(1, 512, 0), forward.Decode(1, 512), forward.Decode(1, 513)} {
			e, err := table.Iteration(pass, 32, 1, compat)
			if err != nil {
				t.Fatal(err)
			}
			want += e.Value
			if i == 0 && got.Prefill.Value != e.Value {
				t.Errorf("compat %v: prefill %v, want %v", compat, got.Prefill.Value, e.Value)
			}
		}
		if math.Abs(float64(got.EndToEnd.Value/want)-1) > 1e-9 {
			t.Errorf("compat %v: %v, want %v", compat, got.EndToEnd.Value, want)
		}
	}
}

func TestErrors(t *testing.T) {
	table := tables(t)["RTX4090"]
	_, err := table.LayerTime("gate_proj", 1, 1, false)
	unknown, ok := errors.AsType[*UnknownLayerError](err)
	if !ok || unknown.Nearest[0] != "gate_up_proj" || unknown.Hint() == "" {
		t.Errorf("unknown layer: got %v", err)
	}
	for _, ask := range []func() error{
		func() error { _, err := table.LayerTime("qkv_proj", 1, 4, false); return err },
		func() error { _, err := table.Iteration(forward.Decode(1, 1), 32, 4, false); return err },
		func() error { _, err := table.Timer(32, 4, true); return err },
	} {
		if missing, ok := errors.AsType[*fit.NotMeasuredError](ask()); !ok {
			t.Errorf("want a NotMeasuredError, got %v", missing)
		}
	}
	for _, ask := range []profile.Layer{
		{Name: "qkv_proj"},
		{Name: "qkv_proj", Tokens: -1},
		{Name: "qkv_proj", Tokens: math.MaxInt},
		{Name: "attention"},
		{Name: "attention", Context: 5},
		{Name: "", Tokens: 1},
	} {
		for _, compat := range []bool{true, false} {
			if got, err := table.Time(ask, compat); err == nil {
				t.Errorf("%+v: got %v, want an error", ask, got.Value)
			}
		}
	}
	for _, pass := range []forward.Pass{{}, forward.Decode(-1, 0), forward.Prefill(1<<40, 1<<40, 0), forward.Decode(1, 1<<50)} {
		if got, err := table.Iteration(pass, 32, 1, false); err == nil {
			t.Errorf("%+v: got %v, want an error", pass, got.Value)
		}
	}
	if _, err := table.Iteration(forward.Decode(1, 1), 0, 1, false); err == nil {
		t.Error("no blocks: want an error")
	}
	broken := layerPoint(profile.Layer{Name: "x", Tokens: 1}, math.NaN())
	for _, c := range []struct {
		points  []profile.Point
		options Options
	}{
		{nil, Options{}},
		{[]profile.Point{broken}, Options{}},
		{[]profile.Point{layerPoint(profile.Layer{Name: "x", Tokens: -1}, 1)}, Options{}},
		{[]profile.Point{layerPoint(profile.Layer{Name: "x", Tokens: 1}, 1)}, Options{Level: 2, Generation: "v9", Experts: -1, TensorParallel: -1}},
	} {
		if _, err := New(slices.Values(c.points), c.options); err == nil {
			t.Errorf("%+v: want an error", c)
		}
	}
}

// Tables of any few points answer, or say why not, without a panic.
func TestAnyTable(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var points []profile.Point
		for range rapid.IntRange(1, 12).Draw(r, "points") {
			l := profile.Layer{
				Name:   rapid.SampledFrom([]string{"attention", "attn", "qkv_proj", "lm_head", "moe", "x"}).Draw(r, "name"),
				Tokens: rapid.IntRange(0, 40).Draw(r, "tokens"), Context: rapid.IntRange(0, 3).Draw(r, "context"),
				Sequences: rapid.IntRange(0, 3).Draw(r, "sequences"), SequenceContext: rapid.IntRange(0, 3).Draw(r, "sequence context"),
				ActivatedExperts: rapid.IntRange(0, 2).Draw(r, "experts"), LongSequences: rapid.IntRange(-1, 1).Draw(r, "long"),
			}
			points = append(points, layerPoint(l, rapid.Float64Range(1e-9, 1).Draw(r, "time")))
		}
		table, err := New(slices.Values(points), Options{})
		if err != nil {
			return
		}
		for _, info := range table.Layers() {
			for _, compat := range []bool{true, false} {
				ask := profile.Layer{
					Name: info.Name, Tokens: rapid.IntRange(0, 100).Draw(r, "asked"), Context: rapid.IntRange(0, 100).Draw(r, "on"),
					Sequences: rapid.IntRange(0, 100).Draw(r, "decodes"), SequenceContext: rapid.IntRange(0, 100).Draw(r, "of"), ActivatedExperts: rapid.IntRange(0, 5).Draw(r, "active"),
				}
				e, err := table.Time(ask, compat)
				if v := float64(e.Value); err == nil && !(v > 0 && !math.IsInf(v, 0) && e.Low > 0 && !math.IsInf(float64(e.High), 0)) {
					r.Fatalf("%+v, compat %v: %+v", ask, compat, e)
				}
			}
		}
		_, _ = table.Iteration(forward.Decode(2, 3), 2, 1, false)
		_, _ = table.Estimate(2, 3, 4, false)
	})
}

func TestSamplesAndWarnings(t *testing.T) {
	p := layerPoint(profile.Layer{Name: "x", Tokens: 1}, 3e-6)
	p.Samples = []float64{9e-6, 3e-6, 2e-6}
	p.Warnings = []string{"cold run"}
	q := layerPoint(profile.Layer{Name: "x", Tokens: 2}, 5e-6)
	table := mustTable(t, []profile.Point{p, q, q}, Options{})
	got, err := table.LayerTime("x", 1, 1, false)
	if err != nil || got.Value != 3e-6 || got.Basis != stat.Measured || len(got.Warnings) != 1 {
		t.Errorf("got %+v, %v; want the median, 3 µs, with the point's warning", got, err)
	}
	if info := table.Layers(); len(info) != 1 || info[0].Points != 2 || len(info[0].Axes) != 1 || info[0].Axes[0] != (Axis{"tokens", 2, 1, 2}) {
		t.Errorf("got %+v", info)
	}
}

func TestCompatDoesNotAllocate(t *testing.T) {
	table := tables(t)["RTX4090"]
	if n := testing.AllocsPerRun(100, func() {
		if _, err := table.LayerTime("qkv_proj", 777, 1, true); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a compat lookup allocates %v times", n)
	}
}

func BenchmarkLookups(b *testing.B) {
	table := tables(b)["RTX4090"]
	for _, c := range []struct {
		name string
		ask  func(compat bool) error
	}{
		{"layer", func(compat bool) error { _, err := table.LayerTime("qkv_proj", 777, 1, compat); return err }},
		{"attention", func(compat bool) error {
			_, err := table.Attention(1000, 300, 20, 700, 1, compat)
			return err
		}},
		{"beyond", func(compat bool) error {
			_, err := table.Attention(4000, 30000, 400, 30000, 1, compat)
			return err
		}},
		{"step", func(compat bool) error {
			_, err := table.Iteration(forward.Decode(16, 1000), 32, 1, compat)
			return err
		}},
	} {
		for name, compat := range map[string]bool{"compat": true, "physical": false} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				if err := c.ask(compat); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					if err := c.ask(compat); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
