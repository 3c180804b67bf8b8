package report

import (
	"fmt"

	"github.com/llmprof/llmprof/load"
)

// unjudged warns of the targets of classes that a simulation cannot judge.
func unjudged(classes []SimulatedClass) []string {
	var all []string
	for _, c := range classes {
		for _, v := range c.Summary.SLOs {
			if v.SLO.Metric == load.ITL || v.SLO.Metric == load.ICL {
				all = append(all, fmt.Sprintf("class %s: %v is not judged: %s by class is not known", c.Name, v.SLO, v.SLO.Metric))
			}
		}
	}
	return all
}

// simulatedVerdicts shows the limits on quantiles, of the run and of its classes.
func simulatedVerdicts(d SimulationDocument) Table {
	t := Table{Title: "Limits on quantiles", Columns: []Column{
		{Name: "of", Left: true},
		{Name: "limit", Left: true},
		{Name: "found, ms", Key: "found_ms"},
		{Name: "verdict", Left: true},
	}}
	add := func(of string, verdicts []load.Verdict) {
		for _, v := range verdicts {
			verdict := "missed"
			switch {
			case v.Found == nil:
				verdict = "not known"
			case v.Met:
				verdict = "met"
			}
			t.Rows = append(t.Rows, []Cell{Say(of), Say(v.SLO.String()), known(2, v.Found), Say(verdict)})
		}
	}
	add("whole run", d.Whole.SLOs)
	add("steady part", d.Steady.SLOs)
	for _, c := range d.Classes {
		add("class "+c.Name, c.Summary.SLOs)
	}
	return t
}

// MissedLimits says which limits a simulated run misses: those on quantiles of
// the run and of its classes, a limit that cannot be judged among them, and
// those on single requests where not every request that was sent keeps them.
func MissedLimits(d *SimulationDocument) []string {
	var all []string
	add := func(of string, verdicts []load.Verdict) {
		for _, v := range verdicts {
			switch {
			case v.Found == nil:
				all = append(all, fmt.Sprintf("%v%s is not known", v.SLO, of))
			case !v.Met:
				all = append(all, fmt.Sprintf("%v%s is %.2f ms", v.SLO, of, *v.Found))
			}
		}
	}
	add("", d.Whole.SLOs)
	for _, c := range d.Classes {
		if len(c.Targets) > 0 {
			add(" of class "+c.Name, c.Summary.SLOs)
		}
	}
	if share := d.Whole.GoodShare; share != nil && *share < 1 {
		all = append(all, fmt.Sprintf("%.1f %% of the requests keep their limits", 100**share))
	}
	return all
}
