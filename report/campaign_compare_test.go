package report_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/unit"
)

func done(c campaign.Cell, d *memprofile.Document) report.CampaignRow {
	return report.CampaignRowOf(c, report.CampaignEnd{State: "done", Attempts: 1, Seconds: 1}, d)
}

func runOf(id string, rows ...report.CampaignRow) report.CampaignDocument {
	return report.Campaign(report.RunKeys{ID: id}, rows, nil, "test")
}

// scatter makes latencies around a mean, in seconds: n of them, off by the
// share spread in turn.
func scatter(mean, spread float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = mean * (1 + spread*float64(i%2*2-1))
	}
	return out
}

func TestVerdicts(t *testing.T) {
	c := cellOf("m/a", 8, 512, 256)
	for _, v := range []struct {
		why             string
		a, b            []float64
		peakA, peakB    float64 // GB
		latency, memory string
	}{
		{"the same samples", scatter(2, 0.001, 30), scatter(2, 0.001, 30), 40, 40, "same", "same"},
		{"0.2 % apart without noise: certain, but of no account", scatter(2, 0.0001, 30), scatter(2.004, 0.0001, 30), 40, 40.05, "same", "same"},
		{"10 % apart with little noise", scatter(2, 0.01, 30), scatter(2.2, 0.01, 30), 40, 44, "slower", "larger"},
		{"and the other way round", scatter(2.2, 0.01, 30), scatter(2, 0.01, 30), 44, 40, "faster", "smaller"},
		{"10 % apart in noise of 40 %", scatter(2, 0.4, 10), scatter(2.2, 0.4, 10), 40, 40, "unclear", "same"},
		{"equal means in noise of 40 % are not known to be the same", scatter(2, 0.4, 10), scatter(2, 0.4, 10), 40, 40, "unclear", "same"},
		{"10 % apart with noise of 3 %", scatter(2, 0.03, 30), scatter(2.2, 0.03, 30), 40, 40, "slower", "same"},
		{"two samples of it are few: 10 % may be chance", scatter(2, 0.03, 2), scatter(2.2, 0.03, 2), 40, 40, "unclear", "same"},
		{"one sample has no noise to judge by", scatter(2, 0, 1), scatter(4, 0, 1), 40, 40, "unclear", "same"},
		{"constant samples", scatter(2, 0, 5), scatter(3, 0, 5), 40, 40, "slower", "same"},
	} {
		t.Run(v.why, func(t *testing.T) {
			d := report.CompareCampaigns(runOf("a", done(c, profileOf(c, v.peakA, 16, 20, 1, v.a...))), runOf("b", done(c, profileOf(c, v.peakB, 16, 20, 1, v.b...))), "test")
			p := d.Pairs[0]
			if p.Latency.Verdict != v.latency || p.Memory.Verdict != v.memory {
				t.Errorf("latency %s, memory %s; want %s, %s: %+v", p.Latency.Verdict, p.Memory.Verdict, v.latency, v.memory, p.Latency)
			}
		})
	}
}

// Welch's interval of samples whose answer is known: 27.5, 21.0, 19.0, 23.6,
// 17.0, 17.9 and 27.1, 22.0, 20.8, 23.4, 23.4, 23.5.
func TestNoiseIsThatOfWelch(t *testing.T) {
	c := cellOf("m/a", 1, 1, 1)
	a := profileOf(c, 40, 1, 1, 1, 27.5e-3, 21.0e-3, 19.0e-3, 23.6e-3, 17.0e-3, 17.9e-3)
	b := profileOf(c, 40, 1, 1, 1, 27.1e-3, 22.0e-3, 20.8e-3, 23.4e-3, 23.4e-3, 23.5e-3)
	p := report.CompareCampaigns(runOf("a", done(c, a)), runOf("b", done(c, b)), "test").Pairs[0].Latency
	// Means 21 and 23.3667, variances 15.724 and 4.48267, standard error 1.83515,
	// 7.6366 degrees of freedom, t = 2.3252; of A alone 5 and 2.5706.
	for _, v := range []struct {
		what      string
		got, want float64
	}{
		{"mean of A, ms", p.A.Value, 21},
		{"its noise", *p.A.Noise, 4.1614},
		{"change, %", p.ChangePct, 11.2698},
		{"low, %", *p.LowPct, -9.05},
		{"high, %", *p.HighPct, 31.59},
	} {
		if math.Abs(v.got-v.want) > 0.005 {
			t.Errorf("%s: %.4f, want %.4f", v.what, v.got, v.want)
		}
	}
}

func TestMemoryNoise(t *testing.T) {
	c := cellOf("m/a", 1, 1, 1)
	point := func(used ...unit.Bytes) *memprofile.MemoryPoint {
		p := &memprofile.MemoryPoint{At: to(2.0)}
		for _, u := range used {
			p.PerGPU = append(p.PerGPU, memprofile.GPUUsed{UsedBytes: &u})
		}
		return p
	}
	series := memprofile.DeviceTimeline{}
	for i := range 105 {
		series.At = append(series.At, float64(i))
		used := unit.Bytes(i) << 20
		series.UsedBytes = append(series.UsedBytes, &used)
	}
	const mib = unit.Bytes(1) << 20
	for _, v := range []struct {
		why   string
		peak  *memprofile.MemoryPoint
		lines []memprofile.DeviceTimeline
		want  float64
		runs  []float64 // seconds
	}{
		{"a driver that reports whole MiB", point(30001 * mib), nil, float64(mib), nil},
		{"steps are never taken to be wider than a MiB", point(32768 * mib), nil, float64(mib), nil},
		{"pages of 4 KiB", point(30001*mib + 4096), nil, 4096, nil},
		{"two devices may each be off by a step", point(30001*mib, 30003*mib), nil, 2 * float64(mib), nil},
		{"readings after the warm-up that lie apart, 5th to 95th percentile", point(30001 * mib), []memprofile.DeviceTimeline{series}, float64(mib) * (1 + 0.9*102), nil},
		{"what is given back after the runs is no noise", point(30001 * mib), []memprofile.DeviceTimeline{series}, float64(mib) * (1 + 0.9*50), []float64{20, 30}},
		{"of few readings the range", point(30001 * mib), []memprofile.DeviceTimeline{{At: series.At[:5], UsedBytes: series.UsedBytes[:5]}}, 3 * float64(mib), nil},
		{"one reading tells nothing", point(30001 * mib), []memprofile.DeviceTimeline{{At: series.At[:3], UsedBytes: series.UsedBytes[:3]}}, float64(mib), nil},
		{
			"on a CPU the engine's processes, not the host", point(30001 * mib),
			[]memprofile.DeviceTimeline{{At: series.At[:5], UsedBytes: slices.Repeat([]*unit.Bytes{to(mib), to(900 * mib)}, 3)[:5], ProcessBytes: series.UsedBytes[:5]}},
			3 * float64(mib), nil,
		},
		{"lists of different lengths tell nothing", point(30001 * mib), []memprofile.DeviceTimeline{{At: series.At, UsedBytes: series.UsedBytes[:50]}}, float64(mib), nil},
	} {
		t.Run(v.why, func(t *testing.T) {
			d := &memprofile.Document{}
			d.LatencyStats.Latencies = v.runs
			d.MemoryMeasurements.PostWarmup, d.MemoryMeasurements.Peak = v.peak, v.peak
			if strings.HasPrefix(v.why, "on a CPU") {
				d.GPUInfo.GPUType = "cpu"
			}
			if v.lines != nil {
				d.MemoryTimeline = &memprofile.Timeline{Devices: v.lines}
			}
			row := done(c, d)
			p := report.CompareCampaigns(runOf("a", row), runOf("b", row), "test").Pairs[0].Memory
			if math.Abs(*p.A.Noise-v.want) > 1 || row.Profile.MemoryTimeline != nil {
				t.Errorf("noise %.0f bytes, want %.0f", *p.A.Noise, v.want)
			}
		})
	}
}

func TestMatching(t *testing.T) {
	one := cellOf("m/a", 1, 128, 16)
	moved, narrow := one, one
	moved.Place = "local"
	narrow.KVCacheDType, narrow.Place = "fp8", "local"
	other := cellOf("m/a", 2, 128, 16)
	failed := report.CampaignRowOf(other, report.CampaignEnd{State: "oom"}, nil)
	d := report.CompareCampaigns(
		runOf("a", done(one, profileOf(one, 40, 16, 20, 1, 1, 1)), done(other, profileOf(other, 40, 16, 20, 1, 1, 1))),
		runOf("b", done(narrow, profileOf(narrow, 30, 16, 10, 1, 1, 1)), done(moved, profileOf(moved, 40, 16, 20, 1, 1, 1)), failed), "test")
	if len(d.Pairs) != 2 || len(d.OnlyA) != 0 || len(d.OnlyB) != 1 || d.OnlyB[0].Hash != narrow.Hash() {
		t.Fatalf("%d pairs, only in A %v, only in B %v", len(d.Pairs), d.OnlyA, d.OnlyB)
	}
	if p := d.Pairs[0]; p.MatchedBy != "sizes" || !cmp.Equal(p.Differs, []string{"place docker:vllm → local"}) {
		t.Errorf("%s %q", p.MatchedBy, p.Differs)
	}
	if p := d.Pairs[1]; p.MatchedBy != "hash" || p.Differs != nil || p.Latency != nil {
		t.Errorf("%+v", p)
	}
	if got := d.Regressions(5); !cmp.Equal(got, []string{"m/a, 2 × 128 in, 16 out: oom, and was measured before"}) {
		t.Errorf("%q", got)
	}
}

func TestRegressions(t *testing.T) {
	c := cellOf("m/a", 1, 128, 16)
	d := report.CompareCampaigns(
		runOf("a", done(c, profileOf(c, 40, 16, 20, 1, scatter(1, 0.01, 20)...))),
		runOf("b", done(c, profileOf(c, 44, 16, 20, 1, scatter(1.2, 0.01, 20)...))), "test")
	for pct, want := range map[float64]string{5: "slower by 20.0 %", 19: "slower by 20.0 %", 21: "", 0: "slower by 20.0 %"} {
		if got := strings.Join(d.Regressions(pct), "; "); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("beyond %g %%: %q, want %q", pct, got, want)
		}
	}
	var b strings.Builder
	if err := report.Text(&b, report.ComparisonTables(d)...); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"+20.0", "slower", "+10.0", "larger"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// A comparison loses no cell and invents none, whatever the two runs hold.
func TestComparisonIsAPartition(t *testing.T) {
	draw := func(t *rapid.T) report.CampaignDocument {
		var rows []report.CampaignRow
		seen := map[string]bool{}
		for range rapid.IntRange(0, 8).Draw(t, "cells") {
			c := cellOf("m/a", rapid.IntRange(1, 2).Draw(t, "batch"), rapid.IntRange(1, 2).Draw(t, "input"), 1)
			c.TensorParallel = rapid.IntRange(1, 2).Draw(t, "tp")
			c.Place = rapid.SampledFrom([]string{"local", "docker:a"}).Draw(t, "place")
			if seen[c.Hash()] {
				continue
			}
			seen[c.Hash()] = true
			if rapid.Bool().Draw(t, "done") {
				rows = append(rows, done(c, profileOf(c, rapid.Float64Range(0, 9).Draw(t, "peak"), 1, 1, 1, rapid.SliceOfN(rapid.Float64Range(0, 2), 0, 4).Draw(t, "s")...)))
			} else {
				rows = append(rows, report.CampaignRowOf(c, report.CampaignEnd{State: "failed"}, nil))
			}
		}
		return runOf("x", rows...)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t), draw(t)
		d := report.CompareCampaigns(a, b, "test")
		if len(d.Pairs)+len(d.OnlyA) != len(a.Rows) || len(d.Pairs)+len(d.OnlyB) != len(b.Rows) {
			t.Fatalf("%d + %d of %d, %d + %d of %d", len(d.Pairs), len(d.OnlyA), len(a.Rows), len(d.Pairs), len(d.OnlyB), len(b.Rows))
		}
		var text strings.Builder
		if err := report.JSON(&text, d); err != nil { // no number that JSON does not have
			t.Fatal(err)
		}
		if err := report.Text(&text, report.ComparisonTables(d)...); err != nil {
			t.Fatal(err)
		}
		for _, p := range report.CompareCampaigns(a, a, "test").Pairs {
			if p.MatchedBy != "hash" || p.Memory != nil && p.Memory.ChangePct != 0 {
				t.Errorf("against itself: %+v", p)
			}
		}
	})
}
