package main

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/gpu"
)

func TestMemoryProgress(t *testing.T) {
	var out bytes.Buffer
	run := &memoryRun{}
	run.sampling.Keep = func(r gpu.Reading) bool { return r.Index != 1 }
	p := newMemoryProgress(&meter{w: &out}, run)
	snapshot := gpu.Snapshot{Readings: []gpu.Reading{
		{Index: 0, MemoryUsed: new(int64(3 << 30)), ProcessMemory: new(int64(1 << 20))}, {Index: 1, MemoryUsed: new(int64(9 << 30))}, {Index: 2},
	}}
	p.read(snapshot)
	p.marked(engine.Mark{Name: engine.MarkReady})
	p.byProcess = true
	p.read(snapshot)
	p.end()
	want := regexp.MustCompile(`^\d+s: the engine starts, 3\.00 GiB in use\n\d+s: warm-up runs\n\d+s: warm-up runs, 1\.00 MiB in use\n$`)
	if !want.Match(out.Bytes()) {
		t.Errorf("progress\n%s", &out)
	}
}
