package load

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// session is what warm-up and run have in common.
type session struct {
	options   Options
	endpoints []*endpoint
	clock     clock
	net       *network
	now       atomic.Pointer[dispatcher] // whose requests are on the way
	answers   sync.Pool                  // of *response
}

// finished is called by the network when a request has ended.
func (s *session) finished(ex *exchange, closed time.Duration) { s.now.Load().finished(ex, closed) }

// moment is a request and when it is due.
type moment struct {
	at time.Duration
	id int
}

// moments is a heap by time, then by number.
type moments []moment

func (m moments) Len() int { return len(m) }
func (m moments) Less(i, j int) bool {
	return m[i].at < m[j].at || m[i].at == m[j].at && m[i].id < m[j].id
}
func (m moments) Swap(i, j int) { m[i], m[j] = m[j], m[i] }

// Push is for the heap.
func (m *moments) Push(x any) { *m = append(*m, x.(moment)) }

// Pop is for the heap.
func (m *moments) Pop() any {
	last := len(*m) - 1
	x := (*m)[last]
	*m = (*m)[:last]
	return x
}

// dispatcher sends the requests of one schedule when they are due.
type dispatcher struct {
	session  *session
	requests []workload.Request
	base     time.Duration // the run's start on the session's clock
	pacer    *pacer
	ready    *preparation
	finals   chan *exchange // ended, to be decoded
	ended    chan struct{}  // closed when nothing is left to happen
	live     *live

	mu       sync.Mutex
	due      moments       // the time is known
	children map[int][]int // by the request they wait for
	slots    []int         // wait for any request, in order
	held     []moment      // due, but over the limit
	came     int           // requests that have come due
	open     map[*exchange]struct{}
	stopped  bool
	ending   int // ended, but not yet handed to the decoder
	over     bool
	partial  string

	records []Record // of the decoder, until it has ended
}

// run sends a schedule and waits for its end.
func (s *session) run(ctx context.Context, schedule *workload.Schedule, hooks Hooks, stopOverload bool) (*dispatcher, error) {
	pacer, err := newPacer(s.clock)
	if err != nil {
		return nil, err
	}
	defer pacer.Close()
	d := &dispatcher{
		session: s, requests: schedule.Requests, pacer: pacer, finals: make(chan *exchange, decodeQueue), ended: make(chan struct{}),
		children: map[int][]int{}, open: map[*exchange]struct{}{}, live: newLive(len(schedule.Requests)),
	}
	d.ready = newPreparation(s, schedule.Requests)
	s.now.Store(d)
	var paced, others sync.WaitGroup
	others.Go(d.ready.fill)
	d.ready.wait()
	d.begin()
	paced.Go(d.pace)
	others.Go(func() { d.decode(hooks.Done) })
	others.Go(func() { d.watch(ctx, hooks.Tick, stopOverload) })
	<-d.ended
	pacer.Ring()
	paced.Wait()
	d.ready.stop()
	close(d.finals)
	others.Wait()
	slices.SortFunc(d.records, func(a, b Record) int { return a.ID - b.ID })
	return d, nil
}

// begin sets the start and sorts the requests by what they wait for.
func (d *dispatcher) begin() {
	d.base = d.session.clock.now() + time.Millisecond
	for _, q := range d.requests {
		switch {
		case q.After == nil:
			d.due = append(d.due, moment{d.base + duration(q.At), q.ID})
		case q.After.Request == workload.AnyRequest:
			d.slots = append(d.slots, q.ID)
		default:
			d.children[q.After.Request] = append(d.children[q.After.Request], q.ID)
		}
	}
	heap.Init(&d.due)
}

// duration is s as a [time.Duration].
func duration(s unit.Seconds) time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// pace sends what comes due until the end.
func (d *dispatcher) pace() {
	defer d.pacer.Bind()()
	for {
		next := time.Duration(-1)
		d.mu.Lock()
		if len(d.due) > 0 {
			next = d.due[0].at
		}
		d.mu.Unlock()
		select {
		case <-d.ended:
			return
		default:
			d.pacer.wait(next)
			d.fire()
		}
	}
}

// fire sends everything that is due.
func (d *dispatcher) fire() {
	for {
		d.mu.Lock()
		if len(d.due) == 0 || d.due[0].at > d.session.clock.now() {
			d.mu.Unlock()
			return
		}
		m := heap.Pop(&d.due).(moment)
		d.came++
		var ex *exchange
		if d.full() {
			d.held = append(d.held, m)
		} else {
			ex = d.admit(m)
		}
		d.mu.Unlock()
		if ex != nil {
			d.launch(ex)
		}
	}
}

// full reports whether a due request has to wait; the lock is held.
func (d *dispatcher) full() bool {
	limit := d.session.options.MaxConcurrency
	return limit > 0 && (len(d.open) >= limit || len(d.held) > 0)
}

// admit makes a due request one of the open ones; the lock is held.
func (d *dispatcher) admit(m moment) *exchange {
	q := &d.requests[m.id]
	ex := &exchange{want: q, answer: d.session.newAnswer(q.OutputLen), deadline: d.session.clock.now() + d.session.options.Timeout}
	if patience := duration(q.Timeout); patience > 0 { // the client's own, from when the request was due
		ex.deadline = min(ex.deadline, m.at+patience)
	}
	to := m.id % len(d.session.endpoints)
	ex.rec = Record{
		ID: q.ID, Target: to, Session: q.Session, Turn: q.Turn, Sched: m.at,
		Asked: q.OutputLen, Forced: d.session.endpoints[to].forcesLength(),
	}
	d.open[ex] = struct{}{}
	return ex
}

// launch sends an open request.
func (d *dispatcher) launch(ex *exchange) {
	var err error
	if ex.request, err = d.ready.take(ex.rec.ID); err != nil {
		ex.rec.Failure = fail(FailRequest, "%v", err)
		d.finished(ex, d.session.clock.now())
		return
	}
	d.session.net.send(ex)
}

// finished is called when a request has ended: those that waited for it are
// sent, or get their time.
func (d *dispatcher) finished(ex *exchange, closed time.Duration) {
	ex.rec.Close = closed
	d.mu.Lock()
	delete(d.open, ex)
	d.ending++
	if !d.stopped {
		d.follow(ex.rec.ID, closed)
	}
	var next []*exchange
	limit := d.session.options.MaxConcurrency
	for len(d.held) > 0 && (limit == 0 || len(d.open) < limit) {
		next = append(next, d.admit(d.held[0]))
		d.held = d.held[1:]
	}
	d.mu.Unlock()
	for _, other := range next {
		d.launch(other)
	}
	d.finals <- ex
	d.mu.Lock()
	d.ending--
	d.checkEnd()
	d.mu.Unlock()
}

// follow gives the requests that waited for one their time; the lock is held.
func (d *dispatcher) follow(id int, closed time.Duration) {
	next := d.children[id]
	if len(next) == 0 && len(d.slots) > 0 {
		next, d.slots = d.slots[:1], d.slots[1:]
	}
	for _, id := range next {
		m := moment{closed + duration(d.requests[id].After.Think), id}
		if m.at <= closed {
			d.came++
			d.held = append(d.held, m) // sent at once where the limit allows it
			continue
		}
		heap.Push(&d.due, m)
		if d.due[0] == m {
			d.pacer.Ring()
		}
	}
}

// checkEnd ends the run when nothing is left to happen; the lock is held.
func (d *dispatcher) checkEnd() {
	if len(d.open)+len(d.held)+len(d.due)+d.ending > 0 {
		return
	}
	select {
	case <-d.ended:
	default:
		close(d.ended)
	}
}

// stop ends the run early: nothing more is sent, and what is open is given up.
func (d *dispatcher) stop(reason string) {
	d.mu.Lock()
	if !d.stopped {
		d.stopped, d.partial = true, reason
		d.due, d.held = nil, nil
	}
	d.checkEnd()
	d.mu.Unlock()
	d.session.net.stop()
}

// expire gives up requests that are out of time, or all of a stopped run.
func (d *dispatcher) expire() {
	now := d.session.clock.now()
	var over []*exchange
	d.mu.Lock()
	stopped := d.stopped
	for ex := range d.open {
		if stopped || ex.deadline <= now {
			over = append(over, ex)
		}
	}
	d.mu.Unlock()
	for _, ex := range over {
		limit := d.session.options.Timeout
		if patience := duration(ex.want.Timeout); patience > 0 {
			limit = min(limit, patience)
		}
		failure := fail(FailTimeout, "no end within %v", limit)
		if stopped {
			failure = fail(FailCancelled, "the run was ended")
		}
		if c := ex.conn.Load(); c != nil { // a dial has a limit of its own
			c.abort(ex, failure)
		}
	}
}

// watch looks after time limits, the caller's context and the live figures.
func (d *dispatcher) watch(ctx context.Context, tick func(Live), stopOverload bool) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	cancelled := ctx.Done()
	for {
		select {
		case <-d.ended:
			return
		case <-cancelled:
			cancelled = nil
			d.stop("interrupted")
			d.expire()
		case <-ticker.C:
			d.expire()
			now := d.session.clock.now() - d.base
			d.mu.Lock()
			running, waiting, due := len(d.open), len(d.held), d.came
			d.mu.Unlock()
			if tick != nil {
				tick(d.live.figures(now, running, waiting, due))
			}
			d.live.queue(now, running+waiting)
			if stopOverload && d.live.overloaded(now) {
				d.mu.Lock()
				d.over = true
				d.mu.Unlock()
				d.stop("over capacity: open requests and TTFT kept rising")
			}
		}
	}
}

// decodeQueue is how many ended requests may wait to be decoded; it bounds the
// memory of their bytes.
const decodeQueue = 128

// tickEvery is how often limits are checked and live figures shown.
const tickEvery = 100 * time.Millisecond

// newAnswer returns an empty answer for so many tokens, with the memory of an
// old one if there is.
func (s *session) newAnswer(tokens int) *response {
	r, ok := s.answers.Get().(*response)
	if !ok {
		r = &response{}
	}
	r.reset(s.options.MaxAnswer, tokens)
	return r
}

// decode turns ended requests into records, one after the other, while others
// are on their way.
func (d *dispatcher) decode(done func(*Record)) {
	var dec decoder
	for ex := range d.finals {
		rec, failure := &ex.rec, ex.rec.Failure
		if ex.answer.status != 0 {
			dec.byTokens = d.session.endpoints[rec.Target].byTokens()
			dec.decode(rec, ex.answer)
		}
		if failure != nil { // what came before stays in the record
			rec.Failure = failure
		}
		if cap(ex.answer.body) <= keepAnswer {
			d.session.answers.Put(ex.answer)
		}
		d.rebase(rec)
		d.records = append(d.records, *rec)
		d.live.add(rec)
		if done != nil {
			done(&d.records[len(d.records)-1])
		}
	}
}

// keepAnswer is the largest body whose memory is used again, in bytes.
const keepAnswer = 1 << 20

// rebase counts a record's times from the run's start.
func (d *dispatcher) rebase(rec *Record) {
	for _, t := range []*time.Duration{&rec.Send, &rec.Headers, &rec.Role, &rec.End} {
		if *t != 0 {
			*t -= d.base
		}
	}
	rec.Sched -= d.base
	rec.Close -= d.base
	for i := range rec.Chunks {
		rec.Chunks[i].At -= d.base
	}
}
