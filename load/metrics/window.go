package metrics

import (
	"slices"
	"time"

	"github.com/llmprof/llmprof/format/prom"
	"github.com/llmprof/llmprof/profile"
)

// Window is what a server says of a stretch of time.
type Window = profile.Server

// Gauge is what a figure was over a window.
type Gauge = profile.Gauge

// Between is what happened from one time to another. ok is false where there
// are no two readings around or within it.
func (w *Watcher) Between(from, to time.Time) (Window, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first, last := 0, len(w.readings)-1
	for i, r := range w.readings {
		if !r.at.After(from) {
			first = i
		}
		if !r.asked.Before(to) {
			last = i
			break
		}
	}
	out, ok := w.window(first, last)
	if ok {
		out.Failed = w.missedWithin(w.readings[first].asked, w.readings[last].at)
	}
	return out, ok
}

// Within is what happened between the first reading and the last that were made
// from one time to another, so that nothing of before or after is in it. ok is
// false where there are no two of them.
func (w *Watcher) Within(from, to time.Time) (Window, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first, last := len(w.readings), -1
	for i, r := range w.readings {
		if !r.asked.Before(from) && !r.at.After(to) {
			first, last = min(first, i), i
		}
	}
	out, ok := w.window(first, last)
	if ok {
		out.Failed = w.missedWithin(from, to)
	}
	return out, ok
}

// window is the stretch from one reading to another; ok is false where the
// second does not come after the first. The lock is held.
func (w *Watcher) window(first, last int) (Window, bool) {
	out, ok := w.counters(first, last)
	if ok {
		gauges(&out, w.readings[first:last+1])
	}
	return out, ok
}

// counters is window without its gauges.
func (w *Watcher) counters(first, last int) (Window, bool) {
	if last <= first {
		return Window{}, false
	}
	begin, end := w.readings[first], w.readings[last]
	difference, warnings := end.scrape.Since(begin.scrape)
	out := Window{Engine: end.scrape.Engine(), Seconds: end.at.Sub(begin.at).Seconds(), Readings: last - first + 1}
	for _, warning := range warnings {
		out.Warnings = append(out.Warnings, warning.Error())
	}
	switch out.Engine {
	case "vllm":
		ofVLLM(&out, difference.VLLM())
	case "sglang":
		ofSGLang(&out, difference.SGLang())
	default:
		ofLlamaCPP(&out, difference.LlamaCPP())
	}
	if out.PrefixHits != nil && out.PrefixQueries != nil && *out.PrefixQueries > 0 {
		rate := *out.PrefixHits / *out.PrefixQueries
		out.HitRate = &rate
	}
	return out, true
}

func value(n *prom.Number) *float64 {
	if n == nil {
		return nil
	}
	v := n.Value
	return &v
}

// milliseconds is the mean of a distribution of seconds.
func milliseconds(d *prom.Distribution) *float64 {
	mean, ok := d.Mean()
	if d == nil || !ok {
		return nil
	}
	mean *= 1e3
	return &mean
}

func ofVLLM(w *Window, v prom.VLLM) {
	w.PromptTokens, w.CachedTokens, w.GenerationTokens = value(v.PromptTokens), value(v.CachedTokens), value(v.GenerationTokens)
	w.PrefixQueries, w.PrefixHits, w.Preemptions = value(v.PrefixQueries), value(v.PrefixHits), value(v.Preemptions)
	if v.Finished != nil {
		sum := 0.0
		for _, n := range v.Finished {
			sum += n
		}
		w.Requests = &sum
	}
	if tokens, ok := v.ScheduledTokens(); ok {
		w.ScheduledTokens = &tokens
	}
	if d := v.IterationTokens; d != nil {
		n := d.Histogram.Count
		w.Steps = &n
	}
	w.TTFT, w.ITL, w.E2EL = milliseconds(v.TTFT), milliseconds(v.TokenGap), milliseconds(v.EndToEnd)
	w.Queue, w.Prefill, w.Decode = milliseconds(v.QueueTime), milliseconds(v.PrefillTime), milliseconds(v.DecodeTime)
	for _, c := range v.Cache {
		if w.Cache == nil {
			w.Cache = &profile.KVCache{BlockSize: c.BlockSize}
		}
		w.Cache.Blocks += c.Blocks
		w.Cache.Tokens += c.Tokens
	}
}

func ofSGLang(w *Window, s prom.SGLang) {
	w.PromptTokens, w.CachedTokens, w.GenerationTokens = value(s.PromptTokens), value(s.CachedTokens), value(s.GenerationTokens)
	w.PrefixQueries, w.PrefixHits = value(s.PromptTokens), value(s.CachedTokens)
	w.Requests, w.Preemptions = value(s.Requests), value(s.Retractions)
	w.TTFT, w.ITL, w.E2EL, w.Queue = milliseconds(s.TTFT), milliseconds(s.TokenGap), milliseconds(s.EndToEnd), milliseconds(s.QueueTime)
	if s.KVTokens != nil {
		w.Cache = &profile.KVCache{Tokens: int64(s.KVTokens.Value)}
	}
}

func ofLlamaCPP(w *Window, l prom.LlamaCPP) {
	w.PromptTokens, w.GenerationTokens = value(l.PromptTokens), value(l.PredictedTokens)
	if l.Decodes != nil {
		w.Steps = value(l.Decodes)
	}
}

// gauges are means and maxima of readings.
func gauges(w *Window, readings []reading) {
	var running, waiting, usage []float64
	add := func(list *[]float64, n *prom.Number) {
		if n != nil {
			*list = append(*list, n.Value)
		}
	}
	for _, r := range readings {
		switch w.Engine {
		case "vllm":
			v := r.scrape.VLLM()
			add(&running, v.Running)
			add(&waiting, v.Waiting)
			add(&usage, v.KVUsage)
		case "sglang":
			s := r.scrape.SGLang()
			add(&running, s.Running)
			add(&waiting, s.Queued)
			add(&usage, s.TokenUsage)
		default:
			l := r.scrape.LlamaCPP()
			add(&running, l.Processing)
			add(&waiting, l.Deferred)
			add(&usage, l.KVUsage)
		}
	}
	w.Running, w.Waiting, w.KVUsage = gaugeOf(running), gaugeOf(waiting), gaugeOf(usage)
}

func gaugeOf(values []float64) *Gauge {
	if len(values) == 0 {
		return nil
	}
	g := &Gauge{Max: values[0]}
	for _, v := range values {
		g.Mean += v / float64(len(values))
		g.Max = max(g.Max, v)
	}
	return g
}

// Cache is what the server said of its KV cache at first; nil where it does not.
func (w *Watcher) Cache() *profile.KVCache {
	w.mu.Lock()
	defer w.mu.Unlock()
	var said Window
	switch first := w.readings[0].scrape; first.Engine() {
	case "vllm":
		ofVLLM(&said, first.VLLM())
	case "sglang":
		ofSGLang(&said, first.SGLang())
	}
	return said.Cache
}

// Latest is what a server says of itself at the last reading. What it does not
// publish is nil.
type Latest struct {
	// Running and Waiting are requests, KVUsage a share of the KV cache, 0..1.
	Running, Waiting, KVUsage *float64
	// HitRate is the share of prompt tokens that were found in the prefix cache
	// since a time, 0..1.
	HitRate *float64
}

// Latest is what the last reading says, with the prefix hits since a time.
func (w *Watcher) Latest(since time.Time) Latest {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.gaugesNow()
	level := func(g *Gauge) *float64 {
		if g == nil {
			return nil
		}
		return &g.Max
	}
	out := Latest{Running: level(now.Running), Waiting: level(now.Waiting), KVUsage: level(now.KVUsage)}
	first := 0
	for first+1 < len(w.readings) && !w.readings[first+1].at.After(since) {
		first++
	}
	if counted, ok := w.counters(first, len(w.readings)-1); ok {
		out.HitRate = counted.HitRate
	}
	return out
}

// gaugesNow are the gauges of the last reading. The lock is held.
func (w *Watcher) gaugesNow() Window {
	last := w.readings[len(w.readings)-1:]
	now := Window{Engine: last[0].scrape.Engine()}
	gauges(&now, last)
	return now
}

// Gauges are those of the readings that were made from one time to another; nil
// where there are none, or what is not published.
func (w *Watcher) Gauges(from, to time.Time) (running, waiting, usage *Gauge) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var within []reading
	for _, r := range w.readings {
		if !r.asked.Before(from) && !r.at.After(to) {
			within = append(within, r)
		}
	}
	if len(within) == 0 {
		return nil, nil, nil
	}
	said := Window{Engine: within[0].scrape.Engine()}
	gauges(&said, within)
	return said.Running, said.Waiting, said.KVUsage
}

// PromptTokens is what the server had counted of prompts at the last reading; 0
// where it does not say.
func (w *Watcher) PromptTokens() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var said Window
	switch last := w.readings[len(w.readings)-1].scrape; last.Engine() {
	case "vllm":
		ofVLLM(&said, last.VLLM())
	case "sglang":
		ofSGLang(&said, last.SGLang())
	}
	if said.PromptTokens == nil || !(*said.PromptTokens > 0) {
		return 0
	}
	return uint64(*said.PromptTokens)
}

// Forget drops all readings but the last one, and what is known of those that did
// not come.
func (w *Watcher) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readings, w.failures = slices.Clone(w.readings[len(w.readings)-1:]), nil
}

// Idle reports whether the server had no request running or waiting at the last
// reading; known is false where it does not publish that.
func (w *Watcher) Idle() (idle, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.gaugesNow()
	if last.Running == nil {
		return false, false
	}
	return last.Running.Max == 0 && (last.Waiting == nil || last.Waiting.Max == 0), true
}
