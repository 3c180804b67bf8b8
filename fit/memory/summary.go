package memory

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/llmprof/llmprof/stat"
)

// fewProfiles is the number of profiles from which on a pattern is one.
const fewProfiles = 3

// Summary is what the profiles together say about one calculator. All means
// are over profiles.
type Summary struct {
	Calculator string
	// Judged is the number of profiles with a verdict.
	Judged int
	Missed []Missed
	// Bias has one entry for each component that was compared.
	Bias []Bias
	// Groups cut the errors of the total by model size, weight format, batch
	// and number of GPUs.
	Groups []Group
	// Issues come with the gravest first.
	Issues          []Issue
	Recommendations []Recommendation
}

// Bias is the error of one component.
type Bias struct {
	Component Component
	// N is the number of profiles, Few says that they are too few for a
	// pattern.
	N   int
	Few bool
	// MeanAbs is the mean size of the error, Mean the mean error, both in
	// percent of the scheme's basis; negative: the calculator overestimates.
	MeanAbs, Mean float64
	// Ratio is calculated over measured, the geometric mean; 0 where a size
	// was zero.
	Ratio float64
}

// even bounds a mean error that is called none, in percent: it is shown as 0.0.
const even = 0.05

// Direction names the sign: "overestimates", "underestimates", or "even" where
// there is none to be seen.
func (b Bias) Direction() string {
	switch {
	case b.Mean <= -even:
		return "overestimates"
	case b.Mean >= even:
		return "underestimates"
	}
	return "even"
}

// Group is the error of the total on one kind of run.
type Group struct {
	// By is "model size", "weights", "batch" or "GPUs", Name the group.
	By, Name string
	// N is the number of profiles, Few says that they are too few for a
	// pattern.
	N   int
	Few bool
	// MeanAbs and Mean are as in [Bias], in percent of the scheme's basis.
	MeanAbs, Mean float64
}

// Severity says how grave an issue is.
type Severity string

// The severities.
const (
	Critical Severity = "critical"
	Warning  Severity = "warning"
)

// Issue is a documented threshold that is exceeded.
type Issue struct {
	Severity Severity
	// Text says what was exceeded and by what.
	Text string
	// N is the number of profiles, Few says that they are too few for a
	// pattern.
	N   int
	Few bool
}

// The thresholds of the issues, in percent of the scheme's basis.
const (
	totalCritical     = 20.0
	totalWarning      = 10.0
	componentCritical = 30.0
	largeWarning      = 25.0
	// multiGPUFactor is dimensionless.
	multiGPUFactor = 1.5
	// largeModel is in parameters.
	largeModel = 40e9
)

// summarise gathers all that the verdicts on one calculator say.
func summarise(name string, samples []sample, missed []Missed, s Scheme) Summary {
	out := Summary{Calculator: name, Judged: len(samples), Missed: missed}
	for _, c := range Components() {
		if b, ok := biasOf(c, samples, s); ok {
			out.Bias = append(out.Bias, b)
		}
	}
	for _, by := range dimensions() {
		out.Groups = append(out.Groups, groups(by, samples, s)...)
	}
	out.Issues = issues(out.Bias, samples, s)
	out.Recommendations = recommend(samples)
	return out
}

// percents lists the errors of a component in percent.
func percents(c Component, samples []sample, s Scheme) []float64 {
	var out []float64
	for _, sample := range samples {
		if found, ok := sample.v.of(c); ok {
			if p, ok := found.Percent(s); ok {
				out = append(out, p)
			}
		}
	}
	return out
}

// meanAbs is the mean size of the errors.
func meanAbs(errors []float64) float64 {
	sizes := make([]float64, len(errors))
	for i, e := range errors {
		sizes[i] = math.Abs(e)
	}
	return stat.Mean(sizes)
}

func biasOf(c Component, samples []sample, s Scheme) (Bias, bool) {
	errors := percents(c, samples, s)
	if len(errors) == 0 {
		return Bias{}, false
	}
	b := Bias{Component: c, N: len(errors), Few: len(errors) < fewProfiles, MeanAbs: meanAbs(errors), Mean: stat.Mean(errors)}
	points := pointsOf(c, samples)
	if len(points) == len(errors) {
		b.Ratio = ratioOf(points)
	}
	return b, true
}

// dimension cuts profiles into groups.
type dimension struct {
	name string
	// of names the group of a profile and gives its place among the groups;
	// an empty name leaves the profile out.
	of func(Measured) (name string, order float64)
}

// dimensions are the ways to cut.
func dimensions() []dimension {
	counted := func(n int) (string, float64) { return strconv.Itoa(n), float64(n) }
	return []dimension{
		{"model size", func(m Measured) (string, float64) { return sizeBin(m.Shape.Params) }},
		{"weights", func(m Measured) (string, float64) {
			if m.Quantization != "" {
				return m.Quantization, 0
			}
			return string(m.WeightDType), 0
		}},
		{"batch", func(m Measured) (string, float64) { return counted(m.Batch) }},
		{"GPUs", func(m Measured) (string, float64) { return counted(m.gpus()) }},
	}
}

// sizeBin names the bin of a number of parameters; empty where unknown.
func sizeBin(params float64) (name string, order float64) {
	if params <= 0 {
		return "", 0
	}
	for _, bound := range []float64{10, 20, 40, 80} {
		if params < bound*1e9 {
			return fmt.Sprintf("< %g B", bound), bound
		}
	}
	return "80+ B", 100
}

func groups(by dimension, samples []sample, s Scheme) []Group {
	type bin struct {
		name    string
		order   float64
		samples []sample
	}
	var bins []bin
	for _, each := range samples {
		name, order := by.of(each.m)
		if name == "" {
			continue
		}
		i := slices.IndexFunc(bins, func(b bin) bool { return b.name == name })
		if i < 0 {
			i = len(bins)
			bins = append(bins, bin{name: name, order: order})
		}
		bins[i].samples = append(bins[i].samples, each)
	}
	slices.SortFunc(bins, func(a, b bin) int { return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.name, b.name)) })
	var out []Group
	for _, b := range bins {
		if errors := percents(Total, b.samples, s); len(errors) > 0 {
			out = append(out, Group{
				By: by.name, Name: b.name, N: len(errors), Few: len(errors) < fewProfiles,
				MeanAbs: meanAbs(errors), Mean: stat.Mean(errors),
			})
		}
	}
	return out
}

// issues holds the means against the documented thresholds.
func issues(bias []Bias, samples []sample, s Scheme) []Issue {
	var out []Issue
	say := func(severity Severity, n int, format string, args ...any) {
		out = append(out, Issue{Severity: severity, Text: fmt.Sprintf(format, args...), N: n, Few: n < fewProfiles})
	}
	for _, b := range bias {
		switch {
		case b.Component == Total && b.MeanAbs > totalCritical:
			say(Critical, b.N, "total: mean error %.1f %s, above %g", b.MeanAbs, s.Basis(), totalCritical)
		case b.Component == Total && b.MeanAbs > totalWarning:
			say(Warning, b.N, "total: mean error %.1f %s, above %g", b.MeanAbs, s.Basis(), totalWarning)
		case b.Component != Total && b.MeanAbs > componentCritical:
			say(Critical, b.N, "%s: mean error %.1f %s, above %g; the calculator %s by %.1f in the mean", b.Component, b.MeanAbs, s.Basis(), componentCritical, b.Direction(), math.Abs(b.Mean))
		}
	}
	only := func(keep func(Measured) bool) []float64 {
		return percents(Total, slices.DeleteFunc(slices.Clone(samples), func(each sample) bool { return !keep(each.m) }), s)
	}
	single := only(func(m Measured) bool { return m.gpus() == 1 })
	several := only(func(m Measured) bool { return m.gpus() > 1 })
	if len(single) > 0 && len(several) > 0 && meanAbs(several) > multiGPUFactor*meanAbs(single) {
		say(Warning, min(len(single), len(several)), "several GPUs: mean error of the total %.1f %s, above %g times the %.1f on one GPU", meanAbs(several), s.Basis(), multiGPUFactor, meanAbs(single))
	}
	large := only(func(m Measured) bool { return m.Shape.Params > largeModel })
	if len(large) > 0 && meanAbs(large) > largeWarning {
		say(Warning, len(large), "models above 40 B: mean error of the total %.1f %s, above %g", meanAbs(large), s.Basis(), largeWarning)
	}
	slices.SortStableFunc(out, func(a, b Issue) int { return cmp.Compare(a.Severity, b.Severity) })
	return out
}
