package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/unit"
)

// Bounds of a schedule.
const (
	// MaxRequests is the largest number of requests.
	MaxRequests = 1 << 22
	// MaxLen is the longest prompt, and the longest answer, in tokens.
	MaxLen = 1 << 24
	// MaxTime is the latest time in seconds, about three years.
	MaxTime unit.Seconds = 1e8
)

// Spec says what load [Build] makes.
type Spec struct {
	// Seed is what all draws come from; each concern has a stream of its own.
	Seed uint64
	// Arrivals is when requests come, or sessions where there are Sessions.
	Arrivals Arrivals
	// Lengths is how long prompts and answers are. Nil is allowed where every
	// class has lengths of its own.
	Lengths Lengths
	// Count is how many arrivals there are at most; 0 for all that Duration,
	// the arrivals or the lengths themselves allow.
	Count int
	// Duration ends the arrivals, in seconds from the start; 0 for all that
	// Count, the arrivals or the lengths themselves allow.
	Duration unit.Seconds
	// Prefixes is what prompts have in common; nil for nothing.
	Prefixes *Prefixes
	// Sessions makes each arrival a conversation; nil for single requests.
	Sessions *Sessions
	// Classes share the requests, or the sessions, among them; empty for none.
	Classes []Class
	// Timeout is how long after its time a client gives a request up, in
	// seconds; 0 for never.
	Timeout unit.Seconds
}

// Validate reports all faults of the spec together.
func (s Spec) Validate() error {
	var faults []error
	if s.Arrivals == nil {
		faults = append(faults, errors.New("want arrivals"))
	} else {
		faults = append(faults, s.Arrivals.Validate())
	}
	if s.Lengths != nil {
		faults = append(faults, s.Lengths.Validate())
	} else if err := s.checkOwnLengths(); err != nil {
		faults = append(faults, err)
	}
	faults = append(faults, s.checkEnd())
	if s.Prefixes != nil {
		faults = append(faults, s.Prefixes.Validate())
	}
	if s.Sessions != nil {
		faults = append(faults, s.Sessions.Validate())
	}
	if !isTime(s.Timeout) {
		faults = append(faults, fmt.Errorf("timeout %v: want 0 to %v", s.Timeout, MaxTime))
	}
	faults = append(faults, checkClasses(s.Classes))
	for _, c := range s.Classes {
		faults = append(faults, c.checkOwn())
	}
	return errors.Join(faults...)
}

// checkOwnLengths wants lengths of every class, where the load has none.
func (s Spec) checkOwnLengths() error {
	if len(s.Classes) == 0 {
		return errors.New("want lengths")
	}
	for _, c := range s.Classes {
		if c.Lengths == nil {
			return fmt.Errorf("want lengths: class %s has none of its own", c.Name)
		}
	}
	return nil
}

// lengthsGoOn reports whether no lengths, of the load or of a class, are known
// to end.
func (s Spec) lengthsGoOn() bool {
	for _, c := range s.Classes {
		if c.Lengths != nil && !goesOn(c.Lengths) {
			return false
		}
	}
	return s.Lengths == nil || goesOn(s.Lengths)
}

// checkEnd reports the faults of what ends the load.
func (s Spec) checkEnd() error {
	var faults []error
	if s.Count < 0 || s.Count > MaxRequests {
		faults = append(faults, fmt.Errorf("count %d: want 0 to %d", s.Count, MaxRequests))
	}
	if !isTime(s.Duration) {
		faults = append(faults, fmt.Errorf("duration %v: want 0 to %v", s.Duration, MaxTime))
	}
	_, closed := s.Arrivals.(Closed)
	if closed && s.Duration > 0 {
		faults = append(faults, errors.New("a closed loop knows no times beforehand: want a count instead of a duration"))
	}
	if s.Count == 0 && s.Duration == 0 && !closed && goesOn(s.Arrivals) && s.lengthsGoOn() {
		faults = append(faults, fmt.Errorf("%v has no end: want a count or a duration", s.Arrivals))
	}
	if closed && s.Count == 0 && s.lengthsGoOn() {
		faults = append(faults, errors.New("a closed loop has no end: want a count"))
	}
	return errors.Join(faults...)
}

// goesOn reports whether a pattern, or a distribution, is known to have no
// end.
func goesOn(source any) bool {
	switch source := source.(type) {
	case Constant, Poisson, Gamma, Weibull, Closed, Independent, Empirical:
		return true
	case Rates:
		return source.endless()
	case Burst:
		return goesOn(source.Of)
	}
	return false
}

// String describes the spec in one line, seed included.
func (s Spec) String() string {
	parts := []string{fmt.Sprintf("%v; %v", s.Arrivals, s.Lengths)}
	if s.Lengths == nil {
		parts[0] = s.Arrivals.String()
	}
	if s.Prefixes != nil {
		parts = append(parts, "prefixes "+s.Prefixes.String())
	}
	if s.Sessions != nil {
		parts = append(parts, "sessions "+s.Sessions.String())
	}
	for _, c := range s.Classes {
		parts = append(parts, c.String())
	}
	if s.Timeout > 0 {
		parts = append(parts, "timeout "+s.Timeout.String())
	}
	if s.Count > 0 {
		parts = append(parts, "count "+strconv.Itoa(s.Count))
	}
	if s.Duration > 0 {
		parts = append(parts, "duration "+s.Duration.String())
	}
	return strings.Join(append(parts, "seed "+strconv.FormatUint(s.Seed, 10)), "; ")
}

// Build makes the schedule of a spec: the same one for the same spec. A spec
// with faults, and one that makes no request or more than [MaxRequests], is an
// error.
func Build(spec Spec) (*Schedule, error) { return BuildContext(context.Background(), spec) }

// lookEvery is after how many arrivals a context is looked at.
const lookEvery = 4096

// BuildContext is [Build] that stops with the context's error where that ends: a
// load of millions takes seconds.
func BuildContext(ctx context.Context, spec Spec) (*Schedule, error) {
	if err := spec.Validate(); err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	b := builder{
		spec:    spec,
		drawer:  newDrawer(&spec),
		prompts: stream(spec.Seed, streamPrompts),
		answers: stream(spec.Seed, streamAnswers),
		turns:   stream(spec.Seed, streamTurns),
		thinks:  stream(spec.Seed, streamThinks),
		classes: newClassifier(spec.Classes, spec.Seed),
	}
	defer b.drawer.stop()
	if spec.Sessions == nil {
		b.out = make([]Request, 0, spec.Count)
	}
	arrivals := 0
	for a := range spec.Arrivals.Times(stream(spec.Seed, streamArrivals)) {
		if spec.Count > 0 && arrivals == spec.Count || spec.Duration > 0 && a.At >= spec.Duration {
			break
		}
		if a.At > MaxTime {
			return nil, fmt.Errorf("workload: arrival %d is due at %v: want at most %v", arrivals, a.At, MaxTime)
		}
		if arrivals%lookEvery == 0 && ctx.Err() != nil {
			return nil, fmt.Errorf("workload: %w", ctx.Err())
		}
		if !b.arrive(a, arrivals) {
			break
		}
		arrivals++
		if len(b.out) > MaxRequests {
			return nil, fmt.Errorf("workload: %v makes more than %d requests: give a count or a duration", spec.Arrivals, MaxRequests)
		}
	}
	if len(b.out) == 0 {
		return nil, fmt.Errorf("workload: %v makes no request", spec)
	}
	return &Schedule{Seed: spec.Seed, Pattern: spec.Arrivals.String(), Spec: spec.String(), Classes: bare(spec.Classes), Requests: b.out}, nil
}

// builder adds up the requests of a schedule.
type builder struct {
	spec                            Spec
	drawer                          *drawer
	prompts, answers, turns, thinks *rand.Rand
	classes                         *classifier
	out                             []Request
}

// arrive adds the request, or the session, of one arrival; false where the
// lengths have ended.
func (b *builder) arrive(a Arrival, number int) bool {
	class := b.classes.next()
	p, ok := b.drawer.pair(class.Name)
	if !ok {
		return false
	}
	first := Request{At: a.At, After: a.After, OutputLen: p.Output, Class: class.Name, Priority: class.Priority, Timeout: b.spec.Timeout}
	first.Prefix, first.InputLen = b.drawer.prefix(class.Name, p.Input)
	if b.spec.Sessions == nil {
		b.add(first)
		return true
	}
	return b.session(first, "s"+strconv.Itoa(number+1))
}

// session adds a first turn and those after it.
func (b *builder) session(turn Request, name string) bool {
	s := b.spec.Sessions
	turns := s.Turns.Draw(b.turns)
	think := orNone(s.Think)
	for k := 1; ; k++ {
		turn.Session, turn.Turn = name, k
		last := b.add(turn)
		if k == turns || len(b.out) > MaxRequests {
			return true
		}
		p, ok := b.drawer.pair(last.Class)
		if !ok {
			return false
		}
		if turn, ok = s.followUp(last, newSeed(b.answers), p); !ok {
			return true
		}
		turn.After = &Dependency{Request: last.ID, Think: think.Draw(b.thinks)}
		turn.Class, turn.Priority, turn.Timeout = last.Class, last.Priority, last.Timeout
	}
}

// add gives a request its number and its seed.
func (b *builder) add(q Request) Request {
	q.ID, q.Seed = len(b.out), newSeed(b.prompts)
	b.out = append(b.out, q)
	return q
}

// The streams of random numbers, one for each concern.
const (
	streamArrivals = iota + 1
	streamLengths
	streamPrompts
	streamAnswers
	streamTurns
	streamThinks
	streamPrefixes
	streamGroups
	streamGroupLengths
	streamTokens
	streamReplay
	streamClasses
)

func stream(seed, concern uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, concern)) }

// maxSeed bounds the seeds of prompts, so that every JSON reader keeps them.
const maxSeed = 1 << 53

func newSeed(r *rand.Rand) uint64 { return r.Uint64N(maxSeed) }

func isTime(t unit.Seconds) bool { return t >= 0 && t <= MaxTime }
