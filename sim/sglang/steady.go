package sglang

import (
	"cmp"
	"slices"

	"github.com/llmprof/llmprof/sim"
)

// steady keeps the running requests together. A decode batch has all of them, and
// changes them all in the same way: it is enough to know how many there are, who
// ends when, and how many need a new page when. What is known of one of them
// follows from the number of decode batches that were planned and read with it:
// see [requests.slots] and [requests.outputs]. Whoever starts to run joins, and
// departs with its end or when it is put back. Only where memory gets short, or
// decodes share a batch with a prefill, all of them are walked again.
type steady struct {
	// on says that every running request is counted but those that have ended,
	// which are ended.
	on    bool
	ended []int32
	most  int32 // passes after which the counters start anew

	count   int32
	context int64   // sum of slots
	cross   []int32 // by slots modulo the page size, without passes
	places  int64
	ends    sim.Heap[ending]
	due     []int32 // taken from ends: those with the next read
	joined  []joining

	// flies says that the batch in flight was counted, with so many rows. Of these
	// wasted have ended or left since; next is that of the batch just planned.
	flies        bool
	flown        int
	wasted, next []int32
}

// ending is a request that has its last output with a read.
type ending struct {
	read  int32
	id    int32
	place int64
}

// Before orders by read and admission.
func (e ending) Before(f ending) bool {
	return e.read < f.read || e.read == f.read && e.place < f.place
}

// joining is a request that was not counted before.
type joining struct {
	id    int32
	place int64
}

// mostPasses is after how many of them the counters start anew by default.
const mostPasses = 1 << 30

// joinSteady lets the running requests from one on be counted, or all of them
// where none was.
func (s *Scheduler) joinSteady(from int) {
	t := &s.steady
	if t.on && s.q.passes >= t.most {
		s.settle()
	}
	switch {
	case t.on:
	case s.config.Aggregate && s.roomy(2):
		t.on, from = true, 0
	default:
		return
	}
	for _, r := range s.running[from:] {
		t.places++
		s.q.place[r] = t.places
		if s.q.state[r] != runs {
			t.ended = append(t.ended, r)
			continue
		}
		s.join(r)
	}
}

// roomy reports whether there is room for some steps in which every running
// request takes a page.
func (s *Scheduler) roomy(steps int) bool {
	return s.free+s.tree.evictable >= steps*len(s.running)*int(s.page)
}

// join counts a request. When it ends is known once no other result is in flight.
func (s *Scheduler) join(r int32) {
	q, t := &s.q, &s.steady
	if t.cross == nil {
		t.cross = make([]int32, s.page)
	}
	t.count++
	t.context += int64(q.kv[r])
	q.kv[r] -= q.passes
	q.outs[r] -= q.reads
	q.steady[r] = true
	t.cross[s.ring(q.kv[r])]++
	t.joined = append(t.joined, joining{r, q.place[r]})
	if !q.flying[r] {
		s.foresee(r)
	}
}

// foresee notes when a request will end.
func (s *Scheduler) foresee(r int32) {
	q := &s.q
	outs := q.outputs(r)
	last := q.maxNew[r]
	if e := q.eosAt[r]; e > outs && e < last {
		last = e
	}
	if q.gone[r] {
		last = outs
	}
	s.steady.endAt(q.reads+max(last-outs, 1), q, r)
}

// depart writes out what is known of a request, which is counted no longer.
func (s *Scheduler) depart(r int32) {
	q, t := &s.q, &s.steady
	t.cross[s.ring(q.kv[r])]--
	q.kv[r] += q.passes
	q.outs[r] += q.reads
	q.steady[r] = false
	t.count--
	t.context -= int64(q.kv[r])
}

// ring is a number of slots modulo the page size.
func (s *Scheduler) ring(slots int32) int32 { return (slots%s.page + s.page) % s.page }

// leaveSteady is leave where the requests are counted.
func (s *Scheduler) leaveSteady() (ending bool) {
	q, t := &s.q, &s.steady
	s.dropSteadyEnded()
	if !s.config.Rules.SkipFinishing || !s.config.Overlap {
		return false
	}
	flight := s.flight
	if t.flies {
		s.collect()
		flight = t.due
	}
	for _, r := range flight {
		if q.steady[r] && q.outputs(r)+1 >= q.maxNew[r] {
			s.depart(r)
			s.leaveRunning(r)
			ending = true
		}
	}
	return ending
}

// dropSteadyEnded takes those who have ended off the running ones, and reports
// whether there were any.
func (s *Scheduler) dropSteadyEnded() bool {
	t := &s.steady
	for _, r := range t.ended {
		s.leaveRunning(r)
	}
	dropped := len(t.ended) > 0
	t.ended = t.ended[:0]
	return dropped
}

// leaveRunning takes one off the running ones, which are in order of place.
func (s *Scheduler) leaveRunning(r int32) {
	i, _ := slices.BinarySearchFunc(s.running, s.q.place[r], func(o int32, place int64) int { return cmp.Compare(s.q.place[o], place) })
	s.running = slices.Delete(s.running, i, i+1)
}

// decodeSteady makes a decode batch of the running requests, of which there were
// so many before. There is a page for each.
func (s *Scheduler) decodeSteady(before int) {
	q, t := &s.q, &s.steady
	slots := int(t.cross[s.ring(-q.passes)]) * int(s.page)
	if all := len(s.running) * int(s.page); s.free < all {
		if s.config.Rules.PagesByLength && s.page > 1 {
			s.decodeFits(s.running)
		} else {
			s.room(slots)
		}
		s.room(all)
	}
	s.free -= slots
	s.ratio = max(s.ratio-s.decay, s.least)
	if len(s.running) < before {
		s.full = false
	}
	b := &s.batch
	b.Kind, b.Steady, b.Context = Decode, int(t.count), t.context
	q.passes++
	t.context += int64(t.count)
}

// launch remembers a batch with so many counted rows as the one in flight.
func (t *steady) launch(rows int) {
	t.flies, t.flown = rows > 0, rows
	t.wasted, t.next = t.next, t.wasted[:0]
}

// readBatch reads the result of a batch, or of so many rows that were counted.
func (s *Scheduler) readBatch(batch []int32, fresh, rows int) {
	if rows == 0 {
		s.read(batch, fresh)
		return
	}
	s.readSteady(rows)
}

// readSteady reads the result of counted rows.
func (s *Scheduler) readSteady(rows int) {
	q, t, b := &s.q, &s.steady, &s.batch
	s.collect()
	q.reads++
	for _, j := range t.joined {
		left := q.state[j.id] == runs && slices.Contains(t.due, j.id)
		if q.place[j.id] == j.place && (q.steady[j.id] || left) {
			b.Joined = append(b.Joined, j.id)
		}
	}
	t.joined = t.joined[:0]
	s.readWasted()
	b.SteadyOutputs = rows - len(b.Outputs)
	s.byPlace(t.due)
	for _, r := range t.due {
		if q.state[r] != runs {
			continue // it was put back, or stands there twice
		}
		if !q.steady[r] {
			q.outs[r]++ // it has left the running batch
		}
		s.over(r)
	}
	t.due = t.due[:0]
}

// readWasted reads the outputs of rows that had ended or left.
func (s *Scheduler) readWasted() {
	q, t, b := &s.q, &s.steady, &s.batch
	s.byPlace(t.wasted)
	for _, r := range t.wasted {
		s.free += int(q.leftover[r])
		q.leftover[r] = 0
		b.Outputs = append(b.Outputs, sim.Token{Request: r})
	}
	t.wasted = t.wasted[:0]
}

// over ends a request with the output that was just read. If it runs, it is in
// the batch that was just planned.
func (s *Scheduler) over(r int32) {
	t, b := &s.steady, &s.batch
	if s.q.steady[r] {
		s.depart(r)
		t.ended = append(t.ended, r)
		if s.config.Overlap && b.Steady > 0 {
			t.next = append(t.next, r)
		}
	}
	s.finish(r)
	b.Finished = append(b.Finished, r)
}

// byPlace sorts requests by their place.
func (s *Scheduler) byPlace(list []int32) {
	if len(list) > 1 {
		slices.SortFunc(list, func(a, b int32) int { return cmp.Compare(s.q.place[a], s.q.place[b]) })
	}
}

// settle lists every counted request again, also in the batch in flight.
func (s *Scheduler) settle() {
	q, t, b := &s.q, &s.steady, &s.batch
	if !t.on {
		return
	}
	flight := s.flight[:0]
	if t.flies {
		flight = append(flight, t.wasted...)
		for _, r := range t.due {
			if q.state[r] == runs && !q.steady[r] && !slices.Contains(flight, r) {
				flight = append(flight, r) // it has left the running batch
				b.Settled = append(b.Settled, r)
			}
		}
	}
	for _, r := range s.running {
		if !q.steady[r] {
			continue
		}
		s.depart(r)
		b.Settled = append(b.Settled, r)
		if t.flies {
			flight = append(flight, r)
		}
	}
	if t.flies {
		s.byPlace(flight)
		s.flight, s.flightFresh = flight, 0
		for _, r := range flight {
			q.flying[r] = true
		}
	}
	q.passes, q.reads = 0, 0
	*t = steady{
		most:  t.most,
		ended: t.ended[:0], cross: t.cross, places: t.places, ends: t.ends[:0], due: t.due[:0],
		joined: t.joined[:0], wasted: t.wasted[:0], next: t.next[:0],
	}
}
