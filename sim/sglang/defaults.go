package sglang

import (
	"fmt"
	"math"
	"slices"
)

// Machine is where a server starts, as far as its defaults depend on it.
type Machine struct {
	// MemoryMiB is the memory of a device as its driver reports it, in MiB; 0
	// is unknown.
	MemoryMiB int
	// TensorParallel and PipelineParallel count devices; 0 is 1.
	TensorParallel, PipelineParallel int
	// Latent says that the model keeps latent KV (MLA).
	Latent bool
}

// Defaults are the values of flags that were not given.
type Defaults struct {
	// Policy is schedule_policy.
	Policy Policy
	// Chunk is chunked_prefill_size in tokens.
	Chunk int
	// MaxPrefill is max_prefill_tokens.
	MaxPrefill int
	// Conservativeness is schedule_conservativeness, a factor.
	Conservativeness float64
	// Page is page_size in tokens, if no attention backend asks for more.
	Page int
	// MemoryFraction is mem_fraction_static: the share of the device's memory
	// for weights and the pool.
	MemoryFraction float64
	// GraphBatch is the largest batch of a captured graph, in requests; 0 in
	// releases whose memory fraction does not depend on it.
	GraphBatch int
}

// DefaultsOf gives the defaults of a release on a machine; "" is the newest.
func DefaultsOf(release string, m Machine) (Defaults, error) {
	if release == "" {
		release = NewestRelease
	}
	if !slices.Contains(Releases(), release) {
		return Defaults{}, &UnknownReleaseError{Release: release}
	}
	m.TensorParallel, m.PipelineParallel = max(m.TensorParallel, 1), max(m.PipelineParallel, 1)
	d := Defaults{Policy: FCFS, MaxPrefill: 16384, Conservativeness: 1, Page: 1}
	switch release {
	case "0.4.1":
		d.Policy, d.Chunk = LPM, 8192
		if m.MemoryMiB > 0 && m.MemoryMiB < 25_000 {
			d.Chunk = 2048
		}
		d.MemoryFraction = fractionByDevices(m.TensorParallel)
	case "0.4.7":
		d.Chunk = oldChunk(m)
		d.MemoryFraction = oldFraction(m)
	default:
		d.Chunk, d.GraphBatch = byMemory(release, m)
		d.MemoryFraction = fraction(release, m, d)
	}
	if !(d.MemoryFraction > 0) {
		return Defaults{}, fmt.Errorf("defaults of sglang %s on a device of %d MiB: no memory is left for weights and pool", release, m.MemoryMiB)
	}
	return d, nil
}

// fractionByDevices is mem_fraction_static by the number of devices, a share.
func fractionByDevices(n int) float64 {
	switch {
	case n >= 16:
		return 0.79
	case n >= 8:
		return 0.81
	case n >= 4:
		return 0.85
	case n >= 2:
		return 0.87
	}
	return 0.88
}

func oldChunk(m Machine) int {
	switch {
	case m.MemoryMiB > 180_000:
		return 16384
	case m.MemoryMiB > 0 && m.MemoryMiB < 25_000:
		return 2048
	}
	return 8192
}

// oldFraction is mem_fraction_static of 0.4.7, a share.
func oldFraction(m Machine) float64 {
	const keep = 18 << 10 // MiB for everything else on large devices
	known := m.MemoryMiB > 0
	memory := float64(m.MemoryMiB)
	switch {
	case known && m.MemoryMiB <= 81920:
		return fractionByDevices(m.TensorParallel * m.PipelineParallel)
	case m.MemoryMiB > 180_000:
		return 0.79
	case m.MemoryMiB > 96<<10:
		return min(0.88+(48<<10)*(1-0.88)/memory, (memory-keep)/memory)
	}
	return 0.88
}

// byMemory is the chunk in tokens and the largest captured batch.
func byMemory(release string, m Machine) (chunk, graph int) {
	newest := release == "0.5.23"
	few := m.TensorParallel < 4
	pick := func(alone, many int) int {
		if few {
			return alone
		}
		return many
	}
	switch gib := m.MemoryMiB; {
	case gib == 0:
		return 4096, 160
	case gib < 20<<10:
		return 2048, 8
	case gib < 35<<10 && newest:
		return 4096, pick(48, 160)
	case gib < 35<<10:
		return 2048, pick(24, 80)
	case gib < 60<<10:
		return 4096, pick(32, 160)
	case gib < 160<<10:
		return 8192, pick(256, 512)
	}
	return 16384, 512
}

// fraction is mem_fraction_static from 0.5.5 on, a share.
func fraction(release string, m Machine, d Defaults) float64 {
	if m.MemoryMiB == 0 {
		if release == "0.5.23" {
			return 0.95
		}
		return 0.88
	}
	memory := float64(m.MemoryMiB)
	reserved := 512 + 1.5*float64(max(d.Chunk, 2048)) + 2*float64(d.GraphBatch) +
		128*float64(m.TensorParallel*m.PipelineParallel)
	switch {
	case release == "0.5.5":
	case m.Latent:
		reserved += 1536
	default:
		reserved += 8 * float64(prefillGraphs(d.Chunk))
	}
	if m.MemoryMiB > 60<<10 {
		reserved = max(reserved, 10<<10)
	}
	return math.Round((memory-reserved)/memory*1000) / 1000
}

// prefillGraphs is how many sizes up to a chunk are captured for prefills.
func prefillGraphs(chunk int) int {
	n := 0
	for _, r := range []struct{ from, to, by int }{
		{4, 32, 4}, {48, 256, 16}, {288, 512, 32}, {576, 1024, 64}, {1280, 4096, 256}, {4608, math.MaxInt, 512},
	} {
		if to := min(r.to, chunk); to >= r.from {
			n += (to-r.from)/r.by + 1
		}
	}
	return n
}

// DefaultSeats is max_running_requests when it is not given: of a pool in
// tokens and the model's context length.
func DefaultSeats(release string, pool, context int) (int, error) {
	if release == "" {
		release = NewestRelease
	}
	at := slices.Index(Releases(), release)
	switch {
	case at < 0:
		return 0, &UnknownReleaseError{Release: release}
	case pool < 1 || context < 1:
		return 0, fmt.Errorf("default seats of a pool of %d tokens and a context of %d: want at least 1 of each", pool, context)
	}
	seats := min(max(int(float64(pool)/float64(context)*512), 2048), 4096)
	if at >= slices.Index(Releases(), "0.5.10") {
		seats = min(seats, pool/2)
	}
	return seats, nil
}

// PoolOf is max_total_num_tokens: the whole pages that fit in the memory left
// for the pool, in tokens. Memory is in bytes and that free on one device:
// before the model is loaded, and after it. A cell is one token's KV on one
// device; most is max_total_tokens, or 0.
func PoolOf(before, after int64, fraction float64, cell int64, page, most int) (int, error) {
	left := float64(after) - float64(before)*(1-fraction)
	if cell < 1 || page < 1 || most < 0 || before < 1 || !(left > 0) {
		return 0, fmt.Errorf("pool of %d bytes free before the model and %d after, share %g, %d bytes a token, pages of %d: nothing fits", before, after, fraction, cell, page)
	}
	n := int(min(left/float64(cell), MaxCount))
	if most > 0 {
		n = min(n, most)
	}
	n = n / page * page
	if n == 0 {
		return 0, fmt.Errorf("pool of %.0f bytes at %d bytes a token: not one page of %d tokens fits", left, cell, page)
	}
	return n, nil
}
