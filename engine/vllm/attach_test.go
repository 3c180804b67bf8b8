package vllm_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/vllm"
	"github.com/llmprof/llmprof/profile"
)

func TestAttach(t *testing.T) {
	f := newFake()
	f.slow = 0
	url, log := f.attachable(t)
	// What stands in the log from before is not the session's.
	for n := range 50 {
		fmt.Fprintf(log, "Iteration(%d): 1 context requests, 64 context tokens, 0 generation requests, 0 generation tokens, iteration elapsed time: 9.00 ms\n", 1000+n)
	}
	s, err := (&vllm.Server{URL: url + "/v1/", Log: log}).Start(t.Context(), f, engine.Setup{Model: "/m/tiny", TaskTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	facts := s.Facts()
	if facts.Version != "0.32.0" || facts.MaxModelLen != 2048 || !strings.Contains(fmt.Sprint(facts.Warnings), "attached to a running server") {
		t.Errorf("facts %+v", facts)
	}
	for _, r := range measured(t, s, []engine.Task{stepTask(1, 2, 1, 64, 4), stepTask(2, 2, 4, 32, 4)}) {
		if r.Failure != "" || len(r.Points) < 2 || len(r.Points[0].Samples) < 2 {
			t.Errorf("%+v: %q, %+v", *r.Task.Step, r.Failure, r.Points)
			continue
		}
		if p := r.Points[0]; p.Step.Mode != profile.Prefill || p.Samples[0] > 8.9e-3 {
			t.Errorf("prefill %+v", p)
		}
	}
	if f.pauses > 0 {
		t.Error("a server of others was paused")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if f.count() == 0 {
		t.Error("no steps")
	}
	select {
	case <-f.closed:
		t.Error("a server of others was ended")
	default:
	}
}

// TestAttachLearnsBudget has a batch beyond the budget of a server whose
// limits nobody told.
func TestAttachLearnsBudget(t *testing.T) {
	f := newFake()
	f.slow, f.budget = 0, 256
	url, log := f.attachable(t)
	s, err := (&vllm.Server{URL: url, Log: log}).Start(t.Context(), f, engine.Setup{TaskTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := measured(t, s, []engine.Task{stepTask(1, 2, 4, 100, 4)})[0]
	if !strings.HasSuffix(r.Failure, "400 prompt tokens, and a step holds at most 256") {
		t.Errorf("failure %q, points %+v", r.Failure, r.Points)
	}
}

func TestAttachRefused(t *testing.T) {
	silent := newFake()
	silent.silent = true
	url, log := silent.attachable(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port on which nobody answers
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String()
	l.Close()
	for _, c := range []struct {
		why, want, hint string
		driver          vllm.Server
		model           string
	}{
		{"no log", "no log of the server at", "--enable-logging-iteration-details", vllm.Server{URL: url}, ""},
		{"a log without iterations", "the server's log tells no iterations", "vllm serve MODEL --enable-logging-iteration-details", vllm.Server{URL: url, Log: log}, ""},
		{"nobody there", "unreachable", "check address and port", vllm.Server{URL: nobody, Log: newGrowing()}, ""},
	} {
		t.Run(c.why, func(t *testing.T) {
			_, err := c.driver.Start(t.Context(), silent, engine.Setup{Model: c.model, TaskTimeout: 300 * time.Millisecond})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(hintOf(err), c.hint) {
				t.Errorf("error %v, hint %q; want %s, %s", err, hintOf(err), c.want, c.hint)
			}
		})
	}
}
