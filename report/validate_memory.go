package report

import (
	"math"
	"slices"

	"github.com/llmprof/llmprof/fit/memory"
)

// What percentages of a memory validation are of.
const (
	ofMeasured   = "measured"
	ofCalculated = "calculated"
)

// MemoryValidationDocument is the JSON of memory calculators that were held
// against memory profiles.
type MemoryValidationDocument struct {
	Head
	// Scheme names the quality classes, Basis what their percentages are of:
	// "measured" or "calculated".
	Scheme string `json:"scheme"`
	Basis  string `json:"percent_of"`
	// Compat says that the profiles were read as LLM Sizer reads them.
	Compat bool `json:"compat"`
	// Threshold is the error of the total, in percent, up to which a
	// comparison is not listed; nil for none. One without a total is.
	Threshold *float64 `json:"threshold_pct,omitempty"`
	// Profiles counts what was read, PassedOver the files that are no memory
	// profiles.
	Profiles   int `json:"profiles"`
	PassedOver int `json:"passed_over"`

	Comparisons []MemoryVerdictKeys       `json:"comparisons"`
	Calculators []MemoryCalculatorKeys    `json:"calculators"`
	Unusable    []MemoryUnusableKeys      `json:"unusable"`
	Unreadable  []MemoryUnreadableKeys    `json:"unreadable"`
	Remarks     []MemoryProfileRemarkKeys `json:"remarks"`
	// Files are what was written.
	Files []string `json:"files,omitempty"`
}

// MemoryVerdictKeys is one calculator on one profile.
type MemoryVerdictKeys struct {
	Profile    string `json:"profile"`
	Model      string `json:"model"`
	Calculator string `json:"calculator"`
	// Quality is the class of the total; null where none was compared.
	Quality    *string               `json:"quality"`
	Components []MemoryComponentKeys `json:"components"`
	Skipped    []string              `json:"skipped,omitempty"`
	Notes      []string              `json:"notes,omitempty"`
}

// MemoryComponentKeys is one measured size beside a calculated one.
type MemoryComponentKeys struct {
	Component string `json:"component"`
	What      string `json:"what"`
	// Measured, Calculated and Diff, which is measured less calculated, are
	// in bytes over all GPUs.
	Measured   int64 `json:"measured_bytes"`
	Calculated int64 `json:"calculated_bytes"`
	Diff       int64 `json:"diff_bytes"`
	// OfMeasured and OfCalculated are in percent; null where that size is zero.
	OfMeasured   *float64 `json:"diff_pct_of_measured"`
	OfCalculated *float64 `json:"diff_pct_of_calculated"`
	Quality      *string  `json:"quality"`
}

// MemoryCalculatorKeys is what all profiles say about one calculator. All
// percentages go by the document's basis.
type MemoryCalculatorKeys struct {
	Calculator      string                     `json:"calculator"`
	Judged          int                        `json:"judged"`
	Missed          []MemoryUnusableKeys       `json:"missed"`
	Bias            []MemoryBiasKeys           `json:"bias"`
	Patterns        []MemoryPatternKeys        `json:"patterns"`
	Issues          []MemoryIssueKeys          `json:"issues"`
	Recommendations []MemoryRecommendationKeys `json:"recommendations"`
}

// MemoryBiasKeys is the mean error of one component.
type MemoryBiasKeys struct {
	Component string `json:"component"`
	Profiles  int    `json:"profiles"`
	Few       bool   `json:"few"`
	// MeanAbs and Mean are in percent; a negative Mean overestimates.
	MeanAbs   float64 `json:"mean_abs_error_pct"`
	Mean      float64 `json:"mean_error_pct"`
	Direction string  `json:"direction"`
	// Ratio is calculated over measured; null where one was zero.
	Ratio *float64 `json:"calculated_over_measured"`
}

// MemoryPatternKeys is the mean error of the total on one kind of run.
type MemoryPatternKeys struct {
	By       string `json:"by"`
	Group    string `json:"group"`
	Profiles int    `json:"profiles"`
	Few      bool   `json:"few"`
	// MeanAbs and Mean are in percent.
	MeanAbs float64 `json:"mean_abs_error_pct"`
	Mean    float64 `json:"mean_error_pct"`
}

// MemoryIssueKeys is a threshold that is exceeded.
type MemoryIssueKeys struct {
	Severity string `json:"severity"`
	Text     string `json:"text"`
	Profiles int    `json:"profiles"`
	Few      bool   `json:"few"`
}

// MemoryRecommendationKeys is a change that the numbers ask for.
type MemoryRecommendationKeys struct {
	Component string               `json:"component"`
	Text      string               `json:"text"`
	Profiles  int                  `json:"profiles"`
	Few       bool                 `json:"few"`
	Evidence  []MemoryEvidenceKeys `json:"evidence"`
}

// MemoryEvidenceKeys is one profile behind a recommendation.
type MemoryEvidenceKeys struct {
	Profile string `json:"profile"`
	// Measured and Calculated are in bytes over all GPUs.
	Measured   int64 `json:"measured_bytes"`
	Calculated int64 `json:"calculated_bytes"`
}

// MemoryUnusableKeys is a profile that no mean contains, and why.
type MemoryUnusableKeys struct {
	Profile string   `json:"profile"`
	Model   string   `json:"model"`
	Reasons []string `json:"reasons"`
}

// MemoryUnreadableKeys is a file that could not be read.
type MemoryUnreadableKeys struct {
	File   string `json:"file"`
	Reason string `json:"reason"`
}

// MemoryProfileRemarkKeys says what of a profile was left out.
type MemoryProfileRemarkKeys struct {
	Profile string `json:"profile"`
	Remark  string `json:"remark"`
}

// MemoryReading is how the profiles were read, for [MemoryValidation].
type MemoryReading struct {
	Compat               bool
	Profiles, PassedOver int
	Unreadable           []MemoryUnreadableKeys
	Remarks              []MemoryProfileRemarkKeys
}

// MemoryValidation builds the document.
func MemoryValidation(r memory.Report, in MemoryReading, tool string) MemoryValidationDocument {
	d := MemoryValidationDocument{
		Head: NewHead("memory-validation", tool), Scheme: string(r.Scheme), Basis: ofCalculated,
		Compat: in.Compat, Profiles: in.Profiles, PassedOver: in.PassedOver,
		Comparisons: []MemoryVerdictKeys{}, Calculators: []MemoryCalculatorKeys{}, Unusable: []MemoryUnusableKeys{},
		Unreadable: append([]MemoryUnreadableKeys{}, in.Unreadable...), Remarks: append([]MemoryProfileRemarkKeys{}, in.Remarks...),
	}
	if r.Scheme.OfMeasured() {
		d.Basis = ofMeasured
	}
	for _, v := range r.Verdicts {
		d.Comparisons = append(d.Comparisons, memoryVerdict(v))
	}
	for _, s := range r.Summaries {
		d.Calculators = append(d.Calculators, memoryCalculator(s))
	}
	for _, u := range r.Unusable {
		d.Unusable = append(d.Unusable, MemoryUnusableKeys{u.Source, u.Model, u.Reasons})
	}
	return d
}

func memoryVerdict(v memory.Verdict) MemoryVerdictKeys {
	k := MemoryVerdictKeys{
		Profile: v.Source, Model: v.Model, Calculator: v.Calculator, Quality: word(v.Class),
		Components: []MemoryComponentKeys{}, Skipped: v.Skipped, Notes: v.Notes,
	}
	for _, c := range v.Comparisons {
		k.Components = append(k.Components, MemoryComponentKeys{
			Component: string(c.Component), What: c.What, Measured: int64(c.Measured), Calculated: int64(c.Calculated), Diff: int64(c.Diff),
			OfMeasured: c.OfMeasured, OfCalculated: c.OfCalculated, Quality: word(c.Class),
		})
	}
	return k
}

// word is nil for an empty text.
func word(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// part finds a component; nil where it was not compared.
func (k MemoryVerdictKeys) part(c memory.Component) *MemoryComponentKeys {
	i := slices.IndexFunc(k.Components, func(part MemoryComponentKeys) bool { return part.Component == string(c) })
	if i < 0 {
		return nil
	}
	return &k.Components[i]
}

// percent is the error of a component by the document's basis; nil where it
// was not compared or the basis is zero.
func (d MemoryValidationDocument) percent(k MemoryVerdictKeys, c memory.Component) *float64 {
	part := k.part(c)
	switch {
	case part == nil:
		return nil
	case d.Basis == ofMeasured:
		return part.OfMeasured
	}
	return part.OfCalculated
}

// Above is the document without the comparisons whose total is off by no more
// than so many percent. Where no total was compared nobody knows, and the
// comparison stays.
func (d MemoryValidationDocument) Above(percent float64) MemoryValidationDocument {
	within := func(k MemoryVerdictKeys) bool {
		total := d.percent(k, memory.Total)
		return total != nil && math.Abs(*total) <= percent
	}
	d.Threshold, d.Comparisons = &percent, slices.DeleteFunc(slices.Clone(d.Comparisons), within)
	return d
}

func memoryCalculator(s memory.Summary) MemoryCalculatorKeys {
	k := MemoryCalculatorKeys{
		Calculator: s.Calculator, Judged: s.Judged, Missed: []MemoryUnusableKeys{}, Bias: []MemoryBiasKeys{}, Patterns: []MemoryPatternKeys{},
		Issues: []MemoryIssueKeys{}, Recommendations: []MemoryRecommendationKeys{},
	}
	for _, m := range s.Missed {
		k.Missed = append(k.Missed, MemoryUnusableKeys{m.Source, m.Model, []string{m.Err.Error()}})
	}
	for _, b := range s.Bias {
		keys := MemoryBiasKeys{Component: string(b.Component), Profiles: b.N, Few: b.Few, MeanAbs: b.MeanAbs, Mean: b.Mean, Direction: b.Direction()}
		if b.Ratio > 0 {
			keys.Ratio = &b.Ratio
		}
		k.Bias = append(k.Bias, keys)
	}
	for _, g := range s.Groups {
		k.Patterns = append(k.Patterns, MemoryPatternKeys{g.By, g.Name, g.N, g.Few, g.MeanAbs, g.Mean})
	}
	for _, i := range s.Issues {
		k.Issues = append(k.Issues, MemoryIssueKeys{string(i.Severity), i.Text, i.N, i.Few})
	}
	for _, r := range s.Recommendations {
		keys := MemoryRecommendationKeys{Component: string(r.Component), Text: r.Text, Profiles: r.N, Few: r.Few}
		for _, p := range r.Evidence {
			keys.Evidence = append(keys.Evidence, MemoryEvidenceKeys{p.Source, int64(p.Measured), int64(p.Calculated)})
		}
		k.Recommendations = append(k.Recommendations, keys)
	}
	return k
}
