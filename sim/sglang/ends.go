package sglang

// endAt notes that a request has its last output with a read. The earliest of
// its notes holds.
func (t *steady) endAt(read int32, q *requests, r int32) {
	t.ends.Push(ending{read, r, q.place[r]})
}

// collect takes the notes of the next read, but those of requests that are not
// counted any longer.
func (s *Scheduler) collect() {
	t := &s.steady
	for len(t.ends) > 0 && t.ends[0].read <= s.q.reads+1 {
		if e := t.ends.Pop(); s.q.steady[e.id] && s.q.place[e.id] == e.place {
			t.due = append(t.due, e.id)
		}
	}
}
