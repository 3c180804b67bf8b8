package llmservingsim

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/unit"
)

const (
	denseFile     = "dense.csv"
	sequenceFile  = "per_sequence.csv"
	attentionFile = "attention.csv"
	moeFile       = "moe.csv"
)

// recipe says how a layer of LLMServingSim comes from measured ones.
type recipe struct {
	file, name string
	// ways are sets of measured layers whose times add up to that of the
	// layer; the first set that is complete counts.
	ways [][]string
	// calls is how often a block calls the layer: the sum is spread over them.
	// 0 is once.
	calls int
	// stable says that the times of one rank hold for any number of them.
	stable bool
	// optional says that only some architectures have the layer.
	optional bool
}

// recipes are the layers of a step in their order. The names on the right are
// those of LLMServingSim itself, of LLM-Profile and the torch probe, and of
// the GPT tables of early LLMServingSim.
func recipes() []recipe {
	return []recipe{
		{file: denseFile, name: "embedding", ways: [][]string{{"embedding", "position_embedding"}, {"embedding"}, {"vocab_embedding"}}},
		{file: denseFile, name: "layernorm", ways: [][]string{{"layernorm"}, {"input_layernorm", "post_layernorm"}}, calls: 2, stable: true},
		{file: denseFile, name: "qkv_proj", ways: [][]string{{"qkv_proj"}, {"q_proj", "k_proj", "v_proj"}, {"attention/qkv"}}},
		{file: denseFile, name: "qk_norm", ways: [][]string{{"qk_norm"}, {"q_norm", "k_norm"}}, optional: true},
		{file: denseFile, name: "rotary_emb", ways: [][]string{{"rotary_emb"}, {"rope"}}},
		{file: attentionFile, name: AttentionLayer, ways: [][]string{{AttentionLayer}, {"attn"}, {"qk_matmul", "softmax", "sv_matmul"}, {"attention/wrapper"}}},
		{file: denseFile, name: "o_proj", ways: [][]string{{"o_proj"}, {"out_proj"}, {"attention/dense"}}},
		{file: denseFile, name: "gate_up_proj", ways: [][]string{{"gate_up_proj"}, {"gate_proj", "up_proj"}, {"fc1"}, {"mlp/fc"}}},
		{file: denseFile, name: "act_fn", ways: [][]string{{"act_fn"}, {"mlp/gelu"}}},
		{file: denseFile, name: "down_proj", ways: [][]string{{"down_proj"}, {"fc2"}, {"mlp/proj"}}},
		{file: moeFile, name: MoELayer, ways: [][]string{{MoELayer}, {"gate", "experts"}}, stable: true},
		{file: denseFile, name: "final_layernorm", ways: [][]string{{"final_layernorm"}, {"ln_f"}}, stable: true},
		{file: sequenceFile, name: "lm_head", ways: [][]string{{"lm_head"}}},
		{file: sequenceFile, name: "sampler", ways: [][]string{{"sampler"}}, stable: true},
	}
}

// feedForward reports whether a layer is one that experts stand in for.
func feedForward(name string) bool {
	return name == "gate_up_proj" || name == "act_fn" || name == "down_proj"
}

// expert reports whether a measured layer belongs to a mixture of experts.
func expert(name string) bool {
	return name == "gate" || name == "experts" || name == MoELayer || strings.HasPrefix(name, "expert.")
}

// rankLayer is a measured layer on a number of ranks.
type rankLayer struct {
	ranks int
	name  string
}

// timed is the point that counts at a size.
type timed struct {
	point *profile.Point
	// context is the number of cached tokens, which the time does not depend
	// on where a file has no column for it.
	context int
}

// translator turns measured layers into those of LLMServingSim.
type translator struct {
	// times are by the sizes that the layer's file has columns for.
	times map[rankLayer]map[profile.Layer]timed
	// skewed are the rows of batches of unequal contexts, which have no parts.
	skewed map[profile.Layer]row
	// left counts the points without a place by the layer's name, misfits
	// those of layers that have one, but not at these sizes.
	left, misfits map[string]int
	// others is the number of points that are no times of layers.
	others int
	// moe says that the model is a mixture of experts.
	moe     bool
	remarks []string
}

// translate builds the rows of a profile that does not come from a bundle,
// and says what was left out and what LLMServingSim will miss.
func translate(p *profile.Profile) (rows map[string][]row, remarks []string) {
	t := &translator{times: map[rankLayer]map[profile.Layer]timed{}, skewed: map[profile.Layer]row{}, left: map[string]int{}, misfits: map[string]int{}}
	fileOf := map[string]string{}
	all := recipes()
	for _, r := range all {
		for _, way := range r.ways {
			for _, name := range way {
				fileOf[name] = r.file
			}
		}
	}
	for i := range p.Points {
		t.add(&p.Points[i], p.Header.Deploy.TensorParallel, fileOf)
	}
	t.separateExperts()
	rows = map[string][]row{}
	for _, ranks := range t.ranks() {
		for _, r := range all {
			file := path.Join(folderOf(ranks), r.file)
			if list := t.build(r, ranks); len(list) > 0 {
				rows[file] = append(rows[file], list...)
			}
		}
	}
	for _, r := range t.skewed {
		file := path.Join(folderOf(r.layer.TensorParallel), skewFile)
		rows[file] = append(rows[file], r)
	}
	for _, list := range rows {
		slices.SortStableFunc(list, func(a, b row) int { return compareLayers(a.layer, b.layer) })
	}
	t.remarkLeft()
	t.remarkMissing(rows)
	return rows, t.remarks
}

// compareLayers orders rows as the profiler of LLMServingSim does.
func compareLayers(a, b profile.Layer) int {
	return cmp.Or(
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.Tokens, b.Tokens), cmp.Compare(a.Context, b.Context), cmp.Compare(a.Sequences, b.Sequences),
		cmp.Compare(a.SequenceContext, b.SequenceContext), cmp.Compare(a.ActivatedExperts, b.ActivatedExperts),
		cmp.Compare(a.LongSequences, b.LongSequences), cmp.Compare(a.LongContext, b.LongContext),
	)
}

// ranks lists the tensor parallel sizes that were measured.
func (t *translator) ranks() []int {
	set := map[int]bool{}
	for at := range t.times {
		set[at.ranks] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// add takes in a point. Of points of one size that with the shortest context
// counts, and of those the last.
func (t *translator) add(p *profile.Point, deployed int, fileOf map[string]string) {
	if _, ok := p.Mean(); p.Kind != profile.KindLayer || p.Layer == nil || !ok {
		t.others++
		return
	}
	l := *p.Layer
	ranks := cmp.Or(l.TensorParallel, max(deployed, 1))
	file, known := fileOf[l.Name]
	if !known {
		t.left[l.Name]++
		return
	}
	if ranks < 1 || ranks > maxRanks || min(l.Tokens, l.Context, l.Sequences, l.SequenceContext, l.LongSequences, l.LongContext, l.ActivatedExperts) < 0 {
		t.misfits[l.Name]++
		return
	}
	if sheet, _ := format.KeptCell(p, KeySheet); l.LongSequences > 0 || sheet == skewFile {
		// Such a row is nothing without the times that it is compared with.
		if _, compared := p.Extra[KeyMeanTime]; !compared || file != attentionFile || l.ActivatedExperts > 0 || l.Sequences < 1 {
			t.misfits[l.Name]++
			return
		}
		l.Name, l.TensorParallel = AttentionLayer, ranks
		t.skewed[l] = row{p, l, len(p.Samples)}
		return
	}
	size, context, ok := sizeIn(file, l)
	if !ok {
		t.misfits[l.Name]++
		return
	}
	at := rankLayer{ranks, l.Name}
	if t.times[at] == nil {
		t.times[at] = map[profile.Layer]timed{}
	}
	if other, seen := t.times[at][size]; !seen || context <= other.context {
		t.times[at][size] = timed{p, context}
	}
}

// sizeIn gives a measured layer's sizes as its file has columns for them, and
// its context where the file has none. ok is false where no row can say what
// was computed.
func sizeIn(file string, l profile.Layer) (size profile.Layer, context int, ok bool) {
	if l.LongSequences > 0 || l.LongContext > 0 || (l.ActivatedExperts > 0) != (file == moeFile) {
		return size, 0, false
	}
	if file == attentionFile {
		size = attentionSize(l)
		return size, 0, size.Tokens+size.Sequences > 0
	}
	if l.SequenceContext > 0 {
		return size, 0, false
	}
	if file == sequenceFile {
		// One row of logits for each sequence. Of several tokens of one prompt
		// it is not known whether they all have one.
		switch {
		case l.Sequences > 1:
			size.Sequences = l.Sequences
		case l.Tokens <= 1 && l.Tokens+l.Sequences > 0:
			size.Sequences = 1
		}
		return size, l.Context, size.Sequences > 0
	}
	size.Tokens, size.ActivatedExperts = l.Tokens, l.ActivatedExperts
	return size, l.Context, l.Tokens > 0 && l.Sequences <= 1
}

// attentionSize gives the sizes of attention. At batch 1 a decode step is no
// chunk of one token but a sequence, and a chunk alone has no sequences.
func attentionSize(l profile.Layer) profile.Layer {
	size := profile.Layer{Tokens: l.Tokens, Context: l.Context, Sequences: l.Sequences, SequenceContext: l.SequenceContext}
	if alone := l.Sequences <= 1 && l.SequenceContext == 0 && l.Tokens > 0; !alone {
		return size
	}
	if l.Tokens == 1 && l.Context > 0 {
		return profile.Layer{Sequences: 1, SequenceContext: l.Context}
	}
	size.Sequences = 0
	return size
}

// separateExperts takes out the activation where it is that of one expert.
func (t *translator) separateExperts() {
	t.moe = t.measuredExperts()
	for _, ranks := range t.ranks() {
		has := func(name string) bool { return t.times[rankLayer{ranks, name}] != nil }
		if !t.moe || has("gate_up_proj") || has("gate_proj") || has("up_proj") || has("fc1") {
			continue
		}
		if at := (rankLayer{ranks, "act_fn"}); has("act_fn") {
			t.left["act_fn of an expert"] += len(t.times[at])
			delete(t.times, at)
		}
	}
}

// measuredExperts reports whether the profile is one of a mixture of experts.
func (t *translator) measuredExperts() bool {
	for at := range t.times {
		if expert(at.name) {
			return true
		}
	}
	for _, names := range []map[string]int{t.left, t.misfits} {
		for name := range names {
			if expert(name) {
				return true
			}
		}
	}
	return false
}

// build gives the rows of one layer on one number of ranks.
func (t *translator) build(r recipe, ranks int) []row {
	at := func(name string) map[profile.Layer]timed { return t.times[rankLayer{ranks, name}] }
	built := map[profile.Layer]row{}
	var complete [][]string
	for _, way := range r.ways {
		var lacking, there []string
		for _, name := range way {
			if at(name) == nil {
				lacking = append(lacking, name)
			} else {
				there = append(there, name)
			}
		}
		// A part of a sum that was measured as a whole says too little.
		within := func(other []string) bool {
			return !slices.ContainsFunc(way, func(name string) bool { return !slices.Contains(other, name) })
		}
		switch {
		case slices.ContainsFunc(complete, within):
			continue
		case len(lacking) > 0:
			if len(there) > 0 && len(complete) == 0 && !slices.ContainsFunc(r.ways, func(other []string) bool {
				return len(other) < len(way) && !slices.ContainsFunc(other, func(name string) bool { return !slices.Contains(there, name) })
			}) {
				t.remark("%s left out: %s also takes %s", list(there), r.name, list(lacking))
			}
			continue
		}
		complete = append(complete, way)
		partial := map[profile.Layer]bool{}
		for _, name := range way {
			for size := range at(name) {
				if _, done := built[size]; done {
					continue
				}
				if made, ok := t.sum(r, way, ranks, size); ok {
					built[size] = made
				} else {
					partial[size] = true
				}
			}
		}
		if len(partial) > 0 {
			t.remark("%s left out at sizes at which not all of %s were measured: %d", r.name, list(way), len(partial))
		}
		if r.name == "gate_up_proj" && len(way) == 1 && way[0] != r.name {
			t.remark("%s stands for gate_up_proj, since this model has no gate", way[0])
		}
	}
	return slices.Collect(maps.Values(built))
}

// sum is the row of a layer at one size.
func (t *translator) sum(r recipe, way []string, ranks int, size profile.Layer) (row, bool) {
	out := row{layer: size}
	out.layer.Name, out.layer.TensorParallel = r.name, ranks
	var total unit.Seconds
	for i, name := range way {
		part, ok := t.times[rankLayer{ranks, name}][size]
		if !ok {
			return row{}, false
		}
		if n := len(part.point.Samples); i == 0 || n < out.samples {
			out.samples = n
		}
		mean, _ := format.MeanTime(part.point)
		total += mean
		out.point = part.point
	}
	if len(way) == 1 {
		return out, true // as it is spelled in the profile
	}
	total /= unit.Seconds(max(r.calls, 1))
	out.point = &profile.Point{Kind: profile.KindLayer, Layer: &out.layer, Samples: []float64{rounded(float64(total))}}
	return out, total > 0
}

// rounded drops the digits that are left over from adding binary fractions.
func rounded(seconds float64) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(seconds, 'e', 11, 64), 64)
	if err != nil { // a float64 that was written is read again
		return seconds
	}
	return short
}

func (t *translator) remark(text string, args ...any) {
	if text = fmt.Sprintf(text, args...); !slices.Contains(t.remarks, text) {
		t.remarks = append(t.remarks, text)
	}
}

// remarkLeft says what has no place in the files.
func (t *translator) remarkLeft() {
	const head = "lm_head"
	if n := t.misfits[head]; n > 0 {
		t.remark("lm_head of more than one token left out (%s): the profile does not tell for how many of them it computed logits", points(n))
		delete(t.misfits, head)
	}
	var experts []string
	for _, names := range []map[string]int{t.left, t.misfits} {
		for name, n := range names {
			if expert(name) {
				experts = append(experts, fmt.Sprintf("%s (%s)", name, points(n)))
				delete(names, name)
			}
		}
	}
	if len(experts) > 0 {
		slices.Sort(experts)
		t.remark("%s: left out, since the profile does not tell how many experts were activated", shortList(experts))
	}
	if n := t.others; n > 0 {
		t.remark("left out, as no times of layers: %s", points(n))
	}
	if text := counted(t.left); text != "" {
		t.remark("a bundle has no place for %s", text)
	}
	if text := counted(t.misfits); text != "" {
		t.remark("a bundle has no columns for the sizes of %s", text)
	}
}

// remarkMissing says what LLMServingSim wants and does not find.
func (t *translator) remarkMissing(rows map[string][]row) {
	all := ranksOf(rows)
	for _, ranks := range all {
		prefix := ""
		if len(all) > 1 {
			prefix = folderOf(ranks) + ": "
		}
		has := func(file, name string, ranks int) bool {
			return slices.ContainsFunc(rows[path.Join(folderOf(ranks), file)], func(r row) bool { return r.layer.Name == name })
		}
		moe := t.moe && !has(denseFile, "gate_up_proj", ranks)
		var missing []string
		for _, r := range recipes() {
			wanted := !r.optional && (!moe || !feedForward(r.name)) && (moe || r.name != MoELayer)
			if wanted && !has(r.file, r.name, ranks) && (!r.stable || !has(r.file, r.name, 1)) {
				missing = append(missing, r.name)
			}
		}
		if len(missing) > 0 {
			t.remark("%snot measured, but wanted by LLMServingSim: %s", prefix, list(missing))
		}
		t.remarkBatches(prefix, rows[path.Join(folderOf(ranks), attentionFile)])
		heads := 0
		for _, r := range rows[path.Join(folderOf(ranks), sequenceFile)] {
			if r.layer.Name == "lm_head" {
				heads++
			}
		}
		if heads == 1 {
			t.remark("%slm_head was measured for one number of sequences: LLMServingSim takes its time for any", prefix)
		}
	}
}

// remarkBatches says what kinds of batches attention was not measured for.
func (t *translator) remarkBatches(prefix string, attention []row) {
	if len(attention) == 0 {
		return
	}
	var prompt, decode, batch, mixed bool
	for _, r := range attention {
		prompt = prompt || r.layer.Tokens > 0
		decode = decode || r.layer.Sequences > 0
		batch = batch || r.layer.Sequences > 1
		mixed = mixed || r.layer.Tokens > 0 && r.layer.Sequences > 0
	}
	var missing []string
	for _, c := range []struct {
		there bool
		kind  string
	}{{prompt, "prompts"}, {decode, "decoding sequences"}, {batch || !decode, "several decoding sequences"}, {mixed || !prompt || !decode, "prompts beside decoding sequences"}} {
		if !c.there {
			missing = append(missing, c.kind)
		}
	}
	if len(missing) > 0 {
		t.remark("%sattention was not measured for %s: LLMServingSim goes by the nearest batches there are", prefix, list(missing))
	}
}

// list joins names: "a, b and c".
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// shortList joins names and cuts a long list off.
func shortList(names []string) string {
	const most = 12
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return list(names)
}

// counted lists names with their numbers of points.
func counted(names map[string]int) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, fmt.Sprintf("%s (%s)", name, points(names[name])))
	}
	return shortList(out)
}

func points(n int) string {
	if n == 1 {
		return "1 point"
	}
	return strconv.Itoa(n) + " points"
}
