package fleet

import "slices"

// window collects the inter-token times and the tokens of the whole run and of
// its steady part, which is that of package load: from a tenth of the time of
// the sends, or from the time when a closed loop is full, to the last send.
type window struct {
	whole, steady histogram
	streamed      int64 // tokens of the steady part

	known    bool // the steady part is known beforehand
	from, to int64
	target   int // of a closed loop, 0 for none
	full     int64
	log      []gapEntry // of loads whose steady part is not known: what may belong to it
}

// gapEntry is n tokens that came together, each after the same gap; none for
// tokens without one. Where n is negative they are taken out again.
type gapEntry struct {
	at, gap int64
	n       int
}

func newWindow(l *Load) window {
	w := window{known: l.child == nil, full: none}
	if w.known {
		first, last := l.arrival[0], l.arrival[len(l.arrival)-1]
		w.from, w.to = first+(last-first)/10, last
		return w
	}
	if len(l.slots) > 0 {
		for i := range l.requests {
			if l.requests[i].After == nil {
				w.target++
			}
		}
	}
	return w
}

// opened notes the number of open requests when one was sent. The steady part of a
// closed loop lasts from the time when it was full until now at least: nothing
// has to be kept for longer than from one send to the next.
func (w *window) opened(now int64, n int) {
	if w.target == 0 {
		return
	}
	if w.full == none && n >= w.target {
		w.full = now
	}
	if w.full == none { // it begins now at the earliest
		w.log = slices.DeleteFunc(w.log, func(e gapEntry) bool { return e.at < now })
		return
	}
	w.settle(w.full, now)
}

// tokens notes n tokens that came.
func (w *window) tokens(now int64, n int) {
	switch {
	case n == 0:
	case !w.known:
		w.note(now, none, n)
	case now >= w.from && now <= w.to:
		w.streamed += int64(n)
	}
}

// gap notes n inter-token times that ended now.
func (w *window) gap(now, gap int64, n int) {
	w.whole.add(gap, n)
	switch {
	case !w.known:
		w.note(now, gap, n)
	case now >= w.from && now <= w.to:
		w.steady.add(gap, n)
	}
}

// ungap takes an inter-token time out again that ended at a time.
func (w *window) ungap(at, gap int64) {
	w.whole.take(gap, 1)
	switch {
	case !w.known:
		w.note(at, gap, -1)
	case at >= w.from && at <= w.to:
		w.steady.take(gap, 1)
	}
}

func (w *window) note(now, gap int64, n int) {
	if last := len(w.log) - 1; last >= 0 && w.log[last].at == now && w.log[last].gap == gap {
		w.log[last].n += n
		return
	}
	w.log = append(w.log, gapEntry{now, gap, n})
}

// close fixes the steady part when the sends are known.
func (w *window) close(first, final int64) {
	w.sort(first, final)
	w.whole.tighten()
	w.steady.tighten()
}

// sort finds what belongs to the steady part.
func (w *window) sort(first, final int64) {
	if w.known {
		w.to = min(w.to, final) // earlier where the run was ended
		return
	}
	w.from, w.to = first+(final-first)/10, final
	if w.target > 0 {
		w.from = final
		if w.full != none {
			w.from = w.full
		}
	}
	w.settle(w.from, w.to)
}

// settle counts what belongs to the steady part, which lasts from one time to
// another, and forgets the rest.
func (w *window) settle(from, to int64) {
	for _, e := range w.log {
		switch {
		case e.at < from || e.at > to:
		case e.gap == none:
			w.streamed += int64(e.n)
		case e.n < 0:
			w.steady.take(e.gap, -e.n)
		default:
			w.steady.add(e.gap, e.n)
		}
	}
	w.log = w.log[:0]
}
