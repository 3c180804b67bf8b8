package workload

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
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
	// Tree is nested groups, in place of Groups, Length and Zipf.
	Tree []Group
	// Added puts the prefix before the drawn input length, as
	// --random-prefix-len of vllm bench serve does. Otherwise it is part of
	// that length, and is cut where it is longer.
	Added bool
}

// Group is prompts that begin alike, and within it groups that go on alike: a
// system prompt, below it the documents that are asked about.
type Group struct {
	// Name is for people; the name of a group within another one follows that
	// one's, as in "system/document3".
	Name string
	// Copies is how many such groups there are, each with tokens of its own and
	// a number behind its name; 0 for one without a number.
	Copies int
	// Zipf makes some copies more frequent, as [Prefixes].Zipf. Without a unit.
	Zipf float64
	// Weight says how often a prompt is of this group, or of its copies
	// together, against the others beside it. Without a unit; 0 for 1.
	Weight float64
	// Length is the length of what the group adds in tokens, drawn once a copy.
	Length Length
	// Groups are those within it, of which a prompt takes one.
	Groups []Group
	// Alone is the weight of prompts that take none of Groups, against the
	// weights of those. Without a unit; 0 for none. It has no use without Groups.
	Alone float64
}

// tree are the groups, of whichever form.
func (p Prefixes) tree() []Group {
	if len(p.Tree) > 0 {
		return p.Tree
	}
	return []Group{{Name: "g", Copies: p.Groups, Zipf: p.Zipf, Weight: 1, Length: p.Length}}
}

// beginnings counts the different prefixes of some groups, up to a bound.
func beginnings(groups []Group) int {
	n := 0
	for _, g := range groups {
		one := beginnings(g.Groups)
		if g.Alone > 0 || len(g.Groups) == 0 {
			one++
		}
		if one > maxGroups || g.Copies > maxGroups {
			return maxGroups + 1
		}
		n = min(n+max(g.Copies, 1)*one, maxGroups+1)
	}
	return n
}

// Validate reports all faults of the parameters.
func (p Prefixes) Validate() error {
	var faults []error
	if !(p.Share >= 0 && p.Share <= 1) {
		faults = append(faults, fmt.Errorf("prefixes: share %g: want 0 to 1", p.Share))
	}
	if len(p.Tree) > 0 {
		if p.Groups != 0 || p.Length != nil || p.Zipf != 0 {
			faults = append(faults, errors.New("prefixes: want a number of groups or a tree of them, not both"))
		}
		faults = append(faults, checkGroups("prefixes", p.Tree, 1))
		if beginnings(p.Tree) > maxGroups {
			faults = append(faults, fmt.Errorf("prefixes: more than %d groups", maxGroups))
		}
		return errors.Join(faults...)
	}
	if p.Groups < 1 || p.Groups > maxGroups {
		faults = append(faults, fmt.Errorf("prefixes: %d groups: want 1 to %d", p.Groups, maxGroups))
	}
	return errors.Join(append(faults, checkLength("prefixes", p.Length), checkZipf("prefixes", p.Zipf))...)
}

// maxNesting bounds how deep groups lie within groups.
const maxNesting = 16

// checkGroups reports all faults of some groups at a depth.
func checkGroups(within string, groups []Group, depth int) error {
	if depth > maxNesting {
		return fmt.Errorf("%s: groups within more than %d others", within, maxNesting)
	}
	var faults []error
	for i, g := range groups {
		what := fmt.Sprintf("%s: group %d", within, i+1)
		if g.Name != "" {
			what = fmt.Sprintf("%s: group %s", within, g.Name)
		}
		if g.Copies < 0 || g.Copies > maxGroups {
			faults = append(faults, fmt.Errorf("%s: %d copies: want 0 to %d", what, g.Copies, maxGroups))
		}
		faults = append(faults, checkNumber(what+": weight", g.Weight), checkNumber(what+": weight alone", g.Alone),
			checkLength(what, g.Length), checkZipf(what, g.Zipf), checkGroups(what, g.Groups, depth+1))
		if g.Alone > 0 && len(g.Groups) == 0 {
			faults = append(faults, fmt.Errorf("%s: weight alone without groups within it", what))
		}
	}
	return errors.Join(faults...)
}

func checkLength(what string, length Length) error {
	if length == nil {
		return fmt.Errorf("%s: want a length", what)
	}
	if err := length.Validate(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func checkZipf(what string, exponent float64) error {
	if !(exponent >= 0 && exponent <= maxExponent) {
		return fmt.Errorf("%s: exponent %g: want 0 to %d", what, exponent, maxExponent)
	}
	return nil
}

// String is such as "70% with one of 3 prefixes, uniform 96..288".
func (p Prefixes) String() string {
	s := fmt.Sprintf("%g%% with one of %d prefixes", 100*p.Share, beginnings(p.tree()))
	if len(p.Tree) > 0 {
		s += " in a tree"
	} else {
		s += fmt.Sprintf(", %v", p.Length)
	}
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
	groups  [][]Span  // the different beginnings of prompts
	tokens  []int     // the length of each
	sums    []float64 // running sums of how often each comes
	choices *rand.Rand
}

// newPrefixer draws the groups, in their order, so that more groups leave the
// first ones as they are, and for a class, if any, by streams of its own. A nil
// spec hands out nothing.
func newPrefixer(spec *Prefixes, seed uint64, class string) *prefixer {
	if spec == nil {
		return nil
	}
	p := &prefixer{spec: *spec, choices: classStream(seed, streamPrefixes, class)}
	d := groupDrawer{into: p, lengths: classStream(seed, streamGroupLengths, class), seeds: classStream(seed, streamGroups, class)}
	around := class
	if class != "" {
		around += "/"
	}
	d.draw(around, nil, spec.tree(), 1)
	return p
}

// groupDrawer draws the lengths and seeds of groups.
type groupDrawer struct {
	into           *prefixer
	lengths, seeds *rand.Rand
}

// draw adds the beginnings of some groups, which go on from the spans of those
// around them and together have a weight.
func (d groupDrawer) draw(around string, before []Span, groups []Group, weight float64) {
	sum := weights(groups)
	for _, g := range groups {
		first := weight * orOne(g.Weight) / sum / zipfSum(max(g.Copies, 1), g.Zipf) // of the most frequent copy
		inner := weights(g.Groups)
		for i := range max(g.Copies, 1) {
			name := around + g.Name
			if g.Copies > 0 {
				name += strconv.Itoa(i + 1)
			}
			spans := slices.Concat(before, []Span{{Group: name, Seed: newSeed(d.seeds), Len: g.Length.Draw(d.lengths)}})
			own := first * math.Pow(float64(i+1), -g.Zipf)
			if len(g.Groups) == 0 {
				d.into.add(spans, own)
				continue
			}
			if g.Alone > 0 {
				d.into.add(spans, own*g.Alone/(inner+g.Alone))
			}
			d.draw(name+"/", spans, g.Groups, own*inner/(inner+g.Alone))
		}
	}
}

// weights adds up the weights of groups beside each other.
func weights(groups []Group) float64 {
	sum := 0.0
	for _, g := range groups {
		sum += orOne(g.Weight)
	}
	return sum
}

// zipfSum adds up the weights of n copies.
func zipfSum(n int, exponent float64) float64 {
	sum := 0.0
	for i := range n {
		sum += math.Pow(float64(i+1), -exponent)
	}
	return sum
}

// add takes the beginning of some prompts.
func (p *prefixer) add(spans []Span, weight float64) {
	tokens, sum := 0, weight
	for _, s := range spans {
		tokens += s.Len
	}
	if n := len(p.sums); n > 0 {
		sum += p.sums[n-1]
	}
	p.groups, p.tokens, p.sums = append(p.groups, slices.Clip(spans)), append(p.tokens, tokens), append(p.sums, sum)
}

// next is the prefix of one prompt of a drawn input length, and the length of
// the prompt with it. Every call draws twice, whatever comes of it. Prompts
// that begin alike share the memory of their spans.
func (p *prefixer) next(input int) (prefix []Span, length int) {
	if p == nil {
		return nil, input
	}
	has := p.choices.Float64() < p.spec.Share
	i := pick(p.sums, p.choices.Float64())
	if !has {
		return nil, input
	}
	if p.spec.Added {
		return cutCopy(p.groups[i], p.tokens[i], MaxLen), min(p.tokens[i]+input, MaxLen)
	}
	return cutCopy(p.groups[i], p.tokens[i], input), input
}
