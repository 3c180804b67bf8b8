package hub

import (
	"fmt"
	"strings"

	"github.com/llmprof/llmprof/catalog"
)

// readAttention sets LayerPattern and Window: from layer_types where the file
// has it, else by the family's rule.
func readAttention(o *object, fam family, m *catalog.Model) {
	if fam.attention != nil {
		fam.attention(o, m)
	}
	if o.has("layer_types") {
		readLayerTypes(o, m)
	}
	settleWindow(m)
}

// settleWindow puts the pattern into its shortest form. A window that the
// longest sequence fits into is none.
func settleWindow(m *catalog.Model) {
	wide := m.Window >= m.MaxSeqLen
	windows := false
	for i, kind := range m.LayerPattern {
		if kind != catalog.SlidingAttention && kind != catalog.ChunkedAttention {
			continue
		}
		if wide {
			m.LayerPattern[i] = catalog.FullAttention
			continue
		}
		windows = true
	}
	if !windows {
		m.Window = 0
	}
	m.LayerPattern = period(m.LayerPattern)
}

// readLayerTypes reads the explicit kinds of the layers.
func readLayerTypes(o *object, m *catalog.Model) {
	items := o.list("layer_types")
	if o.notes.err != nil {
		return
	}
	if len(items) != m.NumLayers {
		o.fail("layer_types", fmt.Sprintf("has %d entries for %d layers", len(items), m.NumLayers))
		return
	}
	m.LayerPattern = make([]string, 0, len(items))
	for _, raw := range items {
		switch string(raw) {
		case `"full_attention"`:
			m.LayerPattern = append(m.LayerPattern, catalog.FullAttention)
		case `"sliding_attention"`:
			m.LayerPattern = append(m.LayerPattern, catalog.SlidingAttention)
			m.Window = windowOf(o, m, "sliding_window")
		case `"chunked_attention"`:
			m.LayerPattern = append(m.LayerPattern, catalog.ChunkedAttention)
			m.Window = windowOf(o, m, "attention_chunk_size")
		case `"linear_attention"`:
			if m.Linear == nil {
				o.unsupported("layer_types", "linear_attention", "the sizes of the linear layers are known for qwen3_next only")
				return
			}
			m.LayerPattern = append(m.LayerPattern, catalog.LinearAttn)
		default:
			o.unsupported("layer_types", shorten(strings.Trim(string(raw), `"`)), "known are full_attention, sliding_attention, chunked_attention and linear_attention")
			return
		}
	}
}

// windowOf is the window that the family's rule found, else the key's.
func windowOf(o *object, m *catalog.Model, key string) int {
	if m.Window > 0 || o.notes.err != nil {
		return m.Window
	}
	return o.integer(key, 1, maxTokens)
}

// period cuts a pattern to its shortest repeating part; nil where all layers
// are full.
func period(pattern []string) []string {
	for p := 1; p <= len(pattern); p++ {
		repeats := true
		for i := p; i < len(pattern) && repeats; i++ {
			repeats = pattern[i] == pattern[i-p]
		}
		if repeats {
			pattern = pattern[:p:p]
			break
		}
	}
	if len(pattern) == 1 && pattern[0] == catalog.FullAttention {
		return nil
	}
	return pattern
}

// window reads a span in tokens: an absent key takes the family's value, a
// null one means that there is no window.
func window(o *object, key string, absent int) int {
	if !o.present(key) {
		if absent > 0 {
			o.warnf("%s is not in the file: %d, the default of this model_type, is taken", key, absent)
		}
		return absent
	}
	return o.integerOr(key, 0, 1, maxTokens)
}

// windowed makes every layer slide where sliding_window is set.
func windowed(absent int) func(*object, *catalog.Model) {
	return func(o *object, m *catalog.Model) {
		if m.Window = window(o, "sliding_window", absent); m.Window > 0 {
			m.LayerPattern = []string{catalog.SlidingAttention}
		}
	}
}

// alternating makes all layers slide but every n-th (Gemma 2, gpt-oss: 2;
// OLMo 3: 4).
func alternating(n, absent int) func(*object, *catalog.Model) {
	return func(o *object, m *catalog.Model) {
		if m.Window = window(o, "sliding_window", absent); m.Window > 0 {
			m.LayerPattern = everyNth(n, catalog.SlidingAttention)
		}
	}
}

// everyNth is a pattern of n layers of which the last is full.
func everyNth(n int, others string) []string {
	pattern := make([]string, n)
	for i := range pattern {
		pattern[i] = others
	}
	pattern[n-1] = catalog.FullAttention
	return pattern
}

// gemma3Window is alternating with the period in sliding_window_pattern.
func gemma3Window(o *object, m *catalog.Model) {
	n := 6
	for _, key := range []string{"sliding_window_pattern", "_sliding_window_pattern"} {
		n = o.integerOr(key, n, 1, maxLayers)
	}
	if o.notes.err == nil {
		alternating(n, 4096)(o, m)
	}
}

// qwenWindow makes the layers from max_window_layers on slide where
// use_sliding_window is set.
func qwenWindow(o *object, m *catalog.Model) {
	if !o.flag("use_sliding_window", false) {
		return
	}
	m.Window = window(o, "sliding_window", 4096)
	first := o.integerOr("max_window_layers", 28, 0, maxLayers)
	if m.Window == 0 || first >= m.NumLayers {
		return
	}
	m.LayerPattern = make([]string, m.NumLayers)
	for i := range m.LayerPattern {
		m.LayerPattern[i] = catalog.FullAttention
		if i >= first {
			m.LayerPattern[i] = catalog.SlidingAttention
		}
	}
}

// qwen3MoEWindow makes every layer slide where use_sliding_window is set.
func qwen3MoEWindow(o *object, m *catalog.Model) {
	if o.flag("use_sliding_window", false) {
		windowed(4096)(o, m)
	}
}

// smolWindow makes the layers without rotation slide where
// use_sliding_window is set (SmolLM3).
func smolWindow(o *object, m *catalog.Model) {
	if !o.flag("use_sliding_window", false) {
		return
	}
	if m.Window = window(o, "sliding_window", 0); m.Window == 0 {
		return
	}
	rotated := rotatedLayers(o, m)
	m.LayerPattern = make([]string, len(rotated))
	for i, r := range rotated {
		m.LayerPattern[i] = catalog.SlidingAttention
		if r {
			m.LayerPattern[i] = catalog.FullAttention
		}
	}
}

// llama4Chunks makes the rotated layers attend within chunks (Llama 4).
func llama4Chunks(o *object, m *catalog.Model) {
	if m.Window = window(o, "attention_chunk_size", 8192); m.Window == 0 {
		return
	}
	rotated := rotatedLayers(o, m)
	m.LayerPattern = make([]string, len(rotated))
	for i, r := range rotated {
		m.LayerPattern[i] = catalog.FullAttention
		if r {
			m.LayerPattern[i] = catalog.ChunkedAttention
		}
	}
}

// rotatedLayers reads which layers rotate queries and keys: no_rope_layers
// (1 for a layer that does, despite its name), else all but every
// no_rope_layer_interval-th.
func rotatedLayers(o *object, m *catalog.Model) []bool {
	rotated := make([]bool, m.NumLayers)
	if marks := o.integers("no_rope_layers", 0, 1); len(marks) > 0 {
		if len(marks) != m.NumLayers {
			o.fail("no_rope_layers", fmt.Sprintf("has %d entries for %d layers", len(marks), m.NumLayers))
			return rotated
		}
		for i, mark := range marks {
			rotated[i] = mark == 1
		}
		return rotated
	}
	interval := o.integerOr("no_rope_layer_interval", 4, 1, maxLayers)
	for i := range rotated {
		rotated[i] = interval > 0 && (i+1)%interval != 0
	}
	return rotated
}

// deltaLayers reads the gated delta-rule layers of Qwen3-Next: all layers but
// every full_attention_interval-th.
func deltaLayers(o *object, m *catalog.Model) {
	m.Linear = &catalog.LinearAttention{
		NumKeyHeads:   o.defaulted("linear_num_key_heads", 16, maxHeads),
		NumValueHeads: o.defaulted("linear_num_value_heads", 32, maxHeads),
		KeyHeadDim:    o.defaulted("linear_key_head_dim", 128, maxHeadDim),
		ValueHeadDim:  o.defaulted("linear_value_head_dim", 128, maxHeadDim),
		ConvKernel:    o.defaulted("linear_conv_kernel_dim", 4, maxHeadDim),
	}
	m.LayerPattern = everyNth(max(o.integerOr("full_attention_interval", 4, 1, maxLayers), 1), catalog.LinearAttn)
}

// glm4QKNorm reads the switch of GLM 4.5's norms on queries and keys.
func glm4QKNorm(o *object, m *catalog.Model) {
	if o.flag("use_qk_norm", false) {
		m.QKNorm = "head"
	}
}
