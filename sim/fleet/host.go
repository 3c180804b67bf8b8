package fleet

import "time"

// host is the time of a replica's host between steps, and how much of it had
// been spent when each request was admitted.
type host struct {
	spent int64   // ns
	marks []int64 // by id in the scheduler; none before
}

// admitted reports whether a request has been admitted on this replica.
func (h *host) admitted(id int32) bool { return int(id) < len(h.marks) && h.marks[id] != none }

// admit notes the first step of a request on a replica, with what it waited in
// the queue since it was there: before after it was sent there.
func (h *host) admit(r *Record, id int32, sent, begin, before int64) {
	for int(id) >= len(h.marks) {
		h.marks = append(h.marks, none)
	}
	h.marks[id] = h.spent
	r.Host += time.Duration(before)
	r.Waited += time.Duration(begin - sent - before)
}

// leave adds the host's time since then, when the replica has done its part of
// the time to the first token.
func (h *host) leave(r *Record, id int32) {
	if h.admitted(id) {
		r.Host += time.Duration(h.spent - h.marks[id])
	}
}

// seat notes the step that a request begins with on this replica.
func (v *vllmServer) seat(r *Record, id int32, begin int64) {
	switch {
	case v.host.admitted(id) || r.First >= 0:
	case v.role == Decode && r.Loaded >= 0: // Before and the wait until then are counted
		v.host.admit(r, id, int64(r.Loaded), begin, 0)
	case v.role == Decode:
		v.host.admit(r, id, int64(r.Prefilled), begin, v.before)
	default:
		v.host.admit(r, id, int64(r.Sent), begin, v.before)
	}
}

// loads begins the transfer of a request's KV.
func (v *vllmServer) loads(id int32, begin, tokens int64) {
	i := v.global[id]
	r := v.run.record(i)
	moved := v.run.fetch(i, begin, tokens)
	if r.First < 0 {
		r.Host += time.Duration(v.before)
		r.Waited += time.Duration(begin - int64(r.Prefilled) - v.before)
		r.Moved += time.Duration(moved)
	}
}
