package fleet

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/llmprof/llmprof/load"
)

// Progress is how far a run has come.
type Progress struct {
	// At is the time in the simulation, from the start of the run: up to which all
	// replicas have come.
	At time.Duration
	// Requests are to be served; of these Sent were sent and Ended have ended.
	Requests, Sent, Ended int
}

// Abort ends a run early whose verdict is fixed. The zero value of each part
// switches it off.
type Abort struct {
	// Limits on quantiles end the run when so many completed requests are above
	// one that it cannot be met any longer, whatever becomes of the others.
	// Limits on inter-token times do not.
	Limits load.SLOs
	// GoodShare is the least share of the requests that have to keep the
	// targets of their class, or Limits where that has none. Only those with
	// others than on quantiles count.
	GoodShare float64
	// Windows ends the run of an open load when more requests wait at the end
	// of so many windows in a row than at the end of the one before. Window is
	// the length of one. This is a sign and no proof: give it windows that are
	// longer than a burst.
	Windows int
	Window  time.Duration
}

// Infeasible says why a run was ended early.
type Infeasible struct {
	// At is the time in the simulation, Why what could not be kept.
	At  time.Duration
	Why string
}

// String is the verdict.
func (a *Infeasible) String() string { return fmt.Sprintf("infeasible at %v: %s", a.At, a.Why) }

func (a *Abort) validate() error {
	var faults []error
	for _, l := range a.Limits {
		faults = append(faults, l.Validate())
	}
	if !(a.GoodShare >= 0 && a.GoodShare <= 1) {
		faults = append(faults, fmt.Errorf("share of good requests %g: want 0 to 1", a.GoodShare))
	}
	if a.Windows < 0 || a.Windows == 1 || (a.Windows > 0) != (a.Window > 0) {
		faults = append(faults, fmt.Errorf("%d windows of %v: want 2 or more, and a length", a.Windows, a.Window))
	}
	return errors.Join(faults...)
}

// verdict watches for what fixes the verdict of a run.
type verdict struct {
	*Abort
	above       []int // by limit: completed requests above it
	judged, bad int   // of all requests, and of those that have ended
	next        int64 // the end of the window
	queue       int   // at its begin
	grown       int   // windows in a row
	found       *Infeasible
}

func newVerdict(a *Abort, l *Load) *verdict {
	if a == nil {
		return nil
	}
	v := &verdict{Abort: a, above: make([]int, len(a.Limits)), next: int64(a.Window)}
	for i := range l.requests {
		if load.SLOs(l.limits(int32(i), a.Limits)).Single() {
			v.judged++
		}
	}
	return v
}

// fixed notes the first reason.
func (v *verdict) fixed(now int64, format string, args ...any) {
	if v.found == nil {
		v.found = &Infeasible{time.Duration(now), fmt.Sprintf(format, args...)}
	}
}

// ended judges a request that has ended.
func (v *verdict) ended(r *run, i int32, now int64) {
	rec, n := &r.records[i], len(r.records)
	for k, l := range v.Limits {
		single := l
		single.Quantile = 0
		if l.Quantile == 0 || rec.Outcome != Completed || rec.keeps(load.SLOs{single}) {
			continue
		}
		v.above[k]++
		if v.above[k] >= n-int(math.Floor(l.Quantile*float64(n-1))) {
			v.fixed(now, "%d of %d requests are above the limit of %v", v.above[k], n, l)
		}
	}
	targets := load.SLOs(r.load.limits(i, v.Limits))
	if v.GoodShare == 0 || !targets.Single() || rec.Outcome == Completed && rec.keeps(targets) {
		return
	}
	v.bad++
	if float64(v.judged-v.bad) < v.GoodShare*float64(v.judged) {
		v.fixed(now, "%d of %d requests miss their targets, and %g %% have to keep them", v.bad, v.judged, 100*v.GoodShare)
	}
}

// passed looks at the queue at the end of each window before the next event.
func (v *verdict) passed(r *run, now int64) {
	if v.Windows == 0 || r.load.child != nil {
		return
	}
	for ; v.next <= now && v.found == nil; v.next += int64(v.Window) {
		waiting := 0
		for _, s := range r.servers {
			waiting += s.depth().waiting
		}
		v.grown++
		if waiting <= v.queue || r.sent == len(r.records) {
			v.grown = 0
		}
		if v.grown >= v.Windows {
			v.fixed(v.next, "the queue grew over %d windows of %v, to %d requests", v.grown, v.Window, waiting)
		}
		v.queue = waiting
	}
}
