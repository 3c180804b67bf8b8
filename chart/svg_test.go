package chart_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/chart"
	"github.com/llmprof/llmprof/report"
)

func figure(x, y report.Axis, dots ...report.Dot) report.Figure {
	return report.Figure{Title: "T & <x>", X: x, Y: y, Series: []report.Series{{Name: "s", Points: dots, Line: true, Marks: true}}}
}

// wellFormed reads the whole document and counts its circles.
func wellFormed(text string) (circles int, err error) {
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return circles, nil
		}
		if err != nil {
			return 0, err
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "circle" {
			circles++
		}
	}
}

func TestEveryFigureIsWellFormed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Float64Range(1e-9, 1e15)
		var dots []report.Dot
		for range rapid.IntRange(1, 30).Draw(t, "dots") {
			dots = append(dots, report.Dot{X: number.Draw(t, "x"), Y: number.Draw(t, "y"), Label: rapid.StringMatching(`[a-z<&"]{0,9}`).Draw(t, "label")})
		}
		f := figure(report.Axis{Label: "x", Log: rapid.Bool().Draw(t, "log x")}, report.Axis{Label: "y", Log: rapid.Bool().Draw(t, "log y")}, dots...)
		var b, again strings.Builder
		if err := errors.Join(chart.SVG(&b, f), chart.SVG(&again, f)); err != nil {
			t.Fatal(err)
		}
		circles, err := wellFormed(b.String())
		if err != nil {
			t.Fatal(err)
		}
		if circles != len(dots)+1 {
			t.Errorf("%d circles for %d dots and a legend", circles, len(dots))
		}
		if b.String() != again.String() {
			t.Error("the same figure gives other bytes")
		}
		if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
			t.Error("a coordinate is not finite")
		}
	})
}

func TestWhatCannotBeDrawn(t *testing.T) {
	log := report.Axis{Log: true}
	for _, c := range []struct {
		why string
		f   report.Figure
	}{
		{"no points", figure(log, log)},
		{"zero on a logarithmic axis", figure(log, log, report.Dot{X: 0, Y: 1})},
		{"not a number", figure(report.Axis{}, report.Axis{}, report.Dot{X: 1, Y: math.NaN()})},
	} {
		t.Run(c.why, func(t *testing.T) {
			var b strings.Builder
			if err := chart.SVG(&b, c.f); err == nil || b.Len() > 0 {
				t.Errorf("error %v and %d bytes: want an error and none", err, b.Len())
			}
		})
	}
}

func ExampleSVG() {
	f := report.Figure{
		Title: "Decode steps", X: report.Axis{Label: "batch size"}, Y: report.Axis{Label: "ms"},
		Series: []report.Series{{Name: "measured", Marks: true, Points: []report.Dot{{X: 1, Y: 7.7}, {X: 64, Y: 12.4}}}},
	}
	var b strings.Builder
	err := chart.SVG(&b, f)
	fmt.Println(strings.Count(b.String(), "<circle"), err)
	// Output: 3 <nil>
}
