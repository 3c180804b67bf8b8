package mock

// Truth is what was sent to one client. All times are nanoseconds of
// [Server.Now].
type Truth struct {
	// ID is that of the answer.
	ID string `json:"id"`
	// Arrival is when the request was there.
	Arrival int64 `json:"arrival_ns"`
	// Entered is when it entered the queue of a simulated engine, 0 without one:
	// the next pass at that time or later sees it.
	Entered int64 `json:"entered_ns,omitzero"`
	// Emits are the times of the chunks with text, and Dues when they should have
	// been.
	Emits []int64 `json:"emits_ns"`
	Dues  []int64 `json:"dues_ns"`
}

// truths keeps the last requests.
type truths struct {
	limit int // emissions
	held  int
	all   []*Truth
}

// begin adds a request and forgets the oldest ones where there are too many. A
// request counts as one emission more than it has.
func (t *truths) begin(id string, arrival int64) *Truth {
	truth := &Truth{ID: id, Arrival: arrival, Emits: []int64{}, Dues: []int64{}}
	t.all = append(t.all, truth)
	t.held++
	t.trim()
	return truth
}

// put adds the chunks of a write.
func (t *truths) put(truth *Truth, b batch) {
	if truth.Emits == nil {
		return // forgotten
	}
	for _, p := range b.pieces {
		truth.Emits = append(truth.Emits, b.emit)
		truth.Dues = append(truth.Dues, p.due)
	}
	t.held += len(b.pieces)
	t.trim()
}

func (t *truths) trim() {
	for t.held > t.limit && len(t.all) > 0 {
		oldest := t.all[0]
		t.held -= 1 + len(oldest.Emits)
		oldest.Emits, oldest.Dues = nil, nil
		t.all[0] = nil
		t.all = t.all[1:]
	}
}

// list copies what is kept.
func (t *truths) list() []Truth {
	all := make([]Truth, len(t.all))
	for i, truth := range t.all {
		// Emissions are only ever appended, so that the values stay.
		all[i] = *truth
	}
	return all
}
