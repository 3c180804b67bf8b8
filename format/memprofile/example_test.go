package memprofile_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/unit"
)

// A profile is filled in with bytes; what follows from them is derived.
func ExampleWrite() {
	baseline, peak, weights := unit.Bytes(500e6), unit.Bytes(20e9), unit.Bytes(16e9)
	d := &memprofile.Document{}
	d.MemoryMeasurements.Baseline = &memprofile.MemoryPoint{TotalBytes: &baseline}
	d.MemoryMeasurements.Peak = &memprofile.MemoryPoint{TotalBytes: &peak}
	d.MemoryBreakdown.Parts = []memprofile.Part{
		{Name: memprofile.PartWeights, Bytes: &weights, Confidence: memprofile.High, Source: "checkpoint"},
		{Name: memprofile.PartActivations, Note: "the log does not tell"},
	}
	var file bytes.Buffer
	if err := memprofile.Write(&file, d); err != nil {
		fmt.Println(err)
		return
	}
	for line := range strings.Lines(file.String()) {
		if strings.Contains(line, "_gb") && strings.Contains(line, "unexplained") || strings.Contains(line, `"activations_gb"`) {
			fmt.Print(line)
		}
	}
	// Output:
	//     "activations_gb": null,
	//     "unexplained_gb": 3.5,
}

// A profile of another tool becomes one in bytes, with the faults that it has.
func ExampleRead() {
	file, err := os.Open("testdata/released.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer file.Close()
	d, _, err := memprofile.Read("released.json", file, format.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(*d.MemoryMeasurements.Peak.TotalBytes, d.MemoryBreakdown.Consistent)
	fmt.Println(d.MemoryBreakdown.Faults[0])
	// Output:
	// 512.00 MiB false
	// parts exceed total: weights 13.40 GB, kv_cache 4.29 GB, activations 0.54 GB, framework_overhead 0.00 GB make 18.23 GB of 0.54 GB
}
