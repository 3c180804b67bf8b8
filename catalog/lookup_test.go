package catalog

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestModelLookup(t *testing.T) {
	c := builtin(t)
	for _, test := range []struct{ why, ask, want string }{
		{"short name", "Qwen3-14B", "Qwen3-14B"},
		{"hub id", "Qwen/Qwen3-14B", "Qwen3-14B"},
		{"case", "qwen3-14b", "Qwen3-14B"},
		{"blanks and underscores", "  qwen3_14 b", ""},
		{"blanks for hyphens", " Qwen3 14B ", "Qwen3-14B"},
		{"underscores in an id", "internlm2_5-7b-chat", "InternLM2-7B"},
		{"instruct variant by id", "meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"},
		{"id of another organisation that is an alias", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "Llama-3.1-8B"},
		{"the same without organisation", "DeepSeek-R1-Distill-Llama-8B", "Llama-3.1-8B"},
		{"another organisation's model is not this one", "somebody/Qwen3-14B", ""},
		{"reference table", "llama-7B", "llama-7B"},
		{"reference table", "llama-13B", "llama-13B"},
		{"reference table", "llama-30B", "llama-30B"},
		{"reference table", "llama-65B", "llama-65B"},
		{"reference table", "llama2-13B", "Llama-2-13B"},
		{"reference table", "llama2-70B", "Llama-2-70B"},
		{"example of the reference", "llama2-70b", "Llama-2-70B"},
		{"reference table", "internlm-20B", "internlm-20B"},
		{"reference table", "internlm2-20b-chat", "InternLM2-20B"},
		{"reference table", "Qwen3-8B", "Qwen3-8B"},
		{"reference table", "Qwen3-32B", "Qwen3-32B"},
		{"reference table", "Qwen3-30B-A3B", "Qwen3-30B-A3B"},
		{"reference table", "Qwen3-235B-A22B", "Qwen3-235B-A22B"},
		{"a reasoning model is shown under its own name", "deepseek-ai/DeepSeek-R1", "DeepSeek-R1"},
		{"its later release", "DeepSeek-R1-0528", "DeepSeek-R1"},
		{"a bare family name is its newest release", "Mistral-Small", "Mistral-Small-3.1-24B"},
		{"nothing asked", "", ""},
		{"only separators", " _-", ""},
	} {
		t.Run(test.why+" "+test.ask, func(t *testing.T) {
			m, err := c.Model(test.ask)
			switch {
			case test.want == "" && err == nil:
				t.Errorf("found %s, want nothing", m.Name)
			case test.want != "" && err != nil:
				t.Error(err)
			case test.want != "" && m.Name != test.want:
				t.Errorf("found %s, want %s", m.Name, test.want)
			}
		})
	}
}

func TestEverySpellingIsFound(t *testing.T) {
	c := builtin(t)
	for _, m := range c.Models() {
		for _, name := range append([]string{m.Name, m.HubID}, m.Aliases...) {
			for _, ask := range []string{name, strings.ToUpper(name), strings.ReplaceAll(name, "-", "_")} {
				if got := model(t, c, ask); got != m {
					t.Errorf("%q is %s, want %s", ask, got.Name, m.Name)
				}
			}
		}
	}
	for _, d := range c.Devices() {
		for _, name := range append([]string{d.Name}, d.Aliases...) {
			if got, _, err := c.Device(name); err != nil || got != d {
				t.Errorf("%q: %v, %v, want %s", name, got, err, d.Name)
			}
		}
	}
}

func TestUnknownNames(t *testing.T) {
	c := builtin(t)
	for _, test := range []struct {
		why, kind, ask, first string
	}{
		{"a typing error in a variant leads to its entry", "model", "Llama-3.1-8b-instrukt", "Llama-3.1-8B"},
		{"another organisation is not compared", "model", "unknown-org/qwen3-14b", "Qwen3-14B"},
		{"a size that does not exist", "model", "Qwen3-15B", "Qwen3-14B"},
		{"a digit too many", "device", "h1000", "h100-sxm-80gb"},
		{"a missing letter", "device", "rtx 409", "rtx-4090"},
	} {
		t.Run(test.ask, func(t *testing.T) {
			var err error
			if test.kind == "model" {
				_, err = c.Model(test.ask)
			} else {
				_, _, err = c.Device(test.ask)
			}
			var unknown *UnknownError
			if !errors.As(err, &unknown) {
				t.Fatalf("%s: got %v, want an *UnknownError", test.why, err)
			}
			if unknown.Kind != test.kind || unknown.Name != test.ask || len(unknown.Nearest) != 3 || unknown.Nearest[0] != test.first {
				t.Errorf("%s: got %+v, want %s first of three", test.why, unknown, test.first)
			}
			names := slices.Sorted(slices.Values(unknown.Nearest))
			if len(slices.Compact(names)) != 3 {
				t.Errorf("%s: names repeat: %v", test.why, unknown.Nearest)
			}
			if !strings.Contains(unknown.Hint(), test.first) {
				t.Errorf("the hint %q does not name %s", unknown.Hint(), test.first)
			}
		})
	}
}

func TestUnknownInEmptyCatalog(t *testing.T) {
	c, err := newCatalog(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var unknown *UnknownError
	if _, err := c.Model("x"); !errors.As(err, &unknown) || unknown.Hint() != "" {
		t.Errorf("got %v, want an *UnknownError without a hint", err)
	}
}

func TestDeviceChoice(t *testing.T) {
	c := builtin(t)
	d, note, err := c.Device("A100")
	if err != nil {
		t.Fatal(err)
	}
	if d.Name != "a100-sxm-80gb" || !strings.HasPrefix(note, "A100 means a100-sxm-80gb; others: ") || !strings.Contains(note, "a100-pcie-40gb") {
		t.Errorf("A100 is %s with note %q", d.Name, note)
	}
	if _, note, err := c.Device("NVIDIA A100-SXM4-80GB"); err != nil || note != "" {
		t.Errorf("a full name got note %q, error %v", note, err)
	}
}

func TestClashingNamesAreRefused(t *testing.T) {
	c := builtin(t)
	one := model(t, c, "Qwen3-8B")
	two := model(t, c, "Qwen3-14B").Clone()
	two.Aliases = []string{"qwen/QWEN3_8b"}
	if _, err := newCatalog([]*Model{one, two}, nil); err == nil || !strings.Contains(err.Error(), "Qwen3-14B") || !strings.Contains(err.Error(), "Qwen3-8B") {
		t.Errorf("got %v, want an error that names both models", err)
	}
	if _, err := newCatalog([]*Model{one, one.Clone()}, nil); err == nil {
		t.Error("two models of one name were accepted")
	}
	d := c.Devices()[0]
	twin := *d
	twin.Name = "twin"
	twin.Aliases = []string{d.Name}
	if _, err := newCatalog(nil, []*Device{d, &twin}); err == nil || !strings.Contains(err.Error(), "twin") {
		t.Errorf("got %v, want an error that names the twin", err)
	}
}

func TestNearest(t *testing.T) {
	for _, test := range []struct {
		why, ask string
		names    []string
		n        int
		want     []string
	}{
		{"a swapped letter", "gup", []string{"model", "gpu", "group"}, 2, []string{"gpu", "group"}},
		{"what stands before a slash does not count", "a/gpu", []string{"long-organisation/gpu", "gp"}, 1, []string{"long-organisation/gpu"}},
		{"equal ones stand in order", "x", []string{"b", "a"}, 3, []string{"a", "b"}},
		{"none wanted", "x", []string{"a"}, -1, []string{}},
		{"none known", "x", nil, 3, []string{}},
	} {
		if got := Nearest(test.ask, test.names, test.n); !slices.Equal(got, test.want) {
			t.Errorf("%s: nearest to %q are %q, want %q", test.why, test.ask, got, test.want)
		}
	}
}

func BenchmarkBuiltin(b *testing.B) {
	for b.Loop() {
		if _, err := Builtin(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnknownModel(b *testing.B) {
	c := builtin(b)
	for b.Loop() {
		if _, err := c.Model("Llama-3.1-8b-instrukt"); err == nil {
			b.Fatal("found")
		}
	}
}
