// Package cost computes what a forward pass costs from first principles: the
// FLOPs, bytes and messages of every operator, the time a roofline gives each
// of them, the memory of a rank, and from these TTFT, TPOT and capacity. It
// knows datasheets and architectures and no measurement: its numbers are
// theoretical, and its efficiencies are stated assumptions until a fit
// replaces them.
//
// [New] binds a model, a device and a deployment into an [Estimator]. The
// estimator is read-only and safe for concurrent use:
//
//	est, err := cost.New(model, device, deploy.Config{TensorParallel: 8}, cost.Settings{})
//	t := est.Seconds(forward.Decode(32, 1088)) // one decode step
//	ops := est.Ops(forward.Prefill(32, 1024, 0)) // every operator of a prefill
//
// # The time of an operator
//
//	time = max(flops / (peak · eff_compute), bytes / (bandwidth · eff_hbm)) + kernels · launch
//
// and a collective takes its network time. Whichever term is largest is the
// operator's [Bound]. A step is the sum of its operators plus a fixed
// overhead, so a breakdown always sums to the step.
//
// # What is counted
//
// All figures of an operator are those of one rank. Linear layers read their
// weights once per pass and in their real storage (scales included);
// attention is causal and fused, reads each cached token once and never
// stores scores; a mixture of experts reads the expected number of distinct
// experts, D(T) = E·(1−(1−K/E)^T), and computes T·K rows; KV heads are
// replicated, not split, beyond one per rank; latent attention is expanded
// for prompts and absorbed for decoding. Softmax, norms, rotations and
// activations are charged for their bytes and not to the matrix peak.
//
// Formulas: the roofline model (Williams et al. 2009); causal attention
// counts q·c + q(q+1)/2 pairs; ring, tree and one-shot collectives with an
// α–β model.
package cost

import (
	"errors"
	"fmt"
	"math"

	"github.com/llmprof/llmprof/unit"
)

// Settings are the knobs of the cost model. The zero value of a field means
// its default. None of the defaults is measured: they are starting values.
type Settings struct {
	// EffCompute is the reachable share of the matrix peak, 0..1. Default 0.7.
	EffCompute float64 `json:"eff_compute"`
	// EffHBM is the reachable share of memory bandwidth, 0..1. Default 0.8.
	EffHBM float64 `json:"eff_hbm"`
	// EffNet is the reachable share of link bandwidth, 0..1. Default 0.75.
	EffNet float64 `json:"eff_net"`
	// Launch is the cost of one kernel. Default 2 µs, 5 µs when Eager.
	Launch unit.Seconds `json:"launch_s"`
	// NoLaunch says that kernels cost nothing but their work.
	NoLaunch bool `json:"no_launch,omitempty"`
	// Eager says that no device graphs hide the launch of kernels.
	Eager bool `json:"eager"`
	// StepOverhead is the host's time per step. Default 0.
	StepOverhead unit.Seconds `json:"step_overhead_s"`
	// Overlap is the share of communication hidden behind compute, 0..1.
	// Default 0.
	Overlap float64 `json:"overlap"`
	// NaiveAttention adds the traffic of a score matrix that is stored.
	NaiveAttention bool `json:"naive_attention"`
	// KVReread multiplies the KV bytes that a prefill reads, for prompts whose
	// keys do not stay in the last-level cache. Default 1.
	KVReread float64 `json:"kv_reread"`
	// ExpertSkew is the effective share of experts that a skewed router
	// uses, 0..1. Default 1: uniform routing.
	ExpertSkew float64 `json:"expert_skew"`
	// ExpertImbalance is the load of the busiest expert-parallel rank over
	// the mean, a ratio of at least 1. Default 1.
	ExpertImbalance float64 `json:"expert_imbalance"`
	// DispatchOnce sends a token once to each rank that holds any of its
	// experts, instead of once for each expert.
	DispatchOnce bool `json:"dispatch_once"`
	// SharedPrefix is the number of leading tokens that all decoding
	// sequences share and that attention reads once for all of them.
	SharedPrefix int `json:"shared_prefix"`
	// Sparsity says that weights are 2:4 sparse: twice the peak, fewer bytes.
	Sparsity bool `json:"sparsity"`
	// Reserve is device memory outside weights, KV cache and activations:
	// context, communicator, graphs. Default 1 GiB.
	Reserve unit.Bytes `json:"reserve_bytes"`
	// NoReserve says that nothing is reserved.
	NoReserve bool `json:"no_reserve,omitempty"`
	// MicroBatches is the number of parts into which a prefill is cut for
	// pipeline stages. Default 1.
	MicroBatches int `json:"micro_batches"`
}

// WithDefaults returns s with every unset field at its default.
func (s Settings) WithDefaults() Settings {
	set := func(field *float64, value float64) {
		if *field == 0 {
			*field = value
		}
	}
	set(&s.EffCompute, 0.7)
	set(&s.EffHBM, 0.8)
	set(&s.EffNet, 0.75)
	set(&s.KVReread, 1)
	set(&s.ExpertSkew, 1)
	set(&s.ExpertImbalance, 1)
	switch {
	case s.NoLaunch:
		s.Launch = 0
	case s.Launch == 0 && s.Eager:
		s.Launch = 5e-6
	case s.Launch == 0:
		s.Launch = 2e-6
	}
	switch {
	case s.NoReserve:
		s.Reserve = 0
	case s.Reserve == 0:
		s.Reserve = unit.GiB
	}
	if s.MicroBatches == 0 {
		s.MicroBatches = 1
	}
	return s
}

// Validate reports every fault of s with its defaults filled in.
func (s Settings) Validate() error {
	s = s.WithDefaults()
	var faults []error
	within := func(name string, v, low, high float64) {
		if !(v >= low && v <= high) {
			faults = append(faults, fmt.Errorf("%s is %g: want %g to %g", name, v, low, high))
		}
	}
	within("compute efficiency", s.EffCompute, 1e-4, 1)
	within("memory efficiency", s.EffHBM, 1e-4, 1)
	within("network efficiency", s.EffNet, 1e-4, 1)
	within("launch time", float64(s.Launch), 0, 1)
	within("step overhead", float64(s.StepOverhead), 0, 10)
	within("overlap", s.Overlap, 0, 1)
	within("KV reread factor", s.KVReread, 1, 1e4)
	within("expert skew", s.ExpertSkew, 1e-4, 1)
	within("expert imbalance", s.ExpertImbalance, 1, 1e4)
	within("reserve", float64(s.Reserve), 0, math.MaxInt64/4)
	within("shared prefix", float64(s.SharedPrefix), 0, 1<<40)
	within("micro-batches", float64(s.MicroBatches), 1, 1<<20)
	return errors.Join(faults...)
}
