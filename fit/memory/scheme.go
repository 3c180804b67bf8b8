package memory

import (
	"fmt"
	"math"

	"github.com/llmprof/llmprof/unit"
)

// Scheme selects the words for how good a calculation is, and which of the
// two percentages they go by.
type Scheme string

// The schemes in use. A class reaches up to and including its bound.
const (
	// Guide has the bounds 2, 5, 10 and 20 % of the measured size.
	Guide Scheme = "guide"
	// ValidateCalculator has 5, 15 and 30 % of the calculated size.
	ValidateCalculator Scheme = "validate-calculator"
	// BatchValidate has 5, 10 and 20 % of the calculated size.
	BatchValidate Scheme = "batch-validate"
	// ValidateProfile has 5, 10 and 20 % of the measured size.
	ValidateProfile Scheme = "validate-profile"
)

// Schemes lists the schemes, the default first.
func Schemes() []Scheme {
	return []Scheme{Guide, ValidateCalculator, BatchValidate, ValidateProfile}
}

// ParseScheme reads the name of a scheme; empty text means [Guide].
func ParseScheme(s string) (Scheme, error) {
	if s == "" {
		return Guide, nil
	}
	for _, known := range Schemes() {
		if s == string(known) {
			return known, nil
		}
	}
	return "", fmt.Errorf("quality scheme %q: want one of %s", s, unit.List(Schemes()))
}

// OfMeasured reports whether the scheme goes by percent of the measured size
// and not of the calculated one.
func (s Scheme) OfMeasured() bool { return s != ValidateCalculator && s != BatchValidate }

// Basis says it in words.
func (s Scheme) Basis() string {
	if s.OfMeasured() {
		return "% of measured"
	}
	return "% of calculated"
}

// Class is the word for an error in percent of the scheme's basis, of either
// sign.
func (s Scheme) Class(percent float64) string {
	bounds, words := []float64{2, 5, 10, 20}, []string{"excellent", "good", "fair", "poor", "bad"}
	switch s {
	case ValidateCalculator:
		bounds, words = []float64{5, 15, 30}, []string{"exact", "good", "fair", "poor"}
	case BatchValidate, ValidateProfile:
		bounds, words = []float64{5, 10, 20}, []string{"Excellent", "Good", "Fair", "Poor"}
	}
	for i, bound := range bounds {
		if math.Abs(percent) <= bound {
			return words[i]
		}
	}
	return words[len(words)-1]
}
