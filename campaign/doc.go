// Package campaign measures many configurations in one go: a YAML file with
// models, lengths and batch sizes becomes a grid of cells, and each cell is
// run, kept and, if need be, tried again.
//
// # The file
//
//	defaults:                        # optional: what all models share
//	  gpu_memory_utilization: 0.9
//	models:
//	  - model_id: Qwen/Qwen3-8B      # or hf_model_id
//	    container_name: vllm         # or place: docker:vllm, podman:…, kubectl:…, ssh:…, local
//	    input_lengths: [256, 512]
//	    output_lengths: [256]
//	    batch_sizes: [1, 8]
//	    tensor_parallel_size: 2      # optional, as all that follows
//	    block_sizes: [16, 32]
//
// [Parse] reads it strictly: an unknown field, a wrong type, an empty list, a
// value out of range, a field or a cell given twice, and what would store a secret
// are faults with line and column, and one [*FileError] carries them all.
// [FromFlags] builds the same from a command line, and holds an entry of a file
// to the same rules after flags were laid over it.
//
// # Cells
//
// [File.Cells] multiplies the lists out: block size, then input, output and
// batch, the last one fastest. A [Cell] has every default filled in.
// [Cell.Hash] names what decides its measurement, so that a run can be gone on
// with after the file was changed; [Cell.LoadKey] is equal for cells that one
// loaded engine can serve.
//
// [Order] makes groups of such cells, and [NewPlan] says beforehand what each
// cell will need, as far as that follows from what is known: what does not is
// null, with the reason.
//
// # Runs
//
// [Create] writes a run and its cells to the store, [Run] measures what is
// pending there. An engine is loaded once for each group and again only if it
// dies. What a cell ends in is its state in the store:
//
//	done      measured, and the profile was read back
//	oom       the memory did not do; cells of the group that are smaller in any dimension still run
//	refused   the engine will not run this; its words are kept
//	timeout   stopped after [Options.CellTimeout]
//	failed    anything else, after [Retry.Attempts] tries
//	skipped   not tried, because a smaller cell had too little memory
//	cancelled not tried, because its place cannot be used
//
// An engine that finds too little memory at its first start makes its group oom.
// At a later start it is a failure, which is tried again: the engine that died
// may not have let go of the memory yet.
//
// Run holds the run's lock, and does under it whatever else changes the run:
// [Options.Reset], [Options.Extend], and the comparison of [Options.Settings]. If
// the lock is lost, it stops and leaves the run to the process that has it.
//
// When the context ends, the cell in flight goes back to pending and all that
// has ended is kept; the next [Run] goes on from there. The same holds after
// the process was killed.
//
// The package does not know how a cell is measured: a [Runner] loads an
// [Engine], and that runs the cells.
package campaign
