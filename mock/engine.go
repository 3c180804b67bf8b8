package mock

import (
	"slices"
	"sync"
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

	// The other half of an event, the pacer's, and how the answer ends with it.
	rest    []byte
	restEnd ending
}

// piece is one chunk of tokens.
type piece struct {
	due    int64
	tokens int
	upTo   int // tokens of the answer with it
}

// engine decides what runs and when its tokens are due.
type engine struct {
	options Options
	clock   clock
	pacer   *pacer

	mu      sync.Mutex
	kv      *kvCache
	queue   []*sequence
	running []*sequence // in the order of admission
	tickets uint64
	meters  meters
	truths  truths
	scratch []byte // the pacer's
}

// fits refuses a request that the cache could not hold alone.
func (e *engine) fits(s *sequence) error {
	need := e.kv.blocksOf(s.request.promptTokens() + s.limit)
	if e.kv.total != Unlimited && need > e.kv.total {
		return refuse("the request needs %d KV blocks, and the cache has %d", need, e.kv.total)
	}
	return nil
}

// submit puts a request in the queue.
func (e *engine) submit(s *sequence) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.truth = e.truths.begin(s.id, s.arrival)
	e.queue = append(e.queue, s)
	e.admit(s.arrival)
}

// admit lets waiting requests run as far as there is room.
func (e *engine) admit(now int64) {
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
func (e *engine) plan(s *sequence, at int64) {
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
func (e *engine) keep(a appointment) {
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

// batch is what is written at once.
type batch struct {
	emit   int64
	first  int // the first of its tokens, from 1
	pieces []piece
	end    ending
}

// put advances a request by a chunk. ok is false where there is nothing to
// write: the appointment is void, the request had to leave, or its chunk waits
// for further ones.
func (e *engine) put(a appointment) (b batch, ok bool) {
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
	b = batch{emit: e.clock.now(), first: s.pending[0].upTo - s.pending[0].tokens + 1, pieces: s.pending, end: end}
	s.pending = s.pending[:0] // it is written before the next chunk is put
	e.meters.put(s, b)
	e.truths.put(s.truth, b)
	s.last = b.emit
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
func (e *engine) goOn(s *sequence) {
	if s.running {
		load := Load{Prompt: s.request.promptTokens(), Cached: s.cached, Output: s.sent, Running: len(e.running)}
		e.plan(s, s.due+int64(e.options.Timer.NextToken(load)))
	}
}

// makeRoom gives a request blocks for so many tokens, and takes them from the
// requests admitted last. It is false if that is the request itself.
func (e *engine) makeRoom(s *sequence, tokens int) bool {
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
func (e *engine) leave(s *sequence) {
	e.kv.release(&s.kv)
	s.running = false
	if i := slices.Index(e.running, s); i >= 0 {
		e.running = slices.Delete(e.running, i, i+1)
	}
}

// finish ends a request and lets others take its place.
func (e *engine) finish(s *sequence, now int64) {
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
func (e *engine) abort(s *sequence) {
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
