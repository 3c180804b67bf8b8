package report

import "github.com/llmprof/llmprof/load/metrics"

// engineView is what an engine did in a whole run, measured or simulated; nil
// for what is not known.
type engineView struct {
	finished, prompt, generated         *float64 // requests, tokens
	queries, hits, rate                 *float64 // tokens, and their ratio
	preemptions, evictions              *float64
	steps                               *float64
	running, waiting, mostRun, mostWait *float64 // requests
	usage, mostUsage                    *float64 // share of the KV cache, 0..1
}

// viewOf is the view of a run; ok is false where the document holds none.
func viewOf(r *ServedRun) (v engineView, ok bool) {
	switch {
	case r.Server != nil:
		return serverView(r.Server), true
	case len(r.Replicas) > 0:
		return replicaView(r), true
	}
	return v, false
}

func serverView(w *metrics.Window) engineView {
	v := engineView{
		finished: w.Requests, prompt: w.PromptTokens, generated: w.GenerationTokens, queries: w.PrefixQueries, hits: w.PrefixHits, rate: w.HitRate,
		preemptions: w.Preemptions, steps: w.Steps,
	}
	gauge := func(g *metrics.Gauge, mean, most **float64) {
		if g != nil {
			*mean, *most = &g.Mean, &g.Max
		}
	}
	gauge(w.Running, &v.running, &v.mostRun)
	gauge(w.Waiting, &v.waiting, &v.mostWait)
	gauge(w.KVUsage, &v.usage, &v.mostUsage)
	return v
}

// replicaView adds replicas up; of the KV cache it is the mean of means and the
// largest, and how many requests waited at most is known for a single one only.
// What preempted requests look up again does not count, as in the counters of vLLM
// (0.32: v1/metrics/stats.py, PrefixCacheStats.record).
func replicaView(r *ServedRun) engineView {
	var steps, preemptions, evictions, queries, hits int64
	var running, waiting, usage, most float64
	for _, p := range r.Replicas {
		steps, preemptions, evictions = steps+p.Steps, preemptions+p.Preemptions, evictions+p.Evictions
		queries, hits = queries+p.PrefixQueries-p.ResumedQueries, hits+p.PrefixHits-p.ResumedHits
		running, waiting, usage = running+p.Running.Mean, waiting+p.Waiting.Mean, usage+p.KVUsage.Mean
		most = max(most, p.KVUsage.Max)
	}
	usage /= float64(len(r.Replicas))
	v := engineView{
		finished: number(&r.Whole.Completed), prompt: number(r.Whole.InputTokens), generated: number(r.Whole.OutputTokens),
		queries: number(&queries), hits: number(&hits), preemptions: number(&preemptions), evictions: number(&evictions), steps: number(&steps),
		running: &running, waiting: &waiting, usage: &usage, mostUsage: &most,
	}
	if queries > 0 {
		v.rate = new(float64(hits) / float64(queries))
	}
	if len(r.Replicas) == 1 {
		v.mostRun, v.mostWait = &r.Replicas[0].Running.Max, &r.Replicas[0].Waiting.Max
	}
	return v
}

// engineFigures puts beside each other what the engines did; empty where
// neither run knows.
func engineFigures(a, b *ServedRun) []ServedFigure {
	x, knownA := viewOf(a)
	y, knownB := viewOf(b)
	if !knownA && !knownB {
		return []ServedFigure{}
	}
	out := &figureList{}
	for _, f := range []struct {
		name, text string
		decimals   int
		of         func(engineView) *float64
	}{
		{"finished_requests", "requests finished", 0, func(v engineView) *float64 { return v.finished }},
		{"prompt_tokens", "prompt tokens", 0, func(v engineView) *float64 { return v.prompt }},
		{"generation_tokens", "generated tokens", 0, func(v engineView) *float64 { return v.generated }},
		{"prefix_queries_tokens", "prefix queries, tokens", 0, func(v engineView) *float64 { return v.queries }},
		{"prefix_hits_tokens", "prefix hits, tokens", 0, func(v engineView) *float64 { return v.hits }},
		{"prefix_hit_rate", "prefix hit rate", 3, func(v engineView) *float64 { return v.rate }},
		{"preemptions", "preemptions", 0, func(v engineView) *float64 { return v.preemptions }},
		{"evicted_blocks", "evicted blocks", 0, func(v engineView) *float64 { return v.evictions }},
		{"steps", "steps", 0, func(v engineView) *float64 { return v.steps }},
		{"running_requests.mean", "running, mean", 2, func(v engineView) *float64 { return v.running }},
		{"running_requests.max", "running, at most", 0, func(v engineView) *float64 { return v.mostRun }},
		{"waiting_requests.mean", "waiting, mean", 2, func(v engineView) *float64 { return v.waiting }},
		{"waiting_requests.max", "waiting, at most", 0, func(v engineView) *float64 { return v.mostWait }},
		{"kv_usage.mean", "KV cache in use, mean", 4, func(v engineView) *float64 { return v.usage }},
		{"kv_usage.max", "KV cache in use, at most", 4, func(v engineView) *float64 { return v.mostUsage }},
	} {
		out.add(f.name, f.text, f.decimals, f.of(x), f.of(y))
	}
	return out.all
}
