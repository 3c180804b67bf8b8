package memory

import "github.com/llmprof/llmprof/catalog"

// Options select how [Judge] works. The zero value is useful.
type Options struct {
	// Scheme names the classes; empty means [Guide].
	Scheme Scheme
	// Catalog tells architectures by the ids of models; nil means that only
	// the profiles tell them.
	Catalog *catalog.Catalog
}

// Report is the judgement.
type Report struct {
	// Scheme is the one used; all percentages without a name of their own go
	// by its basis.
	Scheme Scheme
	// Verdicts are in the order of the profiles, and for each in the order of
	// the calculators.
	Verdicts []Verdict
	// Unusable lists the profiles that no mean contains.
	Unusable []Unusable
	// Summaries has one entry for each calculator.
	Summaries []Summary
}

// Verdict is one calculator on one profile.
type Verdict struct {
	Source, Model, Calculator string
	// Comparisons has at most one entry for each component, in their order.
	Comparisons []Comparison
	// Class is that of the total; empty where no total was compared.
	Class string
	// Skipped says which components were not compared and why, Notes what
	// the calculator assumed.
	Skipped, Notes []string
}

// of finds a component.
func (v Verdict) of(c Component) (Comparison, bool) {
	for _, found := range v.Comparisons {
		if found.Component == c {
			return found, true
		}
	}
	return Comparison{}, false
}

// Unusable is a profile from which nothing can be learnt.
type Unusable struct {
	Source, Model string
	Reasons       []string
}

// Missed is a profile that a calculator has nothing to say about.
type Missed struct {
	Source, Model string
	// Err says why, an [*UnknownModelError] where the model is not known.
	Err error
}

// sample is a verdict with the profile that it is about.
type sample struct {
	m Measured
	v Verdict
}

// Judge compares every profile with every calculator.
func Judge(measured []Measured, calculators []Calculator, o Options) Report {
	if o.Scheme == "" {
		o.Scheme = Guide
	}
	r := Report{Scheme: o.Scheme}
	samples := make([][]sample, len(calculators))
	missed := make([][]Missed, len(calculators))
	for _, m := range measured {
		if reasons := m.unusable(); len(reasons) > 0 {
			r.Unusable = append(r.Unusable, Unusable{m.Source, m.Model, reasons})
			continue
		}
		m = m.complete(o.Catalog)
		for i, calculator := range calculators {
			p, err := calculator.Calculate(m)
			if err != nil {
				missed[i] = append(missed[i], Missed{m.Source, m.Model, err})
				continue
			}
			v := Verdict{Source: m.Source, Model: m.Model, Calculator: calculator.Name(), Notes: p.Notes}
			v.Comparisons, v.Skipped = compare(m, p, o.Scheme)
			if total, ok := v.of(Total); ok {
				v.Class = total.Class
			}
			r.Verdicts = append(r.Verdicts, v)
			samples[i] = append(samples[i], sample{m, v})
		}
	}
	for i, calculator := range calculators {
		r.Summaries = append(r.Summaries, summarise(calculator.Name(), samples[i], missed[i], o.Scheme))
	}
	return r
}
