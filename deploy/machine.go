package deploy

import (
	"regexp"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/unit"
)

// Platform is the kind of device that an engine runs on, as its defaults tell
// them apart.
type Platform uint8

const (
	// GPU is every accelerator that is none of the others.
	GPU Platform = iota
	// CPU is a processor.
	CPU
	// TPU is Google's.
	TPU
)

// Usage says how an engine is used, which its defaults depend on.
type Usage uint8

const (
	// Server is the API server.
	Server Usage = iota
	// Offline is vLLM's LLM class.
	Offline
	// OtherUsage is neither: vLLM's own classes used directly.
	OtherUsage
)

// Machine is where an engine starts, as far as its defaults depend on it.
type Machine struct {
	// Platform is the kind of device.
	Platform Platform
	// Name is the device as its driver names it.
	Name string
	// Memory is the device's, in bytes as the driver reports it; 0 is unknown.
	Memory unit.Bytes
}

// MachineOf is the machine of a catalog's device. Memory counts only where
// vLLM asks the driver for it.
func MachineOf(d *catalog.Device) Machine {
	m := Machine{Name: d.FullName, Memory: d.MemoryBytes()}
	switch strings.ToLower(d.Vendor) {
	case "nvidia", "amd", "intel":
	case "google":
		m.Platform, m.Memory = TPU, 0
	case "generic":
		m.Platform = CPU
	default:
		m.Memory = 0
	}
	return m
}

// gb10 reports whether the device is a GB10, whose memory is the host's.
func (m Machine) gb10() bool {
	return regexp.MustCompile(`(?i)\bgb10\b`).MatchString(m.Name)
}

// large reports whether vLLM takes the device for one of 70 GiB and more.
func (m Machine) large() bool {
	return m.Memory >= 70*unit.GiB && !strings.Contains(strings.ToLower(m.Name), "a100")
}

// limits are max_num_batched_tokens and max_num_seqs with why they are so.
type limits struct {
	budget, seats int
	why           string
}

// limitsOf are vLLM's limits before any adjustment.
func limitsOf(r Release, m Machine, u Usage, ranks int) limits {
	offline := u == Offline
	pick := func(server, offlineClass int) int {
		if offline {
			return offlineClass
		}
		return server
	}
	if u == OtherUsage && r.From(11, 2) {
		return limits{2048, 128, "neither server nor LLM class"}
	}
	small := limits{pick(2048, 8192), 256, "devices below 70 GiB, A100 and unknown ones"}
	switch m.Platform {
	case CPU:
		if !r.From(10, 0) {
			return limits{pick(2048, 4096), pick(32, 128), "CPUs"}
		}
		return limits{pick(2048, 4096) * ranks, pick(128, 256) * ranks, "CPUs, times the ranks"}
	case TPU:
		if budget := tpuBudget(m.Name); budget > 0 {
			return limits{pick(budget, 2*budget), small.seats, "this TPU"}
		}
	}
	switch {
	case m.gb10() && r.From(33, 0):
		return limits{small.budget, small.seats, "GB10"}
	case m.Memory >= 160*unit.GiB && r.From(28, 0):
		return limits{16384, 1024, "devices of 160 GiB and more"}
	case m.large():
		return limits{pick(8192, 16384), 1024, "devices of 70 GiB and more"}
	}
	return small
}

// tpuBudget is the server's budget on a TPU, in tokens; 0 for one that vLLM
// does not name.
func tpuBudget(name string) int {
	name = strings.ToUpper(name)
	switch {
	case strings.Contains(name, "V6E"):
		return 1024
	case strings.Contains(name, "V5E"):
		return 512
	case strings.Contains(name, "V5P"):
		return 256
	}
	return 0
}
