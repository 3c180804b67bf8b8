package workload_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/settings"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// files imitates the files that a description names.
func files(name string) (workload.Records, error) {
	requests := []workload.Request{{At: 3, InputLen: 10, OutputLen: 1, Seed: 1}, {ID: 1, At: 5, InputLen: 20, OutputLen: 2, Seed: 2}}
	switch name {
	case "trace.csv":
		return workload.Records{Requests: requests, Timed: true}, nil
	case "chats.json":
		return workload.Records{Requests: requests}, nil
	case "lengths.txt":
		return workload.Records{Values: []int{7, 9}}, nil
	}
	return workload.Records{}, fs.ErrNotExist
}

func TestReadSpec(t *testing.T) {
	for _, test := range []struct {
		why, text string
		want      workload.Spec
	}{
		{
			"the least", "count: 3\narrivals: {pattern: poisson, rate: 4}\nlengths: {input: 10, output: 4k}\n",
			workload.Spec{Count: 3, Arrivals: workload.Poisson{Rate: 4}, Lengths: workload.Independent{Input: workload.Fixed(10), Output: workload.Fixed(4000)}},
		},
		{
			"times with units, bursts", "seed: 5\nduration: 1m30s\ntimeout: 2.5\narrivals: {pattern: gamma, rate: 4, burstiness: 0.5, burst: 3}\nlengths: {input: file:lengths.txt, output: 1}\n",
			workload.Spec{
				Seed: 5, Duration: 90, Timeout: 2.5, Arrivals: workload.Burst{Of: workload.Gamma{Rate: 4, Burstiness: 0.5}, Size: 3},
				Lengths: workload.Independent{Input: workload.Recorded{Values: []int{7, 9}}, Output: workload.Fixed(1)},
			},
		},
		{
			"lengths of one record stay together", "count: 2\narrivals: {pattern: weibull, rate: 4, shape: 0.5}\nlengths: {input: file:chats.json, output: file:chats.json}\n",
			workload.Spec{Count: 2, Arrivals: workload.Weibull{Rate: 4, Shape: 0.5}, Lengths: workload.Empirical{Rows: []workload.Pair{{Input: 10, Output: 1}, {Input: 20, Output: 2}}}},
		},
		{
			"classes with lengths and prefixes of their own", `
count: 3
arrivals: {pattern: poisson, rate: 4}
lengths: {input: 10, output: 20}
classes:
  - {name: a, lengths: {input: file:lengths.txt, output: 4}, prefixes: none}
  - {name: b, lengths: {output: uniform:1:2}, prefixes: {share: 0.5, length: 7}}
  - {name: c, lengths: {input: 5}}
`,
			workload.Spec{
				Count: 3, Arrivals: workload.Poisson{Rate: 4}, Lengths: workload.Independent{Input: workload.Fixed(10), Output: workload.Fixed(20)},
				Classes: []workload.Class{
					{Name: "a", Share: 1, Lengths: workload.Independent{Input: workload.Recorded{Values: []int{7, 9}}, Output: workload.Fixed(4)}, Prefixes: &workload.Prefixes{Groups: 1, Length: workload.Fixed(1)}},
					{Name: "b", Share: 1, Lengths: workload.Independent{Input: workload.Fixed(10), Output: workload.Uniform{Low: 1, High: 2}}, Prefixes: &workload.Prefixes{Share: 0.5, Groups: 1, Length: workload.Fixed(7)}},
					{Name: "c", Share: 1, Lengths: workload.Independent{Input: workload.Fixed(5), Output: workload.Fixed(20)}},
				},
			},
		},
		{
			"a load needs no lengths where each class has some", "count: 3\narrivals: {pattern: poisson, rate: 4}\nclasses: [{name: a, lengths: {input: file:chats.json, output: file:chats.json}}]\n",
			workload.Spec{Count: 3, Arrivals: workload.Poisson{Rate: 4}, Classes: []workload.Class{{Name: "a", Share: 1, Lengths: workload.Empirical{Rows: []workload.Pair{{Input: 10, Output: 1}, {Input: 20, Output: 2}}}}}},
		},
		{
			"lengths of two records do not", "count: 2\narrivals: {pattern: at_once}\nlengths: {input: file:chats.json, output: file:lengths.txt}\n",
			workload.Spec{
				Count: 2, Arrivals: workload.Trace{Offsets: make([]unit.Seconds, 2)},
				Lengths: workload.Independent{Input: workload.Recorded{Values: []int{10, 20}}, Output: workload.Recorded{Values: []int{7, 9}}},
			},
		},
		{
			"ramp, sessions, flat prefixes", `
arrivals: {pattern: ramp, from: 1, to: 9, over: 1m, strategy: exponential, burstiness: inf}
lengths: {input: 10, output: 1}
prefixes: {share: 0.5, groups: 4, length: uniform:1:9, zipf: 1, added: true}
sessions: {turns: uniform:1:4, think: [1, 2s], given: true, context: 4Ki}
`,
			workload.Spec{
				Arrivals: workload.Ramp{From: 1, To: 9, Shape: workload.Exponential, Over: 60, Burstiness: inf()},
				Lengths:  workload.Independent{Input: workload.Fixed(10), Output: workload.Fixed(1)},
				Prefixes: &workload.Prefixes{Share: 0.5, Groups: 4, Length: workload.Uniform{Low: 1, High: 9}, Zipf: 1, Added: true},
				Sessions: &workload.Sessions{Turns: workload.Uniform{Low: 1, High: 4}, Think: workload.RecordedDelay{Values: []unit.Seconds{1, 2}}, Given: true, Context: 4096},
			},
		},
		{
			"rates, tree, classes", `
arrivals: {pattern: rates, points: [{at: 0, rate: 1}, {at: 1m, rate: 0}], between: true, until: 2m}
lengths: {input: 10, output: 1}
prefixes: {tree: [{name: a, weight: 2, length: 5, alone: 1, groups: [{name: b, copies: 3, zipf: 1, length: 6}]}]}
classes: [{name: x, share: 2, priority: -3, slo: "ttft:500 itl:p99<40ms"}, {name: y}]
`,
			workload.Spec{
				Arrivals: workload.Rates{Points: []workload.RatePoint{{At: 0, Rate: 1}, {At: 60, Rate: 0}}, Between: true, Until: 120, Burstiness: 1},
				Lengths:  workload.Independent{Input: workload.Fixed(10), Output: workload.Fixed(1)},
				Prefixes: &workload.Prefixes{Share: 1, Tree: []workload.Group{{
					Name: "a", Weight: 2, Length: workload.Fixed(5), Alone: 1,
					Groups: []workload.Group{{Name: "b", Copies: 3, Zipf: 1, Length: workload.Fixed(6)}},
				}}},
				Classes: []workload.Class{
					{Name: "x", Share: 2, Priority: -3, Targets: []workload.SLO{{Metric: workload.TTFT, Limit: 500}, {Metric: workload.ITL, Quantile: 0.99, Limit: 40}}},
					{Name: "y", Share: 1},
				},
			},
		},
		{
			"clients that think", "count: 9\narrivals: {pattern: closed, clients: 3, think: exponential:2s}\nlengths: {input: 10, output: 1}\n",
			workload.Spec{
				Count: 9, Arrivals: workload.Closed{Workers: 3, Think: workload.ExponentialDelay{Mean: 2}},
				Lengths: workload.Independent{Input: workload.Fixed(10), Output: workload.Fixed(1)},
			},
		},
	} {
		t.Run(test.why, func(t *testing.T) {
			got, err := workload.ReadSpec("x.yaml", strings.NewReader(test.text), files)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got.Spec, test.want) {
				t.Errorf("%+v, want %+v", got.Spec, test.want)
			}
			if _, err := got.Schedule(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestReadSpecReplays(t *testing.T) {
	const text = "seed: 3\ntimeout: 9\ntrace: {file: trace.csv, speed: 2, limit: 2}\nclasses: [{name: a, priority: 4}]\n"
	got, err := workload.ReadSpec("x.yaml", strings.NewReader(text), files)
	if err != nil {
		t.Fatal(err)
	}
	s, err := got.Schedule(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if q := s.Requests[1]; len(s.Requests) != 2 || s.Seed != 3 || q.At != 1 || q.Class != "a" || q.Priority != 4 || q.Timeout != 9 {
		t.Errorf("%+v", s)
	}
}

func TestReadSpecFaults(t *testing.T) {
	const arrivals, lengths = "arrivals: {pattern: poisson, rate: 4}\n", "lengths: {input: 10, output: 1}\n"
	for _, test := range []struct{ why, text, want string }{
		{"no end", arrivals + lengths, "has no end: want a count or a duration"},
		{"nothing", "seed: 1\n", "arrivals: want a pattern, got nothing"},
		{"no lengths", "count: 1\n" + arrivals, "lengths: want the lengths"},
		{"an unknown pattern", "count: 1\narrivals: {pattern: posson, rate: 1}\n" + lengths, `x.yaml:2:21: pattern: unknown pattern "posson": want one of poisson, `},
		{"a key of another pattern", "count: 1\narrivals: {pattern: poisson, rate: 4, shape: 1}\n" + lengths, "shape: the pattern poisson has none"},
		{"a rate of 0", "count: 1\narrivals: {pattern: poisson, rate: 0}\n" + lengths, "arrivals: poisson arrivals: rate 0/s"},
		{"a broken length", "count: 1\n" + arrivals + "lengths: {input: normal:1, output: 1}\n", "1 numbers after normal"},
		{"a file that is not there", "count: 1\n" + arrivals + "lengths: {input: file:y, output: 1}\n", "x.yaml:3:10: lengths: input: file does not exist"},
		{"a broken time", "duration: soon\n" + arrivals + lengths, `duration: "soon" is not a time`},
		{"a negative time", "count: 1\ntimeout: -1\n" + arrivals + lengths, "timeout: time -1.000 s"},
		{"a count of 0", "count: 0\n" + arrivals + lengths, "count: want a whole number from 1"},
		{"a broken think time", "count: 1\n" + arrivals + lengths + "sessions: {turns: 2, think: normal:1}\n", "want a form such as 2s"},
		{"no turns", "count: 1\n" + arrivals + lengths + "sessions: {think: 1}\n", "turns: want a length"},
		{"turns of a file", "count: 1\n" + arrivals + lengths + "sessions: {turns: file:a}\n", "turns: want a distribution"},
		{"two forms of prefixes", "count: 1\n" + arrivals + lengths + "prefixes: {tree: [{length: 1}], zipf: 1}\n", "zipf: it has no use beside a tree"},
		{"a group without a length", "count: 1\n" + arrivals + lengths + "prefixes: {tree: [{name: a}]}\n", "length: want a length"},
		{"a group of no weight", "count: 1\n" + arrivals + lengths + "prefixes: {tree: [{length: 1, weight: 0}]}\n", "weight: want more than 0"},
		{"a broken target", "count: 1\n" + arrivals + lengths + "classes: [{name: a, slo: fast}]\n", `slo: limit "fast"`},
		{"lengths of a class that are none", "count: 1\n" + arrivals + lengths + "classes: [{name: a, lengths: {input: many}}]\n", `lengths: length "many"`},
		{"empty lengths of a class", "count: 1\n" + arrivals + lengths + "classes: [{name: a, lengths: {}}]\n", "want input or output, got neither"},
		{"an unknown key in them", "count: 1\n" + arrivals + lengths + "classes: [{name: a, lengths: {in: 3}}]\n", `unknown field "in"`},
		{"one side of a record", "count: 1\n" + arrivals + "lengths: {input: file:chats.json, output: file:chats.json}\nclasses: [{name: a, lengths: {input: 3}}]\n", "want input and output, since the load has no distribution of each"},
		{"a class without lengths in a load without", "count: 1\n" + arrivals + "classes: [{name: a, lengths: {input: 1, output: 1}}, {name: b}]\n", "want the lengths of the class, since the load has none"},
		{"no lengths and no classes", "count: 1\n" + arrivals, "want the lengths of prompts and answers, got nothing"},
		{"prefixes of a class that are none", "count: 1\n" + arrivals + lengths + "classes: [{name: a, prefixes: {share: 2, length: 5}}]\n", "prefixes: share 2: want 0 to 1"},
		{"lengths of a class beside a trace", "trace: {file: trace.csv}\nclasses: [{name: a, lengths: {input: 1, output: 1}}]\n", "lengths: it has no use with a trace"},
		{"a load of classes without an end", arrivals + "classes: [{name: a, lengths: {input: 1, output: 1}}]\n", "has no end: want a count or a duration"},
		{"a class twice", "count: 1\n" + arrivals + lengths + "classes: [{name: a}, {name: a}]\n", "class a stands twice"},
		{"a trace beside arrivals", arrivals + "trace: {file: trace.csv}\n", "arrivals: it has no use with a trace"},
		{"a trace that is not there", "trace: {file: y}\n", "x.yaml:1:15: file: file does not exist"},
		{"a trace without times", "trace: {file: chats.json}\n", "chats.json holds no times"},
		{"a trace backwards", "trace: {file: trace.csv, speed: -1}\n", "trace: trace: speed -1"},
	} {
		t.Run(test.why, func(t *testing.T) {
			_, err := workload.ReadSpec("x.yaml", strings.NewReader(test.text), files)
			if all, ok := errors.AsType[*settings.FileError](err); !ok || !strings.Contains(all.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestExample holds the example to what the page shows of it.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("../docs/example-workload.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/workloads.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```yaml\n"+string(text)+"```\n") {
		t.Error("docs/workloads.md shows another docs/example-workload.yaml")
	}
	d, err := workload.ReadSpec("example-workload.yaml", strings.NewReader(string(text)), files)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := d.Schedule(context.Background()); err != nil || len(s.Classes) != 2 || len(s.Requests) < 300 {
		t.Errorf("%v, %v", s, err)
	}
}

func FuzzReadSpec(f *testing.F) {
	example, err := os.ReadFile("../docs/example-workload.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example))
	f.Add("count: 2\narrivals: {pattern: at_once}\nlengths: {input: file:chats.json, output: file:lengths.txt}\n")
	f.Add("trace: {file: trace.csv, speed: 2, limit: 2}\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		got, err := workload.ReadSpec("x.yaml", strings.NewReader(text), files)
		if err != nil || len(got.Recorded) > 0 {
			return
		}
		if err := got.Spec.Validate(); err != nil {
			t.Fatalf("what was read is refused: %v", err)
		}
	})
}

func ExampleReadSpec() {
	const text = `
seed: 7
count: 100
arrivals: {pattern: poisson, rate: 4}
lengths: {input: lognormal:512:256, output: 128}
`
	none := func(string) (workload.Records, error) { return workload.Records{}, errors.New("no files here") }
	d, err := workload.ReadSpec("load.yaml", strings.NewReader(text), none)
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := d.Schedule(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(s.Requests), s.Pattern)
	// Output: 100 poisson 4/s
}
