package catalog

import (
	"errors"
	"fmt"
	"math"

	"github.com/llmprof/llmprof/unit"
)

// Quantity is one datasheet figure with where it comes from.
type Quantity struct {
	// Value is in the base unit that the field names: bytes, bytes/s, FLOP/s,
	// seconds, watts.
	Value float64 `json:"value" yaml:"value"`
	// Source names the document.
	Source string `json:"source" yaml:"source"`
	// Verified says that the value was compared with that document, and that
	// it is the vendor's own, a driver's log, an engine's source code, an
	// MLPerf system description or a maintained table that cites the vendor;
	// never a shop's or magazine's copy.
	Verified bool `json:"verified" yaml:"verified"`
}

// Known reports whether the figure is there at all.
func (q Quantity) Known() bool { return q.Value > 0 }

// Device is an accelerator, or a processor used as one.
type Device struct {
	// Name is the canonical name: lower case, with form factor and memory
	// where a name is sold in several ("a100-sxm-80gb").
	Name string `json:"name" yaml:"name"`
	// FullName is the vendor's own name.
	FullName string   `json:"full_name" yaml:"full_name"`
	Vendor   string   `json:"vendor" yaml:"vendor"`
	Aliases  []string `json:"aliases,omitempty" yaml:"aliases,omitempty"`
	// Year is the year of release.
	Year int `json:"year,omitempty" yaml:"year,omitempty"`

	// Memory is the device memory in bytes, as a program or the driver reports
	// it, or the nominal size where that is not known.
	Memory Quantity `json:"memory_bytes" yaml:"memory_bytes"`
	// MemoryTotal is memory.total of nvidia-smi in bytes, which holds what the
	// driver keeps for itself and no program sees.
	MemoryTotal Quantity `json:"memory_total_bytes,omitzero" yaml:"memory_total_bytes,omitempty"`
	// Bandwidth is the device memory's, in bytes/s.
	Bandwidth Quantity `json:"hbm_bytes_per_s" yaml:"hbm_bytes_per_s"`
	// Peaks are dense matrix rates in FLOP/s (operations/s for integers) by
	// the format of the multiplied numbers; an absent format is not supported
	// in hardware. Sparse figures never stand here.
	Peaks map[DType]Quantity `json:"peak_flops" yaml:"peak_flops"`
	// SMs is the number of streaming multiprocessors or the vendor's like.
	SMs Quantity `json:"sms,omitzero" yaml:"sms,omitempty"`
	// L2 is the last-level cache in bytes.
	L2 Quantity `json:"l2_bytes,omitzero" yaml:"l2_bytes,omitempty"`
	// Link connects the devices of one domain (a node, an NVLink domain).
	Link Link `json:"link,omitzero" yaml:"link,omitempty"`
	// InterNode is the network per device in bytes/s per direction.
	InterNode Quantity `json:"inter_node_bytes_per_s,omitzero" yaml:"inter_node_bytes_per_s,omitempty"`
	// PCIe is the host link in bytes/s per direction.
	PCIe Quantity `json:"pcie_bytes_per_s,omitzero" yaml:"pcie_bytes_per_s,omitempty"`
	// Power is the limit of the board in watts, or of the whole machine where
	// the source says so.
	Power Quantity `json:"power_w,omitzero" yaml:"power_w,omitempty"`
	// Note says what a reader must know.
	Note string `json:"note,omitempty" yaml:"note,omitempty"`
}

// Link is the connection between the devices of one domain.
type Link struct {
	// Kind names the technology: "nvlink", "xgmi", "pcie", "ici", …
	Kind string `json:"kind,omitempty" yaml:"kind,omitempty"`
	// Topology is "switch", "mesh", "ring", "torus", "pair" or "host".
	Topology string `json:"topology,omitempty" yaml:"topology,omitempty"`
	// Bandwidth is per device and per direction, in bytes/s.
	Bandwidth Quantity `json:"bytes_per_s,omitzero" yaml:"bytes_per_s,omitempty"`
	// Domain is the number of devices that the link connects.
	Domain int `json:"domain,omitempty" yaml:"domain,omitempty"`
	// Alpha is the latency of one hop in seconds.
	Alpha Quantity `json:"alpha_s,omitzero" yaml:"alpha_s,omitempty"`
}

// MemoryBytes is the device memory.
func (d *Device) MemoryBytes() unit.Bytes { return unit.Bytes(d.Memory.Value) }

// MemoryTotalBytes is memory.total of nvidia-smi, or the device memory where that
// is not known.
func (d *Device) MemoryTotalBytes() unit.Bytes {
	return unit.Bytes(max(d.MemoryTotal.Value, d.Memory.Value))
}

// Peak returns the dense rate for multiplying numbers of format t, and
// whether the device has it.
func (d *Device) Peak(t DType) (unit.FLOPsPerSecond, bool) {
	q, ok := d.Peaks[t]
	return unit.FLOPsPerSecond(q.Value), ok && q.Known()
}

// Validate reports everything that makes the device unusable.
func (d *Device) Validate() error {
	var faults []error
	check := func(field string, q Quantity, required bool) {
		switch {
		case q.Value == 0 && !required:
		case math.IsNaN(q.Value) || math.IsInf(q.Value, 0) || q.Value <= 0:
			faults = append(faults, fmt.Errorf("%s is %g: want a positive number", field, q.Value))
		case q.Source == "":
			faults = append(faults, fmt.Errorf("%s has no source", field))
		}
	}
	check("memory_bytes", d.Memory, true)
	if d.Memory.Value > 1<<50 {
		faults = append(faults, fmt.Errorf("memory_bytes is %g: more than a pebibyte", d.Memory.Value))
	}
	check("memory_total_bytes", d.MemoryTotal, false)
	if d.MemoryTotal.Known() && (d.MemoryTotal.Value < d.Memory.Value || d.MemoryTotal.Value > 1<<50) {
		faults = append(faults, fmt.Errorf("memory_total_bytes is %g: want at least memory_bytes, and at most a pebibyte", d.MemoryTotal.Value))
	}
	check("hbm_bytes_per_s", d.Bandwidth, true)
	if len(d.Peaks) == 0 {
		faults = append(faults, errors.New("peak_flops is empty"))
	}
	for _, t := range DTypes() {
		if q, ok := d.Peaks[t]; ok {
			check("peak_flops."+string(t), q, true)
		}
	}
	for t := range d.Peaks {
		if t.Bits() == 0 {
			faults = append(faults, fmt.Errorf("peak_flops: unknown dtype %q", t))
		}
	}
	check("sms", d.SMs, false)
	check("l2_bytes", d.L2, false)
	check("link.bytes_per_s", d.Link.Bandwidth, false)
	check("link.alpha_s", d.Link.Alpha, false)
	check("inter_node_bytes_per_s", d.InterNode, false)
	check("pcie_bytes_per_s", d.PCIe, false)
	check("power_w", d.Power, false)
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("device %s: %w", d.Name, errors.Join(faults...))
}
