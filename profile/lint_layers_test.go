package profile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/profile"
)

func layer(l profile.Layer, samples ...float64) profile.Point {
	return profile.Point{Kind: profile.KindLayer, Layer: &l, Samples: samples}
}

// block is a prefill of the block's layers, each of the given time.
func block(tokens int, seconds float64) []profile.Point {
	var out []profile.Point
	for _, name := range []string{"input_layernorm", "q_proj", "attn", "down_proj"} {
		out = append(out, layer(profile.Layer{Name: name, Tokens: tokens}, seconds))
	}
	return out
}

func TestLintLayers(t *testing.T) {
	// q_proj has 4096² weights, 33.55 MB; up_proj 4096·11008, 90.18 MB; the
	// head 131.1 M weights. The card multiplies 100 TFLOP/s, reads 1 TB/s and
	// caches 41.94 MB.
	known := profile.LintOptions{Device: card(), Model: toy()}
	experts := toy()
	experts.MoE = &catalog.MoE{NumExperts: 8, ExpertsPerToken: 2, IntermediateSize: 512}
	sliding := toy()
	sliding.LayerPattern, sliding.Window = []string{"sliding"}, 128
	for _, c := range []struct {
		why      string
		points   []profile.Point
		opts     profile.LintOptions
		change   func(*profile.Header)
		rule     profile.Rule // "" for none but the skipped
		severity profile.Severity
		count    int
		example  string
	}{
		{
			why:    "possible times are fine",
			points: []profile.Point{layer(profile.Layer{Name: "up_proj", Tokens: 1}, 91e-6), layer(profile.Layer{Name: "up_proj", Tokens: 1000}, 0.85e-3)}, opts: known,
		},
		{
			why:    "faster than a tenth above the peak",
			points: []profile.Point{layer(profile.Layer{Name: "up_proj", Tokens: 1000}, 0.8e-3), layer(profile.Layer{Name: "up_proj", Tokens: 500}, 1)}, opts: known,
			rule: profile.RuleComputePeak, severity: profile.SeverityError, count: 1, example: "up_proj of 1000 tokens: 800.0 µs, at least 819.8 µs needed (1.13 × peak)",
		},
		{
			why:    "the fastest sample counts",
			points: []profile.Point{layer(profile.Layer{Name: "up_proj", Tokens: 1000}, 1, 0.8e-3, 1)}, opts: known,
			rule: profile.RuleComputePeak, severity: profile.SeverityError, count: 1,
		},
		{
			why:    "faster than weights are read that no cache holds",
			points: []profile.Point{layer(profile.Layer{Name: "up_proj", Tokens: 1}, 48e-6)}, opts: known,
			rule: profile.RuleMemoryPeak, severity: profile.SeverityError, count: 1, example: "at least 90.18 µs needed (1.88 × bandwidth)",
		},
		{
			why:    "a part of the weights may have been cached",
			points: []profile.Point{layer(profile.Layer{Name: "up_proj", Tokens: 1}, 49e-6)}, opts: known,
			rule: profile.RuleMemoryPeak, severity: profile.SeverityNote, count: 1,
		},
		{
			why:    "two ranks read half the weights each, as the point says",
			points: []profile.Point{layer(profile.Layer{Name: "up_proj", Tokens: 1, TensorParallel: 2}, 46e-6)}, opts: known,
		},
		{
			why:    "two ranks read half the weights each, as the header says",
			points: []profile.Point{layer(profile.Layer{Name: "up_proj", Tokens: 1}, 46e-6)}, opts: known,
			change: func(h *profile.Header) { h.Deploy.TensorParallel = 2 },
		},
		{
			why:    "weights in fp8 are half as many bytes",
			points: []profile.Point{layer(profile.Layer{Name: "up_proj", Tokens: 1}, 46e-6)}, opts: known,
			change: func(h *profile.Header) { h.Deploy.Quantization = "fp8" },
		},
		{
			why:    "the head may work on the sequences' last tokens",
			points: []profile.Point{layer(profile.Layer{Name: "lm_head", Tokens: 4096, Sequences: 1}, 270e-6), layer(profile.Layer{Name: "lm_head", Sequences: 8}, 270e-6)}, opts: known,
		},
		{
			why:    "the head of 4096 tokens",
			points: []profile.Point{layer(profile.Layer{Name: "lm_head", Tokens: 4096}, 9e-3)}, opts: known,
			rule: profile.RuleComputePeak, severity: profile.SeverityError, count: 1,
		},
		{
			why: "attention that cannot have read its context: 8 × 16384 × 16 KiB",
			points: []profile.Point{
				layer(profile.Layer{Name: "attention", Sequences: 8, SequenceContext: 16384}, 2e-3),
				layer(profile.Layer{Name: "attention", Sequences: 8, SequenceContext: 16384}, 2.2e-3),
			}, opts: known,
			rule: profile.RuleMemoryPeak, severity: profile.SeverityError, count: 1, example: "attention, 8 sequences at 16384",
		},
		{
			why:    "attention of unequal sequences: 7 × 16 and 16384 tokens of 16 KiB",
			points: []profile.Point{layer(profile.Layer{Name: "attention", Sequences: 8, SequenceContext: 16, LongSequences: 1, LongContext: 16384}, 225e-6)}, opts: known,
			rule: profile.RuleMemoryPeak, severity: profile.SeverityError, count: 1, example: "attention, 8 sequences at 16, 1 of them at 16384",
		},
		{
			why:    "attention of a long prompt: 2·8192²·4096 FLOPs",
			points: []profile.Point{layer(profile.Layer{Name: "attn", Tokens: 8192}, 4.9e-3)}, opts: known,
			rule: profile.RuleComputePeak, severity: profile.SeverityError, count: 1,
		},
		{
			why:    "attention over a window is not bounded by the context",
			points: []profile.Point{layer(profile.Layer{Name: "attn", Tokens: 8192}, 1e-4)}, opts: profile.LintOptions{Device: card(), Model: sliding},
		},
		{
			why:    "an expert has other weights than the block",
			points: []profile.Point{layer(profile.Layer{Name: "up_proj", Tokens: 1}, 1e-6)}, opts: profile.LintOptions{Device: card(), Model: experts},
		},
		{
			why:    "a layer without known weights",
			points: []profile.Point{layer(profile.Layer{Name: "rope", Tokens: 4096}, 1e-9)}, opts: known,
		},
		{
			why:    "without a model the bounds are skipped",
			points: []profile.Point{layer(profile.Layer{Name: "up_proj", Tokens: 4096}, 1e-9)},
		},
		{
			why:    "timed with the CPU's clock",
			points: []profile.Point{clocked(profile.ClockCPU, layer(profile.Layer{Name: "up_proj", Tokens: 1}, 1))}, opts: known,
			rule: profile.RuleCPUTime, severity: profile.SeverityError, count: 1,
		},
		{
			why:    "a processor's own clock is the right one",
			points: []profile.Point{clocked(profile.ClockCPU, layer(profile.Layer{Name: "up_proj", Tokens: 1}, 1)), clocked(profile.ClockCPU, step(100, 1))},
			change: func(h *profile.Header) {
				h.Device = profile.Device{Reported: "AMD EPYC 9654 96-Core Processor"}
			},
		},
		{
			why:    "prefill does not grow",
			points: slices.Concat(block(1, 80e-6), block(128, 80e-6), block(2048, 100e-6), []profile.Point{layer(profile.Layer{Name: "q_proj", Tokens: 1, Context: 9}, 80e-6)}),
			rule:   profile.RuleCPUTime, severity: profile.SeverityError, count: 13, example: "4 layers of 2048 tokens: 400.0 µs in sum",
		},
		{
			why:    "prefill does not grow on one rank of two; the other's points stay",
			points: append(slices.Concat(block(128, 80e-6), block(2048, 100e-6)), layer(profile.Layer{Name: "q_proj", Tokens: 9, TensorParallel: 2}, 1)),
			rule:   profile.RuleCPUTime, severity: profile.SeverityError, count: 8,
		},
		{why: "prefill that grows", points: slices.Concat(block(128, 80e-6), block(2048, 125e-6))},
		{why: "no long prefill", points: slices.Concat(block(128, 80e-6), block(1000, 80e-6))},
		{why: "no short prefill", points: slices.Concat(block(129, 80e-6), block(2048, 80e-6))},
		{why: "one token is no length to compare with", points: slices.Concat(block(1, 80e-6), block(2048, 80e-6))},
		{why: "few layers in common", points: slices.Concat(block(128, 80e-6)[:2], block(2048, 80e-6))},
		{why: "no multiplication among them", points: slices.Concat(block(128, 80e-6)[:1], block(2048, 80e-6)[:1], []profile.Point{
			layer(profile.Layer{Name: "rope", Tokens: 128}, 80e-6), layer(profile.Layer{Name: "rope", Tokens: 2048}, 80e-6),
			layer(profile.Layer{Name: "act_fn", Tokens: 128}, 80e-6), layer(profile.Layer{Name: "act_fn", Tokens: 2048}, 80e-6),
		})},
		{why: "kernels as short as their launch may be flat", points: slices.Concat(block(128, 10e-6), block(2048, 11e-6))},
		{
			why: "so little work for the device that the launch hides it", points: slices.Concat(block(128, 900e-6), block(2048, 950e-6)),
			opts: profile.LintOptions{Device: card(), Model: &catalog.Model{Name: "tiny", Type: "llama", NumLayers: 1, HiddenSize: 64, NumHeads: 2, NumKVHeads: 2, HeadDim: 32, IntermediateSize: 64, VocabSize: 100, MaxSeqLen: 4096, DType: catalog.BF16}},
		},
		{
			why:    "the same row twice",
			points: []profile.Point{layer(profile.Layer{Name: "rope", Tokens: 1}, 1e-5), layer(profile.Layer{Name: "rope", Tokens: 2}, 1e-5), layer(profile.Layer{Name: "rope", Tokens: 1}, 1e-5)},
			rule:   profile.RuleDuplicate, severity: profile.SeverityWarning, count: 1, example: "rope of 1 tokens: point 3 repeats point 1",
		},
		{
			why:    "the same layer again, within the jitter of a launch",
			points: []profile.Point{layer(profile.Layer{Name: "rope", Tokens: 1}, 1e-5), layer(profile.Layer{Name: "rope", Tokens: 1}, 1.4e-5)},
			rule:   profile.RuleRepeated, severity: profile.SeverityNote, count: 2, example: "2 times, 10.00 µs to 14.00 µs",
		},
		{
			why:    "the same layer with another time",
			points: []profile.Point{layer(profile.Layer{Name: "rope", Tokens: 1}, 1e-5), layer(profile.Layer{Name: "rope", Tokens: 1}, 1.6e-5)},
			rule:   profile.RuleContradiction, severity: profile.SeverityWarning, count: 2,
		},
		{
			why:    "other ranks, other experts and other clocks are other keys",
			points: []profile.Point{layer(profile.Layer{Name: "moe", Tokens: 1}, 1), layer(profile.Layer{Name: "moe", Tokens: 1, TensorParallel: 2}, 1), layer(profile.Layer{Name: "moe", Tokens: 1, ActivatedExperts: 4}, 1), clocked(profile.ClockDevice, layer(profile.Layer{Name: "moe", Tokens: 1}, 1))},
		},
		{
			why: "memory and requests are no layers and no steps",
			points: []profile.Point{
				{Kind: profile.KindMemory, Memory: &profile.Memory{Part: profile.MemoryFree, Bytes: 1}},
				{Kind: profile.KindMemory, Memory: &profile.Memory{Part: profile.MemoryFree, Bytes: 1}},
				{Kind: profile.KindRequest, Request: &profile.Request{Last: 1}},
				{Kind: profile.KindRequest, Request: &profile.Request{Last: 1}},
			}, opts: known,
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			p := &profile.Profile{Header: header(), Points: c.points}
			if c.change != nil {
				c.change(&p.Header)
			}
			findings := slices.DeleteFunc(profile.Lint(p, c.opts), func(f profile.Finding) bool {
				return f.Severity == profile.SeveritySkipped || c.rule != "" && f.Rule == profile.RuleRepeated && f.Rule != c.rule
			})
			if c.rule == "" {
				if len(findings) > 0 {
					t.Errorf("findings %+v", findings)
				}
				return
			}
			if len(findings) != 1 {
				t.Fatalf("findings %+v", findings)
			}
			if f := findings[0]; f.Rule != c.rule || f.Severity != c.severity || f.Count != c.count || len(f.Flags) != c.count || !strings.Contains(strings.Join(f.Examples, "\n"), c.example) {
				t.Errorf("finding %+v, want %s %s of %d with %q", f, c.severity, c.rule, c.count, c.example)
			}
		})
	}
}

// TestLintOnCPU tells processors from accelerators by their names.
func TestLintOnCPU(t *testing.T) {
	for name, cpu := range map[string]bool{
		"cpu": true, "Intel(R) Xeon(R) Platinum 8480+": true, "Intel(R) Core(TM) i7-13700": true, "AMD Ryzen 9 7950X": true, "NVIDIA Grace CPU": true,
		"": false, "NVIDIA GH200 480GB": false, "NVIDIA RTX A5000 (Ampere)": false, "AMD Instinct MI300X": false, "RTX3090": false,
	} {
		p := &profile.Profile{Header: profile.Header{Device: profile.Device{Reported: name}}, Points: []profile.Point{clocked(profile.ClockCPU, step(8, 0.04))}}
		found := slices.ContainsFunc(profile.Lint(p, profile.LintOptions{}), func(f profile.Finding) bool { return f.Rule == profile.RuleCPUTime })
		if found == cpu {
			t.Errorf("%q: CPU time found %v", name, found)
		}
	}
}

// A table of launch times is found out: prefill takes as long for 2048 tokens
// as for 128.
func ExampleLint_layers() {
	p := &profile.Profile{}
	for _, tokens := range []int{128, 2048} {
		for _, name := range []string{"input_layernorm", "q_proj", "o_proj", "down_proj"} {
			p.Points = append(p.Points, layer(profile.Layer{Name: name, Tokens: tokens}, 105e-6))
		}
	}
	for _, f := range profile.Lint(p, profile.LintOptions{}) {
		if f.Severity == profile.SeverityError {
			fmt.Println(f.Rule, f.Count, f.Examples)
		}
	}
	// Output: cpu-time 8 [4 layers of 128 tokens: 420.0 µs in sum 4 layers of 2048 tokens: 420.0 µs in sum]
}
