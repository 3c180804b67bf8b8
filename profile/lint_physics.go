package profile

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// floor holds lower bounds of the time of any pass: no engine can be faster.
// All devices are taken to work at once and without communication.
type floor struct {
	bodyParams, headParams float64 // of one token; of one row of logits
	weightBytes            float64 // read in every pass, logits not counted
	headBytes              float64
	flopsPerSecond         float64 // of all devices
	bytesPerSecond         float64 // of all devices
	cacheBytes             float64 // last-level cache of all devices
}

// newFloor derives the bounds from the architecture, the datasheet and the
// deployment. The peak is the dense 16-bit one, or that of the format in
// which quantised weights are multiplied where it is higher.
func newFloor(m *catalog.Model, d *catalog.Device, c deploy.Config) (*floor, error) {
	c = c.WithDefaults()
	switch {
	case m == nil && d == nil:
		return nil, errors.New("model and device are not known")
	case m == nil:
		return nil, errors.New("the model is not known")
	case d == nil:
		return nil, errors.New("the device is not known")
	}
	quantization := c.Quantization
	if quantization == "" {
		quantization = m.Quantization
	}
	format, err := deploy.ParseWeightFormat(quantization, c.DType)
	if err != nil {
		return nil, err
	}
	var peak float64
	for _, t := range []catalog.DType{catalog.FP16, catalog.BF16, format.Compute} {
		if rate, ok := d.Peak(t); ok {
			peak = max(peak, float64(rate))
		}
	}
	if peak == 0 {
		return nil, fmt.Errorf("device %s has no 16-bit peak in the catalog", d.Name)
	}
	params := m.Params()
	f := &floor{headParams: float64(params.Head)}
	if params.Head == 0 { // tied: the embedding is also the output projection
		f.headParams = float64(params.Embedding)
	}
	n := float64(c.Devices())
	f.bodyParams = float64(params.Active - params.Embedding - params.Head)
	f.weightBytes = f.bodyParams * min(format.Bits, float64(c.DType.Bits())) / 8
	f.headBytes = f.headParams * min(format.Bits, float64(c.DType.Bits())) / 8
	f.flopsPerSecond = peak * n
	f.bytesPerSecond = d.Bandwidth.Value * n
	f.cacheBytes = d.L2.Value * n
	return f, nil
}

// compute is the least time of the multiplications: two FLOPs per active
// parameter and token, attention itself not counted; the output projection
// counts per row of logits.
func (f *floor) compute(p forward.Pass) unit.Seconds {
	return unit.Seconds(2 * (f.bodyParams*float64(p.Tokens()) + f.headParams*float64(p.Rows())) / f.flopsPerSecond)
}

// read is the number of weight bytes that the pass reads at least.
func (f *floor) read(p forward.Pass) float64 {
	if p.Rows() > 0 {
		return f.weightBytes + f.headBytes
	}
	return f.weightBytes
}

// memory is the least time of reading every active weight once.
func (f *floor) memory(p forward.Pass) unit.Seconds {
	return unit.Seconds(f.read(p) / f.bytesPerSecond)
}

// physics compares every time with what the device could do.
func (l *linter) physics() {
	f, err := newFloor(l.opts.Model, l.opts.Device, l.Header.Deploy)
	if err != nil {
		for _, rule := range []Rule{RuleUnitSlip, RuleComputePeak, RuleMemoryPeak} {
			l.findings = append(l.findings, Finding{Rule: rule, Severity: SeveritySkipped, Message: "not checked: " + err.Error()})
		}
		return
	}
	l.unitSlip(f)
	var compute, memory, cached []hit
	for i, p := range l.steps {
		// The fastest sample must be possible, not only the median.
		t := float64(fastest(p))
		pass := p.Step.Pass
		if bound := f.compute(pass); t < float64(bound) {
			compute = append(compute, hit{Flag{i, WholePoint}, fmt.Sprintf("%s: %v, at least %v needed (%.2f × peak)", describe(p), unit.Seconds(t), bound, float64(bound)/t)})
		}
		if bound := f.memory(pass); t < float64(bound) {
			h := hit{Flag{i, WholePoint}, fmt.Sprintf("%s: %v, at least %v needed (%.2f × bandwidth)", describe(p), unit.Seconds(t), bound, float64(bound)/t)}
			if f.read(pass) <= f.cacheBytes {
				cached = append(cached, h)
			} else {
				memory = append(memory, h)
			}
		}
	}
	l.report(RuleComputePeak, SeverityError, "faster than 2 FLOPs per active parameter and token at the device's dense peak: the time is not the device's, or model or device are misnamed", compute)
	l.report(RuleMemoryPeak, SeverityError, "faster than reading the weights once from device memory: the time is not the device's, or model or device are misnamed", memory)
	l.report(RuleMemoryPeak, SeverityNote, "faster than device memory, but the weights fit the cache: warm-cache timing, optimistic for real serving", cached)
}

// fastest is the shortest time of the point.
func fastest(p *Point) unit.Seconds {
	if len(p.Samples) > 0 {
		return unit.Seconds(slices.Min(p.Samples))
	}
	t, _ := p.Mean()
	return t
}

// unitSlip finds modes whose times are off by a factor of a thousand or a
// million. It looks at the quarter of the points with the most work, where
// launch overheads matter least: real times lie within 1 to 300 of the bound.
func (l *linter) unitSlip(f *floor) {
	type timed struct {
		index        int
		bound, ratio float64
	}
	byMode := map[string][]timed{}
	for i, p := range l.steps {
		bound := float64(max(f.compute(p.Step.Pass), f.memory(p.Step.Pass)))
		t, _ := p.Median()
		byMode[p.Step.Mode] = append(byMode[p.Step.Mode], timed{i, bound, float64(t) / bound})
	}
	var hits []hit
	for _, mode := range []string{Prefill, Decode, Mixed} {
		points := byMode[mode]
		if len(points) == 0 {
			continue
		}
		heavy := slices.Clone(points)
		slices.SortStableFunc(heavy, func(a, b timed) int { return -cmpFloat(a.bound, b.bound) })
		var ratios []float64
		for _, p := range heavy[:(len(heavy)+3)/4] {
			ratios = append(ratios, p.ratio)
		}
		var factor string
		switch r := stat.Median(ratios); {
		case r > 3e5:
			factor = "10^6 (microseconds taken for seconds?)"
		case r > 300:
			factor = "10^3 (milliseconds taken for seconds?)"
		case r < 1e-4:
			factor = "10^-6 (seconds taken for microseconds?)"
		case r < 0.1:
			factor = "10^-3 (seconds taken for milliseconds?)"
		default:
			continue
		}
		for _, p := range points {
			hits = append(hits, hit{Flag{p.index, WholePoint}, fmt.Sprintf("%s: %.3g times the physical bound, near %s", describe(&l.Points[p.index]), p.ratio, factor)})
		}
	}
	l.report(RuleUnitSlip, SeverityError, "times are off by about a power of a thousand from what the device can do: a unit was mistaken", hits)
}

func cmpFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// cpuTime finds points timed with the CPU's clock, unless it is a CPU that was
// measured, and prefills whose time does not grow with their tokens far past
// the launch floor: from at most 128 tokens to at least 1024, which is eight
// times the work.
func (l *linter) cpuTime() {
	var clocked []hit
	onCPU := l.onCPU()
	small, large := -1, -1
	tokens := func(i int) int { return l.Points[i].Step.Pass.Tokens() }
	for i, p := range l.steps {
		if p.Clock == ClockCPU && !onCPU {
			clocked = append(clocked, hit{Flag{i, WholePoint}, describe(p) + ": clock is cpu"})
			continue
		}
		if p.Step.Mode != Prefill {
			continue
		}
		if n := tokens(i); n <= 128 && (small < 0 || n > tokens(small)) {
			small = i
		} else if n >= 1024 && (large < 0 || n > tokens(large)) {
			large = i
		}
	}
	l.report(RuleCPUTime, SeverityError, "timed with the CPU's clock: the time to launch the work, not to do it", clocked)
	if small < 0 || large < 0 || tokens(small) < 16 {
		return
	}
	const growth = 1.3
	at, _ := l.Points[small].Median()
	top, _ := l.Points[large].Median()
	if top > growth*at {
		return
	}
	if f, err := newFloor(l.opts.Model, l.opts.Device, l.Header.Deploy); err == nil && f.compute(l.Points[large].Step.Pass) < top/4 {
		return // so little work that the launch floor may hide it
	}
	var flat []hit
	for i, p := range l.steps {
		if p.Step.Mode == Prefill && (p.Clock != ClockCPU || onCPU) {
			t, _ := p.Median()
			flat = append(flat, hit{Flag{i, WholePoint}, fmt.Sprintf("%s: %v", describe(p), t)})
		}
	}
	l.report(RuleCPUTime, SeverityWarning, fmt.Sprintf("prefill takes %v for %d tokens and %v for %d: looks like CPU time where the device's was meant", at, tokens(small), top, tokens(large)), flat)
}

// quantisedTimer finds times that are all multiples of one step which is
// coarse for the shortest of them, or that take only a few distinct values.
func (l *linter) quantisedTimer() {
	const fewest, coarse = 20, 0.01 // samples; half a step relative to a time
	var all []float64
	for _, p := range l.steps {
		all = append(all, p.Samples...)
	}
	if len(all) < fewest {
		return
	}
	step := 0.0
	for _, q := range []float64{1, 1.0 / 64, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7} {
		if multiples(all, q) {
			step = q
			break
		}
	}
	if step == 0 {
		return
	}
	var hits []hit
	for i, p := range l.steps {
		if t, _ := p.Median(); len(p.Samples) > 0 && step/2 > coarse*float64(t) {
			hits = append(hits, hit{Flag{i, WholePoint}, fmt.Sprintf("%s: %v ± %.0f %%", describe(p), t, 50*step/float64(t))})
		}
	}
	l.report(RuleQuantised, SeverityNote, fmt.Sprintf("all times are multiples of %v: short ones carry that much error", unit.Seconds(step)), hits)
}

// multiples reports whether every value is a multiple of step.
func multiples(values []float64, step float64) bool {
	for _, v := range values {
		n := v / step
		if math.Abs(n-math.Round(n)) > 1e-6*max(1, math.Abs(n)*1e-6) || math.Round(n) == 0 {
			return false
		}
	}
	return true
}

// nonMonotone finds neighbours in input length, or in batch size, of which
// the larger takes more than a tenth less time.
func (l *linter) nonMonotone() {
	type cell struct {
		index, size int
		t           unit.Seconds
	}
	lines := map[string][]cell{}
	var order []string
	add := func(line string, c cell) {
		if lines[line] == nil {
			order = append(order, line)
		}
		lines[line] = append(lines[line], c)
	}
	for i, p := range l.steps {
		s := p.Step
		if s.BatchSize == 0 || s.InputLen == 0 {
			continue
		}
		t, _ := p.Median()
		add(fmt.Sprintf("%s, output %d, batch %d", s.Mode, s.OutputLen, s.BatchSize), cell{i, s.InputLen, t})
		add(fmt.Sprintf("%s, output %d, input %d", s.Mode, s.OutputLen, s.InputLen), cell{i, s.BatchSize, t})
	}
	var hits []hit
	for _, line := range order {
		cells := lines[line]
		slices.SortStableFunc(cells, func(a, b cell) int { return a.size - b.size })
		for k := 1; k < len(cells); k++ {
			a, b := cells[k-1], cells[k]
			if b.size > a.size && b.t < a.t*(1-monotoneDrop) {
				hits = append(hits, hit{Flag{a.index, WholePoint}, fmt.Sprintf("%s: %v, but %s: %v", describe(&l.Points[a.index]), a.t, describe(&l.Points[b.index]), b.t)})
			}
		}
	}
	l.report(RuleNonMonotone, SeverityNote, fmt.Sprintf("time drops by more than %g %% where the pass grows: a kernel switch, or noise", monotoneDrop*100), hits)
}
