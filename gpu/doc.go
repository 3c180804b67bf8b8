// Package gpu reads what devices are doing: memory, utilisation, power,
// temperature and clocks, once or while an engine runs.
//
// All tools of the drivers become a [Reading], in bytes, watts, hertz and
// shares. What a tool leaves out or calls "N/A" is nil, never zero, and totals
// are the driver's. nvidia-smi counts memory in MiB, rocm-smi in bytes, amd-smi
// in "MB" of 2^20 bytes. Power and utilisation are means over a window of the
// driver's choice, and utilisation says that some kernel ran, not how well.
//
//	readings, err := gpu.ParseNvidiaSMI(out)
//
// # Over time
//
// A [Source] reads the devices of a [Host] about every interval, and [Record]
// keeps what it says in the background:
//
//	recording := gpu.Record(ctx, gpu.NvidiaSMI(gpu.Local()), gpu.RecordOptions{})
//	first, err := recording.First(ctx) // before the engine starts
//	…
//	timeline, err := recording.Stop()
//	for _, device := range timeline.Devices {
//		peak, ok := device.Max(0, device.Last)
//		…
//	}
//
// The sources are
//
//   - [NvidiaSMI]: one nvidia-smi that runs all the time;
//   - package gpu/nvml: NVIDIA's library, in builds with the tag nvml;
//   - [AMD]: the files of the amdgpu driver, else amd-smi, else rocm-smi;
//   - [Processes]: the memory of the host and of marked processes, for engines
//     on a CPU;
//   - [Replay]: a recording of any of them, made with a [Writer].
//
// [Detect] says which of them work on a host. [Visible] picks the devices that
// CUDA_VISIBLE_DEVICES and its like leave to an engine.
//
// A recording takes a bounded amount of memory: when a device's series is full,
// neighbours are merged two by two. A merged sample holds the larger memory, so
// that a peak is never lost, and the means of the rest.
//
// # Whose memory
//
// A device's memory is that of all its users. [Reading.ProcessMemory] is that
// of the followed processes alone: with [Processes] those that carry a mark in
// their environment, and what they have started. With NVIDIA it is that of all
// compute processes which the driver lists on the device, whosever they are,
// and with nvidia-smi up to a second old.
//
// # What was tried
//
// The sources that start programs: against imitations of the programs, and made
// up trees of files, composed after the tools' documents. [Processes]: on Linux,
// with dash and bash. gpu/nvml: against an imitation of the library. Neither
// NVIDIA's nor AMD's tools, and no MIG instances, on their hardware.
package gpu
