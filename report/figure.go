package report

import (
	"fmt"

	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/unit"
)

// Figure is a picture as data: axes with units, series, notes.
type Figure struct {
	Title, Subtitle string
	X, Y            Axis
	Series          []Series
}

// Axis is one axis; its label names the unit.
type Axis struct {
	Label string
	// Log scales by powers of ten; every value must then be positive.
	Log bool
}

// Series is one set of points under one name.
type Series struct {
	// Name stands in the legend; a series without one belongs to the named
	// series of its group.
	Name   string
	Points []Dot
	// Line joins the points in their order; Marks draws each.
	Line, Marks bool
	// Group numbers the colour: series of one group share it.
	Group int
	// Faint draws the series in the background.
	Faint bool
}

// Dot is one point, with an optional label.
type Dot struct {
	// X and Y are in the unit of their axis, which its label names.
	X, Y  float64
	Label string
}

// Roofline draws the operators of an analysis under the device's roof: the
// rate that each operator reaches against its arithmetic intensity.
func Roofline(a *cost.Analysis) Figure {
	bandwidth := a.Device.Bandwidth.Value
	peak := peakOf(a)
	f := Figure{
		Title: fmt.Sprintf("Roofline of %s on %s", a.Model.Name, a.Device.Name),
		Subtitle: fmt.Sprintf("batch %d, %d input tokens, TP %d; roof: %v, %v dense %s; operators at their theoretical time",
			a.Request.Batch, a.Request.Input, a.Config.TensorParallel, unit.BytesPerSecond(bandwidth), unit.FLOPsPerSecond(peak), a.Config.DType),
		X: Axis{Label: "arithmetic intensity, FLOP/byte", Log: true},
		Y: Axis{Label: "rate, TFLOP/s", Log: true},
	}
	low, high := 0.5, 8*peak/bandwidth
	for _, stage := range []struct {
		name  string
		ops   []cost.Op
		group int
	}{{"prefill", a.Prefill.Ops, 1}, {"decode", a.Decode.Ops, 2}} {
		s := Series{Name: stage.name, Marks: true, Group: stage.group}
		seen := map[string]bool{}
		for _, op := range stage.ops {
			if op.FLOPs == 0 || op.Time == 0 || seen[op.Name] {
				continue
			}
			seen[op.Name] = true
			x := op.Intensity()
			low, high = min(low, x/2), max(high, 2*x)
			s.Points = append(s.Points, Dot{x, float64(op.FLOPs) / float64(op.Time) / 1e12, op.Name})
		}
		if len(s.Points) > 0 {
			f.Series = append(f.Series, s)
		}
	}
	roof := func(name string, peak float64) Series {
		return Series{
			Name: name, Line: true, Faint: true,
			Points: []Dot{{low, low * bandwidth / 1e12, ""}, {peak / bandwidth, peak / 1e12, ""}, {high, peak / 1e12, ""}},
		}
	}
	roofs := []Series{roof("roof, "+string(a.Config.DType), peak)}
	if format, err := deploy.ParseWeightFormat(a.Config.Quantization, a.Config.DType); err == nil && format.Compute != a.Config.DType {
		if q, ok := a.Device.Peak(format.Compute); ok {
			roofs = append(roofs, roof("roof, "+string(format.Compute), float64(q)))
		}
	}
	f.Series = append(roofs, f.Series...)
	return f
}
