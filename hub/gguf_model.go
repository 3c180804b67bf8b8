package hub

import (
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/catalog"
)

// ggufType maps a GGUF architecture onto the model_type of config.json; ""
// for one that is not known. Mistral and Mixtral are stored as "llama".
func ggufType(architecture string) string {
	switch architecture {
	case "llama", "qwen2", "qwen3", "gemma", "gemma2", "phi3", "glm4", "internlm2", "olmo2", "granite":
		return architecture
	case "qwen2moe":
		return "qwen2_moe"
	case "qwen3moe":
		return "qwen3_moe"
	case "gemma3":
		return "gemma3_text"
	case "deepseek2":
		return "deepseek_v2"
	case "gpt-oss":
		return "gpt_oss"
	case "glm4moe":
		return "glm4_moe"
	case "olmoe", "smollm3":
		return architecture
	}
	return ""
}

// ggufArchitectures lists the values of general.architecture that are read.
func ggufArchitectures() []string {
	return []string{"deepseek2", "gemma", "gemma2", "gemma3", "glm4", "glm4moe", "gpt-oss", "granite", "internlm2", "llama", "olmo2", "olmoe", "phi3", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "smollm3"}
}

// ParseGGUF reads the head of a GGUF file (version 2 or 3) from r and turns
// it into an architecture. Sizes come from the metadata; biases, norms, tied
// embeddings, mixture layers and the weight format from the tensor list. The
// tensors are not read. A file that is one of several (split.count) gives an
// error: [Client.Model] reads all of them.
func ParseGGUF(name string, r io.Reader) (*catalog.Model, *Facts, []string, error) {
	f, err := readGGUF(name, r)
	if err != nil {
		return nil, nil, nil, err
	}
	if n := f.meta["split.count"].number; n > 1 {
		return nil, nil, nil, &FileError{File: name, Field: "split.count", Problem: fmt.Sprintf("is %g: the other files are needed as well", n)}
	}
	return f.model(name)
}

// readGGUFFile reads a GGUF file, with the other parts where it is split.
func readGGUFFile(path string) (*catalog.Model, *Facts, []string, error) {
	first, err := openGGUF(path)
	if err != nil {
		return nil, nil, nil, err
	}
	parts := int(min(first.meta["split.count"].number, maxShards))
	if parts < 2 {
		return first.model(path)
	}
	name := regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`).FindStringSubmatch(filepath.Base(path))
	if len(name) != 4 || name[3] != fmt.Sprintf("%05d", parts) {
		return nil, nil, nil, &FileError{File: path, Field: "split.count", Problem: fmt.Sprintf("is %d, but the name does not end in -00001-of-%05d.gguf", parts, parts)}
	}
	whole := first
	var tensors []Tensor
	for i := 1; i <= parts; i++ {
		part := first
		if at := fmt.Sprintf("%05d", i); at != name[2] {
			file := filepath.Join(filepath.Dir(path), fmt.Sprintf("%s-%s-of-%s.gguf", name[1], at, name[3]))
			if part, err = openGGUF(file); err != nil {
				return nil, nil, nil, fmt.Errorf("part %d of %d of %s: %w", i, parts, path, err)
			}
		}
		if i == 1 {
			whole = part
		}
		tensors = append(tensors, part.header.Tensors...)
	}
	whole.header = Header{Tensors: tensors}
	for _, t := range tensors {
		whole.header.Elements += t.Elements
		whole.header.Bytes += t.Bytes
	}
	m, facts, warnings, err := whole.model(path)
	if facts != nil {
		facts.Files = parts
	}
	return m, facts, warnings, err
}

func openGGUF(path string) (*ggufFile, error) {
	file, _, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readGGUF(path, file)
}

// ggufModel gathers what turns the head of a file into a model; the first
// fault is kept.
type ggufModel struct {
	*ggufFile
	name     string
	arch     string
	tensors  map[string]Tensor
	warnings []string
	err      error
}

func (f *ggufFile) model(name string) (*catalog.Model, *Facts, []string, error) {
	g := &ggufModel{ggufFile: f, name: name, arch: f.word("general.architecture"), tensors: make(map[string]Tensor, len(f.header.Tensors))}
	modelType := ggufType(g.arch)
	switch {
	case g.arch == "":
		return nil, nil, nil, &FileError{File: name, Field: "general.architecture", Problem: "is missing: without it the layers are not known"}
	case modelType == "":
		return nil, nil, nil, &UnsupportedError{File: name, Key: "general.architecture", Name: shorten(g.arch), Missing: "supported are " + listed(ggufArchitectures())}
	case len(f.header.Tensors) == 0:
		return nil, nil, nil, &FileError{File: name, Problem: "has no tensors: a vocabulary only"}
	}
	for _, t := range f.header.Tensors {
		g.tensors[t.Name] = t
	}
	m := &catalog.Model{Name: modelName(name), Type: modelType, Source: name}
	g.sizes(m)
	g.attention(m)
	g.feedForward(m)
	g.windows(m)
	if g.err != nil {
		return nil, nil, nil, g.err
	}
	if m.Type == "deepseek_v2" && m.MoE != nil && m.MoE.RouterBias {
		m.Type = "deepseek_v3" // GGUF has one name for both
	}
	facts := g.format(m)
	if err := m.Validate(); err != nil {
		return nil, nil, nil, &FileError{File: name, Problem: "the sizes make no model: " + strings.ReplaceAll(err.Error(), "\n", "; ")}
	}
	g.warnings = append(g.warnings, crossCheck(facts, m)...)
	return m, facts, g.warnings, nil
}

func (g *ggufModel) has(tensor string) bool {
	_, ok := g.tensors[tensor]
	return ok
}

func (g *ggufModel) fail(field, problem string) {
	if g.err == nil {
		g.err = &FileError{File: g.name, Field: field, Problem: problem}
	}
}

// size reads a whole number of the architecture; a list gives its greatest
// entry if all others are equal or 0, so that layers of unequal size are
// refused. absent below 0 makes the key required.
func (g *ggufModel) size(key string, absent, low, high int) int {
	full := g.arch + "." + key
	v, ok := g.meta[full]
	if !ok {
		if absent < 0 {
			g.fail(full, "is missing")
		}
		return max(absent, 0)
	}
	n := v.number
	switch v.kind {
	case ggufString, ggufBool:
		g.fail(full, "is no number")
		return 0
	case ggufArray:
		if len(v.list) == 0 {
			g.fail(full, "is a list: want a whole number")
			return 0
		}
		largest := slices.Max(v.list)
		for _, one := range v.list {
			if one != 0 && one != largest {
				g.fail(full, "differs between layers, which is not supported")
				return 0
			}
		}
		n = float64(largest)
	}
	if !(n >= float64(low) && n <= float64(high)) || n != float64(int(n)) {
		g.fail(full, fmt.Sprintf("is %g: want %d to %d", n, low, high))
		return 0
	}
	return int(n)
}

// sizes reads what every decoder has.
func (g *ggufModel) sizes(m *catalog.Model) {
	m.NumLayers = g.size("block_count", -1, 1, maxLayers)
	if extra := g.size("nextn_predict_layers", 0, 0, maxLayers); extra > 0 && extra < m.NumLayers {
		m.NumLayers -= extra
		g.warnings = append(g.warnings, fmt.Sprintf("%d next-token-prediction layer(s) are not counted", extra))
	}
	m.HiddenSize = g.size("embedding_length", -1, 1, maxHidden)
	m.NumHeads = g.size("attention.head_count", -1, 1, maxHeads)
	m.MaxSeqLen = g.size("context_length", -1, 1, maxTokens)
	embedding, ok := g.tensors["token_embd.weight"]
	switch {
	case !ok || len(embedding.Shape) != 2:
		g.fail("token_embd.weight", "is missing or no matrix")
	case embedding.Shape[0] != int64(m.HiddenSize) && g.err == nil:
		g.fail("token_embd.weight", fmt.Sprintf("is %v: its rows should have %d elements", embedding.Shape, m.HiddenSize))
	case embedding.Shape[1] < 1 || embedding.Shape[1] > maxVocab:
		g.fail("token_embd.weight", fmt.Sprintf("has %d rows: want 1 to %d", embedding.Shape[1], maxVocab))
	default:
		m.VocabSize = int(embedding.Shape[1])
	}
	if n := g.meta["tokenizer.ggml.tokens"].length; n > 0 && n != uint64(m.VocabSize) && g.err == nil {
		g.warnings = append(g.warnings, fmt.Sprintf("the vocabulary has %d tokens, the embedding %d rows", n, m.VocabSize))
	}
	m.TieEmbeddings = !g.has("output.weight")
	m.HeadBias = g.has("output.bias")
	m.NormBias = g.has("output_norm.bias")
}

// attention reads heads, biases and norms of the first layer.
func (g *ggufModel) attention(m *catalog.Model) {
	m.NumKVHeads = g.size("attention.head_count_kv", m.NumHeads, 1, maxHeads)
	m.HeadDim = g.size("attention.key_length", 0, 1, maxHeadDim)
	if m.HeadDim == 0 && m.NumHeads > 0 {
		m.HeadDim = m.HiddenSize / m.NumHeads
	}
	if rank := g.size("attention.kv_lora_rank", 0, 1, maxWidth); rank > 0 {
		key := g.size("attention.key_length_mla", m.HeadDim, 1, maxHeadDim)
		value := g.size("attention.value_length_mla", g.size("attention.value_length", -1, 1, maxHeadDim), 1, maxHeadDim)
		rope := g.size("rope.dimension_count", -1, 0, maxHeadDim)
		m.MLA = &catalog.MLA{QLoraRank: g.size("attention.q_lora_rank", 0, 0, maxWidth), KVLoraRank: rank, QKNopeHeadDim: key - rope, QKRopeHeadDim: rope, VHeadDim: value}
		m.NumKVHeads, m.HeadDim = m.NumHeads, key
		if key <= rope {
			g.fail(g.arch+".rope.dimension_count", fmt.Sprintf("is %d: a head has only %d elements", rope, key))
		}
	}
	m.QKVBias = g.has("blk.0.attn_q.bias") || g.has("blk.0.attn_qkv.bias")
	m.OBias = g.has("blk.0.attn_output.bias")
	m.AttentionSinks = g.has("blk.0.attn_sinks.weight") || g.has("blk.0.attn_sinks")
	if norm, ok := g.tensors["blk.0.attn_q_norm.weight"]; ok {
		m.QKNorm = "full"
		if norm.Elements == int64(m.HeadDim) && m.NumHeads != 1 {
			m.QKNorm = "head"
		}
	}
	norms := 0
	for _, name := range []string{"attn_norm", "ffn_norm", "post_attention_norm", "attn_post_norm", "post_ffw_norm"} {
		if g.has("blk.0." + name + ".weight") {
			norms++
		}
	}
	if norms != 2 {
		m.NormsPerLayer = norms
	}
	if norms == 0 {
		g.fail("blk.0.attn_norm.weight", "is missing: the first layer has no norm")
	}
}

// feedForward reads dense and mixture layers.
func (g *ggufModel) feedForward(m *catalog.Model) {
	dense := g.size("feed_forward_length", 0, 0, maxWidth)
	m.PlainFFN = g.plain()
	m.MLPBias = g.has("blk.0.ffn_down.bias")
	var at []int
	for i := range m.NumLayers {
		if g.has("blk." + strconv.Itoa(i) + ".ffn_gate_inp.weight") {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		m.IntermediateSize = dense
		if dense == 0 {
			g.fail(g.arch+".feed_forward_length", "is missing")
		}
		return
	}
	layer := "blk." + strconv.Itoa(at[0])
	moe := &catalog.MoE{
		NumExperts:       g.size("expert_count", -1, 1, maxExperts),
		ExpertsPerToken:  g.size("expert_used_count", -1, 1, maxExperts),
		IntermediateSize: g.size("expert_feed_forward_length", dense, 1, maxWidth),
		RouterBias:       g.has(layer+".ffn_gate_inp.bias") || g.has(layer+".exp_probs_b.bias"),
		ExpertBias:       g.has(layer + ".ffn_down_exps.bias"),
		SharedGate:       g.has(layer + ".ffn_gate_inp_shexp.weight"),
	}
	if shared, ok := g.tensors[layer+".ffn_up_shexp.weight"]; ok && len(shared.Shape) == 2 && shared.Shape[1] <= maxWidth {
		moe.SharedIntermediateSize = int(shared.Shape[1])
	}
	moe.DenseLayers, moe.Every = layoutOf(at)
	m.MoE = moe
	for i := range m.NumLayers {
		if m.MoEAt(i) != slices.Contains(at, i) {
			g.fail("ffn_gate_inp", "the mixture layers "+shorten(fmt.Sprint(at))+" follow no pattern that is supported")
			return
		}
	}
	if len(at) < m.NumLayers {
		m.IntermediateSize = dense
	}
}

// plain reports whether the feed-forward block has two matrices: no gate,
// neither its own nor fused into a doubled up projection.
func (g *ggufModel) plain() bool {
	up, ok := g.tensors["blk.0.ffn_up.weight"]
	return ok && !g.has("blk.0.ffn_gate.weight") && len(up.Shape) == 2 && up.Shape[1] == int64(g.size("feed_forward_length", 0, 0, maxWidth))
}

// windows sets the sliding layers. The file gives the span; which layers
// slide is known from the architecture, as in llama.cpp.
func (g *ggufModel) windows(m *catalog.Model) {
	m.Window = g.size("attention.sliding_window", 0, 0, maxTokens)
	switch {
	case m.Window == 0:
		return
	case g.arch == "gpt-oss" || g.arch == "gemma2":
		m.LayerPattern = everyNth(2, catalog.SlidingAttention)
	case g.arch == "gemma3":
		m.LayerPattern = everyNth(6, catalog.SlidingAttention)
	default:
		m.LayerPattern = []string{catalog.SlidingAttention}
	}
	settleWindow(m)
}

// format finds the weight format: the one that stores most elements of the
// matrices, and the bits that an element takes on average.
func (g *ggufModel) format(m *catalog.Model) *Facts {
	facts := &Facts{CheckpointBytes: g.header.Bytes, Files: 1}
	if g.header.Elements > 0 {
		facts.BitsPerWeight = float64(g.header.Bytes) * 8 / float64(g.header.Elements)
	}
	stored := map[string]int64{}
	for _, t := range g.header.Tensors {
		if strings.HasPrefix(t.Name, "rope_") || strings.HasPrefix(t.Name, "rope.") || layerIndex(t.Name) >= m.NumLayers {
			continue
		}
		facts.Params += t.Elements
		if len(t.Shape) > 1 {
			stored[t.DType] += t.Elements
		}
	}
	most := ""
	for _, name := range sortedKeys(stored) {
		if most == "" || stored[name] > stored[most] {
			most = name
		}
	}
	m.Quantization = ggmlFormatName(most)
	switch most {
	case "BF16":
		m.DType = catalog.BF16
	case "F32", "F64":
		m.DType = catalog.FP32
	default:
		m.DType = catalog.FP16 // what llama.cpp computes in
	}
	return facts
}
