package sim

// countLimits notes which limits a pass has reached.
func (s *Scheduler) countLimits() {
	if s.budget <= 0 {
		s.totals.Budget++
	}
	if s.WaitingCount() > 0 && len(s.running) >= s.seats {
		s.totals.Seats++
	}
}

// countRefusal notes why the head of the queue does not get its blocks, when
// the two gates ask for so many with the watermark, of so many blocks, in them.
func (s *Scheduler) countRefusal(full, next, watermark int32) {
	t, free := &s.totals, s.kv.free
	t.Blocks++
	if watermark > 0 && next-watermark <= free && (!s.gated || full-watermark <= free) {
		t.Watermark++
	}
	if s.gated && full > free && next <= free {
		t.FullSequence++
	}
}

// countRequest notes what a request that arrives shows about the limits.
func (s *Scheduler) countRequest(id int32, q *Request) {
	most := q.MaxTokens
	if most == 0 {
		most = q.Output
	}
	if q.Prompt+most > int(s.maxLen) {
		s.totals.Shortened++
	}
	if s.requests.priority[id] != s.requests.priority[0] {
		s.totals.Ranked = true
	}
}
