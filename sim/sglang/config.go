package sglang

import (
	"errors"
	"fmt"
	"math"

	"github.com/llmprof/llmprof/unit"
)

// MaxCount bounds every count of a configuration or a request.
const MaxCount = 1 << 30

// DefaultClip is the limit of the max_new estimate that SGLang is shipped with,
// in tokens.
const DefaultClip = 4096

// Policy is schedule_policy: the order in which waiting requests are tried.
type Policy uint8

const (
	// FCFS keeps the order of the queue.
	FCFS Policy = iota
	// LPM tries the longest hit of the cache first.
	LPM
	// DFSWeight walks the tree, heaviest branch first.
	DFSWeight
	// LOF tries the largest max_new first.
	LOF
	// Random shuffles.
	Random
	// RoutingKey tries keys that many running requests have first.
	RoutingKey
	// HRRN weighs the tokens prefilled since arrival against the uncached ones.
	HRRN
	// ShortestPrefill tries the fewest uncached tokens first.
	ShortestPrefill
)

// policyNames are the names that the engine's flag takes, in order.
func policyNames() []string {
	return []string{"fcfs", "lpm", "dfs-weight", "lof", "random", "routing-key", "hrrn", "shortest-prefill-first"}
}

// String is the name that the engine's flag takes.
func (p Policy) String() string {
	if names := policyNames(); int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("policy %d", uint8(p))
}

// cacheAware reports whether the policy looks the waiting requests up.
func (p Policy) cacheAware() bool {
	return p == LPM || p == DFSWeight || p == HRRN || p == ShortestPrefill
}

// Config is one replica as its scheduler sees it. Sizes are in tokens.
type Config struct {
	// Rules are those of a release: [RulesOf].
	Rules Rules
	// Pool is max_total_num_tokens; whole pages of it are used.
	Pool int
	// Page is page_size.
	Page int
	// Chunk is chunked_prefill_size; 0 or less switches chunking off.
	Chunk int
	// MaxPrefill is max_prefill_tokens.
	MaxPrefill int
	// Seats is max_running_requests.
	Seats int
	// Policy is schedule_policy; default FCFS.
	Policy Policy
	// Conservativeness is schedule_conservativeness, a factor.
	Conservativeness float64
	// Clip is the limit of the max_new estimate; 0 is [DefaultClip].
	Clip int
	// Context is the model's context length, at which requests are cut or
	// refused at arrival; 0 skips the checks of arrivals.
	Context int
	// Mixed is enable_mixed_chunk: running requests decode in prefill batches.
	Mixed bool
	// NoPrefixCache is disable_radix_cache.
	NoPrefixCache bool
	// Priority is enable_priority_scheduling; larger is more important.
	Priority bool
	// PreemptThreshold is priority_scheduling_preemption_threshold: a victim's
	// priority is lower by more than this.
	PreemptThreshold int
	// RetractByPriority is retraction_policy=priority.
	RetractByPriority bool
	// Overlap reads results one iteration late, SGLang's default.
	Overlap bool
	// DecodeInterval is prefill_decode_interval, in decode iterations.
	DecodeInterval int
	// IgnoreEOS says that every request is sent with ignore_eos.
	IgnoreEOS bool
	// Aggregate lets running requests that only decode be counted instead of
	// walked ([Batch.Steady]). What is decided is the same, in less time.
	Aggregate bool
	// Seed is that of the policy random.
	Seed uint64
}

// Validate reports what the engine would refuse at its start and what its
// release lacks, all at once.
func (c Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for _, f := range []struct {
		name         string
		value, least int
	}{
		{"pool", c.Pool, 1},
		{"page", c.Page, 1},
		{"max_prefill", c.MaxPrefill, 1},
		{"seats", c.Seats, 1},
		{"clip", c.Clip, 0},
		{"context", c.Context, 0},
		{"prefill_decode_interval", c.DecodeInterval, 0},
		{"chunk", c.Chunk, -MaxCount},
		{"threshold", c.PreemptThreshold, -MaxCount},
	} {
		if f.value < f.least || f.value > MaxCount {
			fault("%s %d: want %d to %d", f.name, f.value, f.least, MaxCount)
		}
	}
	if c.Page > c.Pool {
		fault("page %d: not one page fits in a pool of %d tokens", c.Page, c.Pool)
	}
	if c.Chunk > 0 && c.Chunk < c.Page {
		fault("chunk %d: want at least a page of %d tokens", c.Chunk, c.Page)
	}
	if !(c.Conservativeness > 0) || math.IsInf(c.Conservativeness, 0) {
		fault("conservativeness %g: want a number above 0", c.Conservativeness)
	}
	c.lacking(fault)
	return errors.Join(faults...)
}

// lacking reports settings that the release does not have.
func (c Config) lacking(fault func(format string, args ...any)) {
	r := c.Rules
	for _, f := range []struct {
		asked, has bool
		name       string
	}{
		{c.Priority, r.Priorities, "priority"},
		{c.RetractByPriority, r.RetractPriority, "retraction by priority"},
		{c.DecodeInterval > 0, r.DecodeInterval, "prefill_decode_interval"},
		{c.Policy == RoutingKey, r.RoutingKey, "policy routing-key"},
		{c.Policy == HRRN || c.Policy == ShortestPrefill, r.ShortPolicies, "policy " + c.Policy.String()},
		{c.Page > 1, r.Cut != CutExact, "pages of more than one token"},
	} {
		if f.asked && !f.has {
			fault("%s: this release has it not", f.name)
		}
	}
	switch {
	case int(c.Policy) >= len(policyNames()):
		fault("%s: want one of %s", c.Policy, unit.List(policyNames()))
	case c.Priority && c.Policy != FCFS && c.Policy != LOF:
		fault("policy %s: with priorities only fcfs and lof", c.Policy)
	case c.Policy == ShortestPrefill && c.NoPrefixCache:
		fault("policy %s: needs the prefix cache", c.Policy)
	}
}
