// Package gpu reads what the tools of the device drivers say of memory,
// utilisation, power and clocks: nvidia-smi, rocm-smi and amd-smi.
//
// All of them become a [Reading], in bytes, watts, hertz and shares. What a tool
// leaves out or calls "N/A" is nil, never zero. nvidia-smi counts memory in MiB,
// rocm-smi in bytes, amd-smi in "MB" of 2^20 bytes. Power and utilisation are
// means over a window of the driver's choice, and utilisation says that some
// kernel ran, not how well.
//
//	readings, err := gpu.ParseNvidiaSMI(out)
package gpu
