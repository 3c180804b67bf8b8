package main

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/cost/llmsizer"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/fit/memory"
	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/unit"
)

// Names of the calculators of validate memory, beside LLM Sizer's.
const (
	calculatorOurs = "ours"
	calculatorRule = "script-rule"
	calculatorAll  = "all"
)

// sizerVersion is the version of LLM Sizer's calculators with this name;
// empty for none.
func sizerVersion(name string) llmsizer.Version {
	switch name {
	case "script-v1":
		return llmsizer.ScriptV1
	case "script-v2":
		return llmsizer.ScriptV2
	case "app-early":
		return llmsizer.AppEarly
	case "app-late":
		return llmsizer.AppLate
	}
	if v, err := llmsizer.ParseVersion(name); err == nil {
		return v
	}
	return ""
}

// calculatorNames lists the calculators that can be asked for.
func calculatorNames() []string {
	return []string{calculatorOurs, "script-v1", "script-v2", calculatorRule, "app-early", "app-late"}
}

// cacheFormat is that of --kv-quant; empty where it is not given.
func (f *validateMemoryFlags) cacheFormat() (catalog.DType, error) {
	if f.kv == "" {
		return "", nil
	}
	return catalog.ParseDType(strings.TrimSuffix(f.kv, "_bf16"))
}

// chosen builds the calculators that are asked for.
func (a *app) chosen(cat *catalog.Catalog, f *validateMemoryFlags) ([]memory.Calculator, error) {
	names := f.calculators
	switch {
	case slices.Contains(names, calculatorAll):
		names = calculatorNames()
	case len(names) == 0 && f.total == 0:
		names = []string{calculatorOurs, "script-v2", "app-late"}
	}
	var chosen []memory.Calculator
	if f.total > 0 {
		chosen = append(chosen, statedTotal(math.Round(f.total*1e9)))
	}
	for i, name := range names {
		version := sizerVersion(name)
		switch {
		case slices.Contains(names[:i], name):
		case name == calculatorOurs:
			chosen = append(chosen, memory.Ours(cat, cost.Settings{Reserve: f.reserve, NoReserve: f.reserve == 0 && (f.changed("reserve") || f.changed("reserve-memory"))}))
		case name == calculatorRule:
			chosen = append(chosen, memory.Rule())
		case version != "":
			chosen = append(chosen, memory.Sizer(version))
		default:
			known := append(calculatorNames(), calculatorAll)
			return nil, usage("did you mean "+strings.Join(catalog.Nearest(name, known, 2), ", ")+"?", "unknown calculator %q: want one of %s", name, strings.Join(known, ", "))
		}
	}
	if f.expected == "" {
		return chosen, nil
	}
	file, err := a.openInput(f.expected)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // read only
	expected, warnings, err := memory.ParseExpectations(f.expected, file, format.Limits{}, cat)
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		a.warn(w.Error())
	}
	return append(chosen, expected), nil
}

// statedTotal is a calculator with one answer, in bytes.
type statedTotal unit.Bytes

func (s statedTotal) Name() string { return "given total" }

func (s statedTotal) Calculate(memory.Measured) (memory.Prediction, error) {
	total := unit.Bytes(s)
	return memory.Prediction{Total: &total}, nil
}

// overrides is what the command line says of the runs.
type overrides struct {
	*validateMemoryFlags
	cat    *catalog.Catalog
	model  *catalog.Model  // nil for the profile's
	device *catalog.Device // nil for the profile's
}

func (a *app) overrides(ctx context.Context, cat *catalog.Catalog, f *validateMemoryFlags) (o overrides, err error) {
	o = overrides{validateMemoryFlags: f, cat: cat}
	if f.model != "" {
		if o.model, err = a.model(ctx, cat, f.model); err != nil {
			return o, err
		}
	}
	if f.gpu != "" {
		o.device, err = a.device(cat, f.gpu)
	}
	return o, err
}

// apply changes what the profile says of its run, and fills in what it does
// not say.
func (o overrides) apply(m *memory.Measured) {
	if o.model != nil {
		m.Model, m.Architecture, m.Shape, m.Stated = o.model.Name, o.model, llmsizer.Model{}, deploy.Stated{}
	}
	m.Stated = deploy.Stated{
		Parameters: cmp.Or(o.params, m.Stated.Parameters), Layers: o.layers, Heads: o.heads, KVHeads: o.kvHeads, HeadDim: o.headDim,
		HiddenSize: o.hiddens, IntermediateSize: o.intermediate,
	}
	for _, stated := range []struct {
		value int
		into  *int
	}{{o.layers, &m.Shape.Layers}, {o.heads, &m.Shape.Heads}, {o.kvHeads, &m.Shape.KVHeads}, {o.headDim, &m.Shape.HeadDim}, {o.hiddens, &m.Shape.Hidden}, {o.intermediate, &m.Shape.Intermediate}} {
		if stated.value > 0 {
			*stated.into = stated.value
		}
	}
	if o.params > 0 {
		m.Shape.Params = o.params
	}
	if o.device != nil {
		if _, _, err := o.cat.Device(m.Device); err != nil {
			m.Device = o.device.Name
		}
	}
	m.Utilization = cmp.Or(m.Utilization, o.utilization)
	m.MaxBatchedTokens, m.MaxSequences = cmp.Or(m.MaxBatchedTokens, o.batchedTokens.values[0]), cmp.Or(m.MaxSequences, o.sequences.values[0])
	if t, err := o.cacheFormat(); err == nil && t != "" {
		m.KVDType = t
	}
	if o.quant != "" {
		m.WeightDType, m.Quantization = "", o.quant
		if t, err := catalog.ParseDType(o.quant); err == nil && t.Bits() >= 16 {
			m.WeightDType, m.Quantization = t, ""
		}
	}
}
