package fleet_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// TestSaturation judges loads on a replica whose steps take 10 ms whatever is in
// them, so that it serves as many requests as it has seats.
func TestSaturation(t *testing.T) {
	config := h100(t)
	config.Async = false
	even := func(n int, apart float64, output int) *workload.Schedule {
		s := &workload.Schedule{}
		for i := range n {
			s.Requests = append(s.Requests, workload.Request{ID: i, At: unit.Seconds(float64(i) * apart), InputLen: 16, OutputLen: output})
		}
		return s
	}
	waits := even(100, 0.05, 10)
	for i := 10; i < 100; i++ {
		waits.Requests[i].At, waits.Requests[i].After = 0, &workload.Dependency{Request: workload.AnyRequest}
	}
	for _, c := range []struct {
		why   string
		load  *workload.Schedule
		seats int
		want  string
		says  string
	}{
		{"10 come a second, and 10 are served with one seat of 0.1 s each", even(200, 0.1, 10), 1, fleet.VerdictSteady, "requests under way did not grow"},
		{"20 come a second, and 10 are served: half of what came piled up", even(400, 0.05, 10), 1, fleet.VerdictSaturated, "grew by 10 a second and TTFT with them: 49.5 %"},
		{"10.2 come a second: 2 % of what came are too few to tell", even(1000, 1/10.2, 10), 1, fleet.VerdictSteady, ""},
		{"answers of 20 s: requests under way still fill the seats, and nobody waits", even(400, 0.1, 2000), 256, fleet.VerdictSteady, "requests under way did not grow"},
		{"answers of 34 s: the batch fills up to the end", even(400, 0.1, 3400), 512, fleet.VerdictUnknown, "more requests tell"},
		{"49 requests", even(49, 0.01, 10), 1, fleet.VerdictUnknown, "49 requests are too few"},
		{"hardly any answer while requests come", even(100, 0.01, 100), 8, fleet.VerdictUnknown, "answers while requests came are too few"},
		{"all at once", even(100, 0, 10), 1, fleet.VerdictUnknown, "all requests came at once"},
		{"a closed loop", waits, 1, fleet.VerdictUnknown, "requests wait for answers"},
	} {
		t.Run(c.why, func(t *testing.T) {
			l, err := fleet.NewLoad(c.load)
			if err != nil {
				t.Fatal(err)
			}
			config.MaxSeqs = c.seats
			r, err := fleet.Run(context.Background(), l, fleet.Config{Replicas: []fleet.Replica{{
				VLLM: &config, Timer: sim.StepTimerFunc(func(forward.Pass) (time.Duration, error) { return 10 * time.Millisecond, nil }),
			}}})
			if err != nil {
				t.Fatal(err)
			}
			if s := r.Saturation(); s.Verdict != c.want || !strings.Contains(s.Why, c.says) || (s.Drift > 0) != strings.Contains(s.Why, "grew") {
				t.Errorf("%+v, want %s: %s", s, c.want, c.says)
			}
		})
	}
}

// TestSaturationInterrupted interrupts runs of twice what is served, some of them
// right with a send: whoever was under way then had not left.
func TestSaturationInterrupted(t *testing.T) {
	config := h100(t)
	config.Async, config.MaxSeqs = false, 1
	withSend := 0
	for more := range 12 { // a run looks up after a fixed number of events, of which these are some
		s := &workload.Schedule{}
		for i := range 1000 {
			s.Requests = append(s.Requests, workload.Request{ID: i, At: unit.Seconds(float64(max(i-more, 0)) * 0.05), InputLen: 16, OutputLen: 10})
		}
		l, err := fleet.NewLoad(s)
		if err != nil {
			t.Fatal(err)
		}
		ctx, interrupt := context.WithCancel(context.Background())
		r, err := fleet.Run(ctx, l, fleet.Config{
			Replicas: []fleet.Replica{{
				VLLM: &config, Timer: sim.StepTimerFunc(func(forward.Pass) (time.Duration, error) { return 10 * time.Millisecond, nil }),
			}},
			Step: func(*fleet.Step) { interrupt() },
		})
		if err == nil {
			t.Fatal("it came to its end")
		}
		last := time.Duration(-1)
		for i := range r.Records {
			last = max(last, r.Records[i].Sent)
		}
		if r.Elapsed == last {
			withSend++
		}
		if s := r.Saturation(); s.Verdict != fleet.VerdictSaturated || math.Abs(s.Drift-10) > 0.2 {
			t.Errorf("interrupted %v after a send: %+v, want it saturated by 10 a second", r.Elapsed-last, s)
		}
	}
	if withSend == 0 {
		t.Error("no run was interrupted with a send")
	}
}
