package profile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

func drawPoint() *rapid.Generator[profile.Point] {
	return rapid.Custom(func(t *rapid.T) profile.Point {
		size := rapid.IntRange(1, 4096)
		s := &profile.Step{
			BatchSize: rapid.IntRange(0, 64).Draw(t, "batch"), InputLen: size.Draw(t, "input"), OutputLen: rapid.IntRange(0, 64).Draw(t, "output"),
			Mode: rapid.SampledFrom([]string{profile.Prefill, profile.Decode, profile.Mixed}).Draw(t, "mode"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "chunks") {
			s.Pass.Prefill = append(s.Pass.Prefill, forward.Chunk{Count: size.Draw(t, "count"), New: size.Draw(t, "new"), Context: rapid.IntRange(0, 1<<20).Draw(t, "context"), Last: rapid.Bool().Draw(t, "last")})
		}
		s.Pass.Decode = forward.Sequences{Count: size.Draw(t, "decodes"), SumContext: rapid.Int64Range(0, 1<<40).Draw(t, "contexts")}
		p := profile.Point{
			Kind: profile.KindStep, Step: s,
			Samples: rapid.SliceOfN(rapid.Float64Range(5e-324, 1e300), 1, 5).Draw(t, "samples"),
			Clock:   rapid.SampledFrom([]profile.Clock{"", profile.ClockWall, profile.ClockDevice, profile.ClockCPU}).Draw(t, "clock"),
			Origin:  rapid.String().Draw(t, "origin"),
		}
		if rapid.Bool().Draw(t, "failed") {
			p.Kind, p.Reason, p.Samples = profile.KindFailure, "no "+rapid.String().Draw(t, "reason"), nil
		}
		if rapid.Bool().Draw(t, "summarised") {
			p.Summary = &profile.Summary{Mean: rapid.Float64Range(1e-9, 1e9).Draw(t, "mean"), Std: rapid.Float64Range(0, 1e9).Draw(t, "std"), Runs: size.Draw(t, "runs")}
		}
		if w := rapid.SliceOf(rapid.String()).Draw(t, "warnings"); len(w) > 0 {
			p.Warnings = w
		}
		if rapid.Bool().Draw(t, "extra") {
			p.Extra = map[string]json.RawMessage{rapid.String().Draw(t, "key"): json.RawMessage(`[1.50,{"a":"<&>"}]`)}
		}
		return p
	})
}

func drawProfile() *rapid.Generator[*profile.Profile] {
	return rapid.Custom(func(t *rapid.T) *profile.Profile {
		word := func(name string, words ...string) string { return rapid.SampledFrom(words).Draw(t, name) }
		return &profile.Profile{
			Header: profile.Header{
				Schema: profile.Schema, Version: profile.Version,
				Tool: word("tool", "", "v1", "v2"), Host: word("host", "", "n1", "n2, n3"), Driver: word("driver", "", "580", "590"),
				Created: word("created", "", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"), Source: word("source", "", "a.json", "b.json"),
				Device:   profile.Device{Name: word("device", "", "", "a100", "a100", "h100"), Count: rapid.IntRange(0, 1).Draw(t, "devices")},
				Deploy:   deploy.Config{Model: word("model", "", "", "m", "m", "n"), TensorParallel: rapid.IntRange(0, 1).Draw(t, "tp")},
				Metadata: rapid.SampledFrom([]map[string]json.RawMessage{nil, {"k": json.RawMessage("1")}, {"k": json.RawMessage("2"), "l": json.RawMessage("3")}}).Draw(t, "metadata"),
			},
			Points: rapid.SliceOfN(drawPoint(), 0, 4).Draw(t, "points"),
		}
	})
}

func TestWriteReadIsIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProfile().Draw(t, "profile")
		name := rapid.SampledFrom([]string{"x", "x.gz"}).Draw(t, "name")
		var b bytes.Buffer
		if err := p.Write(name, &b); err != nil {
			t.Fatal(err)
		}
		got, warnings, err := profile.Read(name, &b)
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		if len(p.Points) == 0 {
			p.Points = nil
		}
		if diff := cmp.Diff(p, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestMergeIsAssociative(t *testing.T) {
	merge := func(a, b *profile.Profile) *profile.Profile {
		if a == nil || b == nil {
			return nil
		}
		m, err := profile.Merge(a, b)
		if err != nil {
			return nil
		}
		return m
	}
	agreed := 0
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawProfile().Draw(t, "a"), drawProfile().Draw(t, "b"), drawProfile().Draw(t, "c")
		left, right := merge(merge(a, b), c), merge(a, merge(b, c))
		all, err := profile.Merge(a, b, c)
		if (left == nil) != (right == nil) || (left == nil) != (err != nil) {
			t.Fatalf("(a+b)+c clashes: %v, a+(b+c): %v, a+b+c: %v", left == nil, right == nil, err)
		}
		if left == nil {
			return
		}
		agreed++
		if diff := cmp.Diff(left, right); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(left, all); diff != "" {
			t.Fatal(diff)
		}
	})
	if agreed < 5 {
		t.Errorf("only %d triples could be merged", agreed)
	}
}

func TestMergeClash(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(*profile.Header)
		want   string
	}{
		{"another device", func(h *profile.Header) { h.Device.Name = "h100" }, `device differs: "a100-sxm-80gb" in unit test, "h100" in night.llmprof`},
		{"another model", func(h *profile.Header) { h.Deploy.Model = "Qwen3-8B" }, `deploy.model differs: "Qwen3-4B" in unit test, "Qwen3-8B" in night.llmprof`},
		{"another split", func(h *profile.Header) { h.Deploy.TensorParallel = 2 }, `deploy.tensor_parallel_size differs: "1" in unit test, "2" in night.llmprof`},
	} {
		t.Run(c.why, func(t *testing.T) {
			a, b, unstated := sample(1), sample(1), &profile.Profile{}
			b.Header.Source = "night.llmprof"
			c.change(&b.Header)
			_, err := profile.Merge(unstated, a, b)
			if clash, ok := errors.AsType[*profile.ClashError](err); !ok || !strings.Contains(err.Error(), c.want) || clash.Hint() == "" {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
}

func TestMergeMarksPointsOfUnstatedDevice(t *testing.T) {
	unstated := sample(1)
	unstated.Header.Device = profile.Device{}
	m, err := profile.Merge(sample(1), unstated)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Points[0].Warnings) != 0 || len(m.Points[1].Warnings) != 1 || len(unstated.Points[0].Warnings) != 0 {
		t.Errorf("warnings %q and %q, and in the merged profile itself %q", m.Points[0].Warnings, m.Points[1].Warnings, unstated.Points[0].Warnings)
	}
}

func TestFilter(t *testing.T) {
	p := goldenProfile("1.0")
	for _, c := range []struct {
		why   string
		preds []profile.Predicate
		want  int
	}{
		{"nothing asked picks all", nil, 4},
		{"by kind", []profile.Predicate{profile.ByKind(profile.KindFailure)}, 1},
		{"by canonical device name", []profile.Predicate{profile.OnDevice("a100-sxm-80gb")}, 4},
		{"by reported device name", []profile.Predicate{profile.OnDevice("NVIDIA A100-SXM4-80GB")}, 4},
		{"another device", []profile.Predicate{profile.OnDevice("h100")}, 0},
		{"no name is no device", []profile.Predicate{profile.OnDevice("")}, 0},
		{"all predicates must hold", []profile.Predicate{profile.ByKind(profile.KindStep), profile.Not(profile.OnDevice("a100-sxm-80gb"))}, 0},
		{"the opposite of one", []profile.Predicate{profile.Not(profile.ByKind(profile.KindFailure))}, 3},
	} {
		t.Run(c.why, func(t *testing.T) {
			got := p.Filter(c.preds...)
			if len(got.Points) != c.want || cmp.Diff(got.Header, p.Header) != "" {
				t.Errorf("%d points, want %d", len(got.Points), c.want)
			}
		})
	}
}
