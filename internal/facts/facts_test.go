package facts_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/llmprof/llmprof/internal/facts"
)

const twoFacts = `# A text.
standard a=1 b=2

fact one
# 1 + 1 is 2.
config b=3 c=4
req A x=1
----
step 2 sched=A:1 free=3
no step 3

fact two
# As before.
same
----
refused too long
`

func TestRead(t *testing.T) {
	got, err := facts.Read("x", strings.NewReader(twoFacts))
	if err != nil || len(got) != 2 {
		t.Fatalf("%d facts, %v; want 2", len(got), err)
	}
	if text := got[0].Scenario(); text != "config a=1 b=3 c=4\nreq A x=1\n" {
		t.Errorf("the changed settings and the load are %q", text)
	}
	if text := got[1].Scenario(); text != "config a=1 b=2\nreq A x=1\n" {
		t.Errorf("the standard settings and the same load are %q", text)
	}
}

func TestReadRefuses(t *testing.T) {
	for _, c := range []struct{ why, text, want string }{
		{"an empty text shows nothing", "", "no facts"},
		{"a load outside a fact", "req A\n", "x:1: \"req A\": want a comment"},
		{"a second standard line", "standard a=1\nstandard a=1\n", "x:2:"},
		{"a fact without arithmetic", "fact a\nreq A\n----\nend x=1\n", "no comment"},
		{"a fact without a load", "fact a\n#\n----\nend x=1\n", "no load"},
		{"a fact that cannot fail", "fact a\n#\nreq A\n----\n", "nothing is wanted"},
		{"a line of which nothing is wanted", "fact a\n#\nreq A\n----\nstep 1\n", "x:5:"},
		{"a word that no field can equal", "fact a\n#\nreq A\n----\nstep 1 sched\n", "x:5:"},
		{"a step without a number", "fact a\n#\nreq A\n----\nno step\n", "x:5:"},
		{"fields of a line that must not be", "fact a\n#\nreq A\n----\nno step 1 a=1\n", "x:5:"},
		{"a refusal in any words", "fact a\n#\nreq A\n----\nrefused\n", "x:5:"},
		{"the load before the first", "fact a\n#\nsame\n", "x:3: same"},
		{"a title twice", "fact a\n#\nreq A\n----\nend x=1\nfact a\n", "x:6: fact \"a\": want a title that no other has"},
	} {
		if _, err := facts.Read("x", strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.why, err, c.want)
		}
	}
}

// TestReadFolder wants a title in one text only.
func TestReadFolder(t *testing.T) {
	folder := fstest.MapFS{
		"b.txt": {Data: []byte("fact b\n#\nreq A\n----\nend x=1\n")},
		"a.txt": {Data: []byte("fact a\n#\nreq A\n----\nend x=1\n")},
		"c.md":  {Data: []byte("no facts\n")},
	}
	got, err := facts.ReadFolder(folder)
	if err != nil || len(got) != 2 || got[0].File != "a.txt" || got[1].File != "b.txt" || got[1].Line != 1 {
		t.Errorf("%+v, %v; want those of a.txt and b.txt", got, err)
	}
	folder["d.txt"] = folder["a.txt"]
	if _, err := facts.ReadFolder(folder); err == nil || err.Error() != `d.txt:1: fact "a" stands in a.txt:1 too` {
		t.Errorf("a title twice: %v", err)
	}
	folder["d.txt"] = &fstest.MapFile{Data: []byte("fact\n")}
	if _, err := facts.ReadFolder(folder); err == nil || !strings.HasPrefix(err.Error(), "d.txt:1: ") {
		t.Errorf("a bad text: %v", err)
	}
}

// TestCheck looks at each kind of line as it holds and as it does not.
func TestCheck(t *testing.T) {
	const output = "step 1 sched=A:4 free=3\nend steps=1\n"
	refusal := errors.New("prompt too long")
	for _, c := range []struct {
		why, want, output string
		refusal           error
		faults            []string
	}{
		{"fields in any order", "step 1 free=3 sched=A:4\nend steps=1", output, nil, nil},
		{"a field is compared as a whole", "step 1 sched=A", output, nil, []string{"step 1: want sched=A"}},
		{"a step that is not there", "step 2 free=3", output, nil, []string{"there is no step 2"}},
		{"no step 2", "no step 2", output, nil, nil},
		{"a step that must not be", "no step 1", output, nil, []string{"there is a step 1"}},
		{"a refusal", "refused too long", "", refusal, nil},
		{"another refusal", "refused too short", "", refusal, []string{`want it refused with "too short", got prompt too long`}},
		{"no refusal", "refused too long", output, nil, []string{`want it refused with "too long", got <nil>`}},
		{"a refusal nobody wants", "no step 2", "", refusal, []string{"prompt too long"}},
	} {
		got, err := facts.Read("x", strings.NewReader("fact a\n#\nreq A\n----\n"+c.want+"\n"))
		if err != nil {
			t.Fatalf("%s: %v", c.why, err)
		}
		if faults := got[0].Check(c.output, c.refusal); !slices.Equal(faults, c.faults) {
			t.Errorf("%s: %q, want %q", c.why, faults, c.faults)
		}
	}
}

// FuzzRead reads anything, and what it takes is whole.
func FuzzRead(f *testing.F) {
	f.Add(twoFacts)
	f.Add("fact a\n# b\nreq A\n----\nstep 1 a=b\nrefused x\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := facts.Read("x", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, fact := range got {
			if fact.Title == "" || len(fact.Load) == 0 || len(fact.Want) == 0 {
				t.Fatalf("not a whole fact: %+v", fact)
			}
			if len(fact.Check("", nil)) == 0 && len(fact.Check("", errors.New("refused"))) == 0 {
				t.Fatalf("the fact %q cannot fail", fact.Title)
			}
		}
	})
}
