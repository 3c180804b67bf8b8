package cost

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/unit"
)

// Estimator times forward passes of one model in one deployment. It is
// read-only after [New] and safe for concurrent use.
type Estimator struct {
	model    *catalog.Model
	device   *catalog.Device
	config   deploy.Config
	settings Settings
	weights  deploy.WeightFormat
	warnings []string

	kinds  []catalog.Layer
	layers []layer // one for each of kinds
	embed  embedding
	net    network

	act, kv float64 // bytes of one activation, one cached number

	matrixPeak float64 // FLOP/s of unquantised matrices and attention, efficiency applied
	weightPeak float64 // FLOP/s of quantised matrices, efficiency applied
	bandwidth  float64 // bytes/s, efficiency applied
	rawPeak    float64 // FLOP/s of matrixPeak before the efficiency
	launch     float64 // s per kernel

	tp, pp, dp, ep int
	stages         []part // of the pipeline
	whole          part   // all stages
}

// New binds a model and a device into an estimator. It fails on settings out
// of range, on a deployment that cannot be laid out (heads that do not
// divide by ranks, a link that the device does not have) and on a number
// format that the device cannot multiply and that has no stand-in.
func New(m *catalog.Model, d *catalog.Device, c deploy.Config, s Settings) (*Estimator, error) {
	if err := errors.Join(c.Validate(), s.Validate()); err != nil {
		return nil, err
	}
	// A device without bf16 runs such models in fp16; the user's own choice
	// of a format is kept and warned about.
	var warnings []string
	if c.DType == "" {
		c.DType = catalog.BF16
		if _, ok := d.Peak(catalog.BF16); !ok {
			if _, ok := d.Peak(catalog.FP16); ok {
				c.DType = catalog.FP16
				warnings = append(warnings, fmt.Sprintf("%s has no bf16: fp16 is assumed", d.Name))
			}
		}
	}
	if c.Quantization == "" {
		c.Quantization = m.Quantization
	}
	c, s = c.WithDefaults(), s.WithDefaults()
	c.Model, c.Device = m.Name, d.Name
	weights, err := deploy.ParseWeightFormat(c.Quantization, c.DType)
	if err != nil {
		return nil, err
	}
	c.Quantization = weights.Name
	e := &Estimator{
		model: m, device: d, config: c, settings: s, weights: weights, warnings: warnings,
		act: c.DType.Bytes(), kv: c.KVCacheDType.Bytes(),
		bandwidth: d.Bandwidth.Value * s.EffHBM, launch: float64(s.Launch),
		tp: c.TensorParallel, pp: c.PipelineParallel, dp: c.DataParallel, ep: c.ExpertParallel,
	}
	if err := errors.Join(e.setPeaks(), e.setNetwork(), e.layout()); err != nil {
		return nil, fmt.Errorf("%s on %s: %w", m.Name, d.Name, err)
	}
	e.kinds = m.Layers(0, m.NumLayers)
	for _, kind := range e.kinds {
		e.layers = append(e.layers, e.layerOf(kind))
	}
	e.cutStages()
	e.embed = e.embeddingOf()
	return e, nil
}

// Config is the deployment with every default filled in.
func (e *Estimator) Config() deploy.Config { return e.config }

// Settings are the knobs with every default filled in.
func (e *Estimator) Settings() Settings { return e.settings }

// Warnings says what the estimator assumed in the caller's place.
func (e *Estimator) Warnings() []string { return e.warnings }

// Seconds is the time of one pass, network and launches included. It does
// not allocate.
func (e *Estimator) Seconds(p forward.Pass) unit.Seconds {
	return e.run(&p, &e.whole, false).total
}

// StepTime is [Estimator.Seconds] for a simulator, rounded to nanoseconds.
func (e *Estimator) StepTime(p forward.Pass) (time.Duration, error) {
	if err := p.Validate(); err != nil {
		return 0, err
	}
	return time.Duration(math.Round(float64(e.Seconds(p)) * 1e9)), nil
}

// Ops lists the operators of one pass in the order of execution, one entry
// for each kind of layer and operator. Their times, each multiplied by its
// Count, sum to [Estimator.Seconds].
func (e *Estimator) Ops(p forward.Pass) []Op {
	return e.run(&p, &e.whole, true).ops
}

// setPeaks finds the rates of the formats that the deployment multiplies in.
func (e *Estimator) setPeaks() error {
	peak, used, err := e.peakOf(e.config.DType)
	if err != nil {
		return err
	}
	if used != e.config.DType {
		e.warn("%s has no %s: the rate of %s is used", e.device.Name, e.config.DType, used)
	}
	e.rawPeak = peak
	e.matrixPeak = peak * e.settings.EffCompute
	e.weightPeak = e.matrixPeak
	if e.weights.Compute != e.config.DType {
		if q, ok := e.device.Peak(e.weights.Compute); ok {
			e.weightPeak = float64(q) * e.settings.EffCompute
		} else {
			e.warn("%s cannot multiply %s: weights in %s are expanded to %s", e.device.Name, e.weights.Compute, e.weights.Name, e.config.DType)
			e.weights.Compute = e.config.DType
			e.weights.ActivationBytes = e.act
		}
	}
	if e.settings.Sparsity {
		if !sparse(e.device) {
			return fmt.Errorf("the device does not multiply 2:4 sparse weights faster")
		}
		e.weightPeak *= 2
	}
	return nil
}

// sparse reports whether the device has 2:4 sparse matrix units: NVIDIA from
// Ampere on, AMD from CDNA 3 on.
func sparse(d *catalog.Device) bool {
	switch strings.ToLower(d.Vendor) {
	case "nvidia":
		return d.Year >= 2020
	case "amd":
		return d.Year >= 2023
	}
	return false
}

// peakOf finds the rate for t, or for the nearest format that computes it.
func (e *Estimator) peakOf(t catalog.DType) (float64, catalog.DType, error) {
	candidates := []catalog.DType{t}
	switch t {
	case catalog.BF16:
		candidates = append(candidates, catalog.FP16, catalog.FP32)
	case catalog.FP16:
		candidates = append(candidates, catalog.BF16, catalog.FP32)
	}
	for _, c := range candidates {
		if q, ok := e.device.Peak(c); ok {
			return float64(q), c, nil
		}
	}
	return 0, "", fmt.Errorf("the device has no rate for %s", t)
}

// setNetwork prepares the links that the layout needs.
func (e *Estimator) setNetwork() error {
	d := e.device
	e.net = newNetwork(d, e.settings.EffNet)
	ranks := max(e.tp*e.pp, e.ep)
	if ranks <= 1 {
		return nil
	}
	if e.net.bandwidth == 0 {
		if !d.PCIe.Known() {
			return fmt.Errorf("the catalog has no link and no PCIe bandwidth for %s, which %d ranks need", d.Name, ranks)
		}
		e.net.bandwidth = d.PCIe.Value * e.settings.EffNet
		e.net.domain = max(e.net.domain, 8)
		e.warn("%s has no device link: ranks talk over PCIe", d.Name)
	}
	if e.net.alpha == 0 {
		e.net.alpha = defaultInterAlpha
	}
	if ranks > e.net.domain && e.net.interBandwidth == 0 {
		return fmt.Errorf("%d ranks exceed the %d devices that one link connects, and the catalog has no network between nodes for %s", ranks, e.net.domain, d.Name)
	}
	return nil
}

// LayoutError says that a model cannot be spread over the ranks asked for.
type LayoutError struct{ Faults []error }

// Error lists every fault.
func (e *LayoutError) Error() string {
	texts := make([]string, len(e.Faults))
	for i, fault := range e.Faults {
		texts[i] = fault.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the faults.
func (e *LayoutError) Unwrap() []error { return e.Faults }

// layout checks that the model divides over the ranks and cuts the stages.
func (e *Estimator) layout() error {
	m := e.model
	var faults []error
	divides := func(what string, n, ranks int, flag string) {
		if n%ranks != 0 {
			faults = append(faults, fmt.Errorf("%s %d does not divide %d %s", flag, ranks, n, what))
		}
	}
	divides("attention heads", m.NumHeads, e.tp, "tensor parallel size")
	if m.MLA == nil && m.NumKVHeads%e.tp != 0 && e.tp%m.NumKVHeads != 0 {
		faults = append(faults, fmt.Errorf("tensor parallel size %d is neither a divisor nor a multiple of %d KV heads", e.tp, m.NumKVHeads))
	}
	if m.Linear != nil {
		divides("linear attention key heads", m.Linear.NumKeyHeads, e.tp, "tensor parallel size")
		divides("linear attention value heads", m.Linear.NumValueHeads, e.tp, "tensor parallel size")
	}
	switch {
	case e.ep > 1 && m.MoE == nil:
		faults = append(faults, fmt.Errorf("expert parallel size %d asked for a model without experts", e.ep))
	case e.ep > 1:
		divides("experts", m.MoE.NumExperts, e.ep, "expert parallel size")
		if e.ep%e.tp != 0 {
			faults = append(faults, fmt.Errorf("expert parallel size %d is not a multiple of tensor parallel size %d", e.ep, e.tp))
		}
	}
	if e.pp > m.NumLayers {
		faults = append(faults, fmt.Errorf("pipeline parallel size %d exceeds %d layers", e.pp, m.NumLayers))
	}
	if len(faults) > 0 {
		return &LayoutError{Faults: faults}
	}
	return e.stageLayers()
}

// stageLayers fills in the layers of each stage where they are not given.
func (e *Estimator) stageLayers() error {
	layers := e.model.NumLayers
	if given := e.config.PipelineLayers; len(given) > 0 {
		sum := 0
		for _, n := range given {
			sum += n
		}
		if sum != layers {
			return &LayoutError{Faults: []error{fmt.Errorf("the stages hold %d layers of %d", sum, layers)}}
		}
		return nil
	}
	if e.pp == 1 {
		return nil
	}
	per, left := (layers+e.pp-1)/e.pp, layers
	for range e.pp {
		e.config.PipelineLayers = append(e.config.PipelineLayers, min(per, left))
		left -= min(per, left)
	}
	if e.config.PipelineLayers[e.pp-1] == 0 {
		return &LayoutError{Faults: []error{fmt.Errorf("pipeline parallel size %d leaves a stage without layers: %d layers in stages of %d", e.pp, layers, per)}}
	}
	return nil
}

// cutStages lays the layers out over the pipeline.
func (e *Estimator) cutStages() {
	perStage := e.config.PipelineLayers
	if e.pp == 1 {
		perStage = []int{e.model.NumLayers}
	}
	e.whole = part{counts: make([]int, len(e.kinds)), first: true, last: true}
	at := 0
	for i, layers := range perStage {
		stage := part{counts: make([]int, len(e.kinds)), first: i == 0, last: i == e.pp-1}
		for _, kind := range e.model.Layers(at, at+layers) {
			k := slices.IndexFunc(e.kinds, func(c catalog.Layer) bool { return c.Attention == kind.Attention && c.MoE == kind.MoE })
			stage.counts[k] = kind.Count
			e.whole.counts[k] += kind.Count
		}
		at += layers
		if !stage.last {
			if boundary := (i + 1) * e.tp; boundary%e.net.domain == 0 || e.tp > e.net.domain {
				stage.farSends = 1
			} else {
				stage.nearSends = 1
			}
		}
		e.whole.nearSends += stage.nearSends
		e.whole.farSends += stage.farSends
		e.stages = append(e.stages, stage)
	}
}

func (e *Estimator) warn(format string, args ...any) {
	e.warnings = append(e.warnings, fmt.Sprintf(format, args...))
}
