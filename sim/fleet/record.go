package fleet

import "time"

// Outcome says how a request ended.
type Outcome uint8

const (
	// Unsent requests never came to their time: what they wait for did not end.
	Unsent Outcome = iota
	// Completed requests have all their tokens.
	Completed
	// Unservable requests were refused at the door: their prompt leaves no room
	// for a token.
	Unservable
	// TimedOut requests were given up by their client.
	TimedOut
	// Unfinished requests were under way when the run was ended.
	Unfinished
	// Aborted requests were given up by the engine, since the KV pool cannot
	// hold them.
	Aborted
)

// String names the outcome.
func (o Outcome) String() string {
	switch o {
	case Completed:
		return "completed"
	case Unservable:
		return "unservable"
	case TimedOut:
		return "timed_out"
	case Unfinished:
		return "unfinished"
	case Aborted:
		return "aborted"
	}
	return "unsent"
}

// Record is what became of a request. Times count from the start of the run;
// those of events that did not happen are [Never].
type Record struct {
	// Sent is when the client sent it, Queued when the engine took it in, which
	// it does between its steps, Admitted the begin of the first step that
	// computed some of it, First and Last when its first and its last token came,
	// and Ended when it was over: with its last token, or when it was refused or
	// given up.
	Sent, Queued, Admitted, First, Last, Ended time.Duration
	// Own is the time that the steps up to the first token would have taken
	// without the work of others in them.
	Own time.Duration
	// Waited is the time in the queues of engines up to the first token: until
	// the first step of each, and where KV moves until its transfer begins. Host
	// is the host's time until then, before and between steps, and Moved that of
	// the transfer.
	Waited, Host, Moved time.Duration
	// Gap is its longest inter-token time.
	Gap time.Duration
	// Outputs is the tokens that came, Hits the prompt tokens that the prefix
	// cache had at the first admission, Preemptions how often it was preempted.
	Outputs, Hits, Preemptions int32
	// Prefilled is when a replica for prompts had computed its prompt, Loaded
	// when its KV had come to the replica that decodes.
	Prefilled, Loaded time.Duration
	// Replica is the index of the replica that served it; of two that shared the
	// work the one it was at last. Producer is the one that computed its prompt
	// for another; -1 for none.
	Replica, Producer int16
	Outcome           Outcome
}

// unsent is the record of a request before its time.
func unsent() Record {
	return Record{Sent: Never, Queued: Never, Admitted: Never, First: Never, Last: Never, Ended: Never, Prefilled: Never, Loaded: Never, Producer: none}
}

// queued notes when the first engine took the request in.
func (r *Record) queued(now int64) {
	if r.Queued < 0 {
		r.Queued = time.Duration(now)
	}
}

// Never is the time of what did not happen.
const Never time.Duration = -1

// TTFT is the time from sending to the first token; ok is false without one.
func (r *Record) TTFT() (t time.Duration, ok bool) { return r.First - r.Sent, r.First >= 0 }

// E2EL is the time from sending to the last token; ok is false for a request
// that was not completed.
func (r *Record) E2EL() (t time.Duration, ok bool) { return r.Last - r.Sent, r.Outcome == Completed }

// Queue is the time in the queues of engines up to the first token; ok is false
// for a request that no step has computed any of.
func (r *Record) Queue() (t time.Duration, ok bool) { return r.Waited, r.Admitted >= 0 }

// TPOT is the mean time of a token after the first; ok is false for a request
// that was not completed or has one token.
func (r *Record) TPOT() (t time.Duration, ok bool) {
	if r.Outcome != Completed || r.Outputs < 2 {
		return 0, false
	}
	return (r.Last - r.First) / time.Duration(r.Outputs-1), true
}
