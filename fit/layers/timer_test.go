package layers

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/unit"
)

func mustTimer(t testing.TB, device string, tp int, compat bool) *Timer {
	t.Helper()
	timer, err := tables(t)[device].Timer(32, tp, compat)
	if err != nil {
		t.Fatal(err)
	}
	return timer
}

// drawPass draws chunks and decodes, listed or in sums.
func drawPass(t *rapid.T) forward.Pass {
	var p forward.Pass
	for range rapid.IntRange(0, 3).Draw(t, "chunks") {
		p.Prefill = append(p.Prefill, forward.Chunk{
			Count: rapid.IntRange(1, 2).Draw(t, "count"), New: rapid.IntRange(1, 1500).Draw(t, "new"),
			Context: rapid.SampledFrom([]int{0, 16, 5000, 40_000}).Draw(t, "context"), Last: rapid.Bool().Draw(t, "last"),
		})
	}
	var contexts []int
	for range rapid.IntRange(0, 300).Draw(t, "decodes") {
		context := rapid.IntRange(0, 20_000).Draw(t, "cached")
		contexts = append(contexts, context)
		p.Decode.Add(context)
	}
	switch rapid.IntRange(0, 2).Draw(t, "told") {
	case 0:
		p.DecodeContexts = contexts
		p.Decode.Shortest, p.Decode.Longest = 0, 0
	case 1:
		p.Decode.Shortest, p.Decode.Longest = 0, 0
	}
	return p
}

// A timer says what the table says, for all its short cuts.
func TestTimerIsTheTable(t *testing.T) {
	for _, d := range devices() {
		for _, compat := range []bool{true, false} {
			timer := mustTimer(t, d.name, d.tp, compat)
			rapid.Check(t, func(rt *rapid.T) {
				p := drawPass(rt)
				want, err := tables(t)[d.name].Iteration(p, 32, d.tp, compat)
				got, fault := timer.StepTime(p)
				if (err == nil) != (fault == nil) {
					rt.Fatalf("%+v: got %v, want %v", p, fault, err)
				}
				if err == nil && math.Abs(got.Seconds()-float64(want.Value)) > 1e-9 {
					rt.Errorf("%+v: got %v, want %v", p, got, want.Value)
				}
			})
		}
	}
}

func TestSpreadIsTheList(t *testing.T) {
	timer := mustTimer(t, "RTXPRO6000", 1, false)
	var sums, list forward.Pass
	for _, context := range []int{300, 4000, 900, 700} {
		sums.Decode.Add(context)
		list.Decode.Add(context)
		list.DecodeContexts = append(list.DecodeContexts, context)
	}
	a, err := timer.StepTime(sums)
	if err != nil {
		t.Fatal(err)
	}
	b, err := timer.StepTime(list)
	if err != nil {
		t.Fatal(err)
	}
	sums.Decode.Shortest, sums.Decode.Longest = 0, 0
	mean, err := timer.StepTime(sums)
	if err != nil {
		t.Fatal(err)
	}
	if a != b || mean >= a {
		t.Errorf("by shortest and longest %v, by list %v, at the mean %v: want the first two alike and longer", a, b, mean)
	}
}

func TestTimerWith(t *testing.T) {
	timer := mustTimer(t, "RTXPRO6000", 2, false)
	more := timer.With(Exchange{
		Tokens: func(n int) unit.Seconds { return unit.Seconds(n) * 1e-6 },
		Rows:   func(n int) unit.Seconds { return unit.Seconds(n) * 1e-3 },
	})
	for _, p := range []forward.Pass{forward.Decode(7, 900), forward.Prefill(1, 700, 0), forward.Prefill(3, 60_000, 0), forward.Decode(5000, 10)} {
		a, err := timer.StepTime(p)
		if err != nil {
			t.Fatal(err)
		}
		b, err := more.StepTime(p)
		if err != nil {
			t.Fatal(err)
		}
		if want := float64(p.Tokens())*1e-6 + float64(p.Rows())*1e-3; math.Abs((b-a).Seconds()-want) > 2e-9 {
			t.Errorf("%d tokens, %d rows: %v longer, want %v s", p.Tokens(), p.Rows(), b-a, want)
		}
	}
}

// busy is a step of a busy engine.
func busy() forward.Pass {
	p := forward.Pass{Prefill: []forward.Chunk{{Count: 1, New: 310, Context: 2048, Last: true}, {Count: 1, New: 1600}}}
	for i := range 128 {
		p.Decode.Add(300 + 17*i)
	}
	return p
}

func TestTimerAllocates(t *testing.T) {
	p := busy()
	for _, compat := range []bool{true, false} {
		timer := mustTimer(t, "RTXPRO6000", 1, compat)
		if n := testing.AllocsPerRun(100, func() {
			if _, err := timer.StepTime(p); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("compat %v: %g allocations a step, want none", compat, n)
		}
	}
}

func BenchmarkTimer(b *testing.B) {
	mixed := busy()
	decodes := mixed
	decodes.Prefill = nil
	for name, p := range map[string]forward.Pass{"mixed": mixed, "decodes": decodes} {
		b.Run(name, func(b *testing.B) {
			timer := mustTimer(b, "RTXPRO6000", 1, false)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := timer.StepTime(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
