package load

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Machine is the state of the client's machine around a run.
type Machine struct {
	// Cores is how many the client may use.
	Cores int `json:"cores"`
	// LoadBefore is the machine's one-minute load average before the run: a
	// count of processes that run or wait; nil where the system has none.
	LoadBefore *float64 `json:"load_before,omitempty"`
	// CPUSeconds is the CPU time that the client used, in seconds.
	CPUSeconds *float64 `json:"client_cpu_s,omitempty"`
	// OpenFiles is how many files, and so connections, the client may open.
	OpenFiles *uint64 `json:"open_files,omitempty"`
}

// machineNow begins to measure the client's part of the machine; the func ends
// it. load is what the machine's load was before.
func machineNow(load *float64) func() Machine {
	m := Machine{Cores: runtime.GOMAXPROCS(0), LoadBefore: load}
	if limit, ok := openFiles(); ok {
		m.OpenFiles = &limit
	}
	before, ok := cpuTime()
	return func() Machine {
		if now, still := cpuTime(); ok && still {
			m.CPUSeconds = new(float64(now-before) / float64(time.Second))
		}
		return m
	}
}

// loadAverage reads Linux's one-minute load.
func loadAverage() *float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return nil
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return nil
	}
	return &load
}
