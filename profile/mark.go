package profile

import (
	"fmt"
	"slices"
)

// Mark returns the profile with each finding written to the warnings of the
// points that it flags, as "lint: rule" or "lint: rule in sample 0". Marking
// again changes nothing.
func (p *Profile) Mark(findings []Finding) *Profile {
	out := &Profile{Header: p.Header, Points: slices.Clone(p.Points)}
	for _, f := range findings {
		for _, flag := range f.Flags {
			point := &out.Points[flag.Point]
			text := fmt.Sprintf("lint: %s", f.Rule)
			if flag.Sample != WholePoint {
				text += fmt.Sprintf(" in sample %d", flag.Sample)
			}
			if !slices.Contains(point.Warnings, text) {
				point.Warnings = append(slices.Clip(point.Warnings), text)
			}
		}
	}
	return out
}
