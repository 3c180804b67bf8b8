package scenario

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/internal/facts"
	"github.com/llmprof/llmprof/sim"
)

// decideFact gives a fact's schedule, with a last line of what the prefix
// cache was asked and had. Change is a switch of the release's rules that is
// turned over, "" for none.
func decideFact(fact *facts.Fact, change string) (output string, refusal error) {
	s, err := Read("fact", strings.NewReader(fact.Scenario()))
	if err != nil {
		return "", err
	}
	if change != "" {
		field := reflect.ValueOf(&s.Config.Rules).Elem().FieldByName(change)
		field.SetBool(!field.Bool())
	}
	var b strings.Builder
	t, err := s.run(&b)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "cache queried=%d hit=%d resumed_queried=%d resumed_hit=%d\n", t.Queried, t.Hit, t.ResumedQueried, t.ResumedHit)
	return b.String(), nil
}

// readFacts reads the facts of testdata.
func readFacts(t *testing.T) []facts.Fact {
	t.Helper()
	all, err := facts.ReadFolder(os.DirFS("testdata/facts"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFacts holds the scheduler to rules that were worked out by hand.
func TestFacts(t *testing.T) {
	const least = 190
	all := readFacts(t)
	for _, fact := range all {
		t.Run(fact.Title, func(t *testing.T) {
			output, refusal := decideFact(&fact, "")
			for _, fault := range fact.Check(output, refusal) {
				t.Errorf("testdata/facts/%s:%d: %s", fact.File, fact.Line, fault)
			}
			if t.Failed() {
				t.Logf("%s\n%s", fact.Scenario(), output)
			}
		})
	}
	t.Logf("%d facts of vLLM's scheduler", len(all))
	if len(all) < least {
		t.Errorf("%d facts, want at least %d", len(all), least)
	}
}

// TestFactsNoticeEveryRule turns over one switch of the releases at a time: some
// fact must not hold any more.
func TestFactsNoticeEveryRule(t *testing.T) {
	all := readFacts(t)
	for i := range reflect.TypeFor[sim.Rules]().NumField() {
		rule := reflect.TypeFor[sim.Rules]().Field(i).Name
		broken := 0
		for _, fact := range all {
			if len(fact.Check(decideFact(&fact, rule))) > 0 {
				broken++
			}
		}
		t.Logf("%s turned over: %d facts break", rule, broken)
		if broken == 0 {
			t.Errorf("no fact notices %s", rule)
		}
	}
}
