package mock

import (
	"net/http"
	"time"

	"github.com/llmprof/llmprof/sim"
)

// simulated is the engine that answers when a [Simulation] says.
type simulated struct {
	*books
	replica *replica
	log     *iterationLog
	steps   histogram
	planned bool  // an appointment for the replica is made
	failure error // it runs no longer
	failed  func(error)
	writes  []write // of one step; the pacer's
}

// write is a batch on its way to its client.
type write struct {
	to    *sequence
	batch batch
}

var _ engine = (*simulated)(nil)

// newSimulated makes the engine; failed is told when it can run no longer.
func newSimulated(k *books, failed func(error)) (*simulated, error) {
	c := k.options.Simulation
	e := &simulated{
		books: k, failed: failed,
		steps: newHistogram([]float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}),
	}
	var err error
	e.replica, err = newReplica(c, func(at int64) int64 {
		return k.clock.offset + int64(k.options.afterStalls(time.Duration(at-k.clock.offset)))
	})
	if err == nil && c.IterationLog != nil {
		e.log, err = newIterationLog(c)
	}
	return e, err
}

// ledger is what was given to whom.
func (e *simulated) ledger() *books { return e.books }

// fits refuses every request once the simulation has failed. What the replica
// cannot hold is longer than the model allows, and refused before.
func (e *simulated) fits(*sequence) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failure != nil {
		return &requestError{status: http.StatusInternalServerError, message: e.failure.Error()}
	}
	return nil
}

// submit lets a request enter.
func (e *simulated) submit(s *sequence) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.truth = e.truths.begin(s.id, s.arrival)
	s.truth.Entered = e.replica.arrive(s, e.clock.now())
	if e.failure != nil {
		e.giveUp(s)
		return
	}
	e.plan()
}

// plan makes the appointment for what the replica does next.
func (e *simulated) plan() {
	if at, ok := e.replica.next(); ok && !e.planned && e.failure == nil {
		e.planned = true
		e.pacer.add(appointment{at: at})
	}
}

// abort ends a request whose client has gone.
func (e *simulated) abort(s *sequence) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !s.over {
		s.reason = "abort"
		e.finish(s, e.clock.now())
	}
}

// finish ends a request; the replica may be through with it already.
func (e *simulated) finish(s *sequence, now int64) {
	s.over = true
	e.replica.cancel(s)
	e.meters.finished(s, now)
}

// keep is called by the pacer when the replica or a held request is due.
func (e *simulated) keep(a appointment) {
	if a.who != nil {
		e.release(a)
		return
	}
	e.mu.Lock()
	e.planned = false
	var failure error
	if at, ok := e.replica.next(); ok && at <= a.at {
		failure = e.advance()
	}
	e.plan()
	e.mu.Unlock()
	for i := range e.writes {
		e.write(e.writes[i])
		e.writes[i] = write{}
	}
	e.writes = e.writes[:0]
	if failure != nil {
		e.failed(failure)
	}
}

// advance lets the replica do its next thing, and collects what is to be
// written then. An error ends the server.
func (e *simulated) advance() error {
	h, err := e.replica.advance()
	if err != nil {
		e.failure = err
		for _, s := range e.replica.all() {
			e.giveUp(s)
		}
		return err
	}
	switch h.Kind {
	case sim.Slept:
		return nil
	case sim.Planned:
		e.planDone(h)
		return nil
	}
	total := 0
	for _, token := range h.Outcome.Tokens {
		s := e.replica.live[token.Request]
		if token.Number == 1 {
			total += s.request.promptTokens() - s.cached
		}
		total++
		if b, ok := e.put(s, h.At); ok {
			e.writes = append(e.writes, write{s, b})
		}
	}
	for _, id := range h.Outcome.Finished {
		delete(e.replica.live, id)
	}
	if total > 0 {
		e.steps.observe(float64(total))
	}
	if done := e.replica.done(); e.log != nil && done.number > 0 {
		return e.log.step(done, e.clock.wall(h.At), e.usage())
	}
	return nil
}

// planDone takes in what a pass decided.
func (e *simulated) planDone(h *sim.Event) {
	for _, hit := range h.Plan.Hits {
		if s := e.replica.live[hit.Request]; s.admitted == 0 {
			s.admitted, s.cached = h.At, int(hit.Tokens)
		}
	}
	for _, id := range h.Plan.Preempted {
		if s := e.replica.live[id]; s != nil {
			s.preempts++
		}
	}
}

// put gives a request its next token. ok is false where it waits: for further
// ones, for the end of a stall or for the other half of an event.
func (e *simulated) put(s *sequence, due int64) (b batch, ok bool) {
	s.sent++
	if f, ok := s.strikes.within(Stall, s.sent, s.sent); ok {
		s.simulated.until = due + int64(f.For)
	}
	late := due < s.simulated.until
	s.pending = append(s.pending, piece{due: max(due, s.simulated.until), tokens: 1, upTo: s.sent})
	if late && !s.simulated.held {
		s.simulated.held = true
		e.pacer.add(appointment{at: s.simulated.until, who: s})
	}
	if s.simulated.held {
		return batch{}, false
	}
	return e.flush(s)
}

// flush hands over the chunks that wait, if there are enough of them.
func (e *simulated) flush(s *sequence) (b batch, ok bool) {
	if len(s.pending) == 0 || s.over {
		return batch{}, false
	}
	end := s.endAt(s.pending[0].upTo, s.sent)
	if end == open && len(s.pending) < e.options.EventsPerWrite {
		return batch{}, false
	}
	b = e.emit(s, end)
	if end != open {
		e.finish(s, b.emit)
	}
	return b, true
}

// write sends a batch.
func (e *simulated) write(w write) {
	var pause time.Duration
	e.scratch, pause = w.to.write(e.scratch[:0], w.batch)
	if pause > 0 {
		w.to.simulated.held = true
		e.pacer.add(appointment{at: e.clock.now() + int64(pause), who: w.to})
	}
}

// release lets go what a request holds back.
func (e *simulated) release(a appointment) {
	s := a.who
	if s.rest != nil { // the other half of the event before
		s.out.send(s.rest, s.restEnd)
		s.rest = nil
	}
	if s.simulated.until > a.at {
		e.pacer.add(appointment{at: s.simulated.until, who: s})
		return
	}
	s.simulated.held = false
	e.mu.Lock()
	b, ok := e.flush(s)
	e.mu.Unlock()
	if ok {
		e.write(write{s, b})
	}
}

// giveUp ends a request as the engine does when it dies.
func (e *simulated) giveUp(s *sequence) {
	s.reason = "error"
	e.finish(s, e.clock.now())
	if s.out.silent {
		s.out.send(nil, failed)
		return
	}
	text := append(make([]byte, frameRoom), "data: "+errorMessage+"\n\n"+doneEvent...)
	s.sendFrame(text, failed)
}

// usage is the held share of the KV cache, 0..1.
func (e *simulated) usage() float64 {
	s := e.replica.scheduler
	return 1 - float64(s.FreeBlocks())/float64(s.UsableBlocks())
}

// now is the state that /metrics tells.
func (e *simulated) now() state {
	s, c := e.replica.scheduler, &e.options.Simulation.Scheduler
	totals := s.Totals()
	return state{
		running: len(s.Running()), waiting: s.WaitingCount() + len(e.replica.coming),
		usage: e.usage(), blocks: c.Blocks, blockSize: c.BlockSize, cacheTokens: cacheTokens(c),
		share: !c.NoPrefixCache, queries: totals.Queried, hits: totals.Hit, preemptions: totals.Preemptions,
		steps: &e.steps,
	}
}
