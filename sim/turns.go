package sim

import "math"

// Asleep is the time of the next event of an engine that waits for requests.
const Asleep int64 = math.MaxInt64

// Turns say when an engine makes its passes and when its steps run. They look at
// no clock: [Turns.Next] is when something happens, and who drives the engine
// lets it happen then, in simulated time or in real time. All times are
// nanoseconds from one start. They begin with [Turns.Reset]: the zero Turns is
// not asleep.
//
// Without overlap the events are, in turn, a pass and the end of the step that
// it planned. With overlap, which vLLM calls async scheduling, every event is the
// end of a step: its results are taken in, the step that was planned meanwhile
// begins, and the one after it is planned.
type Turns struct {
	// Overlap says that a pass is made while a step runs.
	Overlap bool
	// Between is the host's time from the end of a step to the begin of the next
	// one while there is work, Before what a request waits before it is there.
	Between, Before int64 // ns
	// Later moves a moment out of the times in which nothing goes on; nil where
	// there are none.
	Later func(at int64) int64

	inbox   inbox
	at      int64 // of the next event
	due     bool  // results are, at the next event
	resting bool
	end     int64 // of the step that begins now
	planned int64 // overlap: how long the planned step takes
	works   bool  // and that it computes something
	host    int64 // host's time between steps so far
}

// Reset begins anew with the settings of another one, in the same memory.
func (t *Turns) Reset(c Turns) {
	c.inbox = inbox{requests: t.inbox.requests[:0], at: t.inbox.at[:0]}
	c.at = Asleep
	*t = c
}

// Next is when something happens, or [Asleep].
func (t *Turns) Next() int64 { return t.at }

// Deliver lets a request reach the engine, not before any other did, and says
// when it is there for the scheduler. The number is the caller's.
func (t *Turns) Deliver(i int32, at int64) (there int64) {
	at += t.Before
	t.inbox.push(i, at)
	if t.at == Asleep {
		t.at = at
	}
	return at
}

// Coming is how many requests were delivered and are not there yet.
func (t *Turns) Coming() int { return t.inbox.len() }

// Take takes the first request that is there now.
func (t *Turns) Take() (i int32, ok bool) { return t.inbox.pop(t.at) }

// Nobody reports whether no request waits to be taken.
func (t *Turns) Nobody() bool { return t.inbox.len() == 0 || t.inbox.first() > t.at }

// Results reports whether results are due at this event; then they count as
// taken in. Without overlap the host's time follows: later says that the event
// ends with that.
func (t *Turns) Results() (due, later bool) {
	t.resting = false
	if !t.due {
		return false, false
	}
	t.due = false
	if t.Overlap || t.Between == 0 {
		return true, false
	}
	t.at = t.moved(t.at + t.Between)
	t.host += t.Between
	return true, true
}

// Sleep waits for the next request.
func (t *Turns) Sleep() {
	t.at = Asleep
	if t.inbox.len() > 0 {
		t.at = t.inbox.first()
	}
}

// Turn lets a pass be made, and says when the step that it plans begins: now, or
// with overlap when the step ends that was planned before and begins now.
func (t *Turns) Turn() (begin int64) {
	t.end = t.at
	if t.Overlap {
		if t.works {
			t.planned += t.Between
			t.host += t.Between
		}
		t.end = t.moved(t.at + t.planned)
	}
	return t.end
}

// Plans takes the step that the pass of this turn planned, and how long it
// takes, and lets the step begin whose turn it is.
func (t *Turns) Plans(took int64, works bool) {
	if t.Overlap {
		t.at, t.planned, t.works = t.end, took, works
	} else {
		t.at = t.moved(t.at + took)
	}
	t.due = true
}

// Starts takes the first step after a sleep, with overlap: it begins with the
// turn that follows now.
func (t *Turns) Starts(took int64, works bool) { t.planned, t.works = took, works }

// Rest ends an event after which nothing happens until a request comes or
// somebody wakes the engine.
func (t *Turns) Rest() {
	now := t.at
	t.resting = true
	t.Sleep()
	t.at = max(t.at, now)
}

// Resting reports whether the engine rests.
func (t *Turns) Resting() bool { return t.resting }

// Wake ends a rest.
func (t *Turns) Wake(now int64) {
	if t.resting {
		t.resting, t.at = false, now
	}
}

// Host is the host's time between steps so far.
func (t *Turns) Host() int64 { return t.host }

func (t *Turns) moved(at int64) int64 {
	if t.Later == nil {
		return at
	}
	return t.Later(at)
}

// inbox holds the requests that are on their way into an engine.
type inbox struct {
	requests []int32
	at       []int64
	head     int
}

func (b *inbox) push(i int32, at int64) {
	if b.head > len(b.requests)/2 { // fewer are copied than were taken since
		b.requests = b.requests[:copy(b.requests, b.requests[b.head:])]
		b.at = b.at[:copy(b.at, b.at[b.head:])]
		b.head = 0
	}
	b.requests, b.at = append(b.requests, i), append(b.at, at)
}

// pop takes the first request that is there at a time.
func (b *inbox) pop(now int64) (i int32, ok bool) {
	if b.head == len(b.requests) || b.at[b.head] > now {
		return -1, false
	}
	b.head++
	return b.requests[b.head-1], true
}

func (b *inbox) len() int { return len(b.requests) - b.head }

// first is when the first request is there; the inbox is not empty.
func (b *inbox) first() int64 { return b.at[b.head] }
