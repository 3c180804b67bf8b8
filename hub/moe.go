package hub

import (
	"fmt"
	"strings"

	"github.com/llmprof/llmprof/catalog"
)

// firstOf reads a count that families spell differently. Two spellings with
// different values are a fault; none gives 0.
func firstOf(o *object, high int, keys ...string) int {
	value, found := 0, ""
	for _, key := range keys {
		if !o.has(key) {
			continue
		}
		v := o.integer(key, 0, high)
		if found != "" && v != value && o.notes.err == nil {
			o.fail(key, fmt.Sprintf("is %d but %s is %d", v, found, value))
		}
		if found == "" {
			value, found = v, key
		}
	}
	return value
}

// experts reads the number of routed experts and how many a token visits, in
// every spelling; nil where the model has none.
func experts(o *object) *catalog.MoE {
	counts := []string{"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}
	moe := &catalog.MoE{NumExperts: firstOf(o, maxExperts, counts...)}
	if moe.NumExperts == 0 || o.notes.err != nil {
		return nil
	}
	visited := []string{"num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"}
	moe.ExpertsPerToken = firstOf(o, maxExperts, visited...)
	switch {
	case o.notes.err != nil:
		return nil
	case moe.ExpertsPerToken == 0:
		o.fail(visited[0], "is missing (also spelt "+strings.Join(visited[1:], ", ")+")")
	case moe.ExpertsPerToken > moe.NumExperts:
		for _, key := range visited {
			if o.has(key) {
				o.fail(key, fmt.Sprintf("is %d: there are only %d experts", moe.ExpertsPerToken, moe.NumExperts))
			}
		}
	}
	return moe
}

// required is experts for a family that always has them.
func required(o *object) *catalog.MoE {
	moe := experts(o)
	if moe == nil {
		o.fail("num_local_experts", "is missing (also spelt num_experts, n_routed_experts, moe_num_experts)")
	}
	return moe
}

// plainExperts reads a mixture in every layer whose experts have the width
// intermediate_size; biased says that router and experts have biases.
func plainExperts(biased bool) func(*object, *catalog.Model) {
	return func(o *object, m *catalog.Model) {
		if m.MoE = required(o); m.MoE == nil {
			return
		}
		m.MoE.IntermediateSize = o.integer("intermediate_size", 1, maxWidth)
		m.MoE.RouterBias, m.MoE.ExpertBias = biased, biased
	}
}

// qwenExperts reads the mixtures of Qwen: every decoder_sparse_step-th layer
// but those in mlp_only_layers; shared says that there is a gated shared
// expert.
func qwenExperts(shared bool) func(*object, *catalog.Model) {
	return func(o *object, m *catalog.Model) {
		step := o.integerOr("decoder_sparse_step", 1, 1, maxLayers)
		dense := map[int]bool{}
		for _, i := range o.integers("mlp_only_layers", 0, maxLayers) {
			dense[i] = true
		}
		if m.MoE = experts(o); m.MoE != nil {
			m.MoE.IntermediateSize = o.integer("moe_intermediate_size", 1, maxWidth)
			if shared {
				m.MoE.SharedIntermediateSize = o.integer("shared_expert_intermediate_size", 0, maxWidth)
				m.MoE.SharedGate = m.MoE.SharedIntermediateSize > 0
			}
		}
		if o.notes.err == nil {
			layout(o, m, "mlp_only_layers", "intermediate_size", func(i int) bool { return !dense[i] && (i+1)%step == 0 })
		}
	}
}

// deepseekV2Experts reads the mixtures of DeepSeek-V2: dense layers first,
// shared experts that each have the width of a routed one.
func deepseekV2Experts(o *object, m *catalog.Model) { deepseekExperts(o, m, false) }

// deepseekV3Experts adds the selection bias of DeepSeek-V3, which also Kimi K2
// and GLM 4.5 have.
func deepseekV3Experts(o *object, m *catalog.Model) {
	method := o.word("topk_method")
	deepseekExperts(o, m, method == "" || method == "noaux_tc")
}

func deepseekExperts(o *object, m *catalog.Model, routerBias bool) {
	if m.MoE = experts(o); m.MoE != nil {
		m.MoE.RouterBias = routerBias
		m.MoE.IntermediateSize = o.integer("moe_intermediate_size", 1, maxWidth)
		sharedExperts(o, m.MoE, "n_shared_experts")
	}
	first := o.integerOr("first_k_dense_replace", 0, 0, maxLayers)
	if o.notes.err != nil {
		return
	}
	if strings.HasPrefix(string(o.fields["moe_layer_freq"]), "[") {
		marks := o.integers("moe_layer_freq", 0, 1)
		if len(marks) != m.NumLayers {
			o.fail("moe_layer_freq", fmt.Sprintf("has %d entries for %d layers", len(marks), m.NumLayers))
			return
		}
		layout(o, m, "moe_layer_freq", "intermediate_size", func(i int) bool { return i >= first && marks[i] == 1 })
		return
	}
	step := o.integerOr("moe_layer_freq", 1, 1, maxLayers)
	if o.notes.err == nil {
		layout(o, m, "moe_layer_freq", "intermediate_size", func(i int) bool { return i >= first && i%step == 0 })
	}
}

// ernieExperts reads the mixtures of Ernie 4.5.
func ernieExperts(o *object, m *catalog.Model) {
	if m.MoE = required(o); m.MoE == nil {
		return
	}
	m.MoE.RouterBias = true
	m.MoE.IntermediateSize = o.integer("moe_intermediate_size", 1, maxWidth)
	sharedExperts(o, m.MoE, "moe_num_shared_experts")
	first := o.integerOr("moe_layer_start_index", 1, 0, maxLayers)
	last := o.integerOr("moe_layer_end_index", -1, -1, maxLayers)
	step := o.integerOr("moe_layer_interval", 1, 1, maxLayers)
	if o.notes.err != nil {
		return
	}
	if last < 0 {
		last = m.NumLayers - 1
	}
	layout(o, m, "moe_layer_end_index", "intermediate_size", func(i int) bool { return (i+1)%step == 0 && i >= first && i <= last })
}

// sharedExperts reads a number of shared experts of a routed one's width.
func sharedExperts(o *object, moe *catalog.MoE, key string) {
	shared := o.integerOr(key, 0, 0, maxExperts)
	if shared*moe.IntermediateSize > maxWidth {
		o.fail(key, fmt.Sprintf("is %d: the shared experts would be %d wide", shared, shared*moe.IntermediateSize))
		return
	}
	moe.SharedIntermediateSize = shared * moe.IntermediateSize
}

// llama4Experts reads the mixtures of Llama 4: intermediate_size is the width
// of an expert and of the shared one, intermediate_size_mlp that of a dense
// layer.
func llama4Experts(o *object, m *catalog.Model) {
	if m.MoE = required(o); m.MoE == nil {
		return
	}
	m.MoE.IntermediateSize = o.integer("intermediate_size", 1, maxWidth)
	m.MoE.SharedIntermediateSize = m.MoE.IntermediateSize
	step := o.integerOr("interleave_moe_layer_step", 1, 1, maxLayers)
	isMoE := func(i int) bool { return (i+1)%step == 0 }
	if o.has("moe_layers") {
		listed := map[int]bool{}
		for _, i := range o.integers("moe_layers", 0, maxLayers) {
			listed[i] = true
		}
		isMoE = func(i int) bool { return listed[i] }
	}
	if o.notes.err == nil {
		layout(o, m, "moe_layers", "intermediate_size_mlp", isMoE)
	}
}

// layout puts the mixture layers into the form of catalog.MoE (leading dense
// layers, then every n-th) and reads the width of the dense ones from
// denseKey where there are any. An order that has no such form is refused,
// naming layoutKey.
func layout(o *object, m *catalog.Model, layoutKey, denseKey string, isMoE func(int) bool) {
	var at []int
	for i := range m.NumLayers {
		if isMoE(i) {
			at = append(at, i)
		}
	}
	if m.MoE == nil || len(at) == 0 {
		m.MoE = nil
		m.IntermediateSize = o.integer(denseKey, 1, maxWidth)
		return
	}
	m.MoE.DenseLayers, m.MoE.Every = layoutOf(at)
	for i := range m.NumLayers {
		if m.MoEAt(i) != isMoE(i) {
			o.unsupported(layoutKey, fmt.Sprintf("mixture layers %s", shorten(fmt.Sprint(at))), "known are leading dense layers followed by a mixture in every n-th layer")
			return
		}
	}
	if len(at) < m.NumLayers {
		m.IntermediateSize = o.integer(denseKey, 1, maxWidth)
	}
}

// layoutOf guesses leading dense layers and distance from the indices of the
// mixture layers; the caller checks the result.
func layoutOf(at []int) (dense, every int) {
	first, step := at[0], 1
	if len(at) > 1 {
		step = at[1] - at[0]
	}
	if step == 1 {
		return first, 0
	}
	if first == step-1 {
		return 0, step
	}
	return first, step
}
