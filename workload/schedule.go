package workload

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/llmprof/llmprof/unit"
)

// Schedule is a load made beforehand: all requests with their times and
// lengths. Requests whose time is known stand in the order of their times, and
// a request stands after the one it waits for.
type Schedule struct {
	// Seed is what all draws came from.
	Seed uint64
	// Pattern describes the arrivals, such as "poisson 3/s".
	Pattern string
	// Spec describes how the schedule was made: [Spec.String], or the name of
	// the trace.
	Spec string
	// Classes are those that the requests name; empty where they name none.
	Classes []Class
	// Requests are the requests; the ID of each is its index.
	Requests []Request
	// Warnings are remarks of [Read], such as a newer minor version. They are
	// not written.
	Warnings []error
}

// InputTokens is the sum of all prompts in tokens.
func (s *Schedule) InputTokens() int {
	n := 0
	for _, q := range s.Requests {
		n += q.InputLen
	}
	return n
}

// OutputTokens is the sum of all answers in tokens.
func (s *Schedule) OutputTokens() int {
	n := 0
	for _, q := range s.Requests {
		n += q.OutputLen
	}
	return n
}

// Open reports whether every time is known beforehand.
func (s *Schedule) Open() bool {
	for _, q := range s.Requests {
		if q.After != nil {
			return false
		}
	}
	return true
}

// Duration is the latest time that is known beforehand, in seconds.
func (s *Schedule) Duration() unit.Seconds {
	for i := len(s.Requests) - 1; i >= 0; i-- {
		if q := s.Requests[i]; q.After == nil {
			return q.At
		}
	}
	return 0
}

// MeanRate is the rate that the schedule really asks for, in requests a
// second: the gaps between the first and the last request, over the time
// between them. ok is false where not all times are known beforehand, and
// where all requests are due at once.
func (s *Schedule) MeanRate() (rate float64, ok bool) {
	if len(s.Requests) == 0 || !s.Open() {
		return 0, false
	}
	span := s.Duration() - s.Requests[0].At
	if span <= 0 {
		return 0, false
	}
	return float64(len(s.Requests)-1) / float64(span), true
}

// maxFaults bounds how many faults Validate lists.
const maxFaults = 20

// Validate reports what makes the schedule unusable, all faults together up
// to a bound.
func (s *Schedule) Validate() error {
	var faults []error
	if len(s.Requests) == 0 {
		faults = append(faults, errors.New("has no request"))
	}
	if len(s.Requests) > MaxRequests {
		faults = append(faults, fmt.Errorf("has %d requests: want at most %d", len(s.Requests), MaxRequests))
	}
	if err := checkClasses(s.Classes); err != nil {
		faults = append(faults, err)
	}
	known := map[string]bool{"": true}
	for _, c := range s.Classes {
		known[c.Name] = true
	}
	last, lastClass := unit.Seconds(0), ""
	for i := range s.Requests {
		q := &s.Requests[i]
		err := q.check(i, last)
		if err == nil && q.Class != lastClass && !known[q.Class] {
			err = fmt.Errorf("class %q is not among those of the schedule", q.Class)
		}
		lastClass = q.Class
		if err != nil {
			faults = append(faults, fmt.Errorf("request %d: %w", i, err))
		}
		if q.After == nil {
			last = max(last, q.At)
		}
		if len(faults) >= maxFaults {
			break
		}
	}
	return errors.Join(faults...)
}

// check reports the first fault of the request at an index, when the last
// known time before it is given.
func (q *Request) check(index int, last unit.Seconds) error {
	switch {
	case q.ID != index:
		return fmt.Errorf("id %d: want the position in the schedule", q.ID)
	case !isTime(q.At):
		return fmt.Errorf("time %v: want 0 to %v", q.At, MaxTime)
	case q.After != nil && q.At != 0:
		return errors.New("has a time and waits for another request: want one of both")
	case q.After == nil && q.At < last:
		return fmt.Errorf("is due at %v, before %v of an earlier one", q.At, last)
	case q.After != nil && (q.After.Request < AnyRequest || q.After.Request >= index):
		return fmt.Errorf("waits for request %d: want an earlier one", q.After.Request)
	case q.After != nil && !isTime(q.After.Think):
		return fmt.Errorf("think time %v: want 0 to %v", q.After.Think, MaxTime)
	case q.InputLen < 1 || q.InputLen > MaxLen:
		return fmt.Errorf("input of %d tokens: want 1 to %d", q.InputLen, MaxLen)
	case q.OutputLen < 1 || q.OutputLen > MaxLen:
		return fmt.Errorf("output of %d tokens: want 1 to %d", q.OutputLen, MaxLen)
	case q.Seed >= maxSeed:
		return fmt.Errorf("seed %d: want less than 2^53", q.Seed)
	case (q.Session == "") != (q.Turn == 0) || q.Turn < 0:
		return fmt.Errorf("session %q, turn %d: want both or none", q.Session, q.Turn)
	}
	if !isTime(q.Timeout) {
		return fmt.Errorf("timeout %v: want 0 to %v", q.Timeout, MaxTime)
	}
	left := q.InputLen
	for _, s := range q.Prefix {
		if s.Len < 1 || s.Len > left {
			return fmt.Errorf("prefix span of %d tokens: want 1 to the %d that the prompt has left", s.Len, left)
		}
		if s.Seed >= maxSeed {
			return fmt.Errorf("seed %d of a prefix span: want less than 2^53", s.Seed)
		}
		left -= s.Len
	}
	return nil
}

// Replaying says how [Replay] makes a schedule of recorded requests. The zero
// value takes all of them, as fast as recorded.
type Replaying struct {
	// Seed makes the tokens: another seed gives other tokens of the same
	// lengths, shared by the same requests.
	Seed uint64
	// Speed is the factor by which it runs faster than recorded, think times
	// included; 0 for as recorded.
	Speed float64
	// Limit is how many of the first requests are taken; 0 for all.
	Limit int
	// Classes are those of the requests: one without a class draws one by the
	// shares, one with a class must name one of them and gets its priority if
	// it has none. Empty takes the classes that the requests name, without
	// targets, and their shares as recorded.
	Classes []Class
	// Timeout is how long after its time a client gives a request up, in
	// seconds, where the record does not say; 0 for never.
	Timeout unit.Seconds
	// Name says where the requests come from, for [Schedule].Spec.
	Name string
}

// Replay makes a schedule of recorded requests, which stand in the order of
// their times. The first of them is due at 0. The seeds of the requests and
// their spans only say which tokens are equal.
func Replay(requests []Request, how Replaying) (*Schedule, error) {
	if err := checkReplay("replay", how.Speed, how.Limit); err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	for _, c := range how.Classes {
		if c.Lengths != nil || c.Prefixes != nil {
			return nil, fmt.Errorf("workload: class %s: lengths and prefixes of its own have no use with a record, which holds them", c.Name)
		}
	}
	if how.Limit > 0 {
		requests = requests[:min(how.Limit, len(requests))]
	}
	if how.Name == "" {
		how.Name = "a trace"
	}
	speed := unit.Seconds(orOne(how.Speed))
	s := &Schedule{
		Seed:     how.Seed,
		Pattern:  fmt.Sprintf("replay, speed %g", speed),
		Spec:     fmt.Sprintf("%s of %s, speed %g; seed %d", unit.Plural(len(requests), "request"), how.Name, speed, how.Seed),
		Requests: make([]Request, len(requests)),
	}
	if s.Classes = how.Classes; len(s.Classes) == 0 {
		s.Classes = classesOf(requests)
	}
	classes := newClassifier(how.Classes, how.Seed)
	prefixes := reseeder{seed: how.Seed, talks: map[string]reseeded{}}
	start := unit.Seconds(0)
	if len(requests) > 0 {
		start = requests[0].At
	}
	for i, q := range requests {
		q.Seed = reseed(how.Seed, q.Seed)
		if q.After == nil {
			q.At = (q.At - start) / speed
		} else {
			q.After = &Dependency{Request: q.After.Request, Think: q.After.Think / speed}
		}
		q.Prefix = prefixes.of(q.Session, q.Prefix)
		if q.Timeout == 0 {
			q.Timeout = how.Timeout
		}
		s.Requests[i] = classes.of(q)
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("workload: replay of %s: %w", how.Name, err)
	}
	return s, nil
}

// reseeder gives the spans of a trace the seeds of one schedule. Turns of a
// session that share the memory of their spans do so afterwards too.
type reseeder struct {
	seed  uint64
	talks map[string]reseeded // the last turn of each session
}

// reseeded is spans as recorded and as they became.
type reseeded struct{ from, to []Span }

// of is the prefix of a request.
func (r *reseeder) of(session string, from []Span) []Span {
	if len(from) == 0 {
		return nil
	}
	var to []Span
	if last := r.talks[session]; len(last.from) > 0 && len(last.from) <= len(from) && &last.from[0] == &from[0] {
		to = last.to
	}
	for _, span := range from[len(to):] {
		span.Seed = reseed(r.seed, span.Seed)
		to = append(to, span)
	}
	if session != "" {
		r.talks[session] = reseeded{from, to}
	}
	return to
}

// reseed maps the seeds of a trace to those of one schedule.
func reseed(schedule, seed uint64) uint64 {
	var p rand.PCG
	p.Seed(schedule^streamReplay<<56, seed)
	return p.Uint64() % maxSeed
}
