// Package nvml reads NVIDIA devices through the driver's own library,
// libnvidia-ml: the same figures as nvidia-smi gives, without a program that
// runs beside the engine, and MIG instances at the full rate.
//
//	source, err := nvml.Open()
//	if err != nil {
//		source = gpu.NvidiaSMI(gpu.Local())
//	}
//
// It is in builds with the tag nvml on Linux. Such a build needs glibc's
// loader, where the build without it is static; there, and where the machine
// has no such library, Open says so.
package nvml

import "errors"

// ErrNone is why there is no source: the build has none, or the machine.
var ErrNone = errors.New("no NVIDIA sampler")
