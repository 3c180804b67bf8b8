package workload_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/workload"
)

// ownClasses are classes of which the second has lengths and prefixes of its
// own, and the third lengths.
func ownClasses() []workload.Class {
	return []workload.Class{
		{Name: "plain", Share: 2},
		{
			Name: "own", Share: 1, Lengths: workload.Independent{Input: workload.Uniform{Low: 5000, High: 6000}, Output: workload.Uniform{Low: 500, High: 600}},
			Prefixes: &workload.Prefixes{Share: 0.5, Groups: 2, Length: workload.Fixed(100), Added: true},
		},
		{Name: "long", Share: 1, Lengths: workload.Independent{Input: workload.Fixed(9000), Output: workload.Fixed(900)}},
	}
}

// TestClassesHaveLengthsOfTheirOwn holds each class to its own distributions, and
// every other one to what it would get without them.
func TestClassesHaveLengthsOfTheirOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := specs().Draw(t, "spec")
		spec.Sessions = nil
		spec.Classes = ownClasses()
		s := build(t, spec)
		again := build(t, spec)
		if !reflect.DeepEqual(s.Requests, again.Requests) {
			t.Fatal("the same spec makes another load")
		}
		spec.Classes = []workload.Class{{Name: "plain", Share: 2}, {Name: "own", Share: 1}, {Name: "long", Share: 1}}
		plain := build(t, spec)
		groups := map[string]int{}
		for i, q := range s.Requests {
			other := plain.Requests[i]
			switch q.Class {
			case "plain":
				if !reflect.DeepEqual(q, other) {
					t.Fatalf("request %d of a class without lengths is %+v, want %+v", i, q, other)
				}
			case "own":
				own := q.InputLen - q.PrefixLen()
				if own < 5000 || own > 6000 || q.OutputLen < 500 || q.OutputLen > 600 || len(q.Prefix) > 0 && q.PrefixLen() != 100 {
					t.Fatalf("request %d: %+v", i, q)
				}
				for _, span := range q.Prefix {
					if !strings.HasPrefix(span.Group, "own/g") {
						t.Fatalf("request %d begins with group %q", i, span.Group)
					}
					groups[span.Group]++
				}
			case "long":
				if q.OutputLen != 900 || q.InputLen < 9000 {
					t.Fatalf("request %d: %+v", i, q)
				}
				for k, span := range q.Prefix {
					if span.Group != other.Prefix[k].Group || span.Seed != other.Prefix[k].Seed {
						t.Fatalf("request %d begins with %+v, want %+v as without lengths", i, q.Prefix, other.Prefix)
					}
				}
			}
			if q.At != other.At || q.Class != other.Class || q.Seed != other.Seed {
				t.Fatalf("request %d comes at %v of class %s, without lengths at %v of class %s", i, q.At, q.Class, other.At, other.Class)
			}
		}
		if len(groups) > 2 {
			t.Fatalf("groups %v, want 2 at most", groups)
		}
	})
}

// TestOwnLengthsDoNotDependOnOtherClasses draws the same lengths for a class,
// whatever the others have.
func TestOwnLengthsDoNotDependOnOtherClasses(t *testing.T) {
	of := func(classes []workload.Class) (lengths [][2]int) {
		for _, q := range build(t, workload.Spec{Seed: 3, Arrivals: workload.Constant{Rate: 1}, Lengths: lengthsOf(7), Count: 400, Classes: classes}).Requests {
			if q.Class == "own" {
				lengths = append(lengths, [2]int{q.InputLen, q.OutputLen})
			}
		}
		return lengths
	}
	classes := ownClasses()
	want := of(classes)
	classes[2].Lengths, classes[0].Lengths = nil, lengthsOf(11)
	if got := of(classes); !reflect.DeepEqual(got, want) || len(want) < 50 {
		t.Errorf("%d lengths %v, want %d: %v", len(got), got[:5], len(want), want[:5])
	}
	classes[1].Name, classes[2].Name = "other", "own"
	classes[1].Lengths, classes[2].Lengths = classes[2].Lengths, classes[1].Lengths
	classes[1].Prefixes = nil
	if got := of(classes); reflect.DeepEqual(got, want) {
		t.Error("the class of that name is another one now and has the same lengths")
	}
}

// TestAlikeClassesDiffer draws for two classes of the same distributions: neither
// repeats the other, and a new name for one leaves the other as it was.
func TestAlikeClassesDiffer(t *testing.T) {
	type drawn struct {
		lengths [][2]int
		seeds   []uint64 // of the prefixes
	}
	of := func(names ...string) map[string]drawn {
		var classes []workload.Class
		for _, name := range names {
			classes = append(classes, workload.Class{
				Name: name, Share: 1, Lengths: workload.Independent{Input: workload.Uniform{Low: 1000, High: 9000}, Output: workload.Uniform{Low: 1, High: 900}},
				Prefixes: &workload.Prefixes{Share: 1, Groups: 4, Length: workload.Uniform{Low: 1, High: 900}},
			})
		}
		all := map[string]drawn{}
		for _, q := range build(t, workload.Spec{Seed: 3, Arrivals: workload.Constant{Rate: 1}, Count: 200, Classes: classes}).Requests {
			d := all[q.Class]
			d.lengths, d.seeds = append(d.lengths, [2]int{q.InputLen, q.OutputLen}), append(d.seeds, q.Prefix[0].Seed)
			all[q.Class] = d
		}
		return all
	}
	all := of("a", "b")
	a, b := all["a"], all["b"]
	if len(a.lengths) < 50 || len(b.lengths) < 50 {
		t.Fatalf("%d and %d requests", len(a.lengths), len(b.lengths))
	}
	same := 0
	for i := range min(len(a.lengths), len(b.lengths)) {
		if a.lengths[i] == b.lengths[i] {
			same++
		}
	}
	if same > 5 {
		t.Errorf("%d of the lengths of two classes are the same", same)
	}
	for _, seed := range a.seeds {
		if slices.Contains(b.seeds, seed) {
			t.Fatalf("prompts of two classes begin with the same tokens, those of seed %d", seed)
		}
	}
	renamed := of("a", "c")
	if !reflect.DeepEqual(renamed["a"], a) {
		t.Error("another name for one class changes the other")
	}
	if reflect.DeepEqual(renamed["c"], b) {
		t.Error("another name makes another class, and it draws the same")
	}
}

func lengthsOf(n int) workload.Lengths {
	return workload.Independent{Input: workload.Fixed(n), Output: workload.Fixed(n)}
}

// TestSessionsOfAClassHaveItsLengths looks at turns that follow.
func TestSessionsOfAClassHaveItsLengths(t *testing.T) {
	s := build(t, workload.Spec{
		Arrivals: workload.Constant{Rate: 1}, Count: 30, Sessions: &workload.Sessions{Turns: workload.Fixed(3)},
		Classes: []workload.Class{{Name: "a", Share: 1, Lengths: lengthsOf(10)}, {Name: "b", Share: 1, Lengths: lengthsOf(100)}},
	})
	for i, q := range s.Requests {
		n := map[string]int{"a": 10, "b": 100}[q.Class]
		if want := n * (2*q.Turn - 1); q.OutputLen != n || q.InputLen != want {
			t.Fatalf("request %d, turn %d of class %s: %d and %d tokens, want %d and %d", i, q.Turn, q.Class, q.InputLen, q.OutputLen, want, n)
		}
	}
}

// TestOwnLengthsEndTheLoad ends a load with the first lengths that end.
func TestOwnLengthsEndTheLoad(t *testing.T) {
	rows := make([]workload.Pair, 20)
	for i := range rows {
		rows[i] = workload.Pair{Input: i + 1, Output: 1}
	}
	s := build(t, workload.Spec{
		Arrivals: workload.Constant{Rate: 1}, Lengths: lengthsOf(7),
		Classes: []workload.Class{{Name: "a", Share: 1}, {Name: "b", Share: 1, Lengths: workload.InOrder{Rows: rows}}},
	})
	b := 0
	for _, q := range s.Requests {
		if q.Class != "b" {
			continue
		}
		if b++; q.InputLen != b {
			t.Fatalf("prompt %d of the record has %d tokens", b, q.InputLen)
		}
	}
	if b != 20 || len(s.Requests) < 25 {
		t.Errorf("%d of 20 rows in %d requests", b, len(s.Requests))
	}
}

// TestOwnIsShown holds the line about a load to what its classes have, and the
// schedule to what it reads back.
func TestOwnIsShown(t *testing.T) {
	s := build(t, workload.Spec{Arrivals: workload.Constant{Rate: 1}, Count: 9, Lengths: lengthsOf(7), Classes: append(ownClasses(), workload.Class{
		Name: "none", Share: 1, Prefixes: &workload.Prefixes{Groups: 1, Length: workload.Fixed(1)},
	})})
	const want = "constant 1/s; input fixed 7; output fixed 7; class plain 2; " +
		"class own 1 (input uniform 5000..6000; output uniform 500..600; prefixes 50% with one of 2 prefixes, fixed 100, added to the input); " +
		"class long 1 (input fixed 9000; output fixed 900); class none 1 (no prefixes); count 9; seed 0"
	if s.Spec != want {
		t.Errorf("spec %s\nwant %s", s.Spec, want)
	}
	var text bytes.Buffer
	if err := workload.Write(&text, s); err != nil {
		t.Fatal(err)
	}
	back, err := workload.Read("x", &text)
	if err != nil || !reflect.DeepEqual(back.Requests, s.Requests) || !reflect.DeepEqual(back.Classes, s.Classes) || back.Spec != s.Spec {
		t.Errorf("read back: %v", err)
	}
}

// TestOwnFaults holds what cannot be meant to an error.
func TestOwnFaults(t *testing.T) {
	class := func(c workload.Class) workload.Spec {
		c.Name, c.Share = "a", 1
		return workload.Spec{Arrivals: workload.Constant{Rate: 1}, Count: 1, Lengths: lengthsOf(7), Classes: []workload.Class{c}}
	}
	bare := class(workload.Class{})
	bare.Lengths = nil
	endless := class(workload.Class{Lengths: lengthsOf(3)})
	endless.Count = 0
	for _, c := range []struct {
		why, want string
		spec      workload.Spec
	}{
		{"lengths that are none", "class a: input: fixed length: 0 to 0", class(workload.Class{Lengths: lengthsOf(0)})},
		{"prefixes that are none", "class a: prefixes: share 3", class(workload.Class{Prefixes: &workload.Prefixes{Share: 3, Groups: 1, Length: workload.Fixed(1)}})},
		{"nobody has lengths", "want lengths: class a has none of its own", bare},
		{"no end", "has no end", endless},
	} {
		if _, err := workload.Build(c.spec); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.why, err, c.want)
		}
	}
	_, err := workload.Replay([]workload.Request{{InputLen: 1, OutputLen: 1}}, workload.Replaying{Classes: endless.Classes})
	if err == nil || !strings.Contains(err.Error(), "class a: lengths and prefixes of its own have no use with a record") {
		t.Errorf("a replay: %v", err)
	}
}

// TestSeedsKeepTheirLoads pins loads without lengths of classes to the bytes that
// their seeds have always made.
func TestSeedsKeepTheirLoads(t *testing.T) {
	for _, c := range []struct {
		why, want string
		spec      workload.Spec
	}{
		{
			"plain", "703c23f17f9073fb",
			workload.Spec{Seed: 1, Arrivals: workload.Poisson{Rate: 5}, Lengths: lengths(), Count: 50},
		},
		{
			"classes, sessions and prefixes", "944485faf7fa7ffb",
			workload.Spec{
				Seed: 2, Arrivals: workload.Gamma{Rate: 5, Burstiness: 0.5}, Lengths: lengths(), Count: 50,
				Classes:  []workload.Class{{Name: "a", Share: 3, Priority: 1}, {Name: "b", Share: 1}},
				Sessions: &workload.Sessions{Turns: workload.Uniform{Low: 1, High: 3}, Think: workload.ExponentialDelay{Mean: 2}},
				Prefixes: &workload.Prefixes{Share: 0.7, Groups: 5, Length: workload.Uniform{Low: 10, High: 90}, Zipf: 1},
			},
		},
	} {
		var text bytes.Buffer
		if err := workload.Write(&text, build(t, c.spec)); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(text.Bytes()))[:16]; got != c.want {
			t.Errorf("%s: %s, want %s", c.why, got, c.want)
		}
	}
}
