package mock

import (
	"container/heap"
	"sync"
	"time"

	"github.com/llmprof/llmprof/load"
)

// appointment is something that a sequence does at a time.
type appointment struct {
	at   int64 // ns
	turn uint64
	who  *sequence
	// ticket is the sequence's when the appointment was made: with another one it
	// is void.
	ticket uint64
}

// agenda is a heap of appointments, the earliest first and equal ones in the
// order in which they were made.
type agenda []appointment

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].turn < a[j].turn
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

// Push adds an appointment.
func (a *agenda) Push(x any) { *a = append(*a, x.(appointment)) }

// Pop takes the last one.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	(*a)[last] = appointment{}
	*a = (*a)[:last]
	return x
}

// pacer is the one thread that keeps all appointments.
type pacer struct {
	clock clock
	alarm *load.Alarm
	keep  func(appointment)
	done  chan struct{}

	mu     sync.Mutex
	agenda agenda
	turn   uint64
	// asleep is when the thread will wake, in ns, or 0 while it works.
	asleep int64
	closed bool
}

// longestSleep bounds one sleep of the thread.
const longestSleep = time.Minute

func newPacer(c clock, keep func(appointment)) (*pacer, error) {
	a, err := load.NewAlarm()
	if err != nil {
		return nil, err
	}
	p := &pacer{clock: c, alarm: a, keep: keep, done: make(chan struct{})}
	go p.run()
	return p, nil
}

// add makes an appointment.
func (p *pacer) add(a appointment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.turn++
	a.turn = p.turn
	heap.Push(&p.agenda, a)
	if a.at < p.asleep {
		p.asleep = 0
		p.alarm.Ring()
	}
}

// run works until close.
func (p *pacer) run() {
	defer close(p.done)
	defer p.alarm.Bind()()
	for {
		p.mu.Lock()
		p.asleep = 0
		if p.closed {
			p.mu.Unlock()
			return
		}
		now := p.clock.now()
		if len(p.agenda) > 0 && p.agenda[0].at <= now {
			next := heap.Pop(&p.agenda).(appointment)
			p.mu.Unlock()
			p.keep(next)
			continue
		}
		p.asleep = now + int64(longestSleep)
		if len(p.agenda) > 0 {
			p.asleep = min(p.asleep, p.agenda[0].at)
		}
		left := time.Duration(p.asleep - now)
		p.mu.Unlock()
		p.alarm.Sleep(left)
	}
}

// close ends the thread and waits for it.
func (p *pacer) close() {
	p.mu.Lock()
	first := !p.closed
	if first {
		p.closed = true
		p.alarm.Ring()
	}
	p.mu.Unlock()
	<-p.done
	if first {
		p.alarm.Close()
	}
}
