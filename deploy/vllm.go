package deploy

import (
	"fmt"
	"strconv"
)

// VLLMAsk is what vLLM's scheduler settings follow from.
type VLLMAsk struct {
	// Config and Knobs hold what was given; their zero fields were not.
	Config Config
	Knobs  Knobs
	// Machine is where the engine starts.
	Machine Machine
	// Usage is how it is used.
	Usage Usage
	// ModelLen is the longest sequence of the model in tokens, for deployments
	// that do not bound it.
	ModelLen int
	// State says that the model keeps a state per sequence (Mamba and linear
	// attention).
	State bool
}

// VLLM is the scheduler of a vLLM engine with every setting filled in. Sizes
// are in tokens.
type VLLM struct {
	// Release is the engine's.
	Release Release
	// MaxNumBatchedTokens is the budget of a step, MaxNumSeqs the seats,
	// MaxScheduledTokens a smaller budget (0 is none), MaxModelLen the most
	// tokens of prompt and output, Threshold the most of one request in a step
	// (0 is none).
	MaxNumBatchedTokens, MaxNumSeqs, MaxScheduledTokens, MaxModelLen, Threshold int
	// Policy is "fcfs" or "priority".
	Policy string
	// ChunkedPrefill, PrefixCaching, Async and FullISL are switches.
	ChunkedPrefill, PrefixCaching, Async, FullISL bool
	// Watermark and Utilization are fractions, of the blocks and of the
	// device's memory.
	Watermark, Utilization float64
	// Choices says where each value comes from.
	Choices []Choice
	// Warnings are what the engine would remark, and knobs without effect.
	Warnings []string
}

// vllmStart is a start of vLLM under way.
type vllmStart struct {
	ask    VLLMAsk
	out    VLLM
	faults []error
}

// VLLMScheduler fills in what was not given as the release does on the machine,
// and refuses what it would refuse with an [*InvalidError]. Knobs that the
// release removed are errors where the release was named, and warnings where it
// is only the newest.
func VLLMScheduler(ask VLLMAsk) (VLLM, error) {
	r, err := VLLMRelease(ask.Config.EngineVersion)
	if err != nil {
		return VLLM{}, err
	}
	s := &vllmStart{ask: ask, out: VLLM{Release: r}}
	s.switches()
	s.limits()
	s.removed()
	s.check()
	if len(s.faults) > 0 {
		return VLLM{}, &InvalidError{Faults: s.faults, advice: "leave the setting out to get the engine's default, or name another release with --vllm-version"}
	}
	return s.out, nil
}

// standard is the source of a default.
func (s *vllmStart) standard() string { return "default of vLLM " + s.out.Release.String() }

func (s *vllmStart) choose(name, value, source string) {
	s.out.Choices = append(s.out.Choices, Choice{Name: name, Value: value, Source: source})
}

func (s *vllmStart) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Errorf(format, args...))
}

func (s *vllmStart) warn(format string, args ...any) {
	s.out.Warnings = append(s.out.Warnings, fmt.Sprintf(format, args...))
}

// on is a switch that was given or has a default.
func (s *vllmStart) on(name string, given *bool, standard bool, why string) bool {
	value, source := standard, s.standard()+why
	if given != nil {
		value, source = *given, Given
	}
	s.choose(name, strconv.FormatBool(value), source)
	return value
}

// switches fills in everything but the limits.
func (s *vllmStart) switches() {
	c, k, out := s.ask.Config, s.ask.Knobs, &s.out
	out.ChunkedPrefill = s.on("enable_chunked_prefill", c.ChunkedPrefill, true, "")
	out.PrefixCaching = s.on("enable_prefix_caching", c.PrefixCaching, !s.ask.State || out.Release.From(25, 0), stateReason(s.ask.State))
	standard, why := s.asyncDefault()
	out.Async = s.on("async_scheduling", k.AsyncScheduling, standard, why)
	if out.Async && s.ask.Machine.Platform == CPU {
		out.Async = false
		s.warn("async_scheduling: the CPU platform always switches it off")
		out.Choices[len(out.Choices)-1] = Choice{"async_scheduling", "false", "CPUs always run without it"}
	}
	if out.Release.From(19, 0) {
		out.FullISL = s.on("scheduler_reserve_full_isl", k.ReserveFullISL, true, "")
	} else if k.ReserveFullISL != nil {
		s.fault("scheduler_reserve_full_isl: vLLM %s does not have it, 0.19.0 brought it", out.Release)
	}
	s.fractions()
	out.Policy = c.SchedulingPolicy
	source := Given
	if out.Policy == "" {
		out.Policy, source = "fcfs", s.standard()
	}
	if out.Policy != "fcfs" && out.Policy != "priority" {
		s.fault("scheduling_policy %q: want fcfs or priority", out.Policy)
	}
	s.choose("scheduling_policy", out.Policy, source)
	if k.LongPrefillThreshold == nil {
		s.choose("long_prefill_token_threshold", "0", s.standard())
		return
	}
	out.Threshold = *k.LongPrefillThreshold
	s.choose("long_prefill_token_threshold", strconv.Itoa(out.Threshold), Given)
}

func stateReason(state bool) string {
	if state {
		return " for models that keep a state per sequence (assumed)"
	}
	return ""
}

// asyncDefault is async_scheduling where it was not given.
func (s *vllmStart) asyncDefault() (on bool, why string) {
	switch r := s.out.Release; {
	case !r.From(14, 0):
		return false, ""
	case s.ask.Machine.Platform == CPU:
		return false, " on a CPU"
	case s.ask.Config.PipelineParallel > 1 && !r.From(15, 0):
		return false, " with pipeline stages"
	}
	return true, ""
}

// fractions fills in the shares of memory and of blocks.
func (s *vllmStart) fractions() {
	c, k, out := s.ask.Config, s.ask.Knobs, &s.out
	share, source := c.GPUMemoryUtilization, Given
	if share == 0 {
		share, source = 0.9, s.standard()
		if out.Release.From(20, 0) {
			share = 0.92
		}
	}
	if !(share > 0 && share <= 1) {
		s.fault("gpu_memory_utilization is %g: want more than 0 and at most 1", share)
	}
	out.Utilization = share
	s.choose("gpu_memory_utilization", strconv.FormatFloat(share, 'g', -1, 64), source)
	if !out.Release.From(24, 0) {
		if k.Watermark != nil {
			s.fault("watermark: vLLM %s does not have it, 0.24.0 brought it", out.Release)
		}
		return
	}
	source = s.standard()
	if k.Watermark != nil {
		out.Watermark, source = *k.Watermark, Given
	}
	if !(out.Watermark >= 0 && out.Watermark < 1) {
		s.fault("watermark is %g: want 0 or more and less than 1", out.Watermark)
	}
	s.choose("watermark", strconv.FormatFloat(out.Watermark, 'g', -1, 64), source)
}
