package workload_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/workload"
)

func TestParseClass(t *testing.T) {
	load := workload.Independent{Input: workload.Fixed(10), Output: workload.Fixed(20)}
	for _, c := range []struct {
		why, text string
		want      workload.Class
	}{
		{"a name is enough", "chat", workload.Class{Name: "chat", Share: 1}},
		{
			"all there is", " chat  share=0.5 priority=-2 input-len=uniform:1:9 output-len=4 prefix-len=100 num-prefixes=3 prefix-share=0.25 slo=ttft:500,tpot:p99<50",
			workload.Class{
				Name: "chat", Share: 0.5, Priority: -2, Lengths: workload.Independent{Input: workload.Uniform{Low: 1, High: 9}, Output: workload.Fixed(4)},
				Prefixes: &workload.Prefixes{Share: 0.25, Groups: 3, Length: workload.Fixed(100), Added: true},
				Targets:  []workload.SLO{{Metric: workload.TTFT, Limit: 500}, {Metric: workload.TPOT, Quantile: 0.99, Limit: 50}},
			},
		},
		{"the other length is the load's", "a output-len=3", workload.Class{Name: "a", Share: 1, Lengths: workload.Independent{Input: workload.Fixed(10), Output: workload.Fixed(3)}}},
		{"lengths of a file", "a input-len=file:lengths.txt", workload.Class{Name: "a", Share: 1, Lengths: workload.Independent{Input: workload.Recorded{Values: []int{7, 9}}, Output: workload.Fixed(20)}}},
		{"no prefix where the load has one", "a prefix-len=0", workload.Class{Name: "a", Share: 1, Prefixes: &workload.Prefixes{Groups: 1, Length: workload.Fixed(1)}}},
	} {
		got, err := workload.ParseClass(c.text, load, files)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v, want %+v", c.why, got, err, c.want)
		}
	}
}

func TestParseClassFaults(t *testing.T) {
	for _, c := range []struct{ why, text, want string }{
		{"nothing", " ", "want a name first"},
		{"no name", "share=2", "want a name first"},
		{"a setting that nobody knows", "a colour=red", "colour: want share, priority"},
		{"no setting", "a b", `"b": want a setting such as share=3`},
		{"no value", "a share=", `"share=": want a setting`},
		{"twice", "a share=1 share=2", "share stands twice"},
		{"no number", "a share=x", `share: "x": want a number`},
		{"no share", "a share=-1", "share -1: want a number of at least 0"},
		{"no share, told once", "a share=-1", `class "a share=-1": share -1: want a number of at least 0`},
		{"a share of nothing", "a share=0", `class "a share=0": the shares of the classes add up to 0`},
		{"a priority beyond 32 bits", "a priority=3000000000", "want a number"},
		{"a length that is none", "a input-len=many output-len=1", `length "many"`},
		{"a length of nothing", "a output-len=0", "want bounds within 1"},
		{"a file that is not there", "a output-len=file:x", "file does not exist"},
		{"a target that is none", "a slo=fast", `limit "fast"`},
		{"prefixes of no length", "a num-prefixes=2", "want a prefix-len"},
		{"a share of no prefix", "a prefix-len=0 prefix-share=0.5", "want a prefix-len"},
		{"no prefixes", "a prefix-len=5 num-prefixes=0", "0 groups"},
		{"more than all", "a prefix-len=5 prefix-share=2", "share 2: want 0 to 1"},
	} {
		_, err := workload.ParseClass(c.text, lengths(), files)
		bad, ok := errors.AsType[*workload.ClassError](err)
		if !ok || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || bad.Text != c.text || bad.Hint() == "" {
			t.Errorf("%s: %v, want %s", c.why, err, c.want)
		}
	}
	recorded := workload.Empirical{Rows: []workload.Pair{{Input: 1, Output: 1}}}
	if _, err := workload.ParseClass("a input-len=3", recorded, files); err == nil || !strings.Contains(err.Error(), "want input and output") {
		t.Errorf("one side of a record: %v", err)
	}
}

// FuzzParseClass reads anything: what is taken makes a load.
func FuzzParseClass(f *testing.F) {
	f.Add("chat share=3 priority=-1 input-len=512 output-len=lognormal:64:32 prefix-len=200 num-prefixes=4 prefix-share=0.8 slo=ttft:500,tpot:50")
	f.Add("a prefix-len=0")
	f.Add("a input-len=file:lengths.txt share=1e300")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 200 || strings.Contains(text, "num-prefixes") && len(text) > 60 {
			return // many prefixes take long to draw
		}
		c, err := workload.ParseClass(text, lengths(), files)
		if err != nil {
			return
		}
		spec := workload.Spec{Arrivals: workload.Constant{Rate: 1}, Lengths: lengths(), Count: 3, Classes: []workload.Class{c}}
		if s, err := workload.Build(spec); err != nil || len(s.Requests) != 3 {
			t.Errorf("%q: %v", text, err)
		}
	})
}
