package serving

import (
	"math"
	"time"

	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// boundPrefill measures a prefill from its first request to its last first
// token.
func boundPrefill(r *Run) (bool, error) {
	r.From, r.To = r.Prefill[0].Send, 0
	for i := range r.Prefill {
		r.From, r.To = min(r.From, r.Prefill[i].Send), max(r.To, r.Prefill[i].Chunks[0].At)
	}
	return true, nil
}

// decoding makes decodes of which enough steps have all requests.
type decoding struct {
	experiment *Experiment
	cell       Cell
	prefixes   [][]workload.Span
	output     int // tokens to ask for
}

func (d *decoding) requests(int) []sent {
	return d.experiment.requests(d.cell, d.prefixes, 0, d.output, profile.Decode)
}

// adapt bounds a decode to where all requests run, and asks for more tokens
// where that is too short.
func (d *decoding) adapt(r *Run) (bool, error) {
	r.From, r.To = steady(r.Decode)
	least := math.MaxInt
	for i := range r.Decode {
		least = min(least, len(within(&r.Decode[i], r.From, r.To)))
	}
	if least >= d.experiment.opts.Steps {
		return true, nil
	}
	return false, d.longer(d.output + max(d.experiment.opts.Steps-least, d.experiment.opts.Steps/2))
}

// longer asks for more tokens, as far as the server lets it.
func (d *decoding) longer(output int) error {
	if reason, hint := d.experiment.opts.fits(d.cell, output); reason != "" {
		return failed(hint, "all requests decode together only after %d tokens: %s", output, reason)
	}
	d.output = output
	return nil
}

// steady is when the last request has its first token, and when the first one
// ends.
func steady(records []load.Record) (from, to time.Duration) {
	to = time.Duration(math.MaxInt64)
	for i := range records {
		from, to = max(from, records[i].Chunks[0].At), min(to, records[i].End)
	}
	return from, to
}

// mixing makes decodes with prefills in their midst.
type mixing struct {
	decoding
	arrivals [][]workload.Span
	at       unit.Seconds // when the prefills come
}

// plan chooses when the prefills come and how long the decodes last, by what
// either side took alone.
func (m *mixing) plan(prefill, decode *Phase) {
	started, gap, first := 0.0, 0.0, 0.0
	for i := range decode.Runs {
		r := &decode.Runs[i]
		started = max(started, r.From.Seconds())
		mean := stat.Mean(within(&r.Decode[0], r.From, r.To))
		gap += mean / float64(len(decode.Runs))
	}
	for i := range prefill.Runs {
		first = max(first, (prefill.Runs[i].To - prefill.Runs[i].From).Seconds())
	}
	// Enough steps without them come first to compare with.
	m.at = unit.Seconds(1.25*started + float64(m.experiment.opts.Steps/2+2)*gap)
	m.output = max(m.output, int((float64(m.at)+3*first)/max(gap, 1e-6))+8)
	if limit := m.longest(); limit > 0 {
		m.output = min(m.output, limit)
	}
}

// longest is the most tokens that the server can generate for a request of the
// cell; 0 where it does not say.
func (m *mixing) longest() int {
	o := &m.experiment.opts
	limit := 0
	if o.MaxModelLen > 0 {
		limit = o.MaxModelLen - m.cell.Context()
	}
	if o.KVTokens > 0 {
		room := o.KVTokens/m.cell.Seats() - m.cell.Context()
		if limit == 0 || room < limit {
			limit = room
		}
	}
	return max(limit, 0)
}

func (m *mixing) requests(int) []sent {
	return append(m.experiment.requests(m.cell, m.prefixes, 0, m.output, profile.Decode), m.experiment.prefill(m.cell, m.arrivals, m.at)...)
}

// adapt bounds a run to where prompts are computed, and holds all other requests
// to decode from before it until after.
func (m *mixing) adapt(r *Run) (bool, error) {
	if _, err := boundPrefill(r); err != nil {
		return false, err
	}
	from, to := steady(r.Decode)
	if from > r.From {
		m.at = max(m.at*1.5, unit.Seconds(from.Seconds()*1.25))
	}
	if from <= r.From && to >= r.To {
		return true, nil
	}
	// So many times the time that there was, and half as much again.
	span := max(r.To.Seconds()/max(to.Seconds(), 1e-6), 1) * 1.5
	return false, m.longer(int(float64(m.output)*span) + 8)
}

// within are the gaps of a request that lie in a stretch of time, in seconds a
// token.
func within(rec *load.Record, from, to time.Duration) []float64 {
	return gaps(rec, func(begin, end time.Duration) bool { return begin >= from && end <= to })
}

// beside are the gaps of a request that reach into a stretch of time, in seconds
// a token: that in which it begins and that in which it ends as well, since a
// prompt that is computed in one step stretches just one gap.
func beside(rec *load.Record, from, to time.Duration) []float64 {
	return gaps(rec, func(begin, end time.Duration) bool { return begin < to && end > from })
}

// gaps are those between the chunks of a request that are wanted, once for each
// token of the later one, in seconds a token.
func gaps(rec *load.Record, wanted func(begin, end time.Duration) bool) []float64 {
	var out []float64
	for i, c := range rec.Chunks {
		if i == 0 || c.Tokens < 1 || !wanted(rec.Chunks[i-1].At, c.At) {
			continue
		}
		gap := (c.At - rec.Chunks[i-1].At).Seconds() / float64(c.Tokens)
		for range c.Tokens {
			out = append(out, gap)
		}
	}
	return out
}
