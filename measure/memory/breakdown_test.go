package memory_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/measure/memory"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/unit"
)

// moment is one of a single device.
func moment(used int64) *memory.Moment {
	return &memory.Moment{Marker: "read", Devices: []memory.Device{{Name: "Imaginary 9000", Bytes: used}}}
}

// says is what an engine states.
func says(m profile.Memory) profile.Point {
	return profile.Point{Kind: profile.KindMemory, Memory: &m, Origin: "log: line 1"}
}

func sized(part string, bytes int64) profile.Point {
	return says(profile.Memory{Part: part, Bytes: bytes})
}

// estimated is a figure that the engine expects.
func estimated(p profile.Point) profile.Point {
	p.Extra = map[string]json.RawMessage{"estimate": json.RawMessage("true")}
	return p
}

func known(n int64) *unit.Bytes { b := unit.Bytes(n); return &b }

// TestBreakdown: what is stated comes before what the architecture implies,
// that before what was measured, that before what remains.
func TestBreakdown(t *testing.T) {
	arch := memory.Expected{Weights: known(700), KVPerToken: known(2), KVBatch: known(64), Activations: known(30), Source: "architecture"}
	two := deploy.Config{TensorParallel: 2}
	for _, c := range []struct {
		why                 string
		deploy              deploy.Config
		said                []profile.Point
		expected            memory.Expected
		base, started, peak *memory.Moment
		part                string
		bytes               int64 // -1: not known
		confidence          memprofile.Confidence
		text                string // of source or note
	}{
		{why: "the engine's word", said: []profile.Point{sized(profile.MemoryWeights, 650)}, expected: arch, part: memprofile.PartWeights, bytes: 650, confidence: memprofile.High, text: "log: line 1"},
		{why: "the architecture where it is silent", expected: arch, part: memprofile.PartWeights, bytes: 700, confidence: memprofile.Medium, text: "the engine does not say"},
		{why: "nothing where both are: no share of the total", base: moment(0), peak: moment(1000), part: memprofile.PartWeights, bytes: -1, text: "the architecture is not known"},
		{why: "activations too are not a share of the total", base: moment(0), peak: moment(1000), part: memprofile.PartActivations, bytes: -1, text: "the architecture is not known"},
		{why: "of two figures the exact one", said: []profile.Point{
			says(profile.Memory{Part: profile.MemoryWeights, Bytes: 700, Resolution: 100}), says(profile.Memory{Part: profile.MemoryWeights, Bytes: 655, Resolution: 1}),
		}, part: memprofile.PartWeights, bytes: 655, confidence: memprofile.High},
		{why: "ranks add up", deploy: two, said: []profile.Point{
			says(profile.Memory{Part: profile.MemoryWeights, Bytes: 320, Worker: "TP0"}), says(profile.Memory{Part: profile.MemoryWeights, Bytes: 330, Worker: "TP1"}),
		}, part: memprofile.PartWeights, bytes: 650, confidence: memprofile.High},
		{why: "one rank speaks for all", deploy: two, said: []profile.Point{sized(profile.MemoryActivation, 40)}, expected: arch, part: memprofile.PartActivations, bytes: 80, confidence: memprofile.High, text: "taken for all 2"},
		{why: "a reading is no statement", said: []profile.Point{says(profile.Memory{Part: profile.MemoryWeights, Bytes: 9, Phase: profile.PhasePeak})}, expected: arch, part: memprofile.PartWeights, bytes: 700, confidence: memprofile.Medium},
		{why: "the cache that was set aside, not that of the batch", said: []profile.Point{sized(profile.MemoryKVCache, 200)}, expected: arch, part: memprofile.PartKVCache, bytes: 200, confidence: memprofile.High},
		{why: "a cache told in tokens, by the bytes of one", said: []profile.Point{says(profile.Memory{Part: profile.MemoryKVCache, Tokens: 90})}, expected: arch, part: memprofile.PartKVCache, bytes: 180, confidence: memprofile.Medium, text: "90 tokens as the engine says"},
		{why: "and of tokens alone no bytes", said: []profile.Point{says(profile.Memory{Part: profile.MemoryKVCache, Tokens: 90})}, part: memprofile.PartKVCache, bytes: -1, text: "the architecture is not known"},
		{why: "the batch's where it is silent", expected: arch, part: memprofile.PartKVCache, bytes: 64, confidence: memprofile.Medium, text: "computed for the batch"},
		{why: "the scheduler's line beside those of two ranks", deploy: two, said: []profile.Point{
			says(profile.Memory{Part: profile.MemoryKVCache, Bytes: 100, Worker: "TP0"}), says(profile.Memory{Part: profile.MemoryKVCache, Bytes: 100, Worker: "TP1"}),
			says(profile.Memory{Part: profile.MemoryKVCache, Tokens: 90, Worker: "EngineCore"}),
		}, expected: arch, part: memprofile.PartKVCache, bytes: 200, confidence: memprofile.High},
		{why: "graphs are the engine's word alone", expected: arch, base: moment(0), peak: moment(1000), part: memprofile.PartCUDAGraphs, bytes: -1, text: "the engine does not say"},
		{why: "an estimate of the engine is not a measurement", said: []profile.Point{estimated(sized(profile.MemoryGraphs, 7))}, part: memprofile.PartCUDAGraphs, bytes: 7, confidence: memprofile.Medium, text: "estimated"},
		{why: "other memory as stated", said: []profile.Point{sized(profile.MemoryNonTorch, 50), sized(profile.MemoryConsumed, 730)}, expected: arch, base: moment(10), started: moment(30), peak: moment(1000), part: memprofile.PartOverhead, bytes: 50, confidence: memprofile.High},
		{why: "or all that was consumed without the weights", said: []profile.Point{sized(profile.MemoryConsumed, 730)}, expected: arch, base: moment(10), started: moment(30), peak: moment(1000), part: memprofile.PartOverhead, bytes: 30, confidence: memprofile.High},
		{why: "or what was in use before loading", expected: arch, base: moment(10), started: moment(35), peak: moment(1000), part: memprofile.PartOverhead, bytes: 25, confidence: memprofile.Medium, text: "measured before the weights were loaded"},
		{why: "or what remains, which is no more than a guess", said: []profile.Point{sized(profile.MemoryGraphs, 6)}, expected: arch, base: moment(10), peak: moment(1010), part: memprofile.PartOverhead, bytes: 1000 - 700 - 64 - 30 - 6, confidence: memprofile.Low, text: "remainder"},
		{why: "a baseline of zero is one", expected: arch, base: moment(0), peak: moment(1000), part: memprofile.PartOverhead, bytes: 206, confidence: memprofile.Low},
		{why: "a remainder below zero is none", expected: arch, base: moment(10), peak: moment(500), part: memprofile.PartOverhead, bytes: -1, text: "nothing remains"},
		{why: "nothing remains of what was not measured", expected: arch, part: memprofile.PartOverhead, bytes: -1, text: "memory was not measured"},
		{why: "consumed less than the weights are said to take is not used", said: []profile.Point{sized(profile.MemoryConsumed, 600)}, expected: arch, part: memprofile.PartOverhead, bytes: -1, text: "memory was not measured"},
	} {
		o := &memory.Observation{Baseline: c.base, Started: c.started, Peak: c.peak}
		o.Facts.Deploy = c.deploy
		o.Result.Memory = c.said
		b := o.Breakdown(c.expected)
		i := slices.IndexFunc(b.Parts, func(p memprofile.Part) bool { return p.Name == c.part })
		p := b.Parts[i]
		if bytes(p.Bytes) != c.bytes || p.Confidence != c.confidence || !strings.Contains(fmt.Sprint(p.Source, " ", p.Note), c.text) {
			t.Errorf("%s: %s is %d (%q), from %q: %q; want %d (%q), %q", c.why, c.part, bytes(p.Bytes), p.Confidence, p.Source, p.Note, c.bytes, c.confidence, c.text)
		}
	}
}

// TestRoundedRanks: what eight ranks round away together is a note, and no fault
// beside it.
func TestRoundedRanks(t *testing.T) {
	rounded := func(part string, bytes int64) profile.Point {
		return says(profile.Memory{Part: part, Bytes: bytes, Resolution: 10737418})
	}
	o := &memory.Observation{Baseline: moment(0), Peak: moment(8 * 62e9)}
	o.Facts.Deploy.TensorParallel = 8
	o.Result.Memory = []profile.Point{rounded(profile.MemoryWeights, 10e9), rounded(profile.MemoryKVCache, 52e9), rounded(profile.MemoryNonTorch, 20e6)}
	b := o.Document(memory.Subject{}, time.Unix(0, 0)).MemoryBreakdown
	if !b.Consistent || !slices.ContainsFunc(b.Notes, func(n string) bool { return strings.HasPrefix(n, "the engine rounds its figures") }) || bytes(b.UnexplainedBytes) != -160e6 {
		t.Errorf("faults %q, notes %q, unexplained %d", b.Faults, b.Notes, bytes(b.UnexplainedBytes))
	}
	if got := bytes(b.Part(memprofile.PartWeights).RoundingBytes); got != 8*10737418 {
		t.Errorf("the weights of all ranks hide %d bytes", got)
	}
	o.Peak = moment(8 * 61.9e9)
	if b := o.Document(memory.Subject{}, time.Unix(0, 0)).MemoryBreakdown; b.Consistent {
		t.Error("0.96 GB too many are no rounding")
	}
}

// TestActivationsYield: activations of a step that was not run are what the
// others leave; those that an engine measured are not touched.
func TestActivationsYield(t *testing.T) {
	for _, c := range []struct {
		why, engine string
		said        int64 // stated; 0 for the architecture's 3 GB
		bytes       int64
		consistent  bool
		note        string
	}{
		{"vLLM states its largest step", "vllm", 3e9, 1e9, true, "the engine states 2.79 GiB"},
		{"an architecture implies it", "torch", 0, 1e9, true, "the architecture implies 2.79 GiB"},
		{"torch has measured it", "torch", 3e9, 3e9, false, ""},
		{"more than all of it is too much", "vllm", 1.5e9, 1.5e9, true, ""},
	} {
		o := &memory.Observation{Baseline: moment(0), Peak: moment(12e9)}
		if c.said == 1.5e9 {
			o.Peak, c.consistent = moment(9e9), false
		}
		o.Facts.Engine = c.engine
		o.Result.Memory = []profile.Point{sized(profile.MemoryWeights, 10e9), sized(profile.MemoryNonTorch, 1e9)}
		if c.said > 0 {
			o.Result.Memory = append(o.Result.Memory, sized(profile.MemoryActivation, c.said))
		}
		b := o.Breakdown(memory.Expected{Activations: known(3e9), Source: "architecture"})
		p := b.Parts[slices.IndexFunc(b.Parts, func(p memprofile.Part) bool { return p.Name == memprofile.PartActivations })]
		d := o.Document(memory.Subject{}, time.Unix(0, 0))
		if bytes(p.Bytes) != c.bytes || !strings.Contains(string(p.Note), c.note) {
			t.Errorf("%s: %+v of %d bytes, want %d", c.why, p, bytes(p.Bytes), c.bytes)
		}
		if c.said > 0 && d.MemoryBreakdown.Consistent != c.consistent {
			t.Errorf("%s: faults %q", c.why, d.MemoryBreakdown.Faults)
		}
	}
}

func TestCacheInUse(t *testing.T) {
	pool := says(profile.Memory{Part: profile.MemoryKVCache, Bytes: 1000, Tokens: 500, Blocks: 50, BlockSize: 10})
	for _, c := range []struct {
		why    string
		said   []profile.Point
		batch  int64
		used   int64
		tokens int
		note   string
	}{
		{"as the log tells", []profile.Point{pool, says(profile.Memory{Part: profile.MemoryKVUsed, Tokens: 120})}, 64, 240, 120, "KV cache in use: the largest share that the engine's log tells"},
		{"else as the batch needs", []profile.Point{pool}, 64, 64, 0, "KV cache in use: computed for the batch at its full length, not measured"},
		{"but not where it does not fit", []profile.Point{pool}, 2000, -1, 0, ""},
	} {
		o := &memory.Observation{}
		o.Result.Memory = c.said
		b := o.Breakdown(memory.Expected{KVBatch: known(c.batch)})
		if bytes(b.KV.UsedBytes) != c.used || bytes(b.KV.Bytes) != 1000 || *b.KV.Tokens != 500 || *b.KV.Blocks != 50 || *b.KV.BlockSize != 10 {
			t.Errorf("%s: %+v", c.why, b.KV)
		}
		if (b.KV.UsedTokens != nil) != (c.tokens > 0) || c.tokens > 0 && *b.KV.UsedTokens != c.tokens {
			t.Errorf("%s: %v tokens in use, want %d", c.why, b.KV.UsedTokens, c.tokens)
		}
		if text := strings.Join(b.Notes, "\n"); !strings.Contains(text, c.note) || c.note == "" && strings.Contains(text, "in use") {
			t.Errorf("%s: notes %q", c.why, b.Notes)
		}
	}
}

// TestSums: whatever an engine states and whatever was measured, the baseline,
// the parts and what is unexplained are the peak, or the document says why not.
func TestSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := &memory.Observation{Task: engine.StepTask{BatchSize: 1, InputLen: 8, OutputLen: 8}}
		size := rapid.Int64Range(1, 40<<30)
		for _, part := range []string{
			profile.MemoryWeights, profile.MemoryActivation, profile.MemoryNonTorch, profile.MemoryGraphs, profile.MemoryConsumed, profile.MemoryKVCache, profile.MemoryKVUsed, profile.MemoryBudget,
		} {
			for range rapid.IntRange(0, 2).Draw(t, part) {
				o.Result.Memory = append(o.Result.Memory, says(profile.Memory{
					Part: part, Bytes: size.Draw(t, "bytes"), Resolution: rapid.Int64Range(0, 1<<24).Draw(t, "resolution"),
					Tokens: rapid.Int64Range(0, 1<<20).Draw(t, "tokens"), Worker: rapid.SampledFrom([]string{"", "TP0", "TP1"}).Draw(t, "worker"),
				}))
			}
		}
		o.Facts.Deploy.TensorParallel = rapid.IntRange(1, 2).Draw(t, "ranks")
		for _, m := range []**memory.Moment{&o.Baseline, &o.Started, &o.Loaded, &o.PostWarmup, &o.Peak} {
			if rapid.Bool().Draw(t, "measured") {
				*m = moment(rapid.Int64Range(0, 80<<30).Draw(t, "used"))
			}
		}
		s := memory.Subject{Stated: memory.Architecture{Parameters: rapid.Float64Range(0, 1e10).Draw(t, "parameters"), Layers: rapid.IntRange(0, 80).Draw(t, "layers"), HiddenSize: 4096}}
		d := o.Document(s, time.Unix(0, 0))
		b := d.MemoryBreakdown
		var sum int64
		for _, p := range b.Parts {
			if p.Bytes != nil {
				sum += int64(*p.Bytes)
			} else if p.Note == "" {
				t.Fatalf("%s is not known, and nothing says why", p.Name)
			}
			if (p.Bytes != nil) != (p.Confidence != "") {
				t.Fatalf("%s: %v with confidence %q", p.Name, p.Bytes, p.Confidence)
			}
		}
		measured := o.Peak != nil && o.Baseline != nil
		switch {
		case !measured:
			if b.UnexplainedBytes != nil || b.NetIncreaseBytes != nil {
				t.Fatalf("unexplained %v of an increase of %v that was not measured", b.UnexplainedBytes, b.NetIncreaseBytes)
			}
		case b.UnexplainedBytes != nil:
			if got := int64(*b.BaselineBytes) + sum + int64(*b.UnexplainedBytes); got != o.Peak.Total() {
				t.Fatalf("baseline, parts and unexplained are %d, the peak %d", got, o.Peak.Total())
			}
		case b.Consistent && sum > 0:
			// Rounded figures may exceed the increase by two decimals of a GiB each.
			if over := sum - (o.Peak.Total() - o.Baseline.Total()); over <= 0 || over > 11e6*int64(len(b.Parts)) {
				t.Fatalf("%d bytes too many in the parts, and no fault", over)
			}
		}
	})
}
