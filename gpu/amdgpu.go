package gpu

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// amdgpuScript reads the driver's files on a host, with nothing but a POSIX
// shell and sleep.
//
//go:embed amdgpu.sh
var amdgpuScript string

// amdgpu reads the files of the amdgpu driver below root.
type amdgpu struct {
	host Host
	root string
}

// Name is the driver.
func (amdgpu) Name() string { return "amdgpu sysfs" }

// Follow reads the script's lines as they come.
func (s amdgpu) Follow(ctx context.Context, every time.Duration, take func(Snapshot)) error {
	rounds := amdgpuRounds{}
	err := eachScriptLine(ctx, s.host, func(line string) error {
		readings, err := rounds.line(line)
		if err == nil && readings != nil {
			take(Snapshot{Time: time.Now(), Readings: readings})
		}
		return err
	}, "amdgpu", amdgpuScript, s.root, hundredths(interval(every)))
	return ended(ctx, "amdgpu sysfs", err)
}

// amdgpuRounds reads the lines of amdgpu.sh.
type amdgpuRounds struct {
	devices []amdgpuDevice
	sorted  bool
	open    []Reading
}

// amdgpuDevice is a device as it is named first.
type amdgpuDevice struct {
	folder, pci string
	fixed       Reading
}

// maxDevices bounds the devices of a host.
const maxDevices = 1024

// line takes a line; readings are those of a round that is complete. They are
// numbered in the order of their PCI addresses, as AMD's tools do.
func (a *amdgpuRounds) line(text string) (readings []Reading, err error) {
	words := strings.Fields(text)
	switch {
	case len(words) == 0:
		return nil, nil
	case words[0] == "none":
		return nil, errors.New("no device with mem_info_vram_total below " + strings.Join(words[1:], " "))
	case words[0] == "device":
		if len(words) < 6 || len(a.devices) == maxDevices {
			return nil, nil
		}
		d := amdgpuDevice{folder: words[1], pci: words[2]}
		d.fixed.MemoryTotal, d.fixed.PowerLimit = counted(words[3]), scaled(words[4], 1e-6)
		if words[5] != "-" {
			d.fixed.UUID = "GPU-" + strings.TrimPrefix(words[5], "0x")
		}
		if name := strings.Join(words[6:], " "); name != "-" {
			d.fixed.Name = name
		}
		a.devices = append(a.devices, d)
	case words[0] == "end":
		readings, a.open = a.open, nil
		slices.SortFunc(readings, func(x, y Reading) int { return cmp.Compare(x.Index, y.Index) })
	case len(words) == 8 && len(a.open) < len(a.devices):
		if !a.sorted {
			slices.SortStableFunc(a.devices, func(x, y amdgpuDevice) int { return cmp.Compare(x.pci, y.pci) })
			a.sorted = true
		}
		i := slices.IndexFunc(a.devices, func(d amdgpuDevice) bool { return d.folder == words[0] })
		if i < 0 {
			return nil, nil
		}
		r := a.devices[i].fixed
		r.Index, r.MemoryUsed = i, counted(words[1])
		r.Utilization, r.MemoryUtilization = scaled(words[2], 0.01), scaled(words[3], 0.01)
		r.Power, r.Temperature = scaled(words[4], 1e-6), scaled(words[5], 1e-3)
		r.Clock, r.MemoryClock = scaled(words[6], 1), scaled(words[7], 1)
		a.open = append(a.open, r)
	}
	return readings, nil
}

// maxCount bounds a count, so that sums of thousands of them stay exact.
const maxCount = 1 << 50

// counted reads a count of bytes, nil for what is none.
func counted(word string) *int64 {
	v, err := strconv.ParseInt(word, 10, 64)
	if err != nil || v < 0 || v > maxCount {
		return nil
	}
	return &v
}

// scaled reads a whole number in another unit, nil for what is none.
func scaled(word string, by float64) *float64 {
	v := counted(word)
	if v == nil {
		return nil
	}
	f := float64(*v) * by
	return &f
}
