package sglang

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/internal/facts"
)

// decideFact gives what a fact's load leads to: its schedule, or the answers to
// its questions about defaults. Change, if any, alters the rules of the release.
func decideFact(fact *facts.Fact, change func(*Rules)) (output string, refusal error) {
	if len(fact.Config) > 0 {
		sc, err := readScenario("fact", strings.NewReader(fact.Scenario()))
		if err != nil {
			return "", err
		}
		if change != nil {
			change(&sc.config.Rules)
		}
		return sc.run()
	}
	var b strings.Builder
	for _, line := range fact.Load {
		answer, err := answer(line)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(&b, answer)
	}
	return b.String(), nil
}

// answer gives the defaults of a machine, the seats of a pool or the size of a
// pool, as a line asks for them.
func answer(line string) (string, error) {
	what, fields, _ := strings.Cut(line, " ")
	var release string
	var m Machine
	var latent, pool, context, page, most int
	var before, after, cell int64
	var share float64
	for field := range strings.FieldsSeq(fields) {
		key, text, _ := strings.Cut(field, "=")
		to, ok := map[string]any{
			"memory": &m.MemoryMiB, "tp": &m.TensorParallel, "pp": &m.PipelineParallel, "latent": &latent,
			"pool": &pool, "context": &context, "page": &page, "most": &most,
			"before": &before, "after": &after, "cell": &cell, "fraction": &share, "sglang": &release,
		}[key]
		if !ok {
			return "", fmt.Errorf("%s: unknown field", field)
		}
		if _, err := fmt.Sscan(text, to); err != nil {
			return "", fmt.Errorf("%s: %w", field, err)
		}
	}
	switch what {
	case "defaults":
		m.Latent = latent == 1
		d, err := DefaultsOf(release, m)
		return fmt.Sprintf("defaults policy=%s chunk=%d max_prefill=%d conservativeness=%g page=%d fraction=%.3f",
			d.Policy, d.Chunk, d.MaxPrefill, d.Conservativeness, d.Page, d.MemoryFraction), err
	case "seats":
		n, err := DefaultSeats(release, pool, context)
		return fmt.Sprintf("seats max_running_requests=%d", n), err
	case "pool":
		n, err := PoolOf(before, after, share, cell, page, most)
		return fmt.Sprintf("pool tokens=%d", n), err
	}
	return "", fmt.Errorf("%q: want a line of req, defaults, seats or pool", what)
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

// TestFacts holds the scheduler and its defaults to rules that were worked out by
// hand.
func TestFacts(t *testing.T) {
	const least = 195
	all := readFacts(t)
	for _, fact := range all {
		t.Run(fact.Title, func(t *testing.T) {
			output, refusal := decideFact(&fact, nil)
			for _, fault := range fact.Check(output, refusal) {
				t.Errorf("testdata/facts/%s:%d: %s", fact.File, fact.Line, fault)
			}
			if t.Failed() {
				t.Logf("%s\n%s", fact.Scenario(), output)
			}
		})
	}
	t.Logf("%d facts of SGLang's scheduler", len(all))
	if len(all) < least {
		t.Errorf("%d facts, want at least %d", len(all), least)
	}
}

// TestEveryRuleIsNoticed changes one rule of the releases at a time: some fact or
// recorded schedule must not hold any more.
func TestEveryRuleIsNoticed(t *testing.T) {
	all, recorded := readFacts(t), readRecorded(t)
	for i := range reflect.TypeFor[Rules]().NumField() {
		rule := reflect.TypeFor[Rules]().Field(i).Name
		change := func(r *Rules) {
			switch field := reflect.ValueOf(r).Elem().Field(i); field.Kind() {
			case reflect.Bool:
				field.SetBool(!field.Bool())
			default: // one of at least three kinds: the next one
				field.SetUint((field.Uint() + 1) % 3)
			}
		}
		brokenFacts, brokenFiles := 0, 0
		for _, fact := range all {
			output, refusal := decideFact(&fact, change)
			if len(fact.Config) > 0 && len(fact.Check(output, refusal)) > 0 {
				brokenFacts++
			}
		}
		for _, sc := range recorded {
			changed := *sc
			change(&changed.config.Rules)
			schedule, err := changed.run()
			if err != nil || schedule != strings.Join(sc.expect, "\n")+"\n" {
				brokenFiles++
			}
		}
		t.Logf("%s changed: %d facts and %d recorded schedules break", rule, brokenFacts, brokenFiles)
		if brokenFacts+brokenFiles == 0 {
			t.Errorf("no fact and no recorded schedule notices %s", rule)
		}
	}
}

// readRecorded reads the recorded schedules.
func readRecorded(t *testing.T) []*scenario {
	t.Helper()
	names, err := filepath.Glob("testdata/0.*/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d recorded schedules, %v", len(names), err)
	}
	var all []*scenario
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sc, err := readScenario(name, bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, sc)
	}
	return all
}
