package fit

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/llmprof/llmprof/stat"
)

// Models that [Train] knows.
const (
	// Auto is the physics-shaped fit chosen by cross-validation.
	Auto = "auto"
	// LinearModel is the four-weight regression, see [Linear].
	LinearModel = "linear"
)

// Options of [Train]. The zero value trains [Auto].
type Options struct {
	// Model is [Auto] or [LinearModel]. Default: Auto.
	Model string
	// LinearTarget is the time that the four linear weights are trained on.
	// Default: [Mean], as the original does. Auto always learns medians.
	LinearTarget Target
	// HostGap is what passes between steps, see [HostGap] and [MergeGaps]; it
	// is kept with the predictor. Nil where it is not known.
	HostGap *Gap
}

func (o Options) withDefaults() Options {
	if o.Model == "" {
		o.Model = Auto
	}
	if o.LinearTarget == "" {
		o.LinearTarget = Mean
	}
	return o
}

// Validate reports everything that is wrong with the options.
func (o Options) Validate() error {
	o = o.withDefaults()
	var faults []error
	if o.Model != Auto && o.Model != LinearModel {
		faults = append(faults, fmt.Errorf("model %q: want %s or %s", o.Model, Auto, LinearModel))
	}
	if err := o.LinearTarget.validate(); err != nil {
		faults = append(faults, err)
	}
	if o.HostGap != nil {
		if err := o.HostGap.check(); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// Report says what a training did.
type Report struct {
	// Modes has one entry for each mode that had rows.
	Modes []ModeReport
	// ColdRuns counts the runs above 1.2 times the median of the other runs
	// of their row, over all rows; ColdRows the rows that hold one.
	ColdRuns, ColdRows int
}

// ModeReport says how a mode was fitted.
type ModeReport struct {
	// Mode is the kind of step.
	Mode Mode
	// Rows is the number of rows trained on.
	Rows int
	// Chosen is the candidate that was kept.
	Chosen string
	// Candidates are all that were compared, with their errors on rows held
	// out inside the training rows; empty where there was nothing to choose.
	Candidates []CandidateScore
}

// CandidateScore is the error of one shape under inner cross-validation.
type CandidateScore struct {
	// Name describes the shape.
	Name string
	// MAPE is the mean absolute error in percent. That of the kept candidate
	// is a little too good, since it was chosen by it; [CrossValidate] is not.
	MAPE float64
	// Clipped is the same with each row's error clipped at 50 %, so that no
	// single row decides; it is what candidates are compared by.
	Clipped float64
}

// Range is what was measured of a mode.
type Range struct {
	// MinBatch and MaxBatch bound the batch size, in sequences.
	MinBatch, MaxBatch float64
	// MinSize and MaxSize bound the input length (prefill) or the context
	// (decode), in tokens.
	MinSize, MaxSize float64
	// MaxWork is the largest measured product of batch size and size, in
	// tokens.
	MaxWork float64
}

// distance is how far a step lies beyond a range, in octaves of batch size, of
// size, and of their product beyond the other two; all 0 inside.
type distance struct{ batch, size, work float64 }

// farOctaves is the distance from which on nothing is claimed: four octaves
// are a factor of 16, room enough for a bound that nothing measured shows.
const farOctaves = 4

// most is the largest distance in any direction, that of the whole product
// included.
func (d distance) most() float64 {
	if d.work > 0 {
		return d.batch + d.size + d.work
	}
	return max(d.batch, d.size)
}

func (d distance) far() bool { return d.most() > farOctaves }

func (d distance) inside() bool { return d == distance{} }

// outside measures how far b and x lie beyond the range.
func (r Range) outside(b, x float64) distance {
	beyond := func(v, low, high float64) float64 {
		switch {
		case v > high:
			return math.Log2(v / high)
		case v < low:
			return math.Log2(low / max(v, 1))
		}
		return 0
	}
	d := distance{batch: beyond(b, r.MinBatch, r.MaxBatch), size: max(beyond(x, r.MinSize, r.MaxSize), 0)}
	if r.MaxWork > 0 && b*x > r.MaxWork {
		d.work = max(math.Log2(b*x/r.MaxWork)-d.batch-d.size, 0)
	}
	return d
}

// holds reports whether b and x lie within the range: whether outside is no
// distance, without the logarithms.
func (r Range) holds(b, x float64) bool {
	d := b > r.MaxBatch || b < r.MinBatch && r.MinBatch > max(b, 1) || x > r.MaxSize || x < r.MinSize && r.MinSize > max(x, 1)
	return !d && !(r.MaxWork > 0 && b*x > r.MaxWork)
}

// Band is the half-width of an interval in the logarithm of the time: the
// time lies within value·exp(±h), h = HalfWidth + PerBatchOctave·reach(octaves
// beyond the batch sizes) + PerSizeOctave·reach(octaves beyond the sizes), and
// the larger of the two for octaves beyond the product alone. reach(n) =
// n·(n+1)/2: each octave adds one step more than the one before. It is
// dimensionless.
type Band struct {
	// Asked is the level that was asked for, Level the one that the number of
	// held-out rows can promise, as shares 0..1.
	Asked, Level float64
	// HalfWidth, PerBatchOctave and PerSizeOctave are in natural log units.
	HalfWidth, PerBatchOctave, PerSizeOctave float64
}

// at is the half-width at a distance, in natural log units.
func (b Band) at(d distance) float64 {
	return b.HalfWidth + b.PerBatchOctave*reach(d.batch) + b.PerSizeOctave*reach(d.size) + max(b.PerBatchOctave, b.PerSizeOctave)*reach(d.work)
}

// reach weighs a distance in octaves.
func reach(octaves float64) float64 { return octaves * (octaves + 1) / 2 }

// levels are the levels of the stored intervals; the first is the default.
func levels() [2]float64 { return [2]float64{0.8, 0.95} }

// Train fits a predictor to rows of any modes. A mode without rows stays
// untrained. The rows of homogeneous modes must be distinct configurations, as
// [Observations] returns them. Where there are mixed rows, the homogeneous
// ones join them in the model of mixed steps. When ctx ends, so does the search for a shape,
// and the error is ctx's.
func Train(ctx context.Context, rows []Row, options Options) (*Predictor, Report, error) {
	if err := options.Validate(); err != nil {
		return nil, Report{}, fmt.Errorf("train: %w", err)
	}
	options = options.withDefaults()
	p, report := &Predictor{}, Report{}
	if options.HostGap != nil {
		p = p.WithHostGap(*options.HostGap)
	}
	for k, m := range modes() {
		own := rowsOf(rows, m)
		if len(own) == 0 {
			continue
		}
		fitted, entry, err := trainMode(ctx, m, own, options)
		if err != nil {
			return nil, Report{}, fmt.Errorf("train: %w", err)
		}
		p.fits[k] = fitted
		report.Modes = append(report.Modes, entry)
		for _, r := range own {
			report.ColdRuns += r.Cold
			report.ColdRows += min(r.Cold, 1)
		}
	}
	if own := rowsOf(rows, Mixed); len(own) > 0 {
		model, entry, err := trainMixed(ctx, rows, options)
		if err != nil {
			return nil, Report{}, fmt.Errorf("train: %w", err)
		}
		p.mixed = model
		report.Modes = append(report.Modes, entry)
		for _, r := range own {
			report.ColdRuns += r.Cold
			report.ColdRows += min(r.Cold, 1)
		}
	}
	if len(report.Modes) == 0 {
		return nil, Report{}, fmt.Errorf("train: no rows of steps: %w", stat.ErrNoData)
	}
	return p, report, nil
}

// trainOnly trains one mode and leaves the others out.
func trainOnly(ctx context.Context, m Mode, rows []Row, options Options) (*Predictor, error) {
	if m != Mixed {
		p, _, err := Train(ctx, rowsOf(rows, m), options)
		return p, err
	}
	if err := options.Validate(); err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	if len(rowsOf(rows, Mixed)) == 0 {
		return nil, fmt.Errorf("train: no rows of mixed steps: %w", stat.ErrNoData)
	}
	model, _, err := trainMixed(ctx, rows, options.withDefaults())
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	return &Predictor{mixed: model}, nil
}

// trainMode fits one mode.
func trainMode(ctx context.Context, m Mode, rows []Row, options Options) (*fitted, ModeReport, error) {
	report := ModeReport{Mode: m, Rows: len(rows)}
	for _, r := range rows {
		if err := checkShape(r.BatchSize, r.InputLen, r.Context); err != nil || !possibleTime(r.Median) || !possibleTime(r.Mean) {
			return nil, report, fmt.Errorf("%s row of %q, batch size %d, input length %d, median %v s, mean %v s: not a measurement", m, r.Origin, r.BatchSize, r.InputLen, r.Median, r.Mean)
		}
	}
	linear, err := fitLinear(m, rows, options.LinearTarget)
	if err != nil {
		return nil, report, err
	}
	samples, offset := samplesOf(m, rows)
	form := Form{Range: rangeOf(samples), Rows: len(rows)}
	list := candidates()
	if options.Model == LinearModel {
		list = []candidate{{name: LinearModel, linear: true}}
	}
	v, err := choose(ctx, m, samples, list)
	if err != nil {
		return nil, report, err
	}
	report.Chosen = v.choice.name
	for k := range v.scores {
		report.Candidates = append(report.Candidates, CandidateScore{Name: list[k].name, MAPE: 100 * v.plain[k], Clipped: 100 * v.scores[k]})
	}
	if form.Bands, err = bands(m, v); err != nil {
		return nil, report, err
	}
	form.Model = v.choice.name
	if options.Model != LinearModel {
		shapes, err := shapes(ctx, m, samples, []candidate{v.choice})
		if err != nil {
			return nil, report, err
		}
		s := shapes[0]
		form.Terms, form.Residual, form.Floor = s.terms, s.residual, s.floor
	}
	f, err := newFitted(linear, &form, offset)
	if err != nil {
		return nil, report, fmt.Errorf("%s: %w", m, err)
	}
	f.trained = fingerprintOf(rows)
	return f, report, nil
}

// samplesOf are the rows with median times. offset is the mean of context
// less input length over the rows, in tokens.
func samplesOf(m Mode, rows []Row) (samples []sample, offset float64) {
	samples = make([]sample, len(rows))
	for i, r := range rows {
		samples[i] = sample{float64(r.BatchSize), float64(r.InputLen), r.Median}
		if m == Decode {
			samples[i].x = max(r.Context, 1)
			offset += (r.Context - float64(r.InputLen)) / float64(len(rows))
		}
	}
	return samples, offset
}

func rangeOf(samples []sample) Range {
	r := Range{MinBatch: math.Inf(1), MinSize: math.Inf(1)}
	for _, s := range samples {
		r.MinBatch, r.MaxBatch = min(r.MinBatch, s.b), max(r.MaxBatch, s.b)
		r.MinSize, r.MaxSize = min(r.MinSize, s.x), max(r.MaxSize, s.x)
		r.MaxWork = max(r.MaxWork, s.b*s.x)
	}
	return r
}

// bands derives the intervals: split conformal on held-out errors inside the
// range, and for each octave outside the growth of the error that fits to the
// lower part of the range showed on the upper part.
func bands(m Mode, v verdict) ([]Band, error) {
	if len(v.errors) == 0 {
		return nil, nil
	}
	var out []Band
	for _, level := range levels() {
		width, reached, err := stat.ConformalQuantile(v.errors, level)
		if err != nil {
			return nil, fmt.Errorf("interval of %s: %w", m, err)
		}
		width = min(width, maxLogWidth)
		var byBatch, bySize []float64
		for _, e := range v.upper {
			excess := max(math.Abs(e.log)-width, 0)
			switch {
			case e.away.batch > 0 && e.away.size == 0:
				byBatch = append(byBatch, excess/reach(e.away.batch))
			case e.away.size > 0 && e.away.batch == 0:
				bySize = append(bySize, excess/reach(e.away.size))
			}
		}
		band := Band{Asked: level, Level: reached, HalfWidth: width}
		if band.PerBatchOctave, err = growth(byBatch, level, width); err != nil {
			return nil, fmt.Errorf("interval of %s: %w", m, err)
		}
		if band.PerSizeOctave, err = growth(bySize, level, width); err != nil {
			return nil, fmt.Errorf("interval of %s: %w", m, err)
		}
		out = append(out, band)
	}
	return out, nil
}

// minGrowth is the least widening of the first octave, in natural log units:
// however well the fit went on inside the data, outside another bound can
// begin. TestSyntheticExtrapolation shows what the intervals then cover.
const minGrowth = 0.03

// growth is the widening of the first octave, in natural log units: what the
// observed excesses ask for, at least minGrowth and half of width, and width
// itself where nothing was observed.
func growth(excess []float64, level, width float64) (float64, error) {
	if len(excess) == 0 {
		return max(width, minGrowth), nil
	}
	g, _, err := stat.ConformalQuantile(excess, level)
	return min(max(g, width/2, minGrowth), maxLogWidth), err
}

// maxLogWidth bounds a band: a factor of e⁵ says that nothing is known.
const maxLogWidth = 5
