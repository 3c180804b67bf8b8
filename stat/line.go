package stat

import "math"

// Line is the slope of the straight line of least squares through points, in
// units of y per unit of x, and the lower end of its 95 % interval, which is two
// standard errors below; 0 of both for fewer than three points, or where x does
// not vary.
func Line(x, y []float64) (slope, low float64) {
	if len(x) < 3 || len(x) != len(y) {
		return 0, 0
	}
	mx, my := Mean(x), Mean(y)
	var xx, xy, yy float64
	for i := range x {
		dx, dy := x[i]-mx, y[i]-my
		xx, xy, yy = xx+dx*dx, xy+dx*dy, yy+dy*dy
	}
	if xx == 0 {
		return 0, 0
	}
	slope = xy / xx
	rest := max(yy-slope*xy, 0)
	return slope, slope - 2*math.Sqrt(rest/float64(len(x)-2)/xx)
}
