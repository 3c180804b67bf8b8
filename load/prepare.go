package load

import (
	"sync/atomic"

	"github.com/llmprof/llmprof/workload"
)

// preparation makes the bytes of requests before they are due, in the order of
// the schedule and not too far ahead. A request that is due earlier than it is
// prepared is made on the spot.
type preparation struct {
	session  *session
	requests []workload.Request
	slots    []atomic.Pointer[[]byte] // nil: not made; taken: due already
	taken    *[]byte
	room     chan struct{} // an entry for each request made and not yet taken
	halt     chan struct{}
	full     chan struct{} // closed when the first stretch is made
}

// aheadBytes bounds the memory of requests that wait, roughly.
const aheadBytes = 16 << 20

// newPreparation makes a preparation; fill does the work.
func newPreparation(s *session, requests []workload.Request) *preparation {
	longest := 0
	for _, q := range requests {
		longest = max(longest, q.InputLen)
	}
	ahead := min(max(aheadBytes/(8*longest+1024), 2), 512, len(requests))
	return &preparation{
		session: s, requests: requests, slots: make([]atomic.Pointer[[]byte], len(requests)), taken: new([]byte),
		room: make(chan struct{}, ahead), halt: make(chan struct{}), full: make(chan struct{}),
	}
}

// fill makes the requests until all are made or stop is called.
func (p *preparation) fill() {
	var scratch []byte
	for i := range p.requests {
		if i == cap(p.room) {
			close(p.full)
		}
		select {
		case p.room <- struct{}{}:
		case <-p.halt:
			return
		}
		var text []byte
		var err error
		if p.slots[i].Load() == nil {
			text, scratch, err = p.build(i, scratch)
		}
		if text == nil || err != nil || !p.slots[i].CompareAndSwap(nil, &text) {
			<-p.room // due already, or faulty: take says so
		}
	}
	if len(p.requests) <= cap(p.room) {
		close(p.full)
	}
}

// build makes the bytes of a request.
func (p *preparation) build(i int, scratch []byte) (request, body []byte, err error) {
	q, text := p.requests[i], ""
	if p.session.options.Text != nil {
		text = p.session.options.Text(q)
	}
	return p.session.endpoints[i%len(p.session.endpoints)].appendRequest(nil, scratch[:0], q, text)
}

// take returns the bytes of a request, once.
func (p *preparation) take(i int) ([]byte, error) {
	if made := p.slots[i].Swap(p.taken); made != nil {
		<-p.room
		return *made, nil
	}
	text, _, err := p.build(i, nil)
	return text, err
}

// wait returns when the first requests are made.
func (p *preparation) wait() { <-p.full }

// stop ends fill.
func (p *preparation) stop() { close(p.halt) }
