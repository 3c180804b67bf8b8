package load

import (
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// queueAt plays a schedule against a server that takes one request at a time,
// for the time of a token: what a search meets, without the wait.
func queueAt(service time.Duration) func(context.Context, *workload.Schedule) (*Result, error) {
	return func(_ context.Context, s *workload.Schedule) (*Result, error) {
		r := &Result{Schedule: s}
		free := time.Duration(0)
		for i, q := range s.Requests {
			at := duration(q.At)
			if q.After != nil {
				at = free
			}
			free = max(free, at) + service
			rec := streamed(at, at, free)
			rec.ID = i
			r.Records = append(r.Records, rec)
			r.Elapsed = rec.Close
		}
		return r, nil
	}
}

func searchOf(service time.Duration, limit float64) SearchOptions {
	return SearchOptions{
		Limits: SLOs{{Metric: TTFT, Limit: limit}},
		Floor:  func(uint64) (*workload.Schedule, error) { return closedLoop(1, 20, 1, 1), nil },
		Open: func(rate float64, _ uint64) (*workload.Schedule, error) {
			s := &workload.Schedule{}
			for k := range 400 {
				s.Requests = append(s.Requests, workload.Request{ID: k, At: unit.Seconds(float64(k) / rate), InputLen: 1, OutputLen: 1})
			}
			return s, nil
		},
		Run: queueAt(service),
	}
}

// TestSearchShortRuns: runs that end within the limits whatever their rate tell
// nothing of what the server keeps up with, and the search says so.
func TestSearchShortRuns(t *testing.T) {
	for _, c := range []struct {
		why   string
		limit float64 // ms
		short bool
	}{
		{"400 requests of 10 ms take 4 s, all within the limit", 5000, true},
		{"a queue of five misses it", 50, false},
	} {
		found, err := Search(t.Context(), searchOf(10*ms, c.limit))
		if err != nil {
			t.Fatal(err)
		}
		if found.Good == nil || found.MaxThroughput == nil || found.Short != c.short {
			t.Errorf("%s: short %v, rate %v, throughput %v", c.why, found.Short, *found.Good, *found.MaxThroughput)
		}
	}
}

func TestSearchFindsTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		service := time.Duration(rapid.IntRange(2, 100).Draw(t, "service ms")) * ms
		found, err := Search(t.Context(), searchOf(service, 5*service.Seconds()*1e3))
		if err != nil {
			t.Fatal(err)
		}
		capacity := 1 / service.Seconds()
		if found.Good == nil || *found.Good < capacity*0.9 || *found.Good > capacity*1.2 || !found.Confirmed {
			t.Fatalf("capacity %.3g/s: %+v", capacity, found.Good)
		}
		if *found.MaxThroughput > capacity*1.05 || found.Knee == nil || *found.Knee > capacity*1.2 {
			t.Fatalf("capacity %.3g/s: throughput %.3g, knee %v", capacity, *found.MaxThroughput, found.Knee)
		}
		seeds := map[uint64]bool{found.Floor.Seed: true}
		for _, s := range found.Steps {
			if seeds[s.Seed] {
				t.Fatal("two steps have the same seed")
			}
			seeds[s.Seed] = true
		}
	})
}

func TestSearchOfAServerThatIsTooSlow(t *testing.T) {
	found, err := Search(t.Context(), searchOf(time.Second, 200))
	if err != nil || found.Good != nil || len(found.Steps) != 0 || found.Floor.Good {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestSearchEndsWithWhatItHas(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := searchOf(10*ms, 200)
	o.Step = func(s SearchStep) {
		if s.Rate >= 8 {
			cancel()
		}
	}
	found, err := Search(ctx, o)
	if err != nil || found.Partial == "" || len(found.Steps) == 0 || found.Good != nil {
		t.Errorf("interrupted: %+v, %v", found, err)
	}
	o = searchOf(10*ms, 200)
	broken := errors.New("broken")
	o.Settle = func(context.Context) error { return broken }
	if _, err := Search(t.Context(), o); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if _, err := Search(t.Context(), SearchOptions{}); err == nil {
		t.Error("a search for nothing begins")
	}
}
