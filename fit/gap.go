package fit

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// Gap is the time that passes beside the steps of a server.
type Gap struct {
	// Between is the host time from the end of a step to the begin of the
	// next one while there is work.
	Between stat.Estimate[unit.Seconds]
	// Before is what a request that meets an idle server waits beside its
	// steps: from its sending to the begin of its first step, and from the end
	// of a step until its token has come back.
	Before stat.Estimate[unit.Seconds]
	// Periods is the number of busy periods that were compared, Steps that of
	// the steps in them.
	Periods, Steps int
}

// The search for the host gap.
const (
	// minPeriods is the least number of busy periods that say something,
	// fewPeriods the number below which a warning goes with it.
	minPeriods = 5
	fewPeriods = 20
	// gapDraws is the number of bootstrap samples behind the intervals,
	// gapSeed their seed.
	gapDraws = 400
	gapSeed  = 3
	// maxGap bounds a gap in seconds.
	maxGap = 3600
	// maxLooks bounds the steps that are looked at for where periods go on.
	maxLooks = 20_000_000
)

// HostGap finds the time that a server spends between its steps, and before it
// sees a request, from the steps of one load in their order and the requests
// of its clients. Steps need their totals or pass; points of other kinds are
// passed over.
//
// The union of the requests' lives gives the periods in which the server was
// busy. The requests of a period need as many prompt tokens and generated ones
// as they say, less what was cached, so running sums of tokens tell which
// steps belong to it, and which of them gave the first token. From that token
// to the end of the period the clients' time is that of the steps and of as
// many gaps; up to it, that of fewer steps and of the way there and back. The
// answers are medians over the periods, with bootstrap intervals of level 0.8.
//
// Steps before the first request, as of a warm-up, are found by the same sums
// and left out. So are periods whose tokens do not add up, as where a request was
// preempted and computed again: the comparison goes on with the next five in a
// row that do, and a warning says how many were left out. It is an error if fewer
// than five periods can be compared.
func HostGap(steps, requests []profile.Point) (Gap, error) {
	served, err := servedSteps(steps)
	if err != nil {
		return Gap{}, fmt.Errorf("host gap: %w", err)
	}
	periods, err := busyPeriods(requests)
	if err != nil {
		return Gap{}, fmt.Errorf("host gap: %w", err)
	}
	pieces, matched, from, rest := matchPeriods(served, periods)
	if len(pieces) < minPeriods {
		why := "the load was too short or never paused"
		if matched < len(periods) {
			why = "in the others the tokens of requests and steps do not add up: other requests ran, some were recomputed, or steps are missing"
		}
		return Gap{}, fmt.Errorf("host gap: %d of %d busy periods can be compared: want at least %d: %s", len(pieces), len(periods), minPeriods, why)
	}
	g := estimateGap(pieces)
	if math.IsNaN(float64(g.Between.Value)) {
		return Gap{}, errors.New("host gap: no step follows a first token: want requests that generate more than one token")
	}
	var warnings []string
	if len(pieces) < fewPeriods {
		warnings = append(warnings, fmt.Sprintf("from %d busy periods only", len(pieces)))
	}
	if from > 0 {
		warnings = append(warnings, fmt.Sprintf("%d steps come before the first request", from))
	}
	if matched < len(periods) {
		warnings = append(warnings, fmt.Sprintf("from %d of %d busy periods: in the others the tokens of requests and steps do not add up", matched, len(periods)))
	} else if rest > 0 {
		warnings = append(warnings, fmt.Sprintf("%d steps follow after the last request", rest))
	}
	if !(g.Between.Value > -1e-4) {
		return Gap{}, fmt.Errorf("host gap: the clients' busy periods are shorter than their steps by %v a step: the requests are not those of these steps", -g.Between.Value)
	}
	for _, e := range []*stat.Estimate[unit.Seconds]{&g.Between, &g.Before} {
		e.Value, e.Low, e.High = max(e.Value, 0), max(e.Low, 0), max(e.High, 0)
		e.Warnings = warnings
	}
	return g, nil
}

// servedStep is a step as the search sees it.
type servedStep struct {
	seconds         float64
	prefill, decode int64 // tokens
}

func servedSteps(points []profile.Point) ([]servedStep, error) {
	var out []servedStep
	for i := range points {
		p := &points[i]
		if p.Kind != profile.KindStep || p.Step == nil {
			continue
		}
		t, ok := p.Median()
		if !ok || !possibleTime(float64(t)) {
			return nil, fmt.Errorf("%s: want a positive, finite time", originOf(*p))
		}
		sums := p.Step.Sums()
		if sums.Tokens() == 0 {
			continue // run for the sake of other ranks
		}
		if err := sums.Validate(); err != nil {
			return nil, fmt.Errorf("%s: %w", originOf(*p), err)
		}
		out = append(out, servedStep{float64(t), int64(sums.PrefillTokens), int64(sums.DecodeTokens)})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no steps: %w", stat.ErrNoData)
	}
	return out, nil
}

// period is a time in which at least one request was under way.
type period struct {
	end             float64 // s
	prefill, decode int64   // tokens that its requests need
	// first is the request that got the first token.
	first *profile.Request
}

func busyPeriods(points []profile.Point) ([]period, error) {
	var requests []*profile.Request
	for i := range points {
		p := &points[i]
		if p.Kind != profile.KindRequest || p.Request == nil {
			continue
		}
		r := p.Request
		if r.InputLen < 1 || r.OutputLen < 1 || r.InputLen > maxCount || r.OutputLen > maxCount || r.CachedLen < 0 || r.CachedLen > r.InputLen ||
			!(r.Sent <= r.First && r.First <= r.Last) || math.IsInf(r.Sent, 0) || math.IsInf(r.Last, 0) {
			return nil, fmt.Errorf("%s: request of %d tokens, %d cached, %d generated, sent at %v s, first at %v s, last at %v s: cannot be",
				originOf(*p), r.InputLen, r.CachedLen, r.OutputLen, r.Sent, r.First, r.Last)
		}
		requests = append(requests, r)
	}
	if len(requests) == 0 {
		return nil, fmt.Errorf("no requests: %w", stat.ErrNoData)
	}
	slices.SortStableFunc(requests, func(a, b *profile.Request) int { return cmp.Compare(a.Sent, b.Sent) })
	var out []period
	for _, r := range requests {
		if len(out) == 0 || r.Sent > out[len(out)-1].end {
			out = append(out, period{end: r.Last, first: r})
		}
		p := &out[len(out)-1]
		p.end = max(p.end, r.Last)
		p.prefill += int64(r.InputLen - r.CachedLen)
		p.decode += int64(r.OutputLen - 1)
		if r.First < p.first.First {
			p.first = r
		}
	}
	return out, nil
}

// piece is what one period says.
type piece struct {
	// before is the client's time up to the first token less that of its
	// steps, in seconds; lead is the number of those steps.
	before float64
	lead   int
	// after is the time from there to the end of the period less that of its
	// steps, in seconds; follow is the number of those.
	after  float64
	follow int
}

// matchPeriods assigns the steps to the periods whose tokens add up. matched is
// the number of those, from that of the steps before the first, rest that of the
// steps after the last.
func matchPeriods(steps []servedStep, periods []period) (pieces []piece, matched, from, rest int) {
	looks := maxLooks
	from, _ = firstStep(steps, periods, &looks)
	at := from
	for next := 0; next < len(periods); {
		cut, left, n := cutPeriods(steps[at:], periods[next:])
		pieces, matched, next, at = append(pieces, cut...), matched+n, next+n, len(steps)-left
		for found := false; !found && next < len(periods); {
			next++
			if next+minPeriods > len(periods) || looks <= 0 {
				return pieces, matched, from, len(steps) - at
			}
			var skip int
			skip, found = firstStep(steps[at:], periods[next:], &looks)
			at += skip
		}
	}
	return pieces, matched, from, len(steps) - at
}

// cutPeriods assigns the steps to the periods, as long as tokens add up.
// matched is the number of periods up to there, rest that of the steps left.
func cutPeriods(steps []servedStep, periods []period) (pieces []piece, rest, matched int) {
	at := 0
	for _, p := range periods {
		var prefill, decode int64
		var own piece
		need := int64(p.first.InputLen - p.first.CachedLen)
		started := false
		end := at
		for end < len(steps) && (prefill < p.prefill || decode < p.decode) {
			s := steps[end]
			end++
			prefill += s.prefill
			decode += s.decode
			if !started {
				own.lead++
				own.before -= s.seconds
				started = prefill >= need
				continue
			}
			own.follow++
			own.after -= s.seconds
		}
		if prefill != p.prefill || decode != p.decode {
			return pieces, len(steps) - at, matched
		}
		at = end
		matched++
		if own.lead == 0 {
			continue
		}
		own.before += p.first.First - p.first.Sent
		own.after += p.end - p.first.First
		pieces = append(pieces, own)
	}
	return pieces, len(steps) - at, matched
}

// firstStep is the number of the step with which the first period begins: of
// the steps from which enough periods add up the first, or 0 where there is none.
// looks is how many steps may be looked at yet.
func firstStep(steps []servedStep, periods []period, looks *int) (first int, found bool) {
	*looks -= len(steps)
	tokens := make([]int64, len(steps)+1) // in the steps before
	for i, s := range steps {
		tokens[i+1] = tokens[i] + s.prefill + s.decode
	}
	for from, s := range steps {
		// An idle server begins with a prompt. A start among the last decodes of a
		// warm-up would add up as well, each period being late by as many.
		if s.prefill == 0 || s.decode > 0 {
			continue
		}
		// The period ends where its tokens are used up; whether both kinds of
		// them are, cutPeriods tells.
		_, ends := slices.BinarySearch(tokens, tokens[from]+periods[0].prefill+periods[0].decode)
		if !ends {
			continue
		}
		few := periods[:min(minPeriods, len(periods))]
		if _, _, matched := cutPeriods(steps[from:], few); matched == len(few) {
			return from, true
		}
	}
	return 0, false
}

// estimateGap takes medians over pieces, and their spread over resamples.
func estimateGap(pieces []piece) Gap {
	between, before := gapOf(pieces)
	var betweens, befores []float64
	r := rand.New(rand.NewPCG(gapSeed, uint64(len(pieces))))
	drawn := make([]piece, len(pieces))
	for range gapDraws {
		for i := range drawn {
			drawn[i] = pieces[r.IntN(len(pieces))]
		}
		a, b := gapOf(drawn)
		if !math.IsNaN(a) {
			betweens = append(betweens, a)
		}
		befores = append(befores, b)
	}
	g := Gap{Between: spread(between, betweens), Before: spread(before, befores), Periods: len(pieces)}
	for _, p := range pieces {
		g.Steps += p.lead + p.follow
	}
	return g
}

// spread is an estimate with the quantiles of its resamples as interval.
func spread(value float64, draws []float64) stat.Estimate[unit.Seconds] {
	e := stat.Exactly(unit.Seconds(value), stat.Fitted)
	if len(draws) > 0 {
		low, high := stat.Quantile(draws, 0.1), stat.Quantile(draws, 0.9)
		e.Low, e.High, e.Level = unit.Seconds(min(low, value)), unit.Seconds(max(high, value)), levels()[0]
	}
	return e
}

// gapOf is the median gap over all steps that followed a first token, and the
// median time before it, in seconds; between is NaN where no step followed.
func gapOf(pieces []piece) (between, before float64) {
	type share struct{ gap, weight float64 }
	var shares []share
	var total float64
	for _, p := range pieces {
		if p.follow > 0 {
			w := float64(p.follow)
			shares = append(shares, share{p.after / w, w})
			total += w
		}
	}
	between = math.NaN()
	slices.SortFunc(shares, func(a, b share) int { return cmp.Compare(a.gap, b.gap) })
	var below float64
	for _, s := range shares {
		below += s.weight
		if below >= total/2 {
			between = s.gap
			break
		}
	}
	befores := make([]float64, len(pieces))
	for i, p := range pieces {
		befores[i] = p.before
		if !math.IsNaN(between) {
			befores[i] -= between * float64(p.lead-1)
		}
	}
	return between, stat.Median(befores)
}

// MergeGaps is what several loads of one server say together: means by their
// number of busy periods, with intervals that hold what each load alone found,
// since loads differ by more than the periods of one.
func MergeGaps(gaps ...Gap) (Gap, error) {
	if len(gaps) == 0 {
		return Gap{}, fmt.Errorf("merge host gaps: %w", stat.ErrNoData)
	}
	out := gaps[0]
	for _, g := range gaps[1:] {
		n, more := float64(out.Periods), float64(g.Periods)
		if !(n+more > 0) {
			return Gap{}, errors.New("merge host gaps: one of them comes from no periods")
		}
		out.Between = mergeEstimates(out.Between, g.Between, n/(n+more))
		out.Before = mergeEstimates(out.Before, g.Before, n/(n+more))
		out.Periods += g.Periods
		out.Steps += g.Steps
	}
	return out, nil
}

func mergeEstimates(a, b stat.Estimate[unit.Seconds], share float64) stat.Estimate[unit.Seconds] {
	out := a
	out.Value = unit.Seconds(share*float64(a.Value) + (1-share)*float64(b.Value))
	out.Low, out.High = min(a.Low, b.Low, out.Value), max(a.High, b.High, out.Value)
	out.Level = min(a.Level, b.Level)
	out.Warnings = nil
	for _, w := range slices.Concat(a.Warnings, b.Warnings) {
		if !slices.Contains(out.Warnings, w) {
			out.Warnings = append(out.Warnings, w)
		}
	}
	return out
}

// HostGap is the host time between two steps; ok is false where the predictor
// was trained without it.
func (p *Predictor) HostGap() (gap stat.Estimate[unit.Seconds], ok bool) {
	if p.gap == nil {
		return stat.Estimate[unit.Seconds]{}, false
	}
	return p.gap.Between, true
}

// Gap is all that is known of the time beside the steps; ok is false where the
// predictor was trained without it.
func (p *Predictor) Gap() (gap Gap, ok bool) {
	if p.gap == nil {
		return Gap{}, false
	}
	return *p.gap, true
}

// WithHostGap is the predictor with another host gap.
func (p *Predictor) WithHostGap(gap Gap) *Predictor {
	out := *p
	out.gap = &gap
	return &out
}

// check reports what makes the gap impossible.
func (g *Gap) check() error {
	for _, e := range []stat.Estimate[unit.Seconds]{g.Between, g.Before} {
		if !(e.Low >= 0 && e.Low <= e.Value && e.Value <= e.High && e.High <= maxGap && e.Level >= 0 && e.Level < 1) {
			return fmt.Errorf("host gap of %v in %v to %v s: want rising times of 0 to %d", float64(e.Value), float64(e.Low), float64(e.High), maxGap)
		}
	}
	if g.Periods < 0 || g.Steps < 0 {
		return fmt.Errorf("host gap from %d periods and %d steps: want none negative", g.Periods, g.Steps)
	}
	return nil
}
