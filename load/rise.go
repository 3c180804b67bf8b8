package load

import "github.com/llmprof/llmprof/stat"

const (
	// RisePoints is the least number of points of each that show a rise.
	RisePoints = 20
	// riseExcess is the share of the requests above which a rise is one.
	riseExcess = 0.05
)

// Series is values at times, in the order of time.
type Series struct {
	At     []float64 // seconds
	Values []float64 // unit of what they are values of
}

// Rise is how a load rose over a time.
type Rise struct {
	// Open says that the requests under way rose, TTFT that it did.
	Open, TTFT bool
	// Slope is by how many requests under way it grew a second, Excess the share
	// of the requests that piled up.
	Slope, Excess float64
}

// RiseOf judges the requests under way, and the TTFT of the answers, over so many
// seconds. Either rises where the 95 % interval of its slope is above zero; the
// requests under way only where they grew by more than 5 % of the requests, and
// steadily: the slope, at its lowest, makes half of what they grew by, as that of
// one burst does not.
func RiseOf(seconds float64, open, ttft Series) Rise {
	var r Rise
	if len(open.At) < RisePoints || len(ttft.At) < RisePoints {
		return r
	}
	slope, low := stat.Line(open.At, open.Values)
	grown := open.Values[len(open.Values)-1] - open.Values[0]
	came := grown + float64(len(ttft.At))
	if low <= 0 || grown <= riseExcess*came || low*seconds < grown/2 {
		return r
	}
	_, least := stat.Line(ttft.At, ttft.Values)
	return Rise{Open: true, TTFT: least > 0, Slope: slope, Excess: grown / came}
}
