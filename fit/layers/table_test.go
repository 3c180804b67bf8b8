package layers

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// devices are the public bundles.
func devices() []struct {
	name string
	tp   int
} {
	return []struct {
		name string
		tp   int
	}{{"RTX4090", 1}, {"RTXPRO6000", 1}, {"RTXPRO6000", 2}}
}

func mustTable(t testing.TB, points []profile.Point, o Options) *Table {
	t.Helper()
	table, err := New(slices.Values(points), o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// tables are the bundles of both devices. Tables are safe for concurrent use,
// so tests share them and what they fit once.
func tables(t testing.TB) map[string]*Table {
	t.Helper()
	shared.Do(func() {
		both = map[string]*Table{
			"RTX4090":    mustTable(t, bundle(t, "RTX4090", 1), Options{}),
			"RTXPRO6000": mustTable(t, append(bundle(t, "RTXPRO6000", 1), bundle(t, "RTXPRO6000", 2)...), Options{}),
		}
	})
	return both
}

var (
	shared sync.Once
	both   map[string]*Table
)

func ns(e stat.Estimate[unit.Seconds]) int64 { return int64(math.Round(float64(e.Value) * 1e9)) }

func TestCompatLookups(t *testing.T) {
	all := tables(t)
	layer := func(name string, x int) func(*Table, int) (stat.Estimate[unit.Seconds], error) {
		return func(table *Table, tp int) (stat.Estimate[unit.Seconds], error) {
			return table.LayerTime(name, x, tp, true)
		}
	}
	attend := func(c, p, n, k int) func(*Table, int) (stat.Estimate[unit.Seconds], error) {
		return func(table *Table, tp int) (stat.Estimate[unit.Seconds], error) {
			return table.Attention(c, p, n, k, tp, true)
		}
	}
	for _, c := range []struct {
		name  string
		ask   func(*Table, int) (stat.Estimate[unit.Seconds], error)
		want  [3]int64 // ns, by device
		basis stat.Basis
	}{
		{"qkv_proj of 1", layer("qkv_proj", 1), [3]int64{54898, 35830, 21824}, stat.Measured},
		{"qkv_proj of 100", layer("qkv_proj", 100), [3]int64{69043, 42688, 23458}, stat.Interpolated},
		{"qkv_proj of 777", layer("qkv_proj", 777), [3]int64{257404, 122298, 68577}, stat.Interpolated},
		{"down_proj of 1000", layer("down_proj", 1000), [3]int64{738403, 316763, 168672}, stat.Interpolated},
		{"lm_head of 1", layer("lm_head", 1), [3]int64{1096930, 714006, 356181}, stat.Measured},
		{"lm_head of 100", layer("lm_head", 100), [3]int64{1258030, 728452, 387602}, stat.Interpolated},
		{"one decode", attend(0, 0, 1, 24), [3]int64{9327, 8405, 8053}, stat.Interpolated},
		{"32 decodes", attend(0, 0, 32, 1500), [3]int64{248149, 162232, 83059}, stat.Interpolated},
		{"200 decodes", attend(0, 0, 200, 900), [3]int64{823739, 533516, 294549}, stat.Interpolated},
		{"a prompt", attend(700, 0, 0, 0), [3]int64{65737, 38470, 25350}, stat.Interpolated},
		{"a chunk and decodes", attend(512, 1024, 16, 3000), [3]int64{539887, 271223, 151547}, stat.Interpolated},
		{"off every axis", attend(1000, 300, 20, 700), [3]int64{301754, 160090, 93337}, stat.Interpolated},
		{"beyond the grid", attend(2048, 20000, 0, 0), [3]int64{5030153, 2564030, 1314946}, stat.Extrapolated},
	} {
		for i, d := range devices() {
			got, err := c.ask(all[d.name], d.tp)
			if err != nil {
				t.Fatalf("%s on %s tp%d: %v", c.name, d.name, d.tp, err)
			}
			if ns(got) != c.want[i] || got.Basis != c.basis || got.HasInterval() {
				t.Errorf("%s on %s tp%d: got %d ns, %s; want %d, %s", c.name, d.name, d.tp, ns(got), got.Basis, c.want[i], c.basis)
			}
		}
	}
	// A layer that is not split uses the times of one rank.
	one, err := all["RTXPRO6000"].LayerTime("layernorm", 100, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, compat := range []bool{true, false} {
		if eight, err := all["RTXPRO6000"].LayerTime("layernorm", 100, 8, compat); err != nil || compat && eight.Value != one.Value {
			t.Errorf("layernorm on 8 ranks: got %v, %v; want that of one rank, %v", eight.Value, err, one.Value)
		}
	}
}

func TestIterations(t *testing.T) {
	all := tables(t)
	mixed := forward.Pass{Prefill: []forward.Chunk{{Count: 1, New: 512, Last: true}}, Decode: forward.Sequences{Count: 15, SumContext: 15 * 1024}}
	for _, c := range []struct {
		why  string
		pass forward.Pass
		want [3]string // ms
	}{
		{"16 decodes", forward.Decode(16, 1024), [3]string{"20.077", "12.764", "7.083"}},
		{"a prompt of 2048", forward.Prefill(1, 2048, 0), [3]string{"193.005", "82.945", "43.577"}},
		{"a prompt of 512 and 15 decodes", mixed, [3]string{"63.464", "28.194", "16.332"}},
	} {
		for i, d := range devices() {
			got, err := all[d.name].Iteration(c.pass, 32, d.tp, true)
			if err != nil {
				t.Fatal(err)
			}
			if s := fmt.Sprintf("%.3f", got.Value.Milliseconds()); s != c.want[i] {
				t.Errorf("%s on %s tp%d: got %s ms, want %s", c.why, d.name, d.tp, s, c.want[i])
			}
			if (d.tp > 1) != (len(got.Warnings) > 0) {
				t.Errorf("%s on %s tp%d: warnings %q: want one of communication with 2 ranks only", c.why, d.name, d.tp, got.Warnings)
			}
			physical, err := all[d.name].Iteration(c.pass, 32, d.tp, false)
			if err != nil {
				t.Fatal(err)
			}
			if off := float64(physical.Value/got.Value) - 1; math.Abs(off) > 0.02 {
				t.Errorf("%s on %s tp%d: physical %v, compat %v: want them close on grid points", c.why, d.name, d.tp, physical.Value, got.Value)
			}
			timer, err := all[d.name].Timer(32, d.tp, true)
			if err != nil {
				t.Fatal(err)
			}
			if step, err := timer.StepTime(c.pass); err != nil || math.Abs(step.Seconds()-float64(got.Value)) > 1e-9 {
				t.Errorf("%s: timer says %v, %v; want %v", c.why, step, err, got.Value)
			}
		}
	}
}

func TestSkew(t *testing.T) {
	all := tables(t)
	want := []struct {
		alpha string
		rows  int
	}{{"0.0224", 12998}, {"0.0543", 12984}, {"0.0654", 12814}}
	for i, d := range devices() {
		alpha, rows := all[d.name].SkewAlpha(d.tp)
		if got := fmt.Sprintf("%.4f", alpha); got != want[i].alpha || rows != want[i].rows {
			t.Errorf("%s tp%d: pooled alpha %s of %d rows, want %s of %d", d.name, d.tp, got, rows, want[i].alpha, want[i].rows)
		}
		// The profiler's own table of buckets.
		fit := all[d.name].skews[d.tp]
		counts := map[string]int{}
		for _, r := range fit.counts {
			counts[fmt.Sprintf("n<=%d", r)] = r
		}
		buckets, wrong := 0, 0
		readCSV(t, fmt.Sprintf("%s-tp%d-skew_fit.csv.gz", d.name, d.tp), func(get func(string) string) {
			buckets++
			b := bucket{
				chunk: slices.Index(fit.chunks, whole(t, get("pc"))), count: slices.Index(fit.counts, counts[get("n_label")]),
				rate:    slices.Index([]string{"sr<=5%", "sr<=15%", "sr<=40%", "sr<=70%", "sr>70%"}, get("skew_rate_label")),
				longest: slices.Index([]string{"kvB<=1k", "kvB<=4k", "kvB<=16k", "kvB>16k"}, get("kv_big_label")),
				context: slices.Index([]string{"kp=0", "kp<=512", "kp<=1k", "kp<=2k", "kp<=4k", "kp<=8k"}, get("kp_label")),
			}
			if a, ok := fit.buckets[b]; !ok || math.Abs(a-number(t, get("alpha"))) > 0.0002 {
				wrong++
				if wrong < 5 {
					t.Logf("%s tp%d: %v: got %v %v, want %s", d.name, d.tp, b, a, ok, get("alpha"))
				}
			}
		})
		if wrong > 0 || buckets != len(fit.buckets) {
			t.Errorf("%s tp%d: %d of %d buckets differ; the fit has %d", d.name, d.tp, wrong, buckets, len(fit.buckets))
		}
	}

	table := all["RTX4090"]
	even, err := table.Iteration(forward.Decode(8, 2000), 32, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	contexts := []int{100, 100, 100, 100, 100, 100, 100, 15300}
	uneven := forward.Pass{Decode: forward.Sequences{Count: 8, SumContext: 16000}, DecodeContexts: contexts}
	skewed, err := table.Iteration(uneven, 32, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	if !(skewed.Value > even.Value) {
		t.Errorf("unequal lengths: %v, equal ones: %v: want more", skewed.Value, even.Value)
	}
	points := slices.DeleteFunc(bundle(t, "RTX4090", 1), func(p profile.Point) bool { return p.Layer.LongSequences > 0 })
	plain := mustTable(t, points, Options{})
	if got, err := plain.Iteration(uneven, 32, 1, false); err != nil || got.Value != even.Value || len(got.Warnings) != 1 {
		t.Errorf("without skew rows: got %v, %q, %v; want %v and a warning", got.Value, got.Warnings, err, even.Value)
	}
}

func seedPoints(t testing.TB, name string) []profile.Point {
	t.Helper()
	var points []profile.Point
	readCSV(t, name, func(get func(string) string) {
		points = append(points, layerPoint(profile.Layer{Name: get("layer_name"), Tokens: whole(t, get("input")), Context: whole(t, get("kv_cache"))}, number(t, get("latency(ns)"))*1e-9))
	})
	return points
}

func TestSeedEstimates(t *testing.T) {
	table := mustTable(t, seedPoints(t, "seed-RTX3090.csv.gz"), Options{})
	if table.Generation() != Seed || len(table.Layers()) != 15 {
		t.Fatalf("got generation %s and %d layers, want %s and 15", table.Generation(), len(table.Layers()), Seed)
	}
	for _, c := range []struct {
		n                             int
		prefill, coded, correct, tpot string // ms
	}{
		{128, "37.718", "3006.361", "2855.890", "22.190"},
		{512, "128.644", "12120.654", "11515.273", "22.283"},
		{1024, "261.732", "24476.572", "23264.681", "22.486"},
	} {
		coded, err := table.Estimate(32, c.n, c.n, true)
		if err != nil {
			t.Fatal(err)
		}
		got, err := table.Estimate(32, c.n, c.n, false)
		if err != nil {
			t.Fatal(err)
		}
		ms := func(e stat.Estimate[unit.Seconds]) string { return fmt.Sprintf("%.3f", e.Value.Milliseconds()) }
		if ms(got.Prefill) != c.prefill || ms(coded.EndToEnd) != c.coded || ms(got.EndToEnd) != c.correct || ms(*got.TPOT) != c.tpot || got.EndToEnd.Basis != stat.Measured {
			t.Errorf("%d/%d: got %s %s %s %s, %s; want %s %s %s %s, measured", c.n, c.n, ms(got.Prefill), ms(coded.EndToEnd), ms(got.EndToEnd), ms(*got.TPOT), got.EndToEnd.Basis, c.prefill, c.coded, c.correct, c.tpot)
		}
	}
	if got, err := table.Estimate(32, 2048, 1, true); err != nil || fmt.Sprintf("%.3f", got.Prefill.Value.Milliseconds()) != "527.861" || got.TPOT != nil {
		t.Errorf("prompt of 2048: got %+v, %v; want 527.861 ms and no TPOT", got, err)
	}
	for _, c := range []struct{ tokens, context, want int }{{128, 0, 8631}, {1024, 0, 176218}, {2048, 0, 593188}, {1, 1024, 15582}, {1, 2048, 28073}} {
		got, err := table.Time(profile.Layer{Name: "attn", Tokens: c.tokens, Context: c.context}, true)
		if err != nil || ns(got) != int64(c.want) {
			t.Errorf("attn (%d, %d): got %d ns, %v; want %d", c.tokens, c.context, ns(got), err, c.want)
		}
	}
	if got, _ := table.Time(profile.Layer{Name: "q_proj", Tokens: 1}, true); ns(got) != 46763 {
		t.Errorf("q_proj (1, 0): got %d ns, want the last duplicate, 46763", ns(got))
	}
	// Beyond the table the original has nothing; here the basis says so.
	if _, err := table.Estimate(32, 2048, 100, true); err == nil {
		t.Error("compat estimate beyond the table: want an error")
	}
	beyond, err := table.Estimate(32, 4096, 100, false)
	if err != nil || beyond.EndToEnd.Basis != stat.Extrapolated || !beyond.EndToEnd.HasInterval() {
		t.Errorf("beyond the table: got %+v, %v; want an extrapolation with an interval", beyond.EndToEnd, err)
	}
	if r := float64(beyond.Prefill.Value) / 0.527861; r < 1.9 || r > 3 {
		t.Errorf("prompt of 4096: %v, %.2f times that of 2048: want about twice and attention's square", beyond.Prefill.Value, r)
	}
	chunk, err := table.Time(profile.Layer{Name: "attn", Tokens: 512, Context: 512}, false)
	if err != nil || chunk.Basis != stat.Extrapolated || len(chunk.Warnings) == 0 {
		t.Errorf("a chunk on cached tokens: got %+v, %v; want an extrapolation with a warning", chunk, err)
	}
}

func TestFamilies(t *testing.T) {
	phi := seedPoints(t, "layers_RTX3090_Phi-mini-MoE_tp1_sample.csv.gz")
	if _, err := mustTable(t, phi, Options{}).Estimate(32, 128, 1, false); err == nil {
		t.Error("Phi-MoE without its number of experts: want an error")
	}
	table := mustTable(t, phi, Options{Experts: 16})
	if _, err := table.Estimate(32, 128, 1, false); err == nil {
		t.Error("Phi-MoE without attn: want an error, not a zero")
	}
	phi = append(phi, layerPoint(profile.Layer{Name: "attn", Tokens: 128}, 1e-6))
	table = mustTable(t, phi, Options{Experts: 16})
	got, err := table.Estimate(32, 128, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	want := 0.0
	for _, p := range phi {
		if p.Layer.Tokens != 128 {
			continue
		}
		times := 32.0
		switch p.Layer.Name {
		case "embedding", "final_layernorm", "lm_head":
			times = 1
		case "expert.w1", "expert.w2", "expert.w3", "act_fn":
			times = 32 * 16
		}
		want += times * p.Samples[0]
	}
	if math.Abs(float64(got.Prefill.Value)-want) > 1e-9 {
		t.Errorf("Phi-MoE: got %v, want %v s", got.Prefill.Value, want)
	}
}

func TestV10(t *testing.T) {
	points := seedPoints(t, "layers_TPU-v6e-1_Llama-3.1-8B_tp1_sample.csv.gz")
	for i := range points {
		points[i].Layer.TensorParallel = 1
	}
	readCSV(t, "attn_decode_predictions_A6000_tp1_sample.csv.gz", func(get func(string) string) {
		points = append(points, layerPoint(profile.Layer{Name: "attention", Sequences: whole(t, get("batch_size")), SequenceContext: whole(t, get("kv_cache_size")), TensorParallel: 1}, number(t, get("prediction"))*1e-9))
	})
	readCSV(t, "attn_prefill_predictions_A6000_tp1_sample.csv.gz", func(get func(string) string) {
		points = append(points, layerPoint(profile.Layer{Name: "attention", Tokens: whole(t, get("prefill_chunk_size")), Context: whole(t, get("kv_cache_size")), TensorParallel: 1}, number(t, get("prediction"))*1e-9))
	})
	table := mustTable(t, points, Options{})
	if table.Generation() != V10 {
		t.Fatalf("got generation %s, want %s", table.Generation(), V10)
	}
	act, err := table.LayerTime("act_fn", 100, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	if other, _ := table.LayerTime("act_fn", 2048, 1, true); act.Value != other.Value || act.Value <= 0 {
		t.Errorf("act_fn with one row: %v at 100, %v at 2048: want the one row", act.Value, other.Value)
	}
	for _, c := range []struct {
		c, p, n, k int
		want       int64
	}{
		{0, 0, 2, 1472, 130704},
		{0, 0, 2, 1409, 130704}, // up to a multiple of 64
		{1, 0, 0, 0, 51270},     // up to a multiple of 32
		{30, 0, 2, 1472, 130704 + 51270},
	} {
		if got, err := table.Attention(c.c, c.p, c.n, c.k, 1, true); err != nil || ns(got) != c.want {
			t.Errorf("%+v: got %d ns, %v", c, ns(got), err)
		}
	}
	if b, _ := joined(forward.Pass{Prefill: []forward.Chunk{{Count: 2, New: 30}, {Count: 1, New: 40}}}, true); math.Abs(b.c-math.Sqrt(3400)) > 1e-9 {
		t.Errorf("chunks of 30, 30 and 40 tokens: got %v, want the root of the sum of squares", b.c)
	}
	mixed, err := table.Attention(64, 0, 4, 1000, 1, false)
	if err != nil || mixed.Basis != stat.Extrapolated || len(mixed.Warnings) == 0 {
		t.Errorf("mixed batch: got %+v, %v; want a sum that is flagged", mixed, err)
	}
}

func TestExperts(t *testing.T) {
	var points []profile.Point
	readCSV(t, "moe_format_synthetic.csv", func(get func(string) string) {
		points = append(points, layerPoint(profile.Layer{Name: "moe", Tokens: whole(t, get("tokens")), ActivatedExperts: whole(t, get("activated_experts")), TensorParallel: 1}, number(t, get("time_us"))*1e-6))
	})
	table := mustTable(t, points, Options{})
	for _, c := range []struct {
		why             string
		tokens, experts int
		want            int64 // ns
	}{
		{"a row", 2, 8, 56000},
		{"the first of duplicates of a number of experts", 64, 128, 240500},
		{"between two numbers of experts", 64, 96, 225375},
		{"fewer experts than measured", 1, 4, 50000},
	} {
		got, err := table.Time(profile.Layer{Name: "moe", Tokens: c.tokens, ActivatedExperts: c.experts, TensorParallel: 4}, true)
		if err != nil || ns(got) != c.want {
			t.Errorf("%s: got %d ns, %v; want %d", c.why, ns(got), err, c.want)
		}
		for x := 1; x < 300; x += 7 {
			physical, err := table.Time(profile.Layer{Name: "moe", Tokens: c.tokens, ActivatedExperts: x}, false)
			if err != nil || !(physical.Value > 0) {
				t.Fatalf("%d experts: got %v, %v", x, physical.Value, err)
			}
		}
	}
}

func TestScaling(t *testing.T) {
	got, err := ScalingFactor([]Pair{
		{Measured: []unit.Seconds{2, 4}, Estimated: []unit.Seconds{3}},
		{Measured: []unit.Seconds{1}, Estimated: []unit.Seconds{1, 3}},
	})
	if err != nil || got != 0.75 {
		t.Errorf("got %v, %v; want the mean of 1 and 1/2", got, err)
	}
	for _, pairs := range [][]Pair{nil, {{Measured: []unit.Seconds{1}}}, {{Measured: []unit.Seconds{1}, Estimated: []unit.Seconds{0}}}, {{Measured: []unit.Seconds{unit.Seconds(math.NaN())}, Estimated: []unit.Seconds{1}}}} {
		if f, err := ScalingFactor(pairs); err == nil {
			t.Errorf("%v: got %v, want an error", pairs, f)
		}
	}
}
