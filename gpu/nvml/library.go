//go:build nvml && linux

package nvml

import (
	"fmt"

	"github.com/ebitengine/purego"
)

// device is the library's handle of a card or an instance.
type device uintptr

// status is what the library's functions return.
type status int32

const (
	success      status = 0
	insufficient status = 7 // the buffer is too small
)

// memory is nvmlMemory_t; used includes what the driver keeps for itself.
type memory struct{ Total, Free, Used uint64 }

// memory2 is nvmlMemory_v2_t.
type memory2 struct {
	Version                     uint32
	_                           uint32
	Total, Reserved, Free, Used uint64
}

// memory2Version is the size of memory2, and 2 in the highest byte.
const memory2Version = 40 | 2<<24

// utilization is nvmlUtilization_t, in percent.
type utilization struct{ GPU, Memory uint32 }

// process is nvmlProcessInfo_t of the functions v2 and v3.
type process struct {
	PID      uint32
	_        uint32
	Used     uint64
	GPU      uint32 // instance
	Computer uint32 // instance
}

const (
	// unknownMemory is what Used is where the driver does not say.
	unknownMemory = ^uint64(0)
	// clockSM and clockMemory are nvmlClockType_t.
	clockSM, clockMemory = 1, 2
	// maxText is the size of the buffers for texts in bytes, at least what the
	// library asks for.
	maxText = 128
)

// library is the functions of libnvidia-ml. Those that a driver may lack are
// nil where it does.
type library struct {
	initialise  func() status
	errorString func(status) string
	count       func(*uint32) status
	byIndex     func(uint32, *device) status
	name        func(device, *byte, uint32) status
	uuid        func(device, *byte, uint32) status
	memory      func(device, *memory) status
	memory2     func(device, *memory2) status
	utilization func(device, *utilization) status
	power       func(device, *uint32) status
	powerLimit  func(device, *uint32) status
	temperature func(device, int32, *uint32) status
	clock       func(device, int32, *uint32) status
	processes   func(device, *uint32, *process) status
	instances   func(device, *uint32) status
	instance    func(device, uint32, *device) status
}

// load opens the library and starts it.
func load(file string) (*library, error) {
	handle, err := purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("%w: load %s: %w", ErrNone, file, err)
	}
	var l library
	for _, f := range []struct {
		function any
		optional bool
		names    []string // the newest first
	}{
		{&l.initialise, false, []string{"nvmlInit_v2"}},
		{&l.errorString, false, []string{"nvmlErrorString"}},
		{&l.count, false, []string{"nvmlDeviceGetCount_v2"}},
		{&l.byIndex, false, []string{"nvmlDeviceGetHandleByIndex_v2"}},
		{&l.name, false, []string{"nvmlDeviceGetName"}},
		{&l.uuid, false, []string{"nvmlDeviceGetUUID"}},
		{&l.memory, false, []string{"nvmlDeviceGetMemoryInfo"}},
		{&l.memory2, true, []string{"nvmlDeviceGetMemoryInfo_v2"}},
		{&l.utilization, false, []string{"nvmlDeviceGetUtilizationRates"}},
		{&l.power, false, []string{"nvmlDeviceGetPowerUsage"}},
		{&l.powerLimit, true, []string{"nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"}},
		{&l.temperature, false, []string{"nvmlDeviceGetTemperature"}},
		{&l.clock, false, []string{"nvmlDeviceGetClockInfo"}},
		{&l.processes, true, []string{"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"}},
		{&l.instances, true, []string{"nvmlDeviceGetMaxMigDeviceCount"}},
		{&l.instance, true, []string{"nvmlDeviceGetMigDeviceHandleByIndex"}},
	} {
		found := false
		for _, name := range f.names {
			if symbol, err := purego.Dlsym(handle, name); err == nil && !found {
				purego.RegisterFunc(f.function, symbol)
				found = true
			}
		}
		if !found && !f.optional {
			return nil, fmt.Errorf("%w: %s has no %s; the driver is too old", ErrNone, file, f.names[0])
		}
	}
	if s := l.initialise(); s != success {
		return nil, fmt.Errorf("%w: start %s: %w", ErrNone, file, l.fault(s))
	}
	return &l, nil
}

// fault is a status as an error.
func (l *library) fault(s status) error { return fmt.Errorf("%s (status %d)", l.errorString(s), s) }
