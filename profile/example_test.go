package profile_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

// A stream with a bad line: it is reported, and the rest is read.
func ExampleReader_Points() {
	file := `{"schema":"llmprof/profile","version":"1.1","device":{"name":"a100-sxm-80gb"}}
{"kind":"step","step":{"mode":"prefill","pass":{"prefill":[{"count":1,"new":512}]}},"samples_s":[0.0204,0.0202]}
half a line
{"kind":"step","step":{"mode":"decode","pass":{"decode":{"count":8,"sum_context":4096}}},"samples_s":[0.0081]}
`
	for point, err := range profile.NewReader("day.llmprof", strings.NewReader(file)).Points() {
		if bad, ok := errors.AsType[*profile.SyntaxError](err); ok {
			fmt.Println("skipped", bad.File, "line", bad.Line)
			continue
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		median, _ := point.Median()
		fmt.Println(point.Step.Mode, point.Step.Pass.Tokens(), "tokens:", median)
	}
	// Output:
	// prefill 512 tokens: 20.30 ms
	// skipped day.llmprof line 3
	// decode 8 tokens: 8.100 ms
}

// Two profiles of one device become one; another device is refused.
func ExampleMerge() {
	on := func(device, source string) *profile.Profile {
		return &profile.Profile{
			Header: profile.Header{Device: profile.Device{Name: device}, Source: source},
			Points: []profile.Point{{Kind: profile.KindStep, Samples: []float64{0.02}, Step: &profile.Step{Mode: profile.Prefill, Pass: forward.Prefill(1, 512, 0)}}},
		}
	}
	both, err := profile.Merge(on("h100-sxm-80gb", "day.llmprof"), on("h100-sxm-80gb", "night.llmprof"))
	fmt.Println(len(both.Points), both.Header.Source, err)
	_, err = profile.Merge(both, on("l4", "old.llmprof"))
	fmt.Println(err)
	// Output:
	// 2 day.llmprof, night.llmprof <nil>
	// merge profiles: device differs: "h100-sxm-80gb" in day.llmprof, night.llmprof, "l4" in old.llmprof
}

// A cold first run is found and dropped; the point stays.
func ExampleLint() {
	p := &profile.Profile{Points: []profile.Point{{
		Kind: profile.KindStep, Samples: []float64{0.0912, 0.0114, 0.0111},
		Step: &profile.Step{Mode: profile.Prefill, BatchSize: 1, InputLen: 1, Pass: forward.Prefill(1, 1, 0)},
	}}}
	findings := profile.Lint(p, profile.LintOptions{})
	for _, f := range findings {
		fmt.Println(f.Severity, f.Rule, f.Count, f.Examples)
	}
	fmt.Println(p.Drop(findings).Points[0].Samples)
	// Output:
	// skipped unit-slip 0 []
	// skipped faster-than-compute-peak 0 []
	// skipped faster-than-memory-bandwidth 0 []
	// warning cold-start 1 [prefill batch 1, input 1: run 1 took 91.20 ms, the others 11.25 ms]
	// [0.0114 0.0111]
}

// Points are written one by one, each as a whole line.
func ExampleWriter() {
	var file bytes.Buffer
	w, err := profile.NewWriter("day.llmprof", &file, profile.Header{Device: profile.Device{Name: "l4"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = errors.Join(
		w.Write(profile.Point{Kind: profile.KindFailure, Reason: "oom"}),
		w.Close(),
	)
	fmt.Print(file.String())
	fmt.Println(err)
	// Output:
	// {"schema":"llmprof/profile","version":"1.4","device":{"name":"l4"}}
	// {"kind":"failure","reason":"oom"}
	// <nil>
}
