package main

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/fit/layers"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/report"
)

// layerQuery are the flags of predict that ask a layer profile.
type layerQuery struct {
	layer     string
	tokens    counts
	experts   counts
	attention []string
	numLayers int
	output    counts
	compat    bool
}

func newLayerQuery() layerQuery {
	return layerQuery{tokens: newCounts(1, 1), experts: newCounts(1), output: newCounts(1)}
}

func (q *layerQuery) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&q.layer, "layer", "", "layer of a layer profile to ask for")
	flags.Var(&q.tokens, "tokens", "tokens that the layer computes; sequences for a layer that works once a sequence")
	flags.Var(&q.experts, "experts", "experts that get a token, for the layer moe")
	flags.StringArrayVar(&q.attention, "attention", nil, "attention of one step of a layer profile: chunk,its context,decodes,their context (repeatable); with --gpu fused, or naive to store the score matrix")
	flags.IntVar(&q.numLayers, "num-layers", 0, "blocks of the model: whole requests from a layer profile, with --input-len and --output-len")
	flags.Var(&q.output, "output-len", "generated tokens of the request")
	flags.BoolVar(&q.compat, "compat", false, "answer as the program that the layer profile was made for, faults included")
	onlyOnCommandLine(flags, "layer", "tokens", "experts", "attention", "num-layers", "compat")
}

// asked reports whether a layer profile is asked.
func (q *layerQuery) asked() bool {
	return q.layer != "" || len(q.attention) > 0 && q.algorithm() == "" || q.numLayers > 0
}

// algorithm is the value of --attention where it names how the datasheet's
// time is computed.
func (q *layerQuery) algorithm() string {
	if len(q.attention) == 1 && !strings.Contains(q.attention[0], ",") {
		return q.attention[0]
	}
	return ""
}

// stray names a flag that has no effect without the others.
func (q *layerQuery) stray(given func(string) bool) error {
	for _, name := range []string{"tokens", "experts", "output-len", "compat"} {
		if given(name) {
			return usage("ask a layer profile with --layer NAME --tokens N, --attention …, or --num-layers N --input-len I --output-len O",
				"--%s goes with a layer profile, and none is asked", name)
		}
	}
	return nil
}

// predictLayers asks a layer profile.
func (a *app) predictLayers(file string, f *predictFlags) error {
	q := &f.layers
	kinds := 0
	for _, asked := range []bool{q.layer != "", len(q.attention) > 0, q.numLayers > 0} {
		if asked {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		return usage("", "--layer, --attention and --num-layers are three questions: ask one")
	case q.numLayers < 0:
		return usage("", "--num-layers is %d: want at least 1", q.numLayers)
	case f.mode != "":
		return usage("", "--mode has no effect on a layer profile")
	case f.given("batch-size"):
		return usage("llmprof predict LAYERS --attention … asks for batches", "--batch-size has no effect on a layer profile: --num-layers answers for a request that is alone")
	case q.numLayers == 0 && (f.given("input-len") || f.given("output-len")):
		return usage("", "--input-len and --output-len go with --num-layers")
	case q.numLayers > 0 && (f.given("tokens") || f.given("experts") || f.given("context")):
		return usage("", "--num-layers asks for whole requests: --input-len and --output-len tell them")
	case len(q.attention) > 0 && (f.given("tokens") || f.given("experts") || f.given("context")):
		return usage("", "--attention tells all sizes itself")
	}
	for _, name := range f.datasheet {
		if f.given(name) {
			return usage("", "--%s goes with --gpu and has no effect on a layer profile", name)
		}
	}
	cat, err := a.catalog()
	if err != nil {
		return err
	}
	p, _, err := a.readMeasurement(file, readOptions{cat: cat})
	if err != nil {
		return err
	}
	options := layers.Options{TensorParallel: p.Header.Deploy.TensorParallel, Level: f.level}
	if model, err := cat.Model(p.Header.Deploy.Model); err == nil && model.MoE != nil {
		options.Experts = model.MoE.NumExperts
	}
	points := p.Points
	if f.given("tensor-parallel-size") {
		options.TensorParallel = f.tp.values[0]
		if q.numLayers > 0 && len(f.tp.values) > 1 {
			return usage("", "--num-layers answers for one --tensor-parallel-size at a time")
		}
	}
	if q.numLayers > 0 {
		points = singleSequences(points)
	}
	table, err := layers.New(slices.Values(points), options)
	if err != nil {
		return usage("llmprof profile layers measures one", "%s: %w", file, err)
	}
	if q.numLayers > 0 {
		return a.predictRequests(table, f)
	}
	return a.predictCalls(table, f)
}

// singleSequences leaves out the batches of decoding sequences that stand
// beside single ones in a profile of one block: a request that is alone never
// runs in one.
func singleSequences(points []profile.Point) []profile.Point {
	block := slices.ContainsFunc(points, func(p profile.Point) bool {
		return p.Layer != nil && (p.Layer.Name == "attn" || p.Layer.Name == "qk_matmul")
	})
	if !block {
		return points
	}
	return slices.DeleteFunc(slices.Clone(points), func(p profile.Point) bool {
		return p.Layer == nil || p.Layer.Sequences > 1
	})
}

// advice is what helps where a profile does not answer.
func (q *layerQuery) advice(err error) string {
	if _, missing := errors.AsType[*fit.NotMeasuredError](err); missing && q.compat {
		return "without --compat what was not measured is interpolated, and said to be so"
	} else if missing {
		return "llmprof profile layers measures it"
	}
	return hintOf(err)
}

// predictRequests answers every combination of input and output length.
func (a *app) predictRequests(table *layers.Table, f *predictFlags) error {
	if len(f.input.values) == 0 || len(f.layers.output.values) == 0 {
		return usage("", "--num-layers asks for requests: give --input-len and --output-len")
	}
	var predictions []report.RequestTimeKeys
	for _, input := range f.input.values {
		for _, output := range f.layers.output.values {
			t, err := table.Estimate(f.layers.numLayers, input, output, f.layers.compat)
			if err != nil {
				return usage(f.layers.advice(err), "%d tokens in, %d out: %w", input, output, err)
			}
			predictions = append(predictions, report.Request(f.layers.numLayers, input, output, t))
		}
	}
	document := report.Requests(predictions, version())
	return a.write(document, report.RequestTables(document)...)
}

// predictCalls answers about single layers.
func (a *app) predictCalls(table *layers.Table, f *predictFlags) error {
	var calls []profile.Layer
	for _, tp := range f.tp.values {
		some, err := f.layers.calls(table, tp, f.context)
		if err != nil {
			return err
		}
		calls = append(calls, some...)
	}
	var predictions []report.LayerKeys
	for _, call := range calls {
		e, err := table.Time(call, f.layers.compat)
		if err != nil {
			return usage(f.layers.advice(err), "%s: %w", call.Name, err)
		}
		predictions = append(predictions, report.Layer(call, e))
	}
	document := report.Layers(predictions, version())
	return a.write(document, report.LayerTables(document)...)
}

// calls are the layers to time.
func (q *layerQuery) calls(table *layers.Table, tp, context int) ([]profile.Layer, error) {
	var calls []profile.Layer
	for _, text := range q.attention {
		sizes, err := fourSizes(text)
		if err != nil {
			return nil, err
		}
		call := profile.Layer{Name: "attention", Tokens: sizes[0], Context: sizes[1], Sequences: sizes[2], SequenceContext: sizes[3], TensorParallel: tp}
		if !named(table, "attention") && named(table, "attn") {
			call = blockAttention(call)
		}
		calls = append(calls, call)
	}
	if q.layer == "" {
		return calls, nil
	}
	once := slices.ContainsFunc(table.Layers(), func(l layers.Info) bool {
		return l.Name == q.layer && len(l.Axes) == 1 && l.Axes[0].Name == "sequences"
	})
	experts := q.experts.values
	if len(experts) == 0 {
		experts = []int{0}
	}
	for _, n := range q.tokens.values {
		for _, e := range experts {
			call := profile.Layer{Name: q.layer, Tokens: n, Context: context, ActivatedExperts: e, TensorParallel: tp}
			if once {
				call.Tokens, call.Sequences = 0, n
			}
			calls = append(calls, call)
		}
	}
	return calls, nil
}

func named(table *layers.Table, name string) bool {
	return slices.ContainsFunc(table.Layers(), func(l layers.Info) bool { return l.Name == name })
}

// blockAttention is the same call in a profile of one block, where a sequence
// that decodes stands as one token on its context.
func blockAttention(l profile.Layer) profile.Layer {
	l.Name = "attn"
	if l.Tokens == 0 && l.Sequences == 1 {
		l.Tokens, l.Context, l.Sequences, l.SequenceContext = 1, l.SequenceContext, 0, 0
	}
	return l
}

// fourSizes reads "chunk,context,decodes,context".
func fourSizes(text string) (sizes [4]int, err error) {
	parts := strings.Split(text, ",")
	if len(parts) != len(sizes) {
		return sizes, usage("for example --attention 0,0,32,1500", "--attention %q: want four sizes: chunk,its context,decodes,their context", text)
	}
	for i, part := range parts {
		sizes[i], err = strconv.Atoi(strings.TrimSpace(part))
		if err != nil || sizes[i] < 0 || sizes[i] > 1<<30 {
			return sizes, usage("for example --attention 0,0,32,1500", "--attention %q: want whole numbers of 0 or more", text)
		}
	}
	if sizes[0] == 0 && sizes[1] > 0 || sizes[2] == 0 && sizes[3] > 0 || sizes[0]+sizes[2] == 0 {
		return sizes, usage("for example --attention 0,0,32,1500", "--attention %q: a context of no chunk or of no decodes, or nothing to compute", text)
	}
	return sizes, nil
}
