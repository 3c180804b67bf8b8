package fleet

import (
	"slices"
	"time"
)

// meters are what a replica shows over time.
type meters struct {
	usable                 int
	waiting, running, used level
	steps                  int64
	busy                   int64  // ns
	tail                   []span // of busy, what may end after the run
	over                   int64  // when a request had ended last, at the begin of the last step
	prefill, decode        int64  // tokens
	most                   int    // tokens of a step
	preempted, evicted     int64
	queried, hit           int64
	end                    int64
}

// set notes what holds from a time on.
func (m *meters) set(at, waiting, running, used int64) {
	m.waiting.set(at, waiting)
	m.running.set(at, running)
	m.used.set(at, used)
	m.end = max(m.end, at)
}

// span is from one time to another, in ns.
type span struct{ from, to int64 }

// keep notes when a step runs. Nothing ends before over, so what ran until then
// is within the run for sure.
func (m *meters) keep(from, to, over int64) {
	if over > m.over {
		m.over = over
		m.tail = slices.DeleteFunc(m.tail, func(s span) bool { return s.to <= over })
	}
	m.busy += to - from
	if last := len(m.tail) - 1; last >= 0 && m.tail[last].to == from {
		m.tail[last].to = to
		return
	}
	m.tail = append(m.tail, span{from, to})
}

// within is the time of the steps until the end of the run: a step may run on
// after the last client has left.
func (m *meters) within(end int64) time.Duration {
	busy := m.busy
	for _, s := range m.tail {
		busy -= max(0, s.to-max(s.from, end))
	}
	return time.Duration(busy)
}

// step notes a step; over is when a request had ended last.
func (m *meters) step(s *Step, over int64) {
	m.set(int64(s.Begin), int64(s.Waiting), int64(s.Running), int64(s.UsableBlocks-s.FreeBlocks))
	m.steps++
	m.most = max(m.most, s.Tokens)
	m.keep(int64(s.Begin), int64(s.End), over)
	m.prefill, m.decode = m.prefill+int64(s.PrefillTokens), m.decode+int64(s.Decodes)
	m.preempted, m.evicted = m.preempted+int64(s.Preempted), m.evicted+int64(s.Evicted)
	m.queried, m.hit = s.Queried, s.Hit
	m.end = int64(s.End)
}

// ReplicaResult is what one replica did.
type ReplicaResult struct {
	// Role is its part of the work.
	Role Role
	// Steps computed something. Busy is their time until the run ended: a step
	// that runs on after the last client has left counts until then. Tokens of
	// prompts and of decodes were computed.
	Steps                       int64
	Busy                        time.Duration
	PrefillTokens, DecodeTokens int64
	// MostTokens are those of the largest step.
	MostTokens int
	// Preemptions and Evictions count requests and blocks.
	Preemptions, Evictions int64
	// QueriedTokens were looked up in the prefix cache and HitTokens found;
	// ResumedQueries and ResumedTokens of these by requests that were preempted and
	// looked for their own blocks again.
	QueriedTokens, HitTokens      int64
	ResumedQueries, ResumedTokens int64
	// UsableBlocks is the size of the KV pool.
	UsableBlocks int
	// Waiting and Running are requests, UsedBlocks blocks, each from the first send
	// to the end of the run.
	Waiting, Running, UsedBlocks Level
	// Unbound are the settings that made no difference, in a fixed order.
	Unbound []Knob
}

// Level is a quantity over time.
type Level struct {
	// Mean is weighted with time; P99 is not exceeded in 99 % of the time.
	Mean, P99 float64
	Max       int64
}

// result is what the level was from the first send to the end; before it was 0.
func (l *level) result(first, end int64) Level {
	l.until(end)
	l.before(first)
	return Level{Mean: l.mean(), P99: l.quantile(0.99), Max: l.most}
}

func (m *meters) result(first, end int64) ReplicaResult {
	return ReplicaResult{
		Steps: m.steps, Busy: m.within(end), PrefillTokens: m.prefill, DecodeTokens: m.decode, MostTokens: m.most,
		Preemptions: m.preempted, Evictions: m.evicted, QueriedTokens: m.queried, HitTokens: m.hit, UsableBlocks: m.usable,
		Waiting: m.waiting.result(first, end), Running: m.running.result(first, end), UsedBlocks: m.used.result(first, end),
	}
}
