package fit

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

// Mode says which kind of step a row or a query is about.
type Mode string

// The modes that can be fitted. Prefill and Decode are homogeneous steps:
// whole prompts of one length, or decoding sequences. Mixed is any step, told
// by its pass or by the sums of what it computed.
const (
	Prefill Mode = profile.Prefill
	Decode  Mode = profile.Decode
	Mixed   Mode = profile.Mixed
)

// allModes lists the modes in the order in which they are reported.
func allModes() [3]Mode { return [3]Mode{Prefill, Decode, Mixed} }

// modes lists those of homogeneous steps.
func modes() [2]Mode { return [2]Mode{Prefill, Decode} }

// coldRatio is the run time, relative to the median of the other runs of the
// same row, above which a run counts as cold.
const coldRatio = 1.2

// maxCount bounds batch sizes, lengths and contexts, so that products of
// three of them stay exact in a float64 where it matters and finite anywhere.
const maxCount = 1 << 40

// Row is one measured configuration.
type Row struct {
	// Mode is the kind of step.
	Mode Mode
	// BatchSize is the number of sequences, InputLen the prompt tokens of
	// each, OutputLen the tokens generated after the prompt.
	BatchSize, InputLen, OutputLen int
	// Context is the mean number of cached tokens of a decoding sequence
	// while it was timed; 0 for prefill.
	Context float64
	// Median is the median time of the runs in seconds. Of fewer than three
	// runs the cold ones are left out.
	Median float64
	// Mean is the mean time of the runs in seconds, cold ones included, as
	// the measuring program reported it.
	Mean float64
	// Noise is the median distance of a run from Median, as a fraction of
	// Median; 0 where a single run is known.
	Noise float64
	// Runs is the number of runs behind the row, Cold how many of them were
	// cold.
	Runs, Cold int
	// Index is the number of the row in its file, from 0, over all files in
	// their order: a prefill and a decode that stand in one row of a benchmark
	// file share it. Folds go by it.
	Index int
	// Origin names where the row was read.
	Origin string
	// Pass and Totals say what a mixed step computed, and nothing in other
	// modes: the Pass where its shape is known, the Totals where the step was
	// logged by its sums. BatchSize is then the number of requests, InputLen
	// that of prompt tokens, and Context the mean number of tokens that a
	// request has in the cache, 0 where it is not known.
	Pass   *forward.Pass
	Totals *forward.Totals
	// Clock is what the step was timed with; empty where that is not known.
	Clock profile.Clock

	samples []float64 // runs in seconds, kept for merging
	means   []float64 // one mean in seconds for each merged point
}

// key identifies what was run.
type key struct {
	mode         Mode
	batch, input int
	context      float64
}

func (r Row) key() key { return key{r.Mode, r.BatchSize, r.InputLen, r.Context} }

// Data is what a predictor is trained on and scored against.
type Data struct {
	// Rows hold what was measured in the order of first appearance: each
	// homogeneous configuration once, and every mixed step.
	Rows []Row
	// Merged counts the points that repeated an earlier configuration.
	Merged int
	// Skipped counts the points that say nothing of a step, by reason.
	Skipped map[string]int
}

// Mode returns the rows of one mode, in order.
func (d Data) Mode(m Mode) []Row { return rowsOf(d.Rows, m) }

func rowsOf(rows []Row, m Mode) []Row {
	out := make([]Row, 0, len(rows))
	for _, r := range rows {
		if r.Mode == m {
			out = append(out, r)
		}
	}
	return out
}

// Reasons for leaving a point out.
const (
	skipFailure = "failed to run"
	skipKind    = "not a step"
	skipUnknown = "mixed step of unknown shape"
)

// Observations collects rows from points: homogeneous prefill and decode
// steps with a time, and mixed ones: steps that are called so, that are known
// by their totals, or that compute prompts of several lengths or on cached
// tokens. Failures, layers and mixed steps that say neither pass nor totals are
// counted in [Data.Skipped]; memory figures and requests are passed over. Points of the same homogeneous
// configuration are merged, so that a repeated one cannot be trained on and
// tested at once; they keep the number of the first. Mixed steps are kept one
// by one, since a server's steps tell something by their order.
//
// The error of the stream, or of the first point that claims a time that is
// not positive and finite or a shape that is not possible, is returned with
// the point's origin.
func Observations(points iter.Seq2[profile.Point, error]) (Data, error) {
	d := Data{Skipped: map[string]int{}}
	at := map[key]int{}
	numbers := numbering{open: map[site]*numbered{}}
	for p, err := range points {
		if err != nil {
			return Data{}, fmt.Errorf("collect rows to fit: %w", err)
		}
		index := numbers.of(p)
		row, reason, err := rowOf(p)
		if err != nil {
			return Data{}, fmt.Errorf("collect rows to fit: %s: %w", originOf(p), err)
		}
		if p.Kind == profile.KindMemory || p.Kind == profile.KindRequest || p.Kind == profile.KindTelemetry {
			continue // they stand beside steps and never claim to be one
		}
		if reason != "" {
			d.Skipped[reason]++
			continue
		}
		if row.Mode == Mixed {
			row.Index = index
			d.Rows = append(d.Rows, row)
			continue
		}
		if i, seen := at[row.key()]; seen {
			d.Rows[i].samples = append(d.Rows[i].samples, row.samples...)
			d.Rows[i].means = append(d.Rows[i].means, row.means...)
			d.Merged++
			continue
		}
		row.Index = index
		at[row.key()] = len(d.Rows)
		d.Rows = append(d.Rows, row)
	}
	for i := range d.Rows {
		d.Rows[i].summarise()
	}
	return d, nil
}

// numbering counts the rows of a file as their points go by. Points of one
// origin and the same coordinates are one row, until a mode comes again.
type numbering struct {
	open map[site]*numbered
	next int
}

// site is where a row stands and what it is about.
type site struct {
	origin               string
	batch, input, output int
}

// numbered is a row with the modes that have been seen of it.
type numbered struct {
	index           int
	prefill, decode bool
}

// of is the number of the row that p belongs to. What is no step has none,
// and counts for none.
func (n *numbering) of(p profile.Point) int {
	if p.Kind != profile.KindStep || p.Step == nil {
		return 0
	}
	s := p.Step
	prefill, decode := s.Mode == profile.Prefill, s.Mode == profile.Decode
	if !prefill && !decode {
		n.next++
		return n.next - 1
	}
	at := site{p.Origin, s.BatchSize, s.InputLen, s.OutputLen}
	row := n.open[at]
	if row == nil || prefill && row.prefill || decode && row.decode {
		row = &numbered{index: n.next}
		n.open[at] = row
		n.next++
	}
	row.prefill, row.decode = row.prefill || prefill, row.decode || decode
	return row.index
}

// ObservationsOf is [Observations] of points that are already in memory.
func ObservationsOf(points []profile.Point) (Data, error) {
	return Observations(func(yield func(profile.Point, error) bool) {
		for _, p := range points {
			if !yield(p, nil) {
				return
			}
		}
	})
}

func originOf(p profile.Point) string {
	if p.Origin == "" {
		return "a point without origin"
	}
	return p.Origin
}

// rowOf reads one point. reason says why a sound point is of no use here.
func rowOf(p profile.Point) (row Row, reason string, err error) {
	switch {
	case p.Kind == profile.KindFailure:
		return Row{}, skipFailure, nil
	case p.Kind != profile.KindStep || p.Step == nil:
		return Row{}, skipKind, nil
	}
	step := p.Step
	row = Row{
		Mode: Mode(step.Mode), BatchSize: step.BatchSize, InputLen: step.InputLen,
		OutputLen: step.OutputLen, Origin: p.Origin, Clock: p.Clock,
	}
	switch {
	case step.Mode != profile.Prefill && step.Mode != profile.Decode && step.Mode != profile.Mixed:
		return Row{}, "", fmt.Errorf("step mode %q: want prefill, decode or mixed", step.Mode)
	case isMixed(step):
		if step.Totals == nil && step.Pass.Decode.Count == 0 && len(step.Pass.Prefill) == 0 {
			return Row{}, skipUnknown, nil
		}
		mixedShape(step, &row)
		if err := row.checkWork(); err != nil {
			return Row{}, "", err
		}
		err = row.takeTimes(p)
		return row, "", err
	case step.Mode == profile.Prefill:
		prefillShape(step, &row)
	default:
		decodeShape(step, &row)
	}
	if err := checkShape(row.BatchSize, row.InputLen, row.Context); err != nil {
		return Row{}, "", err
	}
	err = row.takeTimes(p)
	return row, "", err
}

// isMixed reports whether a step is other than whole prompts of one length or
// decoding sequences, or is known by its sums only.
func isMixed(step *profile.Step) bool {
	switch {
	case step.Mode == profile.Mixed || step.Totals != nil:
		return true
	case step.Mode == profile.Decode:
		return len(step.Pass.Prefill) > 0
	case len(step.Pass.Prefill) == 0:
		return step.Pass.Decode.Count > 0
	}
	return step.Pass.Decode.Count > 0 || len(step.Pass.Prefill) > 1 || step.Pass.Prefill[0].Context > 0
}

// mixedShape copies what a mixed step computed.
func mixedShape(step *profile.Step, row *Row) {
	row.Mode = Mixed
	if step.Totals != nil {
		totals := *step.Totals
		row.Totals = &totals
	}
	if len(step.Pass.Prefill) > 0 || step.Pass.Decode.Count > 0 {
		row.Pass = &forward.Pass{Prefill: slices.Clone(step.Pass.Prefill), Decode: step.Pass.Decode}
	}
	sums := step.Sums()
	row.BatchSize, row.InputLen = sums.PrefillRequests+sums.DecodeRequests, sums.PrefillTokens
	if row.BatchSize > 0 {
		row.Context = float64(sums.KVTokens) / float64(row.BatchSize)
	}
}

// prefillShape reads the shape of a prefill step off its pass where the grid
// coordinates are missing.
func prefillShape(step *profile.Step, row *Row) {
	if len(step.Pass.Prefill) == 0 {
		return
	}
	chunk := step.Pass.Prefill[0]
	row.BatchSize, row.InputLen = chunk.Count, chunk.New
}

// decodeShape reads batch size and mean context off the pass; a step without
// a pass was timed at contexts input+1 … input+output−1.
func decodeShape(step *profile.Step, row *Row) {
	if step.Pass.Decode.Count > 0 {
		row.BatchSize, row.Context = step.Pass.Decode.Count, step.Pass.MeanDecodeContext()
		if row.InputLen == 0 {
			row.InputLen = int(row.Context)
		}
		return
	}
	row.Context = float64(row.InputLen) + float64(row.OutputLen)/2
}

func checkShape(batch, input int, context float64) error {
	var faults []error
	if batch < 1 || batch > maxCount {
		faults = append(faults, fmt.Errorf("batch size %d: want 1 to 2^40", batch))
	}
	if input < 0 || input > maxCount || (input == 0 && context == 0) {
		faults = append(faults, fmt.Errorf("input length %d: want 1 to 2^40", input))
	}
	if !(context >= 0 && context <= maxCount) {
		faults = append(faults, fmt.Errorf("context %v: want 0 to 2^40", context))
	}
	return errors.Join(faults...)
}

// takeTimes copies the point's samples and its mean.
func (r *Row) takeTimes(p profile.Point) error {
	for i, s := range p.Samples {
		if !possibleTime(s) {
			return fmt.Errorf("%s at batch size %d, input length %d: sample %d is %v s: want a positive, finite time", r.Mode, r.BatchSize, r.InputLen, i, s)
		}
	}
	if p.Summary != nil && !possibleTime(p.Summary.Mean) && (p.Summary.Mean != 0 || len(p.Samples) == 0) {
		return fmt.Errorf("%s at batch size %d, input length %d: mean time is %v s: want a positive, finite time", r.Mode, r.BatchSize, r.InputLen, p.Summary.Mean)
	}
	mean, ok := p.Mean()
	if !ok {
		return fmt.Errorf("%s at batch size %d, input length %d: no time", r.Mode, r.BatchSize, r.InputLen)
	}
	r.samples = p.Samples
	if len(p.Samples) == 0 {
		r.samples = []float64{float64(mean)}
	}
	r.samples = slices.Clone(r.samples)
	r.means = []float64{float64(mean)}
	return nil
}

// possibleTime reports whether t seconds can be the time of a step: positive,
// and below three thousand years, so that squares and ratios stay finite.
func possibleTime(t float64) bool { return t >= 1e-12 && t <= 1e11 }

// summarise derives the statistics of the row from its runs.
func (r *Row) summarise() {
	sorted := slices.Sorted(slices.Values(r.samples))
	warm := make([]float64, 0, len(sorted))
	for i, s := range sorted {
		if len(sorted) > 1 && s > coldRatio*stat.MedianWithout(sorted, i) {
			r.Cold++
			continue
		}
		warm = append(warm, s)
	}
	r.Runs = len(sorted)
	r.Median = stat.QuantileSorted(sorted, 0.5)
	if r.Runs < 3 {
		r.Median = stat.QuantileSorted(warm, 0.5)
	}
	away := make([]float64, r.Runs)
	for i, s := range sorted {
		away[i] = math.Abs(s-r.Median) / r.Median
	}
	r.Noise = stat.Median(away)
	r.Mean = stat.Mean(r.means)
	r.samples, r.means = nil, nil
}
