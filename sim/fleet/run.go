package fleet

import (
	"container/heap"
	"context"
	"fmt"
	"time"
)

// run is a simulation under way.
type run struct {
	memory  *Runner
	load    *Load
	servers []server
	config  *Config
	router  *router
	second  *router  // of those that decode, where others compute the prompts
	moving  arrivals // when KV has come to where it is needed
	signals *signals // what routers know, where it is not what holds now
	clock   clock    // of the servers
	pending []int32  // by replica: requests that were sent there and have not ended

	records []Record
	lists   []int32 // by request: when its token was listed last, in results of its replica
	ids     []int32 // by request: its number in the scheduler of its replica, none before it gets there
	sources []int32 // the same where its prompt is computed for another replica; nil without such ones
	mine    []int32 // the requests to serve; nil for all
	offset  int     // the index of the first server among the replicas
	cursor  int     // of the arrivals that are known beforehand
	later   arrivals
	gives   arrivals // when clients give requests up
	slot    int      // of the requests that wait for any slot

	now          int64
	over         int64 // when the last request ended
	open         level // requests sent and not ended
	sent, ended  int
	first, final int64 // of the sends
	window       window
	verdict      *verdict // nil where nobody wants the run to end early
}

// arrival is a request that came due while the load ran.
type arrival struct {
	at int64
	i  int32
}

// arrivals is a heap in order of (time, request).
type arrivals []arrival

func (a arrivals) Len() int { return len(a) }
func (a arrivals) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].i < a[j].i
}
func (a arrivals) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

// Push and Pop are for package heap.
func (a *arrivals) Push(x any) { *a = append(*a, x.(arrival)) }

// Pop takes the last one.
func (a *arrivals) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// serve adds the replica of an index to the servers.
func (r *run) serve(i int) error {
	s, err := newServer(r, int16(i), r.config.Replicas[i])
	if err != nil {
		return fmt.Errorf("replica %d: %w", i, err)
	}
	r.servers = append(r.servers, s)
	return nil
}

// route makes the routers of the servers.
func (r *run) route() {
	n := len(r.servers)
	r.clock, r.pending = newClock(n), make([]int32, n)
	if d := max(r.config.Router.SignalDelay, r.config.Decode.SignalDelay); d > 0 {
		r.signals = newSignals(int64(d), r.servers, r.config.Router.prefixed() || r.config.Decode.prefixed())
	}
	var members, decoding []int32
	for k := range r.servers {
		if r.config.Replicas[k].Role == Decode {
			decoding = append(decoding, int32(k))
		} else {
			members = append(members, int32(k))
		}
	}
	r.router = newRouter(r, r.config.Router, members, r.signals)
	if len(decoding) > 0 {
		r.second = newRouter(r, r.config.Decode, decoding, r.signals)
	}
}

// patience is how many events pass between looks at the context.
const patience = 1 << 12

// loop lets all events happen.
func (r *run) loop(ctx context.Context) error {
	for over := false; !over; {
		err := r.look(ctx)
		if err == nil {
			over, err = r.some()
		} else {
			err = fmt.Errorf("ended at %v: %w", time.Duration(r.now).Round(time.Millisecond), err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// some lets some events happen in the order of (time, kind, replica): of the
// events of one time requests arrive first, then KV, then steps end, then
// clients give up. Over says that none is left.
func (r *run) some() (over bool, err error) {
	for range patience {
		arrives, ends := r.arrives(), r.givesUp()
		server, at := r.clock.earliest()
		if r.verdict != nil && r.decided(min(arrives, ends, at, r.comes())) {
			return true, nil
		}
		switch {
		case arrives == idle && at == idle && ends == idle && len(r.moving) == 0:
			return true, r.blocked()
		case arrives <= min(at, ends, r.comes()):
			r.now = arrives
			r.arrive(r.takeArrival())
		case len(r.moving) > 0 && r.moving[0].at <= min(at, ends):
			r.come()
		case ends < at:
			r.now = ends
			r.giveUp(heap.Pop(&r.gives).(arrival).i)
		default:
			r.now = at
			if err := r.servers[server].event(); err != nil {
				return false, err
			}
			r.changed(server)
		}
	}
	return false, nil
}

// blocked is an error where requests wait for ever. The run ends when the last
// replica stood still; named is the first one that waits for no other.
func (r *run) blocked() error {
	if r.sent == r.ended {
		return nil
	}
	var named *StallError
	for _, s := range r.servers {
		e := s.stalled()
		if e == nil {
			continue
		}
		r.over = max(r.over, int64(e.At))
		if named == nil || named.held > 0 && e.held == 0 {
			named = e
		}
	}
	if named == nil {
		return fmt.Errorf("at %v nothing happens any more, and %d requests wait", time.Duration(r.now), r.sent-r.ended)
	}
	return named
}

// look is what happens from time to time, whatever happens in the simulation.
func (r *run) look(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if r.config.Progress == nil {
		return nil
	}
	return r.config.Progress(Progress{At: time.Duration(r.now), Requests: len(r.records), Sent: r.sent, Ended: r.ended})
}

// decided reports whether the run can end before an event, since its verdict is
// fixed.
func (r *run) decided(next int64) bool {
	if next < idle {
		r.verdict.passed(r, next)
	}
	if r.verdict.found == nil {
		return false
	}
	r.over = max(r.now, int64(r.verdict.found.At))
	return true
}

// changed looks at a server to which something happened.
func (r *run) changed(k int) {
	r.clock.set(k, r.servers[k].next())
	if r.signals != nil {
		r.signals.note(r.now, k, r.servers[k])
	}
}

// givesUp is when a client gives up next, or idle.
func (r *run) givesUp() int64 {
	for len(r.gives) > 0 && r.records[r.gives[0].i].Outcome != Unfinished {
		heap.Pop(&r.gives) // it has ended
	}
	if len(r.gives) == 0 {
		return idle
	}
	return r.gives[0].at
}

// giveUp ends a request that its client does not wait for any longer.
func (r *run) giveUp(i int32) {
	k := r.at(i)
	r.servers[k].cancel(i)
	r.end(i, r.now, TimedOut)
	r.changed(k)
}

// arrives is the time of the next arrival, or idle.
func (r *run) arrives() int64 {
	for i, ok := r.head(); ok && r.load.arrival[i] == none; i, ok = r.head() {
		r.cursor++
	}
	at := idle
	if i, ok := r.head(); ok {
		at = r.load.arrival[i]
	}
	if len(r.later) > 0 {
		at = min(at, r.later[0].at)
	}
	return at
}

// head is the request at the cursor, if there is one.
func (r *run) head() (i int32, ok bool) {
	if r.mine == nil {
		return int32(r.cursor), r.cursor < len(r.load.arrival)
	}
	if r.cursor == len(r.mine) {
		return none, false
	}
	return r.mine[r.cursor], true
}

// takeArrival takes the request that arrives next.
func (r *run) takeArrival() int32 {
	i, ok := r.head()
	if len(r.later) > 0 && (!ok || r.later[0].before(arrival{r.load.arrival[i], i})) {
		return heap.Pop(&r.later).(arrival).i
	}
	r.cursor++
	return i
}

func (a arrival) before(b arrival) bool { return a.at < b.at || a.at == b.at && a.i < b.i }

// arrive sends a request to a replica.
func (r *run) arrive(i int32) {
	rec := &r.records[i]
	rec.Sent, rec.Outcome = time.Duration(r.now), Unfinished
	if r.sent == 0 {
		r.first = r.now
	}
	r.sent, r.final = r.sent+1, r.now
	r.open.set(r.now, r.open.value+1)
	r.window.opened(r.now, int(r.open.value))
	if t := r.load.requests[i].Timeout; t > 0 {
		heap.Push(&r.gives, arrival{r.now + nanoseconds(t), i})
	}
	k := r.router.choose(i)
	rec.Replica = int16(r.offset + k)
	r.pending[k]++
	r.servers[k].deliver(i, r.now)
	r.changed(k)
}

// at is the place among the servers of the one that has a request.
func (r *run) at(i int32) int {
	return int(r.records[i].Replica) - r.offset
}

// record is that of a request.
func (r *run) record(i int32) *Record { return &r.records[i] }

// end notes how a request ended, and lets those come that waited for it.
func (r *run) end(i int32, now int64, how Outcome) {
	rec := &r.records[i]
	rec.Outcome, rec.Ended = how, time.Duration(now)
	r.ended++
	r.pending[r.at(i)]--
	r.over = now
	r.open.set(now, r.open.value-1)
	if how != Completed {
		r.forget(i)
	}
	if r.verdict != nil {
		r.verdict.ended(r, i, now)
	}
	if r.load.child == nil {
		return
	}
	child := r.load.child[i]
	if child < 0 && r.slot < len(r.load.slots) { // nobody waits for this very one
		r.later.add(now, r.load.slots[r.slot], r.load)
		r.slot++
	}
	for ; child >= 0; child = r.load.sibling[child] {
		r.later.add(now, child, r.load)
	}
}

// add makes a request due after its think time.
func (a *arrivals) add(now int64, i int32, l *Load) {
	heap.Push(a, arrival{now + nanoseconds(l.requests[i].After.Think), i})
}

// stepped passes a step on.
func (r *run) stepped(m *meters, s *Step) {
	m.step(s, r.over)
	if r.config.Step != nil {
		r.config.Step(s)
	}
}

// tokens notes n tokens that came.
func (r *run) tokens(now int64, n int) {
	r.window.tokens(now, n)
}

// gap notes n inter-token times.
func (r *run) gap(now, gap int64, n int) { r.window.gap(now, gap, n) }
