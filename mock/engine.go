package mock

import (
	"slices"
	"time"
)

// sequence is a request in the engine.
type sequence struct {
	request *request
	id      string
	arrival int64 // ns
	keys    []uint64
	strikes strikes
	limit   int // tokens to put out
	reason  string
	texts   texts
	role    RoleChunk
	out     *stream

	// What follows is the engine's.
	ticket   uint64 // of the valid appointment; 0 where there is none
	kv       holding
	cached   int // tokens of the prompt, at the first admission
	sent     int // tokens
	due      int64
	admitted int64
	first    int64 // emission of the first token
	last     int64 // emission of the last write
	preempts int
	stalled  bool
	pending  []piece // chunks that wait for their write
	truth    *Truth
	running  bool
	over     bool

	simulated simulatedPart

	// The other half of an event, the pacer's, and how the answer ends with it.
	rest    []byte
	restEnd ending
}

// engine decides what runs and when its tokens are due.
type engine interface {
	// fits refuses a request that could never run.
	fits(s *sequence) error
	// submit takes a request in, abort ends it since its client has gone.
	submit(s *sequence)
	abort(s *sequence)
	// now is the state that /metrics tells; the books are locked.
	now() state
	// ledger is what was given to whom.
	ledger() *books
	// keep is called by the pacer when an appointment is due.
	keep(a appointment)
}

// timetable is the engine whose tokens are due at times that a [Timer] names.
type timetable struct {
	*books
	kv      *kvCache
	queue   []*sequence
	running []*sequence // in the order of admission
	tickets uint64
}

// ledger is what was given to whom.
func (e *timetable) ledger() *books { return e.books }

var _ engine = (*timetable)(nil)

// fits refuses a request that the cache could not hold alone.
func (e *timetable) fits(s *sequence) error {
	need := e.kv.blocksOf(s.request.promptTokens() + s.limit)
	if e.kv.total != Unlimited && need > e.kv.total {
		return refuse("the request needs %d KV blocks, and the cache has %d", need, e.kv.total)
	}
	return nil
}

// submit puts a request in the queue.
func (e *timetable) submit(s *sequence) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.truth = e.truths.begin(s.id, s.arrival)
	e.queue = append(e.queue, s)
	e.admit(s.arrival)
}

// admit lets waiting requests run as far as there is room.
func (e *timetable) admit(now int64) {
	for len(e.queue) > 0 && (e.options.MaxNumSeqs == Unlimited || len(e.running) < e.options.MaxNumSeqs) {
		s := e.queue[0]
		prompt := s.request.promptTokens()
		tokens := prompt
		if s.preempts > 0 { // it comes back when it can go on
			tokens += min(s.sent+e.options.TokensPerChunk, s.limit)
		}
		held, cached, ok := e.kv.take(s.keys, prompt, tokens)
		if !ok {
			return
		}
		e.queue[0] = nil
		e.queue = e.queue[1:]
		s.kv, s.running = held, true
		e.running = append(e.running, s)
		if s.admitted == 0 {
			s.admitted, s.cached = now, cached
			e.meters.admitted(s, !e.options.NoPrefixCache)
		}
		load := Load{Prompt: prompt + s.sent, Cached: cached, Running: len(e.running)}
		e.plan(s, now+int64(e.options.Timer.FirstToken(load)))
	}
}

// plan makes the appointment for the next chunk of a request.
func (e *timetable) plan(s *sequence, at int64) {
	if f, ok := s.strikes.within(Stall, s.sent+1, s.sent+e.options.TokensPerChunk); ok && !s.stalled {
		s.stalled = true
		at += int64(f.For)
	}
	s.due = e.clock.offset + int64(e.options.afterStalls(time.Duration(at-e.clock.offset)))
	e.tickets++
	s.ticket = e.tickets
	e.pacer.add(appointment{at: s.due, who: s, ticket: s.ticket})
}

// keep is called by the pacer when a chunk of a request is due.
func (e *timetable) keep(a appointment) {
	s := a.who
	if s.rest != nil { // the other half of the event before
		s.out.send(s.rest, s.restEnd)
		s.rest = nil
		e.mu.Lock()
		e.goOn(s)
		e.mu.Unlock()
		return
	}
	e.mu.Lock()
	batch, ok := e.put(a)
	e.mu.Unlock()
	if !ok {
		return
	}
	var pause time.Duration
	e.scratch, pause = s.write(e.scratch[:0], batch)
	if pause > 0 {
		e.pacer.add(appointment{at: e.clock.now() + int64(pause), who: s, ticket: a.ticket})
	}
}

// put advances a request by a chunk. ok is false where there is nothing to
// write: the appointment is void, the request had to leave, or its chunk waits
// for further ones.
func (e *timetable) put(a appointment) (b batch, ok bool) {
	s := a.who
	if s.over || s.ticket != a.ticket {
		return batch{}, false
	}
	n := min(e.options.TokensPerChunk, s.limit-s.sent)
	if !e.makeRoom(s, s.request.promptTokens()+s.sent+n) {
		return batch{}, false
	}
	s.sent += n
	s.pending = append(s.pending, piece{due: a.at, tokens: n, upTo: s.sent})
	end := s.endAt(s.sent-n+1, s.sent)
	if end == open && len(s.pending) < e.options.EventsPerWrite {
		e.goOn(s)
		return batch{}, false
	}
	b = e.emit(s, end)
	if end != open {
		e.finish(s, b.emit)
		return b, true
	}
	if _, half := s.strikes.within(HalfEvent, b.first, s.sent); !half {
		e.goOn(s)
	}
	return b, true
}

// goOn plans the next chunk of a request.
func (e *timetable) goOn(s *sequence) {
	if s.running {
		load := Load{Prompt: s.request.promptTokens(), Cached: s.cached, Output: s.sent, Running: len(e.running)}
		e.plan(s, s.due+int64(e.options.Timer.NextToken(load)))
	}
}

// makeRoom gives a request blocks for so many tokens, and takes them from the
// requests admitted last. It is false if that is the request itself.
func (e *timetable) makeRoom(s *sequence, tokens int) bool {
	for !e.kv.grow(&s.kv, tokens) {
		victim := e.running[len(e.running)-1]
		e.leave(victim)
		victim.ticket = 0
		victim.preempts++
		e.meters.preemptions++
		e.queue = slices.Insert(e.queue, 0, victim)
		if victim == s {
			e.admit(e.clock.now())
			return false
		}
	}
	return true
}

// leave takes a request out of the running ones.
func (e *timetable) leave(s *sequence) {
	e.kv.release(&s.kv)
	s.running = false
	if i := slices.Index(e.running, s); i >= 0 {
		e.running = slices.Delete(e.running, i, i+1)
	}
}

// finish ends a request and lets others take its place.
func (e *timetable) finish(s *sequence, now int64) {
	s.over = true
	if s.running {
		e.leave(s)
	} else if i := slices.Index(e.queue, s); i >= 0 {
		e.queue = slices.Delete(e.queue, i, i+1)
	}
	e.meters.finished(s, now)
	e.admit(now)
}

// abort ends a request whose client has gone.
func (e *timetable) abort(s *sequence) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !s.over {
		s.reason = "abort"
		e.finish(s, e.clock.now())
	}
}

// endAt says how the chunk of the tokens first to last ends a request, if it
// does.
func (s *sequence) endAt(first, last int) ending {
	if _, ok := s.strikes.within(ErrorEvent, first, last); ok {
		s.reason = "error"
		return failed
	}
	if _, ok := s.strikes.within(CutChunk, first, last); ok {
		s.reason = "abort"
		return cut
	}
	if last < s.limit {
		return open
	}
	if _, ok := s.strikes.find(CutDone); ok {
		return cut
	}
	return done
}

// now is the state that /metrics tells.
func (e *timetable) now() state {
	m := &e.meters
	now := state{
		running: len(e.running), waiting: len(e.queue), blockSize: e.kv.blockSize, share: e.kv.share,
		queries: m.queries, hits: m.hits, preemptions: m.preemptions,
	}
	if e.kv.total != Unlimited {
		now.usage, now.blocks, now.cacheTokens = e.kv.usage(), e.kv.total, e.kv.total*e.kv.blockSize
	}
	return now
}
