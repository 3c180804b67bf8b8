package profile

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/unit"
)

// layers yields index and point of every timed layer.
func (l *linter) layers(yield func(i int, p *Point) bool) {
	for i := range l.Points {
		p := &l.Points[i]
		if p.Kind != KindLayer || p.Layer == nil {
			continue
		}
		if _, ok := p.Mean(); ok && !yield(i, p) {
			return
		}
	}
}

// describeLayer names a point as a user would.
func describeLayer(l *Layer) string {
	var b strings.Builder
	b.WriteString(l.Name)
	if l.Tokens > 0 {
		fmt.Fprintf(&b, " of %d tokens", l.Tokens)
		if l.Context > 0 {
			fmt.Fprintf(&b, " after %d", l.Context)
		}
	}
	if l.Sequences > 1 || l.Sequences > 0 && l.Tokens == 0 {
		fmt.Fprintf(&b, ", %d sequences", l.Sequences)
		if l.SequenceContext > 0 {
			fmt.Fprintf(&b, " at %d", l.SequenceContext)
		}
	}
	if l.LongSequences > 0 {
		fmt.Fprintf(&b, ", %d of them at %d", l.LongSequences, l.LongContext)
	}
	if l.MessageBytes > 0 {
		fmt.Fprintf(&b, " of %d bytes", l.MessageBytes)
	}
	if l.ActivatedExperts > 0 {
		fmt.Fprintf(&b, ", %d experts", l.ActivatedExperts)
	}
	if l.TensorParallel > 1 {
		fmt.Fprintf(&b, " (tp%d)", l.TensorParallel)
	}
	return b.String()
}

// matrix is one of the matrices that tokens are multiplied with.
type matrix uint8

const (
	noMatrix matrix = iota
	matrixQ
	matrixKV // k or v alone
	matrixQKV
	matrixO
	matrixUp // gate or up alone, and the first of two
	matrixGateUp
	matrixDown
	matrixHead
)

// matrixOf tells the matrix by the layer's name: those of Hugging Face models,
// of vLLM, and of the GPT tables of early LLMServingSim.
func matrixOf(layer string) matrix {
	switch layer {
	case "q_proj":
		return matrixQ
	case "k_proj", "v_proj":
		return matrixKV
	case "qkv_proj", "attention/qkv":
		return matrixQKV
	case "o_proj", "out_proj", "attention/dense":
		return matrixO
	case "gate_proj", "up_proj", "fc1", "mlp/fc":
		return matrixUp
	case "gate_up_proj":
		return matrixGateUp
	case "down_proj", "fc2", "mlp/proj":
		return matrixDown
	case "lm_head":
		return matrixHead
	}
	return noMatrix
}

// weights is the number of a matrix's elements on all ranks together; 0 where
// the architecture does not tell, as for experts.
func (x matrix) weights(m *catalog.Model) float64 {
	hidden, head := float64(m.HiddenSize), float64(m.HeadDim)
	q, kv := float64(m.NumHeads)*head, float64(m.NumKVHeads)*head
	if m.MLA != nil || m.Linear != nil {
		q, kv = 0, 0
	}
	ffn := float64(m.IntermediateSize)
	if m.MoE != nil { // a layer of this name may be an expert
		ffn = 0
	}
	switch x {
	case matrixQ, matrixO:
		return hidden * q
	case matrixKV:
		return hidden * kv
	case matrixQKV:
		return hidden * (q + 2*kv)
	case matrixUp, matrixDown:
		return hidden * ffn
	case matrixGateUp:
		return hidden * 2 * ffn
	case matrixHead:
		return hidden * float64(m.VocabSize)
	}
	return 0
}

// layerFloor holds lower bounds of the time of single layers on one rank.
type layerFloor struct {
	model   *catalog.Model
	rank    *floor  // of one device
	ranks   int     // that share a layer, where its point does not say
	weight  float64 // bytes of one element
	kvCache float64 // bytes of one element
	// uniform says that attention sees the whole context in every layer.
	uniform bool
}

// newLayerFloor derives the bounds as newFloor does.
func (l *linter) newLayerFloor() (*layerFloor, error) {
	c := l.Header.Deploy.WithDefaults()
	ranks := c.TensorParallel
	c.TensorParallel, c.PipelineParallel, c.DataParallel, c.ExpertParallel, c.PipelineLayers = 1, 1, 1, 1, nil
	rank, err := newFloor(l.opts.Model, l.opts.Device, c)
	if err != nil {
		return nil, err
	}
	m := l.opts.Model
	f := &layerFloor{model: m, rank: rank, ranks: ranks, kvCache: c.KVCacheDType.Bytes()}
	if rank.bodyParams > 0 {
		f.weight = rank.weightBytes / rank.bodyParams
	}
	f.uniform = m.MLA == nil && m.Linear == nil && m.Window == 0 && !slices.ContainsFunc(m.LayerPattern, func(kind string) bool { return kind != catalog.FullAttention })
	return f, nil
}

// least is the work of a layer on one rank: FLOPs and bytes read, both no more
// than what it surely does. Zeros mean that nothing is known.
func (f *layerFloor) least(l *Layer) (flops, bytes float64) {
	ranks := float64(f.ranks)
	if l.TensorParallel > 0 {
		ranks = float64(l.TensorParallel)
	}
	if x := matrixOf(l.Name); x != noMatrix {
		rows := l.Tokens
		if rows == 0 || x == matrixHead && l.Sequences > 0 {
			rows = l.Sequences // the head may work on the last tokens alone
		}
		weights := x.weights(f.model) / ranks
		return 2 * weights * float64(rows), f.weight * weights
	}
	if (l.Name == "attn" || l.Name == "attention") && f.uniform {
		prompt, history := float64(l.Tokens), float64(l.Context)
		cached := float64(l.Sequences-l.LongSequences)*float64(l.SequenceContext) + float64(l.LongSequences)*float64(l.LongContext)
		m := f.model
		// Each token is compared with those before it, and weighs them.
		pairs := prompt*history + prompt*prompt/2 + cached
		flops = 4 * float64(m.NumHeads) * float64(m.HeadDim) * pairs / ranks
		return flops, 2 * float64(m.NumKVHeads) * float64(m.HeadDim) * f.kvCache * (history + cached) / ranks
	}
	return 0, 0
}

// layerPhysics compares the time of every layer with what the device could do.
// Where model or device are not known, physics has said so.
func (l *linter) layerPhysics() {
	f, err := l.newLayerFloor()
	if err != nil {
		return
	}
	// Clocks can stand above those of the datasheet while one layer runs.
	const boost = 1.1
	var compute, memory, cached []hit
	for i, p := range l.layers {
		flops, bytes := f.least(p.Layer)
		t := float64(fastest(p))
		if bound := flops / (boost * f.rank.flopsPerSecond); t < bound {
			text := fmt.Sprintf("%s: %v, at least %v needed (%.2f × peak)", describeLayer(p.Layer), unit.Seconds(t), unit.Seconds(bound), boost*bound/t)
			compute = append(compute, hit{Flag{i, WholePoint}, text})
		}
		bound := bytes / f.rank.bytesPerSecond
		if t >= bound {
			continue
		}
		h := hit{Flag{i, WholePoint}, fmt.Sprintf("%s: %v, at least %v needed (%.2f × bandwidth)", describeLayer(p.Layer), unit.Seconds(t), unit.Seconds(bound), bound/t)}
		// At best the cache still held as much as it can.
		if t < (bytes-f.rank.cacheBytes)/f.rank.bytesPerSecond {
			memory = append(memory, h)
		} else {
			cached = append(cached, h)
		}
	}
	l.report(RuleComputePeak, SeverityError, "a layer faster than the device's dense peak allows: the time is not the device's, or model or device are misnamed", compute)
	l.report(RuleMemoryPeak, SeverityError, "a layer faster than its weights or cached tokens can be read: the time is not the device's, or model or device are misnamed", memory)
	l.report(RuleMemoryPeak, SeverityNote, "a layer faster than device memory, but the cache may have held what it reads: optimistic for real serving", cached)
}

// layerCPUTime finds layers timed with the CPU's clock, and prefills whose
// time, summed over the layers, does not grow with their tokens.
func (l *linter) layerCPUTime() {
	if !l.onCPU() {
		var clocked []hit
		for i, p := range l.layers {
			if p.Clock == ClockCPU {
				clocked = append(clocked, hit{Flag{i, WholePoint}, describeLayer(p.Layer) + ": clock is cpu"})
			}
		}
		l.report(RuleCPUTime, SeverityError, "timed with the CPU's clock: the time to launch the work, not to do it", clocked)
	}
	// The first time of each layer by ranks and tokens, prefill alone.
	type length struct{ ranks, tokens int }
	times := map[length]map[string]float64{}
	var ranks []int
	for _, p := range l.layers {
		s := p.Layer
		if s.Tokens == 0 || s.Context > 0 || s.Sequences > 1 || s.SequenceContext > 0 {
			continue
		}
		at := length{s.TensorParallel, s.Tokens}
		if times[at] == nil {
			times[at] = map[string]float64{}
		}
		if _, seen := times[at][s.Name]; !seen {
			t, _ := p.Median()
			times[at][s.Name] = float64(t)
		}
		if !slices.Contains(ranks, s.TensorParallel) {
			ranks = append(ranks, s.TensorParallel)
		}
	}
	for _, n := range ranks {
		var small, large int
		for at := range times {
			if at.ranks != n {
				continue
			}
			if at.tokens <= 128 {
				small = max(small, at.tokens)
			} else if at.tokens >= 1024 {
				large = max(large, at.tokens)
			}
		}
		if small < 16 || large == 0 {
			continue // too few lengths to tell
		}
		l.flatLayers(n, small, large, times[length{n, small}], times[length{n, large}])
	}
}

// flatLayers reports the layers of one tensor parallel size if those at both
// lengths take about the same time in sum, far above what a kernel takes to
// start and with at least eight times the work.
func (l *linter) flatLayers(ranks, small, large int, few, many map[string]float64) {
	const (
		growth   = 1.5
		fewest   = 3
		shortest = 20e-6 // seconds of a layer, on average
	)
	var at, top, flops float64
	layers, matrices := 0, 0
	f, err := l.newLayerFloor()
	for _, name := range slices.Sorted(maps.Keys(many)) {
		t := many[name]
		short, both := few[name]
		if !both {
			continue
		}
		at, top = at+short, top+t
		layers++
		if matrixOf(name) != noMatrix {
			matrices++
		}
		if err == nil {
			work, _ := f.least(&Layer{Name: name, Tokens: large, TensorParallel: ranks})
			flops += work
		}
	}
	switch {
	case layers < fewest || matrices == 0 || top >= growth*at || top < shortest*float64(layers):
		return
	case err == nil && flops/f.rank.flopsPerSecond < top/4:
		return // so little work that the launch floor may hide it
	}
	finding := Finding{
		Rule: RuleCPUTime, Severity: SeverityError,
		Examples: []string{
			fmt.Sprintf("%d layers of %d tokens: %v in sum", layers, small, unit.Seconds(at)),
			fmt.Sprintf("%d layers of %d tokens: %v in sum", layers, large, unit.Seconds(top)),
		},
		Message: fmt.Sprintf("prefill does not grow from %d to %d tokens: CPU time to launch the layers, where the device's was meant", small, large),
	}
	finding.Examples = finding.Examples[:min(len(finding.Examples), l.opts.Examples)]
	for i, p := range l.layers {
		if p.Layer.TensorParallel == ranks {
			finding.Flags = append(finding.Flags, Flag{i, WholePoint})
		}
	}
	finding.Count = len(finding.Flags)
	l.findings = append(l.findings, finding)
}

// onCPU reports whether the measured device is a processor, whose own clock
// is the right one.
func (l *linter) onCPU() bool {
	names := []string{l.Header.Device.Reported, l.Header.Device.Name, l.Header.Deploy.Device}
	for _, name := range names {
		if strings.Contains(strings.ToLower(name), "core(tm)") {
			return true
		}
		words := strings.FieldsFunc(strings.ToLower(name), func(c rune) bool { return !unicode.IsLetter(c) })
		for _, w := range words {
			switch w {
			case "cpu", "cpus", "xeon", "epyc", "ryzen", "threadripper", "neoverse", "graviton", "ampereone":
				return true
			}
		}
	}
	return false
}

// layerDuplicates finds layers with one key: copies, contradictions,
// repetitions.
func (l *linter) layerDuplicates() {
	// Short layers differ by the jitter of a launch.
	const jitter = 5e-6 // seconds
	type key struct {
		layer Layer
		clock Clock
	}
	groups := map[key][]int{}
	var order []key // of keys that repeat
	for i, p := range l.layers {
		k := key{*p.Layer, p.Clock}
		if len(groups[k]) == 1 {
			order = append(order, k)
		}
		groups[k] = append(groups[k], i)
	}
	var copies, contradictions, repeated []hit
	for _, k := range order {
		var distinct []int
		first := map[string]int{}
		low, high := math.Inf(1), 0.0
		for _, i := range groups[k] {
			p := &l.Points[i]
			if at, seen := first[timesKey(p)]; seen {
				copies = append(copies, hit{Flag{i, WholePoint}, fmt.Sprintf("%s: point %d repeats point %d", describeLayer(p.Layer), i+1, at+1)})
				continue
			}
			first[timesKey(p)] = i
			distinct = append(distinct, i)
			t, _ := p.Median()
			low, high = min(low, float64(t)), max(high, float64(t))
		}
		if len(distinct) < 2 {
			continue
		}
		text := fmt.Sprintf("%s: %d times, %v to %v", describeLayer(&k.layer), len(distinct), unit.Seconds(low), unit.Seconds(high))
		for _, i := range distinct {
			if h := (hit{Flag{i, WholePoint}, text}); high > low*(1+contradiction) && high > low+jitter {
				contradictions = append(contradictions, h)
			} else {
				repeated = append(repeated, h)
			}
		}
	}
	l.report(RuleDuplicate, SeverityWarning, "the same layer with the same times, more than once: copies would leak from training into test rows", copies)
	l.report(RuleContradiction, SeverityWarning, fmt.Sprintf("the same layer with medians more than %g %% apart: one of them was measured under other conditions", contradiction*100), contradictions)
	l.report(RuleRepeated, SeverityNote, "the same layer measured more than once: readers differ in which row they take", repeated)
}
