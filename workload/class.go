package workload

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// Class is a part of the traffic with promises of its own: a tenant, a product,
// a tier.
type Class struct {
	// Name is that of [Request].Class.
	Name string `json:"name"`
	// Share is the class's part of the requests, or of the sessions, against
	// the sum of all shares.
	Share float64 `json:"share"`
	// Priority is that of its requests as vLLM counts it: the lower, the earlier.
	Priority int `json:"priority,omitempty"`
	// Targets are what its requests are promised; empty for nothing.
	Targets []SLO `json:"slo,omitempty"`
	// Lengths is how long its prompts and answers are; nil for those of the
	// [Spec]. Prefixes is what its prompts have in common; nil for those of the
	// Spec. A schedule has neither: its requests have lengths.
	Lengths  Lengths   `json:"-"`
	Prefixes *Prefixes `json:"-"`
}

// String is such as "class paid 1 (input fixed 512; output fixed 64)".
func (c Class) String() string {
	var own []string
	if c.Lengths != nil {
		own = append(own, c.Lengths.String())
	}
	switch {
	case c.Prefixes == nil:
	case c.Prefixes.Share == 0:
		own = append(own, "no prefixes")
	default:
		own = append(own, "prefixes "+c.Prefixes.String())
	}
	text := fmt.Sprintf("class %s %g", c.Name, c.Share)
	if len(own) > 0 {
		text += " (" + strings.Join(own, "; ") + ")"
	}
	return text
}

// maxClasses bounds the number of classes.
const maxClasses = 1000

// checkClasses reports all faults of the classes of a load.
func checkClasses(classes []Class) error {
	var faults []error
	if len(classes) > maxClasses {
		faults = append(faults, fmt.Errorf("%d classes: want at most %d", len(classes), maxClasses))
	}
	for i, c := range classes {
		if c.Name == "" {
			faults = append(faults, fmt.Errorf("class %d has no name", i+1))
		}
		if slices.ContainsFunc(classes[:i], func(o Class) bool { return o.Name == c.Name }) {
			faults = append(faults, fmt.Errorf("class %s stands twice", c.Name))
		}
		for _, err := range c.faults() {
			faults = append(faults, fmt.Errorf("class %s: %w", c.Name, err))
		}
	}
	return errors.Join(append(faults, checkShares(classes))...)
}

// faults are those of a class's share and targets, which do not name the class.
func (c Class) faults() []error {
	var faults []error
	if err := checkNumber("share", c.Share); err != nil {
		faults = append(faults, err)
	}
	for _, t := range c.Targets {
		if err := t.Validate(); err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

// checkShares reports shares that make nothing together. One that is faulty by
// itself is told of as such.
func checkShares(classes []Class) error {
	sum := 0.0
	for _, c := range classes {
		sum += c.Share
	}
	faulty := slices.ContainsFunc(classes, func(c Class) bool { return checkNumber("share", c.Share) != nil })
	if len(classes) > 0 && !faulty && !(sum > 0 && sum <= math.MaxFloat64) {
		return fmt.Errorf("the shares of the classes add up to %g: want more than 0", sum)
	}
	return nil
}

// checkOwn reports the faults of what a class has of its own, and names it.
func (c Class) checkOwn() error {
	if err := c.ownFaults(); err != nil {
		return fmt.Errorf("class %s: %w", c.Name, err)
	}
	return nil
}

// ownFaults are those of what a class has of its own.
func (c Class) ownFaults() error {
	var faults []error
	if c.Lengths != nil {
		faults = append(faults, c.Lengths.Validate())
	}
	if c.Prefixes != nil {
		faults = append(faults, c.Prefixes.Validate())
	}
	return errors.Join(faults...)
}

// bare are classes without what only [Build] needs.
func bare(classes []Class) []Class {
	classes = slices.Clone(classes)
	for i := range classes {
		classes[i].Lengths, classes[i].Prefixes = nil, nil
	}
	return classes
}

// classifier hands out classes by their shares.
type classifier struct {
	classes []Class
	sums    []float64
	choices *rand.Rand
	talks   map[string]Class // of the sessions so far
}

// newClassifier hands out nothing where there are no classes.
func newClassifier(classes []Class, seed uint64) *classifier {
	c := &classifier{classes: classes, choices: stream(seed, streamClasses), talks: map[string]Class{}}
	sum := 0.0
	for _, class := range classes {
		sum += class.Share
		c.sums = append(c.sums, sum)
	}
	return c
}

// next is the class of one request; the zero Class where there is none.
func (c *classifier) next() Class {
	if len(c.classes) == 0 {
		return Class{}
	}
	return c.classes[pick(c.sums, c.choices.Float64())]
}

// of gives a recorded request its class, and all turns of a session the same.
func (c *classifier) of(q Request) Request {
	if len(c.classes) == 0 {
		return q
	}
	class, known := c.talks[q.Session]
	switch i := slices.IndexFunc(c.classes, func(o Class) bool { return o.Name == q.Class }); {
	case q.Class != "" && i < 0:
		return q // the schedule's faults tell of it
	case q.Class != "":
		class = c.classes[i]
	case q.Session == "" || !known:
		class = c.next()
	}
	if q.Session != "" {
		c.talks[q.Session] = class
	}
	q.Class = class.Name
	if q.Priority == 0 {
		q.Priority = class.Priority
	}
	return q
}

// classesOf are the classes that requests name, with their shares.
func classesOf(requests []Request) []Class {
	counts := map[string]float64{}
	for i := range requests {
		if name := requests[i].Class; name != "" {
			counts[name]++
		}
	}
	var classes []Class
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		classes = append(classes, Class{Name: name, Share: counts[name] / float64(len(requests))})
	}
	return classes
}
