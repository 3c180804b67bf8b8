// Package chart draws a [report.Figure] as SVG. It chooses ranges, ticks and
// places for labels, and nothing else: what is drawn, and in which unit, is
// the figure's to say. The output depends on the figure alone, byte for byte.
//
//	err := chart.SVG(file, report.Roofline(analysis))
package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/llmprof/llmprof/report"
)

// The drawing's geometry in pixels.
const (
	width, height = 860, 500
	left, right   = 76, 24
	top, bottom   = 66, 56
)

// colour gives each group a colour of at least 4.5:1 contrast on white.
func colour(group int) string {
	colours := []string{"#555555", "#0b5fa5", "#b3420e", "#1b7a3d", "#7a3b9e", "#8a6100"}
	return colours[group%len(colours)]
}

// scale maps one axis onto pixels.
type scale struct {
	low, high  float64 // in data units, or their logarithms
	log        bool
	from, to   float64 // pixels
	ticks      []float64
	tickLabels []string
}

func (s *scale) at(v float64) float64 {
	if s.log {
		v = math.Log10(v)
	}
	return s.from + (v-s.low)/(s.high-s.low)*(s.to-s.from)
}

// SVG writes the figure as one SVG document. A logarithmic axis with values
// that are not positive, or a figure without finite points, is an error.
func SVG(w io.Writer, f report.Figure) error {
	x, err := newScale(f, f.X, func(d report.Dot) float64 { return d.X }, left, width-right)
	if err != nil {
		return fmt.Errorf("draw %q: x axis: %w", f.Title, err)
	}
	y, err := newScale(f, f.Y, func(d report.Dot) float64 { return d.Y }, height-bottom, top)
	if err != nil {
		return fmt.Errorf("draw %q: y axis: %w", f.Title, err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, sans-serif" font-size="12" fill="#222">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", escape(f.Title))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="24" font-size="16" font-weight="600">%s</text>`+"\n", left, escape(f.Title))
	fmt.Fprintf(&b, `<text x="%d" y="44" fill="#555">%s</text>`+"\n", left, escape(f.Subtitle))
	axes(&b, f, x, y)
	var taken []box
	for _, s := range f.Series {
		series(&b, s, x, y)
		for _, d := range s.Points {
			px, py := x.at(d.X), y.at(d.Y)
			taken = append(taken, box{px - 4, py - 4, px + 4, py + 4})
		}
	}
	taken = append(taken, legend(&b, f))
	for _, s := range f.Series {
		labels(&b, s, x, y, &taken)
	}
	b.WriteString("</svg>\n")
	_, err = w.Write(b.Bytes())
	return err
}

func escape(s string) string {
	var b bytes.Buffer
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		return ""
	}
	return b.String()
}

func newScale(f report.Figure, axis report.Axis, value func(report.Dot) float64, from, to float64) (*scale, error) {
	s := &scale{low: math.Inf(1), high: math.Inf(-1), log: axis.Log, from: from, to: to}
	for _, series := range f.Series {
		for _, d := range series.Points {
			v := value(d)
			switch {
			case math.IsNaN(v) || math.IsInf(v, 0):
				return nil, fmt.Errorf("series %q has a point that is not finite", series.Name)
			case axis.Log && v <= 0:
				return nil, fmt.Errorf("series %q has %g on a logarithmic axis", series.Name, v)
			case axis.Log:
				v = math.Log10(v)
			}
			s.low, s.high = min(s.low, v), max(s.high, v)
		}
	}
	if s.low > s.high {
		return nil, fmt.Errorf("the figure has no points")
	}
	pad := (s.high - s.low) * 0.04
	if pad == 0 {
		pad = 0.5
	}
	if !axis.Log && s.low >= 0 {
		s.low = 0
	} else {
		s.low -= pad
	}
	s.high += pad
	s.place()
	return s, nil
}

// place chooses about six round ticks.
func (s *scale) place() {
	if s.log {
		step := max(1, math.Ceil((s.high-s.low)/8))
		for e := math.Ceil(s.low); e <= s.high; e += step {
			s.ticks = append(s.ticks, math.Pow(10, e))
		}
		if len(s.ticks) < 3 {
			s.ticks = nil
			for e := math.Floor(s.low); e <= s.high; e++ {
				for _, m := range []float64{1, 2, 5} {
					v := m * math.Pow(10, e)
					if l := math.Log10(v); l >= s.low && l <= s.high {
						s.ticks = append(s.ticks, v)
					}
				}
			}
		}
	} else {
		raw := (s.high - s.low) / 6
		step := math.Pow(10, math.Floor(math.Log10(raw)))
		for _, m := range []float64{1, 2, 5, 10} {
			if m*step >= raw {
				step *= m
				break
			}
		}
		for i := math.Ceil(s.low / step); i*step <= s.high; i++ {
			s.ticks = append(s.ticks, i*step)
		}
	}
	for _, v := range s.ticks {
		s.tickLabels = append(s.tickLabels, tickText(v))
	}
}

func tickText(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 4, 64) + " M"
	case a >= 1e4:
		return strconv.FormatFloat(v/1e3, 'g', 4, 64) + " k"
	default:
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
}

func axes(b *bytes.Buffer, f report.Figure, x, y *scale) {
	for i, v := range x.ticks {
		px := x.at(v)
		fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#e4e4e4"/>`+"\n", px, top, px, height-bottom)
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", px, height-bottom+18, x.tickLabels[i])
	}
	for i, v := range y.ticks {
		py := y.at(v)
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#e4e4e4"/>`+"\n", left, py, width-right, py)
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left-8, py+4, y.tickLabels[i])
	}
	fmt.Fprintf(b, `<path d="M%d %dV%dH%d" fill="none" stroke="#888"/>`+"\n", left, top, height-bottom, width-right)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (left+width-right)/2, height-14, escape(f.X.Label))
	fmt.Fprintf(b, `<text transform="translate(18 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+height-bottom)/2, escape(f.Y.Label))
}

func series(b *bytes.Buffer, s report.Series, x, y *scale) {
	stroke, opacity := colour(s.Group), "1"
	if s.Faint {
		opacity = "0.55"
	}
	if s.Line && len(s.Points) > 1 {
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.8" opacity="%s" points="`, stroke, opacity)
		for i, d := range s.Points {
			if i > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(b, "%.1f,%.1f", x.at(d.X), y.at(d.Y))
		}
		b.WriteString(`"/>` + "\n")
	}
	if s.Marks {
		for _, d := range s.Points {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3.4" fill="%s" opacity="%s"/>`+"\n", x.at(d.X), y.at(d.Y), stroke, opacity)
		}
	}
}

// box is a rectangle that a label must leave free.
type box struct{ x0, y0, x1, y1 float64 }

func (a box) meets(b box) bool {
	return a.x0 < b.x1 && b.x0 < a.x1 && a.y0 < b.y1 && b.y0 < a.y1
}

// labels writes the dots' labels where they touch nothing; a label without a
// free place is left out.
func labels(b *bytes.Buffer, s report.Series, x, y *scale, taken *[]box) {
	const size, advance = 11.0, 6.2
	for _, d := range s.Points {
		if d.Label == "" {
			continue
		}
		px, py, long := x.at(d.X), y.at(d.Y), advance*float64(len(d.Label))
	places:
		for _, shift := range [][2]float64{{8, 4}, {-8 - long, 4}, {-long / 2, -9}, {-long / 2, 18}, {8, -10}, {8, 18}, {-8 - long, -10}, {-8 - long, 18}, {12, -22}, {12, 30}} {
			place := box{px + shift[0], py + shift[1] - size, px + shift[0] + long, py + shift[1] + 2}
			if place.x0 < left || place.x1 > width-2 || place.y0 < top-8 || place.y1 > height-bottom {
				continue
			}
			for _, other := range *taken {
				if place.meets(other) {
					continue places
				}
			}
			*taken = append(*taken, place)
			fmt.Fprintf(b, `<text x="%.1f" y="%.1f" font-size="%g" fill="%s">%s</text>`+"\n", place.x0, py+shift[1], size, colour(s.Group), escape(d.Label))
			break
		}
	}
}

// entry is one line of the legend: a name, and how its group is drawn.
type entry struct {
	name        string
	group       int
	line, marks bool
}

// entries lists the named series; series without a name belong to the named
// one of their group.
func entries(f report.Figure) []entry {
	var list []entry
	for _, s := range f.Series {
		if s.Name == "" {
			for i := range list {
				if list[i].group == s.Group {
					list[i].line = list[i].line || s.Line
					list[i].marks = list[i].marks || s.Marks
				}
			}
			continue
		}
		list = append(list, entry{s.Name, s.Group, s.Line, s.Marks})
	}
	return list
}

// legend names the series in the upper left corner of the plot.
func legend(b *bytes.Buffer, f report.Figure) box {
	const line = 18
	list := entries(f)
	longest := 0
	for _, e := range list {
		longest = max(longest, utf8.RuneCountInString(e.name))
	}
	area := box{left + 8, top + 6, left + 46 + 7*float64(longest), top + 12 + line*float64(len(list))}
	fmt.Fprintf(b, `<rect x="%.0f" y="%.0f" width="%.0f" height="%.0f" fill="#ffffff" opacity="0.9" stroke="#dddddd"/>`+"\n", area.x0, area.y0, area.x1-area.x0, area.y1-area.y0)
	for i, e := range list {
		y := area.y0 + 14 + line*float64(i)
		if e.line {
			fmt.Fprintf(b, `<line x1="%.0f" y1="%.0f" x2="%.0f" y2="%.0f" stroke="%s" stroke-width="1.8"/>`+"\n", area.x0+8, y, area.x0+28, y, colour(e.group))
		}
		if e.marks {
			fmt.Fprintf(b, `<circle cx="%.0f" cy="%.0f" r="3.4" fill="%s"/>`+"\n", area.x0+18, y, colour(e.group))
		}
		fmt.Fprintf(b, `<text x="%.0f" y="%.0f">%s</text>`+"\n", area.x0+36, y+4, escape(e.name))
	}
	return area
}
