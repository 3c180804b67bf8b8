package workload

import (
	"hash/fnv"
	"iter"
	"math/rand/v2"
)

// drawer hands out the lengths and the prefixes of requests: those of the load,
// or those that a class has of its own.
type drawer struct {
	spec    *Spec
	load    source
	classes map[string]source // with something of their own
	stops   []func()
}

// source is a part of the traffic with lengths and prefixes; nil for none of its
// own.
type source struct {
	pairs    func() (Pair, bool)
	prefixes *prefixer
}

// newDrawer opens the streams of a spec. A class has streams that depend on its
// name and on no other class.
func newDrawer(spec *Spec) *drawer {
	d := &drawer{spec: spec, classes: map[string]source{}}
	if spec.Lengths != nil {
		d.load.pairs = d.pull(spec.Lengths, stream(spec.Seed, streamLengths))
	}
	d.load.prefixes = newPrefixer(spec.Prefixes, spec.Seed, "")
	for _, c := range spec.Classes {
		s := source{prefixes: newPrefixer(c.Prefixes, spec.Seed, c.Name)}
		if c.Lengths != nil {
			s.pairs = d.pull(c.Lengths, classStream(spec.Seed, streamLengths, c.Name))
		}
		if s.pairs != nil || s.prefixes != nil {
			d.classes[c.Name] = s
		}
	}
	return d
}

// pull opens the lengths of a stream.
func (d *drawer) pull(lengths Lengths, r *rand.Rand) func() (Pair, bool) {
	next, stop := iter.Pull(lengths.Pairs(r))
	d.stops = append(d.stops, stop)
	return next
}

// stop closes all of them.
func (d *drawer) stop() {
	for _, stop := range d.stops {
		stop()
	}
}

// pair is the lengths of the next request of a class; ok is false where they
// have ended. The load's are drawn for every request, so that a class with
// lengths of its own leaves the others as they are.
func (d *drawer) pair(class string) (p Pair, ok bool) {
	ok = true
	if d.load.pairs != nil {
		p, ok = d.load.pairs()
	}
	if own := d.classes[class].pairs; ok && own != nil {
		return own()
	}
	return p, ok
}

// prefix is what a prompt of a class with a drawn input length begins with, and
// the length of the prompt. The load's is drawn for every prompt.
func (d *drawer) prefix(class string, input int) (prefix []Span, length int) {
	prefix, length = d.load.prefixes.next(input)
	if own := d.classes[class].prefixes; own != nil {
		return own.next(input)
	}
	return prefix, length
}

// classStream is the stream of a concern of a class. The number of a concern is
// below 256.
func classStream(seed, concern uint64, class string) *rand.Rand {
	if class == "" {
		return stream(seed, concern)
	}
	h := fnv.New64a()
	h.Write([]byte(class))
	return stream(seed, h.Sum64()<<8|concern)
}
