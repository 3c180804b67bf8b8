package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/unit"
)

// memoryProgress shows on stderr where an engine whose memory is read has come
// to, and what it holds.
type memoryProgress struct {
	byProcess bool
	keep      func(gpu.Reading) bool // nil for all devices

	mu    sync.Mutex
	meter *meter
	began time.Time
	phase string
}

func newMemoryProgress(m *meter, r *memoryRun) *memoryProgress {
	return &memoryProgress{byProcess: r.sampling.ByProcess, keep: r.sampling.Keep, meter: m, began: time.Now(), phase: "the engine starts"}
}

// marked takes in a moment that the engine tells of.
func (p *memoryProgress) marked(m engine.Mark) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch m.Name {
	case engine.MarkStarted:
		p.phase = "weights are loaded"
	case engine.MarkLoaded:
		p.phase = "weights are in memory, the start-up goes on"
	case engine.MarkReady:
		p.phase = "warm-up runs"
	case engine.MarkWarm:
		p.phase = "timed runs"
	}
	p.meter.line(p.text(nil), true, time.Now())
}

// read takes in what the devices hold.
func (p *memoryProgress) read(s gpu.Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.meter.line(p.text(s.Readings), false, time.Now())
}

func (p *memoryProgress) text(readings []gpu.Reading) string {
	line := fmt.Sprintf("%s: %s", time.Since(p.began).Round(time.Second), p.phase)
	var sum int64
	known := false
	for _, r := range readings {
		used := r.MemoryUsed
		if p.byProcess {
			used = r.ProcessMemory
		}
		if used != nil && (p.keep == nil || p.keep(r)) {
			sum, known = sum+*used, true
		}
	}
	if known {
		line += fmt.Sprintf(", %s in use", unit.Bytes(sum))
	}
	return line
}

// end leaves the line on a terminal.
func (p *memoryProgress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.meter.end()
}
