package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/measure"
	"github.com/llmprof/llmprof/profile"
)

// MeasurementDocument is the JSON of a measurement.
type MeasurementDocument struct {
	Head
	// Files are what was written, the profile first.
	Files  []string `json:"files"`
	Model  string   `json:"model"`
	Engine string   `json:"engine,omitempty"`
	Place  string   `json:"place,omitempty"`
	Device string   `json:"device,omitempty"`
	Clock  string   `json:"clock,omitempty"`
	// Measured, Failed and Left count tasks: shapes of the grid.
	Measured int `json:"measured"`
	Failed   int `json:"failed"`
	Left     int `json:"left"`
	// Held is what the profile held before, of the same tasks.
	Held int `json:"held"`
	// Failures counts the failed tasks by reason.
	Failures map[string]int `json:"failures,omitempty"`
	// Unstable tasks are measured and scatter; Restarts is how often the
	// engine was started again.
	Unstable int  `json:"unstable"`
	Restarts int  `json:"restarts"`
	Complete bool `json:"complete"`
	// Elapsed is in seconds.
	ElapsedS float64 `json:"elapsed_s"`
	// Interpolation says, for layers, how well what lies between the measured
	// shapes is found, by axis.
	Interpolation map[string]InterpolationKeys `json:"interpolation,omitempty"`
	// Scaling compares the whole model with its layers, where that was asked.
	Scaling  *ScalingDocument `json:"scaling,omitempty"`
	Warnings []string         `json:"warnings,omitempty"`
}

// InterpolationKeys is the error of linear interpolation at measured shapes
// that were left out in turn, in percent.
type InterpolationKeys struct {
	Points int `json:"points"`
	// MedianPct, MeanPct and MaxPct are in percent.
	MedianPct float64 `json:"median_pct"`
	MeanPct   float64 `json:"mean_pct"`
	MaxPct    float64 `json:"max_pct"`
}

// Interpolation builds the keys of one axis.
func Interpolation(i measure.Interpolation) InterpolationKeys {
	return InterpolationKeys{i.Points, 100 * i.Median, 100 * i.Mean, 100 * i.Max}
}

// Measurement builds the document of a run that took elapsed seconds; p is the
// whole profile, with what earlier runs measured.
func Measurement(p *profile.Profile, outcome measure.Outcome, elapsed float64, tool string) MeasurementDocument {
	h := p.Header
	d := MeasurementDocument{
		Head: NewHead("measurement", tool), Model: h.Deploy.Model, Device: h.Device.Name,
		Engine:   strings.TrimSpace(h.Deploy.Engine + " " + h.Deploy.EngineVersion),
		Measured: outcome.Measured, Failed: outcome.Failed, Left: outcome.Left,
		Unstable: outcome.Unstable, Restarts: outcome.Restarts,
		Complete: outcome.Left == 0, ElapsedS: elapsed, Warnings: outcome.Facts.Warnings,
	}
	if d.Device == "" {
		d.Device = h.Device.Reported
	}
	for _, point := range p.Points {
		if d.Clock == "" {
			d.Clock = string(point.Clock)
		}
		if point.Kind == profile.KindFailure {
			if d.Failures == nil {
				d.Failures = map[string]int{}
			}
			d.Failures[point.Reason]++
		}
	}
	return d
}

// MeasurementTables shows a measurement.
func MeasurementTables(d MeasurementDocument) []Table {
	t := pairTable("")
	or := func(s string) string {
		if s == "" {
			return "not known"
		}
		return s
	}
	t.pair("wrote", strings.Join(d.Files, ", "))
	t.pair("model", d.Model)
	t.pair("engine", or(d.Engine))
	if d.Place != "" && d.Place != "local" {
		t.pair("place", d.Place)
	}
	t.pair("device", or(d.Device))
	t.pair("clock", or(d.Clock))
	t.pair("measured", fmt.Sprintf("%d of %d in %.0f s", d.Measured, d.Measured+d.Failed+d.Left, d.ElapsedS))
	if d.Held > 0 {
		t.pair("held before", strconv.Itoa(d.Held))
	}
	if d.Unstable > 0 {
		t.pair("unstable", fmt.Sprintf("%d, flagged in the profile", d.Unstable))
	}
	if d.Restarts > 0 {
		t.pair("restarts", strconv.Itoa(d.Restarts))
	}
	if d.Left > 0 {
		t.pair("left", fmt.Sprintf("%d; --resume measures them", d.Left))
	}
	for _, axis := range slices.Sorted(maps.Keys(d.Interpolation)) {
		i := d.Interpolation[axis]
		t.pair("between "+axis, fmt.Sprintf("linear interpolation misses a shape that is left out by %.1f %% (median), at most %.1f %%", i.MedianPct, i.MaxPct))
	}
	tables := []Table{t}
	if d.Scaling != nil {
		tables = append(tables, ScalingTables(*d.Scaling)...)
	}
	if len(d.Failures) > 0 {
		failed := Table{Title: "Not measured", Columns: []Column{{Name: "shapes"}, {Name: "reason", Left: true}}}
		for _, reason := range slices.Sorted(maps.Keys(d.Failures)) {
			failed.Rows = append(failed.Rows, []Cell{Whole(d.Failures[reason]), Say(reason)})
		}
		tables = append(tables, failed)
	}
	return tables
}
