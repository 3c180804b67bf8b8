package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// apart reports whether the replicas have nothing to do with each other, so
// that each can be simulated by itself. Where somebody watches and one thread
// works, they are simulated in one order of time nevertheless.
func (c *Config) apart(l *Load) bool {
	return len(c.Replicas) > 1 && c.Router.stateless() && l.child == nil && c.Replicas[0].Role == Whole && (c.Progress == nil || c.Threads > 1) && c.Abort == nil
}

// team lets several threads advance the parts of a run, a while each and the one
// that is furthest behind first, so that all come forward together.
type team struct {
	run   *run
	parts []*run
	steps [][]Step

	mu      sync.Mutex
	taken   []bool     // by part: a thread has it, or it is over
	reached []Progress // by part: how far it had come when it was given back
	over    []bool     // by part
	faults  []error    // by part
	told    error      // by Config.Progress
}

// runApart serves the load replica by replica, some at once, and puts together
// what comes out in the order of the replicas. An interrupted one has each
// replica as far as it came.
func (r *run) runApart(ctx context.Context) (*Result, error) {
	parts := r.parts()
	t := &team{
		run: r, parts: parts, steps: make([][]Step, len(parts)), taken: make([]bool, len(parts)),
		reached: make([]Progress, len(parts)), over: make([]bool, len(parts)), faults: make([]error, len(parts)),
	}
	for k, p := range parts {
		if err := p.prepare(&t.steps[k]); err != nil {
			return nil, fmt.Errorf("simulation: %w", err)
		}
	}
	var group sync.WaitGroup
	for range min(max(r.config.Threads, 1), len(parts)) {
		group.Go(func() { t.work(ctx) })
	}
	group.Wait()
	err := t.fault(ctx)
	if _, stalled := errors.AsType[*StallError](err); err != nil && ctx.Err() == nil && !stalled {
		return nil, err
	}
	r.replay(t.steps)
	for _, p := range parts {
		r.join(p)
	}
	if err != nil && r.sent == 0 {
		return nil, err
	}
	results := make([]ReplicaResult, len(parts))
	for k, p := range parts {
		results[k] = p.servers[0].close(r.first, r.over)
	}
	r.recount()
	return r.closed(&Result{
		Load: r.load, Records: r.records, Replicas: results, Elapsed: time.Duration(r.over), first: r.first, final: r.final,
	}), err
}

// fault is why the run did not come to its end, if it did not: the first of its
// replicas, an interruption, or one that stood still while the others went on.
func (t *team) fault(ctx context.Context) error {
	var still error
	for _, err := range t.faults {
		if _, stalled := errors.AsType[*StallError](err); stalled {
			still = cmp.Or(still, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("simulation: %w", err)
		}
	}
	at, left := t.behind()
	if !left && still != nil {
		return fmt.Errorf("simulation: %w", still)
	}
	if !left {
		return nil
	}
	for k, p := range t.parts {
		if !t.over[k] {
			p.over = p.now
		}
	}
	err := t.told
	if err == nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("simulation: ended at %v: %w", t.reached[at].At.Round(time.Millisecond), err)
}

// work advances parts until there are none left for this thread.
func (t *team) work(ctx context.Context) {
	for k := t.take(ctx); k >= 0; k = t.take(ctx) {
		over, err := t.parts[k].some()
		t.give(k, over, err)
	}
}

// take takes the part that is furthest behind of those that nobody has; -1
// stands for none.
func (t *team) take(ctx context.Context) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, left := t.behind()
	if !left || t.told != nil || ctx.Err() != nil {
		return -1
	}
	t.taken[k] = true
	return k
}

// behind is the part that is furthest behind of those that nobody has; left is
// false where there is none.
func (t *team) behind() (k int, left bool) {
	for i := range t.parts {
		if !t.taken[i] && (!left || t.reached[i].At < t.reached[k].At) {
			k, left = i, true
		}
	}
	return k, left
}

// give gives a part back, unless it is over, and tells who watches how far all
// have come.
func (t *team) give(k int, over bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.parts[k]
	t.reached[k] = Progress{At: time.Duration(p.now), Sent: p.sent, Ended: p.ended}
	t.over[k], t.faults[k] = over, err
	t.taken[k] = over || err != nil
	if t.run.config.Progress == nil || t.told != nil || err != nil {
		return
	}
	all := Progress{Requests: len(t.run.records), At: time.Duration(idle)}
	latest := time.Duration(0)
	for i, one := range t.reached {
		all.Sent, all.Ended, latest = all.Sent+one.Sent, all.Ended+one.Ended, max(latest, one.At)
		if !t.over[i] {
			all.At = min(all.At, one.At)
		}
	}
	all.At = min(all.At, latest)
	t.told = t.run.config.Progress(all)
}

// parts are runs of one replica each, with the requests that go there.
func (r *run) parts() []*run {
	parts := make([]*run, len(r.config.Replicas))
	members := make([]int32, len(parts))
	for k := range parts {
		parts[k] = &run{
			memory: r.memory, load: r.load, config: r.config, window: newWindow(r.load), offset: k,
			records: r.records, lists: r.lists, ids: r.ids, mine: []int32{},
		}
		members[k] = int32(k)
	}
	r.pending = make([]int32, len(parts))
	all := newRouter(r, r.config.Router, members, nil)
	for i := range r.load.requests {
		k := all.choose(int32(i))
		parts[k].mine = append(parts[k].mine, int32(i))
	}
	return parts
}

// prepare makes a part ready, and lets it keep its steps where somebody asks for
// them.
func (r *run) prepare(steps *[]Step) error {
	c := *r.config
	c.Progress = nil
	if c.Step != nil {
		c.Step = func(s *Step) { *steps = append(*steps, *s) }
	}
	r.config = &c
	if err := r.serve(r.offset); err != nil {
		return err
	}
	r.clock, r.pending = newClock(1), make([]int32, 1)
	r.router = newRouter(r, Routing{}, []int32{0}, nil)
	return nil
}

// replay passes the steps of all replicas on, in the order of (begin, replica).
func (r *run) replay(steps [][]Step) {
	if r.config.Step == nil {
		return
	}
	at := newClock(len(steps))
	for k := range steps {
		if len(steps[k]) > 0 {
			at.set(k, int64(steps[k][0].Begin))
		}
	}
	for k, begin := at.earliest(); begin != idle; k, begin = at.earliest() {
		r.config.Step(&steps[k][0])
		steps[k] = steps[k][1:]
		next := idle
		if len(steps[k]) > 0 {
			next = int64(steps[k][0].Begin)
		}
		at.set(k, next)
	}
}

// join takes in the books of a part.
func (r *run) join(p *run) {
	if p.sent == 0 {
		return
	}
	if r.sent == 0 || p.first < r.first {
		r.first = p.first
	}
	r.final, r.over = max(r.final, p.final), max(r.over, p.over)
	r.sent, r.ended = r.sent+p.sent, r.ended+p.ended
	r.window.whole.merge(&p.window.whole)
	r.window.steady.merge(&p.window.steady)
	r.window.streamed += p.window.streamed
}

// recount follows the number of open requests through the records.
func (r *run) recount() {
	ends := make([]int64, 0, len(r.records))
	for i := range r.records {
		if ended := r.records[i].Ended; ended >= 0 {
			ends = append(ends, int64(ended))
		}
	}
	slices.SortFunc(ends, cmp.Compare)
	for i := range r.records { // in the order of their sends
		sent := int64(r.records[i].Sent)
		if sent < 0 {
			continue
		}
		for len(ends) > 0 && ends[0] < sent {
			r.open.set(ends[0], r.open.value-1)
			ends = ends[1:]
		}
		r.open.set(sent, r.open.value+1)
	}
	for _, at := range ends {
		r.open.set(at, r.open.value-1)
	}
}
