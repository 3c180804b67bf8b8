package sim

import "fmt"

// Reset makes the scheduler a new one, as [NewScheduler] does, that uses the
// memory of the old one. Plans and outcomes of the old one are not valid any
// longer. After an error it is what it was.
func (s *Scheduler) Reset(c Config) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("scheduler: %w", err)
	}
	old := *s
	*s = Scheduler{
		rules: c.Rules, policy: c.Policy, whole: c.WholePrompts, gated: c.Rules.FullSequenceGate && !c.NoFullSequenceGate,
		seats: c.MaxSeqs, maxLen: int32(c.MaxModelLen), most: int32(c.budget()), cut: int32(c.Threshold),
		config: c, requests: old.requests.emptied(), kv: old.kv.emptied(c), steady: old.steady.emptied(c),
		waiting: queue{ranked: c.Policy == Priority, ids: old.waiting.ids},
		running: old.running[:0], hits: old.hits[:0], aside: old.aside[:0], flying: old.flying[:0],
		plan:    old.plan,
		outcome: Outcome{Tokens: old.outcome.Tokens[:0], Finished: old.outcome.Finished[:0]},
		remote:  transfers{waiting: old.remote.waiting[:0]},
	}
	s.plan.reset()
	if c.Async {
		s.ahead = 1
	}
	if c.Rules.Watermark {
		s.watermark = int32(c.Watermark * float64(c.Blocks))
	}
	return nil
}

// emptied is no request in the same memory.
func (r requests) emptied() requests {
	return requests{
		progress: r.progress[:0], table: r.table[:0], priority: r.priority[:0], state: r.state[:0],
		resumed: r.resumed[:0], flags: r.flags[:0], spans: r.spans[:0], spanAt: r.spanAt[:0],
	}
}

// emptied is the pool of a configuration, all free, in the same memory.
func (k kv) emptied(c Config) kv {
	out := kv{
		size: int32(c.BlockSize), total: int32(c.Blocks) - 1,
		caching: !c.NoPrefixCache, split: c.Rules.SplitFree,
		count: append(k.count[:0], 0), refs: append(k.refs[:0], 0), next: append(k.next[:0], 0), prev: append(k.prev[:0], 0),
		known: k.known.emptied(), unused: k.unused[:0], tables: k.tables, spare: k.spare[:0],
	}
	for at := range out.tables {
		out.tables[at] = table{entries: out.tables[at].entries[:0]}
		out.spare = append(out.spare, int32(at))
	}
	out.pushBack(out.entry(out.total))
	return out
}

// emptied finds nothing, in the same memory.
func (t identities) emptied() identities {
	clear(t.first)
	return identities{
		owner: append(t.owner[:0], nobody), index: append(t.index[:0], 0), after: append(t.after[:0], apart),
		first: t.first, changes: t.changes[:0],
	}
}

// emptied has no request, in the same memory.
func (t steady) emptied(c Config) steady {
	out := steady{
		base: t.base[:0], inside: t.inside[:0], place: t.place[:0],
		ends: t.ends[:0], last: t.last[:0], others: t.others[:0], shift: 1,
	}
	if c.Async {
		out.shift = 0
	}
	if !c.Aggregate {
		return out
	}
	n := c.BlockSize
	if len(t.cross) != n {
		out.cross, out.needs, out.fill = make([]int32, n), make([][]int32, n), make([][]int32, n)
		return out
	}
	out.cross, out.needs, out.fill = t.cross, t.needs, t.fill
	clear(out.cross)
	for i := range n {
		out.needs[i], out.fill[i] = out.needs[i][:0], out.fill[i][:0]
	}
	return out
}
