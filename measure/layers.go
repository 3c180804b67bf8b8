package measure

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

// Sweep asks for the layers of a model over prompt lengths and over contexts.
type Sweep struct {
	// PrefillMax is the longest prompt in tokens, on an empty cache; 0 measures
	// no prompt.
	PrefillMax int
	// DecodeMax is the longest context in tokens of a sequence that decodes one
	// token; negative measures no decode.
	DecodeMax int
	// MaxSequences is the largest batch of decoding sequences, measured at a
	// few contexts each; 0 and 1 measure single sequences only.
	MaxSequences int
	// Warmup and Runs are those of every task.
	Warmup, Runs int
	// Full measures every length from 1 to PrefillMax and every context from 0
	// to DecodeMax.
	Full bool
	// Tolerance is the error, as a ratio, of linear interpolation from which a
	// stretch is cut in two. Default 0.03.
	Tolerance float64
	// MaxPoints bounds the points of either axis of a sparse sweep. Default 48.
	MaxPoints int
}

func (s Sweep) withDefaults() Sweep {
	if s.Tolerance == 0 {
		s.Tolerance = 0.03
	}
	if s.MaxPoints == 0 {
		s.MaxPoints = 48
	}
	return s
}

// Tasks are those that a sweep starts with: all of a full one, the powers of
// two of a sparse one. One token on an empty cache stands in both axes and is
// measured once.
func (s Sweep) Tasks() []engine.Task {
	var prefill, decode []int
	if s.PrefillMax > 0 {
		prefill = PowersOfTwo(1, s.PrefillMax)
		if s.Full {
			prefill = upTo(1, s.PrefillMax)
		}
	}
	if s.DecodeMax >= 0 {
		decode = []int{0}
		if s.DecodeMax > 0 {
			decode = append(decode, PowersOfTwo(min(16, s.DecodeMax), s.DecodeMax)...)
		}
		if s.Full {
			decode = upTo(0, s.DecodeMax)
		}
	}
	var tasks []engine.Task
	for _, n := range prefill {
		tasks = append(tasks, s.task(n, 0))
	}
	for _, c := range decode {
		if c > 0 || !slices.Contains(prefill, 1) {
			tasks = append(tasks, s.task(1, c))
		}
	}
	for n := 2; n <= s.MaxSequences; n *= 2 {
		for c := min(16, s.DecodeMax); 0 < c && c <= s.DecodeMax; c *= 4 {
			t := s.task(1, c)
			t.Layers.Sequences = n
			tasks = append(tasks, t)
		}
	}
	return order(tasks)
}

func (s Sweep) task(tokens, context int) engine.Task {
	return engine.Task{Layers: &engine.LayersTask{Tokens: tokens, Context: context, Sequences: 1}, Warmup: s.Warmup, Runs: s.Runs}
}

func upTo(least, most int) []int {
	values := make([]int, 0, most-least+1)
	for v := least; v <= most; v++ {
		values = append(values, v)
	}
	return values
}

// Next proposes the tasks that a sparse sweep needs next, judging by what was
// measured: the middles of stretches on which the time of all layers bends, so
// that linear interpolation misses a measured point by more than the tolerance
// and by more than its own noise. It returns none when all stretches are
// straight enough or the axis holds MaxPoints.
func (s Sweep) Next(points []profile.Point) []engine.Task {
	if s.Full {
		return nil
	}
	s = s.withDefaults()
	var tasks []engine.Task
	prefill, decode := axes(points)
	for _, n := range middles(prefill, s) {
		tasks = append(tasks, s.task(n, 0))
	}
	for _, c := range middles(decode, s) {
		tasks = append(tasks, s.task(1, c))
	}
	return tasks
}

// Interpolation says how well linear interpolation between the measured shapes
// finds one that is left out: errors of the summed time of all layers, as
// shares. It overstates the error between neighbours, which lie closer.
type Interpolation struct {
	// Points is the number of shapes that were left out in turn; the others
	// are 0 without any.
	Points            int
	Median, Mean, Max float64
}

// Interpolations gives the error of either axis.
func Interpolations(points []profile.Point) (prefill, decode Interpolation) {
	p, d := axes(points)
	return interpolation(p), interpolation(d)
}

// sum is the time of all layers at one place of an axis.
type sum struct {
	at int
	// seconds is the sum of the medians, noise its relative standard error.
	seconds, noise float64
}

// axes sums the layers up over prompts on an empty cache, and over contexts of
// one token.
func axes(points []profile.Point) (prefill, decode []sum) {
	type cell struct{ seconds, variance float64 }
	cells := map[[2]int]*cell{}
	for i := range points {
		p := &points[i]
		t, ok := p.Median()
		if p.Kind != profile.KindLayer || !ok || p.Layer.Sequences > 1 {
			continue
		}
		at := [2]int{p.Layer.Tokens, p.Layer.Context}
		if cells[at] == nil {
			cells[at] = &cell{}
		}
		cells[at].seconds += float64(t)
		if n := len(p.Samples); n > 1 {
			deviation := stat.StdDev(p.Samples)
			cells[at].variance += deviation * deviation / float64(n)
		}
	}
	for at, c := range cells {
		place := sum{seconds: c.seconds, noise: math.Sqrt(c.variance) / c.seconds}
		if at[1] == 0 {
			place.at = at[0]
			prefill = append(prefill, place)
		}
		if at[0] == 1 {
			place.at = at[1]
			decode = append(decode, place)
		}
	}
	byPlace := func(a, b sum) int { return cmp.Compare(a.at, b.at) }
	slices.SortFunc(prefill, byPlace)
	slices.SortFunc(decode, byPlace)
	return prefill, decode
}

// miss is the relative error of linear interpolation at the middle of three
// places.
func miss(a, b, c sum) float64 {
	weight := float64(b.at-a.at) / float64(c.at-a.at)
	return math.Abs(a.seconds+weight*(c.seconds-a.seconds)-b.seconds) / b.seconds
}

// middles lists where to measure next on one axis.
func middles(axis []sum, s Sweep) []int {
	room := s.MaxPoints - len(axis)
	worst := map[int]float64{}
	for i := 1; i+1 < len(axis); i++ {
		a, b, c := axis[i-1], axis[i], axis[i+1]
		e := miss(a, b, c)
		if e <= max(s.Tolerance, 3*b.noise) {
			continue
		}
		for _, pair := range [][2]sum{{a, b}, {b, c}} {
			middle := (pair[0].at + pair[1].at) / 2
			if middle > pair[0].at && middle < pair[1].at {
				worst[middle] = max(worst[middle], e)
			}
		}
	}
	places := slices.Collect(maps.Keys(worst))
	slices.SortFunc(places, func(a, b int) int { return cmp.Or(cmp.Compare(worst[b], worst[a]), cmp.Compare(a, b)) })
	places = places[:max(0, min(room, len(places)))]
	slices.Sort(places)
	return places
}

func interpolation(axis []sum) Interpolation {
	var errors []float64
	for i := 1; i+1 < len(axis); i++ {
		errors = append(errors, miss(axis[i-1], axis[i], axis[i+1]))
	}
	if len(errors) == 0 {
		return Interpolation{}
	}
	return Interpolation{Points: len(errors), Median: stat.Median(errors), Mean: stat.Mean(errors), Max: slices.Max(errors)}
}
