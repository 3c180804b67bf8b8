package profile

import (
	"errors"
	"fmt"
	"math"
)

// Bounds of the sizes that a point may hold, so that their products stay
// within an int64: sequences of a pass, tokens of a sequence, tokens of a
// pass, and the sum of its contexts.
const (
	maxSequences = 1 << 24
	maxTokens    = 1 << 32
	maxPass      = 1 << 48
)

// Validate reports everything that makes the point unusable: an unknown kind,
// a step without work or without time, a time that is not positive.
func (p *Point) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for i, s := range p.Samples {
		if !(s > 0) || math.IsInf(s, 0) {
			fault("samples_s[%d] is %g: want a positive number of seconds", i, s)
			break
		}
	}
	if s := p.Summary; s != nil {
		if !(s.Mean >= 0) || math.IsInf(s.Mean, 0) || !(s.Std >= 0) || math.IsInf(s.Std, 0) || s.Runs < 0 {
			fault("summary: mean_s %g, std_s %g, runs %d: want none negative or infinite", s.Mean, s.Std, s.Runs)
		}
	}
	switch p.Clock {
	case "", ClockWall, ClockDevice, ClockCPU:
	default:
		fault("unknown clock %q", p.Clock)
	}
	switch p.Kind {
	case KindStep:
		if _, ok := p.Mean(); !ok {
			fault("a step holds neither samples nor a summary")
		}
		if p.Step == nil {
			fault("a step does not say what was run")
		}
	case KindLayer:
		if _, ok := p.Mean(); !ok {
			fault("a layer holds neither samples nor a summary")
		}
		if p.Layer == nil {
			fault("a layer does not say what was run")
		}
	case KindMemory:
		if p.Memory == nil {
			fault("a memory point holds no figure")
		}
	case KindRequest:
		if p.Request == nil {
			fault("a request point holds no request")
		}
	case KindTelemetry:
		if p.Telemetry == nil {
			fault("a telemetry point holds no readings")
		}
	case KindWorkload:
		if _, ok := p.Mean(); !ok {
			fault("a workload holds neither samples nor a summary")
		}
		if p.Workload == nil {
			fault("a workload does not say what was run")
		}
	case KindServer:
		if p.Server == nil {
			fault("a server point holds no figures")
		}
	case KindFailure:
		if p.Reason == "" {
			fault("a failure does not say its reason")
		}
	default:
		fault("unknown kind %q", p.Kind)
	}
	if p.Step != nil {
		if err := p.Step.validate(p.Kind == KindFailure); err != nil {
			faults = append(faults, fmt.Errorf("step: %w", err))
		}
	}
	if p.Layer != nil {
		if err := p.Layer.validate(); err != nil {
			faults = append(faults, fmt.Errorf("layer: %w", err))
		}
	}
	if p.Telemetry != nil {
		if err := p.Telemetry.validate(); err != nil {
			faults = append(faults, fmt.Errorf("telemetry: %w", err))
		}
	}
	if p.Memory != nil {
		if err := p.Memory.validate(); err != nil {
			faults = append(faults, fmt.Errorf("memory: %w", err))
		}
	}
	if p.Request != nil {
		if err := p.Request.validate(); err != nil {
			faults = append(faults, fmt.Errorf("request: %w", err))
		}
	}
	if p.Workload != nil {
		if err := p.Workload.validate(); err != nil {
			faults = append(faults, fmt.Errorf("workload: %w", err))
		}
	}
	if p.Server != nil {
		if err := p.Server.validate(); err != nil {
			faults = append(faults, fmt.Errorf("server: %w", err))
		}
	}
	return errors.Join(faults...)
}

// validate checks a step. A failed configuration may leave mode and pass out.
func (s *Step) validate(failed bool) error {
	switch s.Mode {
	case Prefill, Decode, Mixed:
	case "":
		if !failed {
			return errors.New("mode is missing")
		}
	default:
		return fmt.Errorf("unknown mode %q", s.Mode)
	}
	if s.BatchSize < 0 || s.BatchSize > maxSequences {
		return fmt.Errorf("batch_size %d: want 0 to %d", s.BatchSize, maxSequences)
	}
	if s.InputLen < 0 || int64(s.InputLen) > maxTokens || s.OutputLen < 0 || int64(s.OutputLen) > maxTokens {
		return fmt.Errorf("input_len %d, output_len %d: want 0 to %d", s.InputLen, s.OutputLen, int64(maxTokens))
	}
	empty := len(s.Pass.Prefill) == 0 && s.Pass.Decode.Count == 0
	if failed && empty && s.Totals == nil {
		return nil
	}
	if t := s.Totals; t != nil {
		switch {
		case !empty:
			return errors.New("pass and totals: want one of them")
		case t.PrefillTokens > maxPass || t.DecodeTokens > maxPass || t.KVTokens > maxPass:
			return fmt.Errorf("totals: %d prefill tokens, %d decode tokens, %d KV tokens: out of range", t.PrefillTokens, t.DecodeTokens, t.KVTokens)
		}
		if err := t.Validate(); err != nil {
			return fmt.Errorf("totals: %w", err)
		}
		return nil
	}
	total := int64(s.Pass.Decode.Count)
	for i, c := range s.Pass.Prefill {
		if c.Count > maxSequences || int64(c.New) > maxTokens || int64(c.Context) > maxTokens || c.Count < 0 || c.New < 0 {
			return fmt.Errorf("pass: prefill chunk %d: count %d, new %d, context %d: out of range", i, c.Count, c.New, c.Context)
		}
		if total += min(int64(c.Count)*int64(c.New), maxPass+1); total > maxPass {
			return fmt.Errorf("pass: more than %d tokens", int64(maxPass))
		}
	}
	if s.Pass.Decode.Count > maxSequences || s.Pass.Decode.SumContext > maxPass {
		return fmt.Errorf("pass: decode: %d sequences with %d tokens of context: out of range", s.Pass.Decode.Count, s.Pass.Decode.SumContext)
	}
	for i, n := range s.Pass.DecodeContexts {
		if n < 0 || int64(n) > maxTokens {
			return fmt.Errorf("pass: decode_contexts[%d] is %d: out of range", i, n)
		}
	}
	if err := s.Pass.Validate(); err != nil {
		return fmt.Errorf("pass: %w", err)
	}
	return nil
}
