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
	last := unit.Seconds(0)
	for i, q := range s.Requests {
		if err := q.check(i, last); err != nil {
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
func (q Request) check(index int, last unit.Seconds) error {
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
		Spec:     fmt.Sprintf("%d requests of %s, speed %g; seed %d", len(requests), how.Name, speed, how.Seed),
		Requests: make([]Request, len(requests)),
	}
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
		spans := make([]Span, len(q.Prefix))
		for k, span := range q.Prefix {
			span.Seed = reseed(how.Seed, span.Seed)
			spans[k] = span
		}
		if q.Prefix = nil; len(spans) > 0 {
			q.Prefix = spans
		}
		s.Requests[i] = q
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("workload: replay of %s: %w", how.Name, err)
	}
	return s, nil
}

// reseed maps the seeds of a trace to those of one schedule.
func reseed(schedule, seed uint64) uint64 {
	var p rand.PCG
	p.Seed(schedule^streamReplay<<56, seed)
	return p.Uint64() % maxSeed
}
