package gpu_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/gpu"
)

func TestVisible(t *testing.T) {
	cards := []gpu.Reading{{Index: 0, UUID: "GPU-1a2b"}, {Index: 1, UUID: "GPU-1a3c"}, {Index: 2, UUID: "GPU-77"}}
	divided := append(cards[:3:3], gpu.Reading{Index: 1, UUID: "MIG-51", Parent: "GPU-1a3c"}, gpu.Reading{Index: 1, UUID: "MIG-52", Parent: "GPU-1a3c"})
	for _, c := range []struct {
		why      string
		readings []gpu.Reading
		list     string
		unset    bool
		want     string // the devices, or a part of the error after "!"
	}{
		{"unset: all", cards, "", true, "GPU-1a2b GPU-1a3c GPU-77"},
		{"set and empty: none", cards, "", false, ""},
		{"none", cards, "-1", false, ""},
		{"none in words", cards, "none", false, ""},
		{"in the order of the list", cards, "2, 0", false, "GPU-77 GPU-1a2b"},
		{"the list ends at -1", cards, "1,-1,0", false, "GPU-1a3c"},
		{"a UUID", cards, "GPU-1a3c", false, "GPU-1a3c"},
		{"the beginning of a UUID, and a number", cards, "gpu-7,0", false, "GPU-77 GPU-1a2b"},
		{"the beginning of two", cards, "GPU-1a", false, "!beginning of several: 0 GPU-1a2b, 1 GPU-1a3c"},
		{"unknown UUID", cards, "GPU-9", false, "!no device GPU-9, but 0 GPU-1a2b, 1 GPU-1a3c, 2 GPU-77"},
		{"unknown number", cards, "0,3", false, "!no device 3, but 0 GPU-1a2b"},
		{"negative number", cards, "-2", false, "!no device -2"},
		{"twice", cards, "0,GPU-1a2b", false, "!GPU-1a2b is named twice"},
		{"no device at all", nil, "0", false, "!but none at all"},
		{"an instance", divided, "MIG-52,2", false, "MIG-52 GPU-77"},
		{"a divided card", divided, "1", false, "MIG-51"},
		{"all of a host with a divided card", divided, "", true, "GPU-1a2b GPU-77 MIG-51 MIG-52"},
		{"numbers pass over instances", divided, "3", false, "!no device 3, but 0 GPU-1a2b, 1 GPU-1a3c, 2 GPU-77, MIG-51, MIG-52"},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, err := gpu.Visible(c.readings, c.list, !c.unset)
			if part, wrong := strings.CutPrefix(c.want, "!"); wrong {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("error %v, want %q", err, part)
				}
				return
			}
			var names []string
			for _, r := range got {
				names = append(names, r.UUID)
			}
			if err != nil || strings.Join(names, " ") != c.want {
				t.Errorf("got %v, %v; want %s", names, err, c.want)
			}
		})
	}
	// HIP counts what ROCr leaves.
	rocr, err := gpu.Visible(cards, "2,1", true)
	if err != nil {
		t.Fatal(err)
	}
	if hip, err := gpu.Visible(rocr, "1", true); err != nil || hip[0].UUID != "GPU-1a3c" {
		t.Errorf("HIP sees %+v, %v", hip, err)
	}
}

func FuzzVisible(f *testing.F) {
	f.Add("0,GPU-1,-1", true)
	f.Fuzz(func(t *testing.T, list string, set bool) {
		cards := []gpu.Reading{{Index: 0, UUID: "GPU-1a2b"}, {Index: 1}, {Index: 1, UUID: "MIG-5", Parent: "GPU-1a2b"}}
		got, err := gpu.Visible(cards, list, set)
		if len(got) > len(cards) || err != nil && got != nil {
			t.Fatalf("%+v, %v", got, err)
		}
	})
}

func ExampleVisible() {
	host := []gpu.Reading{{Index: 0, UUID: "GPU-5f1e"}, {Index: 1, UUID: "GPU-82c0"}}
	seen, err := gpu.Visible(host, "GPU-82,0", true) // CUDA_VISIBLE_DEVICES=GPU-82,0
	fmt.Println(seen[0].Index, seen[1].Index, err)
	_, err = gpu.Visible(host, "2", true)
	fmt.Println(err)
	// Output:
	// 1 0 <nil>
	// visible devices "2": there is no device 2, but 0 GPU-5f1e, 1 GPU-82c0
}
