package memory

import (
	"strings"
	"testing"

	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/unit"
)

// TestGiveBack: what a process on a CPU held before it loaded the weights may be
// less at the peak; elsewhere, and against figures that nobody measured, it
// stands as it was read.
func TestGiveBack(t *testing.T) {
	read := func(marker string, bytes int64) *Moment {
		return &Moment{Marker: marker, Devices: []Device{{Bytes: bytes}}}
	}
	for _, c := range []struct {
		why     string
		onCPU   bool
		stated  int64 // weights by the engine's word; 0 for the architecture's 150 MB
		started int64
		bytes   int64
		from    memprofile.Confidence
	}{
		{"it fits", true, 150e6, 100e6, 100e6, memprofile.Medium},
		{"some was given back", true, 150e6, 170e6, 120e6, memprofile.Low},
		{"less was given back than figures of engines are rounded to", true, 150e6, 125e6, 120e6, memprofile.Low},
		{"the weights alone are too many: no remainder hides that", true, 300e6, 20e6, 20e6, memprofile.Medium},
		{"the weights may be what is wrong", true, 0, 170e6, 170e6, memprofile.Medium},
		{"a GPU's memory is not given back", false, 150e6, 170e6, 170e6, memprofile.Medium},
	} {
		t.Run(c.why, func(t *testing.T) {
			o := &Observation{Baseline: read("before", 0), Started: read("probe: started", c.started), Peak: read("largest", 270e6)}
			o.ruler.byProcess = c.onCPU
			if c.stated > 0 {
				o.Result.Memory = []profile.Point{{Kind: profile.KindMemory, Memory: &profile.Memory{Part: profile.MemoryWeights, Bytes: c.stated}}}
			}
			weights := unit.Bytes(150e6)
			b := o.Breakdown(Expected{Weights: &weights, Source: "architecture"})
			p := b.find(memprofile.PartOverhead)
			if int64(*p.Bytes) != c.bytes || p.Confidence != c.from {
				t.Errorf("%d bytes (%s), want %d (%s): %+v", *p.Bytes, p.Confidence, c.bytes, c.from, p)
			}
			if given := strings.Contains(string(p.Note), "that were read before"); given != (c.from == memprofile.Low) {
				t.Errorf("note %q", p.Note)
			}
			if c.from == memprofile.Low && b.sum() != 270e6 {
				t.Errorf("the parts make %s", b.sum())
			}
		})
	}
}
