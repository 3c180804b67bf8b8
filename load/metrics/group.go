package metrics

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llmprof/llmprof/profile"
)

// Group follows several servers that share a load, in their order; nil stands for
// one that publishes no metrics.
type Group []*Watcher

// each does something for every server that is followed, for all at once: one
// that is slow to answer must not hold up the others.
func (g Group) each(do func(*Watcher)) {
	var all sync.WaitGroup
	for _, w := range g {
		if w != nil {
			all.Go(func() { do(w) })
		}
	}
	all.Wait()
}

// Read takes a reading of each server now.
func (g Group) Read(ctx context.Context) { g.each(func(w *Watcher) { w.Read(ctx) }) }

// Stop takes a last reading of each server and ends the watch.
func (g Group) Stop() { g.each((*Watcher).Stop) }

// Followed reports whether any server publishes metrics.
func (g Group) Followed() bool {
	return slices.ContainsFunc(g, func(w *Watcher) bool { return w != nil })
}

// Idle reports whether no server that tells had a request running or waiting at
// its last reading; known is false where none of them tells.
func (g Group) Idle() (idle, known bool) {
	idle = true
	for _, w := range g {
		if w == nil {
			continue
		}
		if one, tells := w.Idle(); tells {
			idle, known = idle && one, true
		}
	}
	return idle && known, known
}

// Latest is what all servers together say at their last readings: requests are
// those of all, the KV cache is that of the fullest one. What one of them does not
// tell is nil, and so is all where one is not followed. Prefix hits are told of
// one server alone.
func (g Group) Latest(since time.Time) Latest {
	if len(g) == 0 || slices.Contains(g, nil) {
		return Latest{}
	}
	out := g[0].Latest(since)
	for _, w := range g[1:] {
		now := w.Latest(since)
		out.Running, out.Waiting = total(out.Running, now.Running), total(out.Waiting, now.Waiting)
		if out.KVUsage != nil && now.KVUsage != nil {
			out.KVUsage = new(max(*out.KVUsage, *now.KVUsage))
		} else {
			out.KVUsage = nil
		}
		out.HitRate = nil
	}
	return out
}

// total is a sum of which nothing is missing.
func total(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return new(*a + *b)
}

// Sum is what servers counted together in one stretch of time; nil where one of
// them is nil, since a sum without it would be too small. Counters are added up;
// what one server does not count is nil. Gauges, and means of times, are each
// server's own and stay nil.
func Sum(windows []*Window) *Window {
	if len(windows) == 0 || slices.Contains(windows, nil) {
		return nil
	}
	out := *windows[0]
	engines := []string{out.Engine}
	if out.Cache != nil {
		out.Cache = new(*out.Cache)
	}
	for _, w := range windows[1:] {
		if !slices.Contains(engines, w.Engine) {
			engines = append(engines, w.Engine)
		}
		out.Seconds, out.Readings, out.Failed = max(out.Seconds, w.Seconds), min(out.Readings, w.Readings), out.Failed+w.Failed
		out.Requests = total(out.Requests, w.Requests)
		out.PromptTokens, out.CachedTokens, out.GenerationTokens = total(out.PromptTokens, w.PromptTokens), total(out.CachedTokens, w.CachedTokens), total(out.GenerationTokens, w.GenerationTokens)
		out.PrefixQueries, out.PrefixHits = total(out.PrefixQueries, w.PrefixQueries), total(out.PrefixHits, w.PrefixHits)
		out.Preemptions = total(out.Preemptions, w.Preemptions)
		out.ScheduledTokens, out.Steps = total(out.ScheduledTokens, w.ScheduledTokens), total(out.Steps, w.Steps)
		out.Cache = together(out.Cache, w.Cache)
		out.Warnings = slices.Concat(out.Warnings, w.Warnings)
	}
	if len(windows) == 1 {
		return &out
	}
	out.Engine = strings.Join(engines, ", ")
	out.Running, out.Waiting, out.KVUsage, out.HitRate = nil, nil, nil, nil
	out.TTFT, out.ITL, out.E2EL, out.Queue, out.Prefill, out.Decode = nil, nil, nil, nil, nil, nil
	if out.PrefixHits != nil && out.PrefixQueries != nil && *out.PrefixQueries > 0 {
		out.HitRate = new(*out.PrefixHits / *out.PrefixQueries)
	}
	return &out
}

// together is the room of two KV caches; nil where one is not known.
func together(a, b *profile.KVCache) *profile.KVCache {
	if a == nil || b == nil {
		return nil
	}
	sum := profile.KVCache{BlockSize: a.BlockSize, Blocks: a.Blocks + b.Blocks, Tokens: a.Tokens + b.Tokens}
	if a.BlockSize != b.BlockSize {
		sum.BlockSize, sum.Blocks = 0, 0
	}
	return &sum
}
