package workload

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"strconv"
)

// Prefixes makes prompts begin alike, as with a system prompt.
type Prefixes struct {
	// Share is the part of the requests, or of the sessions, that have a
	// shared prefix, 0..1.
	Share float64
	// Groups is how many different prefixes there are.
	Groups int
	// Length is the length of a group's prefix in tokens, drawn once a group.
	Length Length
	// Zipf makes some groups more frequent: group k, counted from 1, has the
	// weight 1/k^Zipf. Without a unit; 0 for all equally often.
	Zipf float64
	// Added puts the prefix before the drawn input length, as
	// --random-prefix-len of vllm bench serve does. Otherwise it is part of
	// that length, and is cut where it is longer.
	Added bool
}

// Validate reports all faults of the parameters.
func (p Prefixes) Validate() error {
	var faults []error
	if !(p.Share >= 0 && p.Share <= 1) {
		faults = append(faults, fmt.Errorf("prefixes: share %g: want 0 to 1", p.Share))
	}
	if p.Groups < 1 || p.Groups > maxGroups {
		faults = append(faults, fmt.Errorf("prefixes: %d groups: want 1 to %d", p.Groups, maxGroups))
	}
	if p.Length == nil {
		faults = append(faults, errors.New("prefixes: want a length"))
	} else if err := p.Length.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("prefixes: %w", err))
	}
	if !(p.Zipf >= 0 && p.Zipf <= math.MaxFloat64) {
		faults = append(faults, fmt.Errorf("prefixes: exponent %g: want a number of at least 0", p.Zipf))
	}
	return errors.Join(faults...)
}

// String is such as "70% with one of 3 prefixes, uniform 96..288".
func (p Prefixes) String() string {
	s := fmt.Sprintf("%g%% with one of %d prefixes, %v", 100*p.Share, p.Groups, p.Length)
	if p.Zipf > 0 {
		s += fmt.Sprintf(", zipf %g", p.Zipf)
	}
	if p.Added {
		s += ", added to the input"
	}
	return s
}

// maxGroups bounds the number of prefixes.
const maxGroups = 1 << 20

// prefixer hands out prefixes.
type prefixer struct {
	spec    Prefixes
	groups  []Span
	weights []float64 // running sums of the groups' weights
	choices *rand.Rand
}

// newPrefixer draws the groups, in their order, so that more groups leave the
// first ones as they are. A nil spec hands out nothing.
func newPrefixer(spec *Prefixes, seed uint64) *prefixer {
	if spec == nil {
		return nil
	}
	p := &prefixer{spec: *spec, choices: stream(seed, streamPrefixes)}
	lengths, seeds := stream(seed, streamGroupLengths), stream(seed, streamGroups)
	sum := 0.0
	for i := range spec.Groups {
		p.groups = append(p.groups, Span{Group: "g" + strconv.Itoa(i+1), Seed: newSeed(seeds), Len: spec.Length.Draw(lengths)})
		sum += math.Pow(float64(i+1), -spec.Zipf)
		p.weights = append(p.weights, sum)
	}
	return p
}

// next is the prefix of one prompt of a drawn input length, and the length of
// the prompt with it. Every call draws twice, whatever comes of it.
func (p *prefixer) next(input int) (prefix []Span, length int) {
	if p == nil {
		return nil, input
	}
	has := p.choices.Float64() < p.spec.Share
	at := p.choices.Float64() * p.weights[len(p.weights)-1]
	if !has {
		return nil, input
	}
	i := sort.Search(len(p.weights)-1, func(i int) bool { return p.weights[i] > at })
	span := p.groups[i]
	if p.spec.Added {
		return []Span{span}, min(span.Len+input, MaxLen)
	}
	span.Len = min(span.Len, input)
	return []Span{span}, input
}
