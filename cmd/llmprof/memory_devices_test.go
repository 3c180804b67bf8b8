package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/measure/memory"
)

// elsewhere is this machine under another name, with an environment of its own.
type elsewhere struct {
	engine.Place
	env  []string
	asks int
}

func (*elsewhere) String() string { return "docker:there" }

func (e *elsewhere) Start(ctx context.Context, c engine.Command) (engine.Process, error) {
	e.asks++
	c.Env = append(c.Env, e.env...)
	return e.Place.Start(ctx, c)
}

func TestDevicesGiven(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no shell here")
	}
	for _, name := range deviceVariables() {
		t.Setenv(name, "") // set and empty: no device
	}
	here, err := place.Parse("local")
	if err != nil {
		t.Fatal(err)
	}
	none := map[string]string{cudaVisible: "", rocrVisible: "", hipVisible: ""}
	for _, c := range []struct {
		why          string
		there, given []string
		want         map[string]string
	}{
		{"nothing of its own", nil, nil, none},
		{"what the place says", []string{"ROCR_VISIBLE_DEVICES=4,5,6,7", "HIP_VISIBLE_DEVICES=1"}, nil, map[string]string{cudaVisible: "", rocrVisible: "4,5,6,7", hipVisible: "1"}},
		{"what is given goes first", []string{"CUDA_VISIBLE_DEVICES=2,3"}, []string{"CUDA_VISIBLE_DEVICES=1", "X=y"}, map[string]string{cudaVisible: "1", rocrVisible: "", hipVisible: ""}},
		{"the last one counts", nil, []string{"HIP_VISIBLE_DEVICES=1", "HIP_VISIBLE_DEVICES=GPU-a=b"}, map[string]string{cudaVisible: "", rocrVisible: "", hipVisible: "GPU-a=b"}},
	} {
		e := &elsewhere{Place: here, env: c.there}
		got := map[string]string{}
		for name, list := range devicesGiven(t.Context(), e, c.given) {
			if list != nil {
				got[name] = *list
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" || e.asks != 1 {
			t.Errorf("%s: asked %d times (-want +got)\n%s", c.why, e.asks, diff)
		}
	}
	t.Setenv(cudaVisible, "3")
	if got := devicesGiven(t.Context(), here, nil)[cudaVisible]; got == nil || *got != "3" {
		t.Errorf("here: %v", got)
	}
}

// TestDevicesComposed: HIP's list picks from ROCr's.
func TestDevicesComposed(t *testing.T) {
	var line strings.Builder
	line.WriteString(`{"at_s": 0, "devices": [`)
	for i := range 8 {
		fmt.Fprintf(&line, `%s{"index": %d, "memory_used_bytes": 1}`, strings.Repeat(", ", min(i, 1)), i)
	}
	recorded, err := gpu.Replay(strings.NewReader(line.String() + "]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	list := func(text string) *string { return &text }
	for _, c := range []struct {
		why    string
		wanted memory.Wanted
		want   []int
	}{
		{"none is set", memory.Wanted{}, []int{0}},
		{"ROCr alone", memory.Wanted{ROCR: list("4,5,6,7")}, []int{4}},
		{"HIP among ROCr's", memory.Wanted{ROCR: list("4,5,6,7"), HIP: list("1")}, []int{5}},
		{"HIP before CUDA", memory.Wanted{HIP: list("3"), Visible: "2", VisibleSet: true}, []int{3}},
		{"CUDA among ROCr's", memory.Wanted{ROCR: list("6,7"), Visible: "1", VisibleSet: true}, []int{7}},
		{"two of them", memory.Wanted{ROCR: list("4,5,6,7"), HIP: list("3,1"), Devices: 2}, []int{5, 7}},
	} {
		s, err := memory.Play(t.Context(), recorded, c.wanted)
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
			continue
		}
		var got []int
		for i := range 8 {
			if s.Keep(gpu.Reading{Index: i}) {
				got = append(got, i)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.why, diff)
		}
	}
	if _, err := memory.Play(t.Context(), recorded, memory.Wanted{ROCR: list("4,5"), HIP: list("2")}); err == nil {
		t.Error("a device that ROCr hides is no error")
	}
}
