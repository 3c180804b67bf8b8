package catalog

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/unit"
)

func overlay(t *testing.T, c *Catalog, text string) *Catalog {
	t.Helper()
	merged, err := c.Overlay("mine.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return merged
}

func TestOverlayVariesAModel(t *testing.T) {
	c := builtin(t)
	merged := overlay(t, c, `
models:
  - name: deeper
    base: DeepSeek-V3
    num_layers: 70
    moe: {num_experts: 512}
`)
	got, base := model(t, merged, "deeper"), model(t, c, "DeepSeek-V3")
	want := base.Clone()
	want.Name, want.HubID, want.Aliases, want.Note = "deeper", "", nil, ""
	want.NumLayers, want.MoE.NumExperts, want.ParamsTotal = 70, 512, 0
	want.Source, want.Verified = "mine.yaml, from DeepSeek-V3", false
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the variant differs (-want +got):\n%s", diff)
	}
	if base.MoE.NumExperts != 256 || model(t, merged, "DeepSeek-V3.1").Name != "DeepSeek-V3" {
		t.Error("the base was changed")
	}
	if _, err := c.Model("deeper"); err == nil {
		t.Error("the catalog below was changed")
	}
}

func TestOverlayReplacesAndAdds(t *testing.T) {
	c := builtin(t)
	merged := overlay(t, c, `
models:
  - base: Qwen3-8B          # no name: this very entry
    max_seq_len: 131072
  - name: DeepSeek-V3.1     # an alias below becomes an entry
    base: Qwen3-8B
  - {name: tiny, type: llama, num_layers: 2, hidden_size: 64, num_heads: 4, num_kv_heads: 2, head_dim: 16,
     intermediate_size: 128, vocab_size: 100, max_seq_len: 32, params_total: 86848, source: me}
`)
	if m := model(t, merged, "Qwen/Qwen3-8B"); m.MaxSeqLen != 131072 || m.Name != "Qwen3-8B" {
		t.Errorf("the entry was not replaced: %+v", m)
	}
	if m := model(t, merged, "DeepSeek-V3.1"); m.Name != "DeepSeek-V3.1" || m.HiddenSize != 4096 {
		t.Errorf("the file's name did not win over an alias: %+v", m)
	}
	if m := model(t, merged, "DeepSeek-V3-0324"); m.Name != "DeepSeek-V3" {
		t.Errorf("the other aliases were lost: %s", m.Name)
	}
	if m := model(t, merged, "tiny"); m.Params().Total != 86848 || m.Source != "me" {
		t.Errorf("the new model is %+v with %d parameters", m, m.Params().Total)
	}
	if want := len(c.Models()) + 2; len(merged.Models()) != want {
		t.Errorf("%d models, want %d", len(merged.Models()), want)
	}
}

func TestOverlayVariesADevice(t *testing.T) {
	c := builtin(t)
	merged := overlay(t, c, `
devices:
  - name: our-h100
    base: H100
    power_w: {value: 500, source: rack limit}
    hbm_bytes_per_s: {value: 3.0e12}
    peak_flops:
      fp8: null
      bf16: {value: 9e14}
    link: {domain: 4}
`)
	base, _, err := c.Device("h100")
	if err != nil {
		t.Fatal(err)
	}
	d, note, err := merged.Device("our-h100")
	if err != nil || note != "" {
		t.Fatal(note, err)
	}
	if _, has := d.Peak(FP8); has {
		t.Error("a peak of null was kept")
	}
	if _, has := base.Peak(FP8); !has {
		t.Error("the base lost a peak")
	}
	if d.Peaks[FP16] != base.Peaks[FP16] || d.Memory != base.Memory || d.Link.Bandwidth != base.Link.Bandwidth {
		t.Error("figures that the file does not give differ from the base's")
	}
	for _, test := range []struct {
		why       string
		got, want Quantity
	}{
		{"an untouched figure keeps its source", d.Memory, base.Memory},
		{"a source given is kept, but whether it was compared is not inherited", d.Power, Quantity{Value: 500, Source: "rack limit"}},
		{"a new figure does not inherit a source", d.Bandwidth, Quantity{Value: 3e12, Source: "mine.yaml"}},
		{"nor does a peak", d.Peaks[BF16], Quantity{Value: 9e14, Source: "mine.yaml"}},
	} {
		if test.got != test.want {
			t.Errorf("%s: got %+v, want %+v", test.why, test.got, test.want)
		}
	}
	if d.Link.Domain != 4 || d.Aliases != nil {
		t.Errorf("link domain %d, aliases %v", d.Link.Domain, d.Aliases)
	}
}

func TestOverlayFaults(t *testing.T) {
	c := builtin(t)
	for _, test := range []struct {
		why, text, place, want string
		caret                  bool
	}{
		{"an unknown field", "models:\n  - base: Qwen3-8B\n    layers: 3\n", ":3:5:", `unknown field "layers"`, true},
		{"an unknown field inside", "models:\n  - base: Mixtral-8x7B\n    moe: {expert: 3}\n", ":3:11:", `unknown field "expert"`, true},
		{"an unknown list", "modles: []\n", ":1:1:", `unknown field "modles"`, true},
		{"a wrong type", "models:\n  - base: Qwen3-8B\n    num_layers: many\n", ":3:17:", "string", true},
		{"a number out of range", "models:\n  - base: Qwen3-8B\n    num_layers: 99999999999999999999\n", ":3:17:", "overflow", true},
		{"an unknown base", "models:\n  - base: Qwen3-9B\n", ":2:11:", `"Qwen3-9B" is not in the catalog`, true},
		{"a base of another type", "devices:\n  - base: [h100]\n", ":2:11:", "want the name of an entry", true},
		{"missing sizes", "models:\n  - name: x\n", ":2:", "num_layers is 0", true},
		{"no name", "models:\n  - {type: llama, num_layers: 2, hidden_size: 64, num_heads: 4, num_kv_heads: 2, head_dim: 16, intermediate_size: 8, vocab_size: 9, max_seq_len: 9}\n", ":2:", "no name", true},
		{"given twice", "models:\n  - base: Qwen3-8B\n  - base: qwen3 8b\n", ":3:", "given twice", true},
		{"a key twice", "models:\n  - {base: Qwen3-8B, name: a, name: b}\n", ":2:", "already defined", true},
		{"a checkpoint size that does not fit", "models:\n  - base: Qwen3-8B\n    params_total: 5\n", ":2:", "params_total is 5", true},
		{"a device without memory", "devices:\n  - name: x\n    peak_flops: {fp16: {value: 1}}\n", ":2:", "memory_bytes", true},
		{"not a list", "models: {a: 1}\n", ":1:", "want a list", true},
		{"not an entry", "models: [3]\n", ":1:10:", "want an entry", true},
		{"not a mapping", "- a\n", ":1:", "want a mapping", true},
		{"broken YAML", "models: [\n", ":1:9:", "", true},
		{"an alias bomb", "a: &a [x, x]\nb: &b [*a, *a]\n", ":1:", "anchors are not supported", true},
		{"two documents", "models: []\n---\ndevices: []\n", ":3:", "second document", true},
		{"nesting", "models: " + strings.Repeat("[", 1000), "", "nested deeper", false},
		{"nesting of blocks", strings.Repeat("- ", 1000), "", "nested deeper", false},
		{"a long line", "# " + strings.Repeat("x", 1<<17), "", "want at most 65536", false},
		{"many lines", strings.Repeat("#\n", 10_001), "", "more than 10000 lines", false},
		{"a large file", strings.Repeat("# "+strings.Repeat("x", 1000)+"\n", 1100), "", "want at most 1048576", false},
		{"an alias that is another's name", "models:\n  - {base: Qwen3-8B, name: x, aliases: [Qwen3-14B]}\n", "", "Qwen3-14B", false},
	} {
		t.Run(test.why, func(t *testing.T) {
			_, err := c.Overlay("mine.yaml", []byte(test.text))
			if err == nil {
				t.Fatal("accepted")
			}
			text := err.Error()
			if !strings.HasPrefix(text, "mine.yaml"+test.place) || !strings.Contains(text, test.want) {
				t.Errorf("got %q, want mine.yaml%s and %q", text, test.place, test.want)
			}
			var located *OverlayError
			if errors.As(err, &located) != test.caret || test.caret && !strings.Contains(located.Excerpt, "^") {
				t.Errorf("caret wanted: %v; got %q", test.caret, text)
			}
		})
	}
}

func TestOverlayUnknownBaseHints(t *testing.T) {
	_, err := builtin(t).Overlay("mine.yaml", []byte("models:\n  - base: Qwen3-9B\n"))
	var unknown *UnknownError
	if !errors.As(err, &unknown) || len(unknown.Nearest) != 3 {
		t.Errorf("got %v, want an *UnknownError with three names inside", err)
	}
}

func TestOverlayEmpty(t *testing.T) {
	c := builtin(t)
	for _, text := range []string{"", "\n", "# nothing\n", "models:\n", "models: []\ndevices: null\n", "---\n"} {
		merged, err := c.Overlay("mine.yaml", []byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if diff := cmp.Diff(c.Models(), merged.Models()); diff != "" {
			t.Errorf("%q changed the models:\n%s", text, diff)
		}
	}
}

// TestOverlayTime feeds shapes on which the YAML parser is slow.
func TestOverlayTime(t *testing.T) {
	c := builtin(t)
	var keys strings.Builder
	for i := range 9_999 {
		fmt.Fprintf(&keys, "k%d: b\n", i)
	}
	for why, text := range map[string]string{
		"many keys":    keys.String(),
		"many entries": "models:\n" + strings.Repeat("  - {base: Qwen3-8B}\n", 9_990),
		"short lists":  strings.Repeat("- - - -\n", 9_990),
		"anchors":      strings.Repeat("&a ", 20_000),
	} {
		start := time.Now()
		if _, err := c.Overlay("mine.yaml", []byte(text)); err == nil {
			t.Errorf("%s: accepted", why)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s: took %v", why, took)
		}
	}
}

func FuzzOverlay(f *testing.F) {
	for _, seed := range []string{
		"", "models:\n  - base: Qwen3-8B\n    name: x\n    num_layers: 3\n",
		"devices:\n  - base: h100\n    power_w: {value: 1, source: s}\n    peak_flops: {fp8: null}\n",
		"models:\n  - {name: t, type: llama, num_layers: 2, hidden_size: 64, num_heads: 4, num_kv_heads: 2, head_dim: 16, intermediate_size: 8, vocab_size: 9, max_seq_len: 9}\n",
		"models: [[[[", "a: &a [*a]", "models:\n  - base: Mixtral-8x7B\n    moe: {num_experts: 268435456}\n", "<<: {models: []}", "models:\n  - !!map {base: x}\n", "? - a\n: - b\n",
		"models:\n - base: |\n    x\n   name: >\n    y\n", "devices:\n  - {name: d, memory_bytes: {value: .inf, source: s}}\n",
	} {
		f.Add([]byte(seed))
	}
	c, err := Builtin()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		merged, err := c.Overlay("fuzz.yaml", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "fuzz.yaml") {
				t.Errorf("the error does not name the file: %v", err)
			}
			return
		}
		for _, m := range merged.Models() {
			if p := m.Params(); p.Total < 1 || p.Active < 1 || p.Active > p.Total {
				t.Errorf("%s: total %d, active %d", m.Name, p.Total, p.Active)
			}
			if found, err := merged.Model(m.Name); err != nil || found != m {
				t.Errorf("%q is not found by its name: %v", m.Name, err)
			}
		}
	})
}

// TestOverlayOfAnotherMemory: a device with another memory than its base's does
// not keep the total of that.
func TestOverlayOfAnotherMemory(t *testing.T) {
	cat, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why, keys string
		want      unit.Bytes
	}{
		{"the base's", "power_w: {value: 300}", 81559 * unit.MiB},
		{"less memory, of which no total is known", "memory_bytes: {value: 34359738368}", 32 * unit.GiB},
		{"a total of its own", "memory_bytes: {value: 34359738368}\n    memory_total_bytes: {value: 35433480192}", 33 * unit.GiB},
	} {
		own, err := cat.Overlay("own.yaml", []byte("devices:\n  - base: h100\n    name: ours\n    "+c.keys+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		d, _, err := own.Device("ours")
		if err != nil || d.MemoryTotalBytes() != c.want {
			t.Errorf("%s: %v, %v, want %v", c.why, d.MemoryTotalBytes(), err, c.want)
		}
	}
}
