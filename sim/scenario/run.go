package scenario

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/sim"
)

// Run reads a scenario and decides it: schedule is the lines from the first
// step to the end line, expected those that the text holds, empty where it
// holds none.
func Run(name string, text io.Reader) (schedule, expected string, err error) {
	s, err := Read(name, text)
	if err != nil {
		return "", "", err
	}
	var b strings.Builder
	if err := s.Run(&b); err != nil {
		return "", "", fmt.Errorf("run %s: %w", name, err)
	}
	if len(s.Expect) > 0 {
		expected = strings.Join(s.Expect, "\n") + "\n"
	}
	return b.String(), expected, nil
}

// Run decides the scenario and writes its schedule: a line for every step with
// something to do, and one with the sums.
func (s *Scenario) Run(to io.Writer) error {
	_, err := s.run(to)
	return err
}

// run is Run, and gives what was counted.
func (s *Scenario) run(to io.Writer) (sim.Totals, error) {
	scheduler, err := sim.NewScheduler(s.Config)
	if err != nil {
		return sim.Totals{}, err
	}
	p := printer{w: bufio.NewWriter(to)}
	arrivals := slices.Clone(s.Requests)
	slices.SortStableFunc(arrivals, func(a, b Request) int { return cmp.Compare(a.Arrival, b.Arrival) })
	var waiting []int32
	steps := 0
	for step := 1; ; step++ {
		if scheduler.Idle() {
			if len(arrivals) == 0 {
				break
			}
			step = arrivals[0].Arrival
		}
		for len(arrivals) > 0 && arrivals[0].Arrival <= step {
			if _, err := scheduler.Add(p.request(arrivals[0])); err != nil {
				return sim.Totals{}, err
			}
			arrivals = arrivals[1:]
		}
		plan := scheduler.Schedule()
		waiting = scheduler.AppendWaiting(waiting[:0])
		p.pass(step, plan, scheduler.Running(), waiting)
		p.outcome(scheduler.Apply())
		steps++
		if p.written > MaxSchedule {
			return sim.Totals{}, fmt.Errorf("the schedule is longer than %d bytes at step %d: make the load smaller", MaxSchedule, step)
		}
	}
	t := scheduler.Totals()
	fmt.Fprintf(p.w, "end steps=%d preemptions=%d hit_tokens=%d evictions=%d\n", steps, t.Preemptions, t.Hit+t.ResumedHit, t.Evictions)
	return t, p.w.Flush()
}

// printer writes step lines.
type printer struct {
	w      *bufio.Writer
	names  []string // of requests, by id
	groups []string // of shared nodes
	text   []byte   // of the line

	written int // bytes
}

// request gives the next request its id and says it in the scheduler's words.
func (p *printer) request(q Request) sim.Request {
	p.names = append(p.names, q.Name)
	out := sim.Request{Prompt: q.Prompt, Output: q.Output, Priority: q.Priority}
	if q.StopToken {
		out.MaxTokens = sim.MaxCount
	}
	if q.Shared > 0 {
		node := slices.Index(p.groups, q.Group)
		if node < 0 {
			node = len(p.groups)
			p.groups = append(p.groups, q.Group)
		}
		out.Prefix = []sim.Span{{Node: int32(node), End: q.Shared}}
	}
	return out
}

func (p *printer) pass(step int, plan *sim.Plan, running, waiting []int32) {
	p.text = strconv.AppendInt(append(p.text[:0], "step "...), int64(step), 10)
	list(p, "sched", plan.Scheduled, func(e sim.Share) { p.counted(e.Request, e.Tokens) })
	list(p, "hit", plan.Hits, func(h sim.Hit) { p.counted(h.Request, h.Tokens) })
	list(p, "preempt", plan.Preempted, p.name)
	list(p, "evict", plan.Evicted, p.block)
	list(p, "run", running, p.name)
	list(p, "wait", waiting, p.name)
	p.number("free", plan.Free)
}

func (p *printer) outcome(o *sim.Outcome) {
	list(p, "out", o.Tokens, func(t sim.Token) { p.counted(t.Request, t.Number) })
	list(p, "finish", o.Finished, p.name)
	p.number("end_free", o.Free)
	p.text = append(p.text, '\n')
	p.written += len(p.text)
	_, _ = p.w.Write(p.text) // Flush tells
}

// list appends a field of several values, "-" for none.
func list[T any](p *printer, key string, values []T, one func(T)) {
	p.text = append(append(append(p.text, ' '), key...), '=')
	for i, v := range values {
		if i > 0 {
			p.text = append(p.text, ',')
		}
		one(v)
	}
	if len(values) == 0 {
		p.text = append(p.text, '-')
	}
}

func (p *printer) number(key string, n int) {
	p.text = append(append(append(p.text, ' '), key...), '=')
	p.text = strconv.AppendInt(p.text, int64(n), 10)
}

func (p *printer) name(id int32) { p.text = append(p.text, p.names[id]...) }

func (p *printer) counted(id, n int32) {
	p.name(id)
	p.text = strconv.AppendInt(append(p.text, ':'), int64(n), 10)
}

func (p *printer) block(b sim.Block) {
	if id, ok := b.Owner.Request(); ok {
		p.name(id)
	} else if node, ok := b.Owner.Node(); ok {
		p.text = append(p.text, p.groups[node]...)
	}
	p.text = strconv.AppendInt(append(p.text, '#'), int64(b.Index), 10)
}
