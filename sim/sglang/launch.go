package sglang

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// What a process of SGLang takes of its device before it loads the model, alone
// and joined with others by collectives; assumed.
const (
	aloneBytes  = 512 * unit.MiB
	joinedBytes = 1536 * unit.MiB
)

// LaunchAsk is what is launched. The zero value of a field leaves it to the
// engine.
type LaunchAsk struct {
	// Model and Device are what runs where.
	Model  *catalog.Model
	Device *catalog.Device
	// Config and Knobs hold what the user gave, without defaults filled in.
	Config deploy.Config
	Knobs  deploy.Knobs
	// Costs are the settings of the cost model, which knows the weights.
	Costs cost.Settings
	// PoolTokens is a capacity in tokens that a real engine had, and PoolOrigin
	// where it was read; 0 computes it.
	PoolTokens int
	PoolOrigin string
}

// Replica is an SGLang replica with every setting filled in.
type Replica struct {
	// Config is the replica as its scheduler sees it.
	Config Config
	// Deploy is the deployment with what was chosen.
	Deploy deploy.Config
	// Basis says where the pool comes from.
	Basis stat.Basis
	// Choices says of each setting where its value comes from.
	Choices []deploy.Choice
	// Warnings are reasons to trust it less.
	Warnings []string
}

// launch is a launch under way.
type launch struct {
	ask      LaunchAsk
	release  string
	standard string // the source of a default
	defaults Defaults
	out      Replica
}

// Launch fills in what was not given as the release does on the device.
func Launch(ask LaunchAsk) (Replica, error) {
	if ask.Model == nil || ask.Device == nil {
		return Replica{}, errors.New("launch: model and device are missing")
	}
	l := launch{ask: ask, release: ask.Config.EngineVersion}
	if l.release == "" {
		l.release = NewestRelease
	}
	l.standard = "default of SGLang " + l.release
	rules, err := RulesOf(l.release)
	if err != nil {
		return Replica{}, err
	}
	l.out.Config.Rules = rules
	l.defaults, err = DefaultsOf(l.release, Machine{
		MemoryMiB:      int(ask.Device.MemoryTotalBytes() / unit.MiB),
		TensorParallel: ask.Config.TensorParallel, PipelineParallel: ask.Config.PipelineParallel,
		Latent: ask.Model.MLA != nil,
	})
	if err != nil {
		return Replica{}, err
	}
	if err := errors.Join(l.settings(), l.pool()); err != nil {
		return Replica{}, fmt.Errorf("launch of %s on %s: %w", ask.Model.Name, ask.Device.Name, err)
	}
	if err := l.seats(); err != nil {
		return Replica{}, fmt.Errorf("launch of %s on %s: %w", ask.Model.Name, ask.Device.Name, err)
	}
	if err := l.out.Config.Validate(); err != nil {
		return Replica{}, fmt.Errorf("launch of %s on %s: %w", ask.Model.Name, ask.Device.Name, err)
	}
	return l.out, nil
}

func (l *launch) choose(name, value, source string) {
	l.out.Choices = append(l.out.Choices, deploy.Choice{Name: name, Value: value, Source: source})
}

// count is a number that was given or has a default.
func (l *launch) count(name string, given, standard int, why string) int {
	source := l.standard + why
	if given != 0 {
		standard, source = given, deploy.Given
	}
	l.choose(name, strconv.Itoa(standard), source)
	return standard
}

// settings fills in everything but the pool and what follows from it.
func (l *launch) settings() error {
	c, k, d, out := l.ask.Config, l.ask.Knobs, l.defaults, &l.out.Config
	out.Context = l.ask.Model.MaxSeqLen
	source := "the model's own"
	if c.MaxModelLen > 0 {
		out.Context, source = c.MaxModelLen, deploy.Given
	}
	l.choose("context_length", strconv.Itoa(out.Context), source)
	out.Page = l.count("page_size", c.BlockSize, d.Page, "")
	out.Chunk = l.count("chunked_prefill_size", c.MaxNumBatchedTokens, d.Chunk, " for the device's memory")
	if c.ChunkedPrefill != nil && !*c.ChunkedPrefill {
		out.Chunk = -1
		l.out.Choices[len(l.out.Choices)-1] = deploy.Choice{Name: "chunked_prefill_size", Value: "-1", Source: deploy.Given}
	}
	out.MaxPrefill = l.count("max_prefill_tokens", k.MaxPrefillTokens, d.MaxPrefill, "")
	out.Conservativeness, source = d.Conservativeness, l.standard
	if k.Conservativeness != 0 {
		out.Conservativeness, source = k.Conservativeness, deploy.Given
	}
	l.choose("schedule_conservativeness", strconv.FormatFloat(out.Conservativeness, 'g', -1, 64), source)
	out.DecodeInterval = k.DecodeInterval
	out.NoPrefixCache = c.PrefixCaching != nil && !*c.PrefixCaching
	out.Mixed, out.Overlap = k.MixedChunk, !k.NoOverlap
	out.RetractByPriority = k.RetractByPriority
	for _, s := range []struct {
		name         string
		value, given bool
	}{
		{"disable_radix_cache", out.NoPrefixCache, c.PrefixCaching != nil},
		{"enable_mixed_chunk", out.Mixed, k.MixedChunk},
		{"disable_overlap_schedule", !out.Overlap, k.NoOverlap},
	} {
		source := l.standard
		if s.given {
			source = deploy.Given
		}
		l.choose(s.name, strconv.FormatBool(s.value), source)
	}
	return l.policy()
}

// defaultPreemptThreshold is priority_scheduling_preemption_threshold where it
// is not given.
const defaultPreemptThreshold = 10

// policy fills in the order of the queue; "priority" is fcfs by priority.
func (l *launch) policy() error {
	name, out := l.ask.Config.SchedulingPolicy, &l.out.Config
	source := deploy.Given
	switch name {
	case "":
		out.Policy, source = l.defaults.Policy, l.standard
	case "priority":
		l.choose("enable_priority_scheduling", "true", deploy.Given)
		source = "follows from enable_priority_scheduling"
		out.Policy, out.Priority, out.PreemptThreshold = FCFS, true, defaultPreemptThreshold
		if p := l.ask.Knobs.PreemptThreshold; p != nil {
			out.PreemptThreshold = *p
		}
	default:
		at := slices.Index(policyNames(), name)
		if at < 0 {
			return fmt.Errorf("schedule_policy %q: want priority or one of %s", name, unit.List(policyNames()))
		}
		out.Policy = Policy(at)
	}
	l.choose("schedule_policy", out.Policy.String(), source)
	return nil
}

// pool fills in max_total_num_tokens and the deployment.
func (l *launch) pool() error {
	c := l.ask.Config
	c.Engine, c.EngineVersion = "sglang", l.release
	source := l.standard + " for the device's memory"
	fraction := l.defaults.MemoryFraction
	if c.MemFractionStatic > 0 {
		fraction, source = c.MemFractionStatic, deploy.Given
	}
	l.choose("mem_fraction_static", strconv.FormatFloat(fraction, 'g', -1, 64), source)
	c.MemFractionStatic = fraction
	c.BlockSize, c.MaxModelLen, c.SchedulingPolicy = l.out.Config.Page, l.out.Config.Context, l.out.Config.Policy.String()
	est, err := cost.New(l.ask.Model, l.ask.Device, c, l.ask.Costs)
	if err != nil {
		return err
	}
	l.out.Deploy = est.Config()
	l.out.Warnings = append(l.out.Warnings, est.Warnings()...)
	if slices.ContainsFunc(l.ask.Model.Layers(0, l.ask.Model.NumLayers), func(k catalog.Layer) bool { return k.Attention != catalog.FullAttention }) {
		l.out.Warnings = append(l.out.Warnings, "layers with windows or states have pools of their own in SGLang: they are counted as full attention, states not at all")
	}
	tokens, source, err := l.tokens(est, fraction)
	if err != nil {
		return err
	}
	l.out.Config.Pool = tokens
	l.choose("max_total_num_tokens", strconv.Itoa(tokens), source)
	return nil
}

// tokens is the pool and its source.
func (l *launch) tokens(est *cost.Estimator, fraction float64) (n int, source string, err error) {
	page := l.out.Config.Page
	if l.ask.PoolTokens > 0 {
		l.out.Basis = stat.Measured
		if l.ask.Knobs.Blocks > 0 || l.ask.Knobs.MaxTotalTokens > 0 {
			l.out.Warnings = append(l.out.Warnings, "max_total_tokens has no effect, since the KV pool is that of "+l.ask.PoolOrigin)
		}
		return l.ask.PoolTokens / page * page, l.ask.PoolOrigin, nil
	}
	m := est.Memory(1, 1, 1)
	taken := aloneBytes
	if c := est.Config(); c.TensorParallel*c.PipelineParallel*c.DataParallel > 1 {
		taken = joinedBytes
	}
	before := m.Device - taken
	after := before - m.Weights
	most := l.ask.Knobs.Blocks * page
	if total := l.ask.Knobs.MaxTotalTokens; total > 0 && (most == 0 || total < most) {
		most = total
	}
	n, err = PoolOf(int64(before), int64(after), fraction, int64(m.KVPerToken), page, most)
	l.out.Basis = stat.Theoretical
	source = fmt.Sprintf("theoretical: %s free x %g - weights %s, %d bytes a token", before, fraction, m.Weights, int64(m.KVPerToken))
	switch {
	case err != nil || most == 0:
	case n == most/page*page:
		l.out.Basis, source = stat.Assumed, deploy.Given
	default:
		l.out.Warnings = append(l.out.Warnings, fmt.Sprintf("max_total_tokens %d has no effect: memory gives %d", most, n))
	}
	return n, source, err
}

// seats fills in max_running_requests.
func (l *launch) seats() error {
	seats, err := DefaultSeats(l.release, l.out.Config.Pool, l.out.Config.Context)
	if err != nil {
		return err
	}
	l.out.Config.Seats = l.count("max_running_requests", l.ask.Config.MaxNumSeqs, seats, ", by the pool and the context")
	l.out.Deploy.MaxNumSeqs = l.out.Config.Seats
	if l.out.Config.Chunk > 0 {
		l.out.Deploy.MaxNumBatchedTokens = l.out.Config.Chunk
	}
	return nil
}
