package profile

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// Rule names a check of [Lint].
type Rule string

// The rules, in the order in which findings come.
const (
	// RuleUnitSlip: times are near 10^±3 or 10^±6 of what physics allows.
	RuleUnitSlip Rule = "unit-slip"
	// RuleComputePeak: a pass is faster than the device can multiply.
	RuleComputePeak Rule = "faster-than-compute-peak"
	// RuleMemoryPeak: a pass is faster than its weights can be read.
	RuleMemoryPeak Rule = "faster-than-memory-bandwidth"
	// RuleCPUTime: CPU time, or a time that looks like it, stands for the
	// device's.
	RuleCPUTime Rule = "cpu-time"
	// RuleColdStart: a run took far longer than the others of its point.
	RuleColdStart Rule = "cold-start"
	// RuleDuplicate: the same key with the same times.
	RuleDuplicate Rule = "duplicate"
	// RuleContradiction: the same key with different times.
	RuleContradiction Rule = "contradiction"
	// RuleRepeated: the same key was measured again, with like result.
	RuleRepeated Rule = "repeated-key"
	// RuleQuantised: the timer's step is visible in the times.
	RuleQuantised Rule = "quantised-timer"
	// RuleNonMonotone: a larger pass takes clearly less time.
	RuleNonMonotone Rule = "non-monotone"
	// RuleFailures: configurations that could not be measured.
	RuleFailures Rule = "failures"
)

// Severity says how a finding is to be taken.
type Severity string

// The severities. [Profile.Drop] acts on errors and warnings only.
const (
	// SeverityError: cannot be true.
	SeverityError Severity = "error"
	// SeverityWarning: should not be trusted.
	SeverityWarning Severity = "warning"
	// SeverityNote: worth knowing.
	SeverityNote Severity = "note"
	// SeveritySkipped: the rule could not be checked.
	SeveritySkipped Severity = "skipped"
)

// Flag points at what a finding is about.
type Flag struct {
	// Point is the index into Profile.Points.
	Point int `json:"point"`
	// Sample is the index into the point's samples, or WholePoint.
	Sample int `json:"sample"`
}

// WholePoint is the Sample of a [Flag] on the point itself.
const WholePoint = -1

// Finding is what one rule found.
type Finding struct {
	Rule     Rule     `json:"rule"`
	Severity Severity `json:"severity"`
	// Count is the number of points or samples concerned.
	Count int `json:"count"`
	// Examples are the first few, in words.
	Examples []string `json:"examples,omitempty"`
	// Message says what the rule looks for and what follows.
	Message string `json:"message"`
	// Flags are all of them, in order.
	Flags []Flag `json:"flags,omitempty"`
}

// LintOptions says what is known beside the profile.
type LintOptions struct {
	// Device and Model give the physical bounds. Without both the rules that
	// need them are reported as skipped.
	Device *catalog.Device
	Model  *catalog.Model
	// ColdFactor is how many times the median of a point's other samples a
	// sample may take. Default 1.2.
	ColdFactor float64
	// Examples is the largest number of examples of one finding. Default 5.
	Examples int
}

// contradiction is the relative difference of two medians of one key from
// which they contradict each other, and monotoneDrop the relative drop of time
// with size that is reported.
const (
	contradiction = 0.10
	monotoneDrop  = 0.10
)

// Lint looks for points that cannot be true or should not be trusted. It
// changes nothing. Findings come in the order of the rules; a rule that found
// nothing is not among them.
func Lint(p *Profile, opts LintOptions) []Finding {
	if opts.ColdFactor == 0 {
		opts.ColdFactor = 1.2
	}
	if opts.Examples == 0 {
		opts.Examples = 5
	}
	l := &linter{Profile: p, opts: opts}
	l.physics()
	l.layerPhysics()
	l.cpuTime()
	l.layerCPUTime()
	l.coldStarts()
	l.duplicates()
	l.layerDuplicates()
	l.quantisedTimer()
	l.nonMonotone()
	l.failures()
	return l.findings
}

// Drop returns the profile without what the findings of severity error and
// warning flag: flagged samples go, and a point goes when it is flagged itself
// or loses its last sample. A point that loses samples also loses its summary,
// which counted them.
func (p *Profile) Drop(findings []Finding) *Profile {
	gone := map[Flag]bool{}
	for _, f := range findings {
		if f.Severity != SeverityError && f.Severity != SeverityWarning {
			continue
		}
		for _, flag := range f.Flags {
			gone[flag] = true
		}
	}
	out := &Profile{Header: p.Header}
	for i, point := range p.Points {
		if gone[Flag{i, WholePoint}] {
			continue
		}
		var kept []float64
		for k, s := range point.Samples {
			if !gone[Flag{i, k}] {
				kept = append(kept, s)
			}
		}
		if len(kept) < len(point.Samples) {
			if len(kept) == 0 {
				continue
			}
			point.Samples, point.Summary = kept, nil
		}
		out.Points = append(out.Points, point)
	}
	return out
}

type linter struct {
	*Profile
	opts     LintOptions
	findings []Finding
}

// hit is a flag with its description.
type hit struct {
	flag Flag
	text string
}

func (l *linter) report(rule Rule, severity Severity, message string, hits []hit) {
	if len(hits) == 0 {
		return
	}
	f := Finding{Rule: rule, Severity: severity, Count: len(hits), Message: message}
	for i, h := range hits {
		f.Flags = append(f.Flags, h.flag)
		if i < l.opts.Examples {
			f.Examples = append(f.Examples, h.text)
		}
	}
	l.findings = append(l.findings, f)
}

// steps yields index and point of every timed step.
func (l *linter) steps(yield func(i int, p *Point) bool) {
	for i := range l.Points {
		p := &l.Points[i]
		if p.Kind != KindStep || p.Step == nil {
			continue
		}
		if _, ok := p.Mean(); ok && !yield(i, p) {
			return
		}
	}
}

// describe names a point as a user would.
func describe(p *Point) string {
	s := p.Step
	if s.BatchSize > 0 {
		return strings.TrimSpace(fmt.Sprintf("%s batch %d, input %d", s.Mode, s.BatchSize, s.InputLen))
	}
	return fmt.Sprintf("%s of %d tokens", s.Mode, s.Sums().Tokens())
}

// coldStarts finds samples that took more than ColdFactor times the median of
// the point's other samples.
func (l *linter) coldStarts() {
	var cold, hidden []hit
	for i, p := range l.steps {
		if len(p.Samples) < 2 {
			if s := p.Summary; s != nil && s.Runs > 1 && s.Std > (l.opts.ColdFactor-1)*s.Mean {
				hidden = append(hidden, hit{Flag{i, WholePoint}, fmt.Sprintf("%s: mean %v, standard deviation %v over %d runs", describe(p), unit.Seconds(s.Mean), unit.Seconds(s.Std), s.Runs)})
			}
			continue
		}
		sorted := slices.Sorted(slices.Values(p.Samples))
		for k, s := range p.Samples {
			at, _ := slices.BinarySearch(sorted, s)
			if m := stat.MedianWithout(sorted, at); s > l.opts.ColdFactor*m {
				cold = append(cold, hit{Flag{i, k}, fmt.Sprintf("%s: run %d took %v, the others %v", describe(p), k+1, unit.Seconds(s), unit.Seconds(m))})
			}
		}
	}
	l.report(RuleColdStart, SeverityWarning,
		fmt.Sprintf("runs that took more than %g times the median of the others: not warmed up, or disturbed; use medians", l.opts.ColdFactor), cold)
	l.report(RuleColdStart, SeverityNote,
		"the spread over runs hints at a cold run, but the runs were not kept", hidden)
}

// key is what two points must share to be the same measurement.
func key(p *Point) string {
	s := p.Step
	text, err := json.Marshal([]any{s.Pass, s.Totals})
	if err != nil { // they hold integers only
		text = []byte(err.Error())
	}
	return fmt.Sprintf("%s/%d/%d/%d/%s/%s", s.Mode, s.BatchSize, s.InputLen, s.OutputLen, p.Clock, text)
}

// duplicates finds points with one key: copies, contradictions, repetitions.
func (l *linter) duplicates() {
	groups := map[string][]int{}
	var order []string
	for i, p := range l.steps {
		if p.Step.BatchSize == 0 {
			continue // a server runs like steps again and again
		}
		k := key(p)
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], i)
	}
	var copies, contradictions, repeated []hit
	for _, k := range order {
		var distinct []int
		first := map[string]int{}
		for _, i := range groups[k] {
			times := timesKey(&l.Points[i])
			at, seen := first[times]
			if !seen {
				first[times] = i
				distinct = append(distinct, i)
				continue
			}
			copies = append(copies, hit{Flag{i, WholePoint}, fmt.Sprintf("%s: point %d repeats point %d", describe(&l.Points[i]), i+1, at+1)})
		}
		if len(distinct) < 2 {
			continue
		}
		var times []float64
		for _, i := range distinct {
			t, _ := l.Points[i].Median()
			times = append(times, float64(t))
		}
		low, high := slices.Min(times), slices.Max(times)
		text := fmt.Sprintf("%s: %d times, %v to %v", describe(&l.Points[distinct[0]]), len(distinct), unit.Seconds(low), unit.Seconds(high))
		for _, i := range distinct {
			if high > low*(1+contradiction) {
				contradictions = append(contradictions, hit{Flag{i, WholePoint}, text})
			} else {
				repeated = append(repeated, hit{Flag{i, WholePoint}, text})
			}
		}
	}
	l.report(RuleDuplicate, SeverityWarning, "the same pass with the same times, more than once: copies would leak from training into test rows", copies)
	l.report(RuleContradiction, SeverityWarning, fmt.Sprintf("the same pass with medians more than %g %% apart: one of them was measured under other conditions", contradiction*100), contradictions)
	l.report(RuleRepeated, SeverityNote, "the same pass measured more than once: average before splitting into folds", repeated)
}

// timesKey is equal for two points with equal times.
func timesKey(p *Point) string {
	var b []byte
	for _, s := range p.Samples {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s))
	}
	if s := p.Summary; s != nil {
		b = fmt.Appendf(b, "/%g/%g/%d", s.Mean, s.Std, s.Runs)
	}
	return string(b)
}

// failures tallies the failed configurations by reason.
func (l *linter) failures() {
	byReason := map[string]int{}
	var flags []Flag
	for i := range l.Points {
		if l.Points[i].Kind == KindFailure {
			byReason[l.Points[i].Reason]++
			flags = append(flags, Flag{i, WholePoint})
		}
	}
	if len(flags) == 0 {
		return
	}
	reasons := slices.Collect(maps.Keys(byReason))
	slices.SortFunc(reasons, func(a, b string) int {
		return cmp.Or(byReason[b]-byReason[a], strings.Compare(a, b))
	})
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%d × %s", byReason[reason], reason)
	}
	l.findings = append(l.findings, Finding{
		Rule: RuleFailures, Severity: SeverityNote, Count: len(flags), Flags: flags,
		Examples: reasons[:min(len(reasons), l.opts.Examples)],
		Message:  "configurations that were asked for and could not be measured",
	})
}
