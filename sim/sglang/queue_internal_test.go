package sglang

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// crowded is a scheduler that has made no batch yet, with so many requests in
// its queue.
func crowded(t interface{ Fatal(...any) }, n int) *Scheduler {
	rules, err := RulesOf("")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Rules: rules, Pool: 1000, Page: 1, Chunk: 100, MaxPrefill: 100, Seats: 4, Conservativeness: 1})
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := s.Add(Request{Prompt: 10, MaxNew: 5}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestLeavingMovesFew lets the oldest requests leave a queue, by themselves and
// into a batch: those behind them stay where they are, so that the cost does not
// grow with the queue.
func TestLeavingMovesFew(t *testing.T) {
	s := crowded(t, 1000)
	last := &s.waiting[999]
	for id := range int32(100) {
		s.Cancel(id)
	}
	if len(s.waiting) != 900 || &s.waiting[899] != last {
		t.Fatalf("%d wait, want the last of 900 where it was", len(s.waiting))
	}
	b, err := s.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(b.Requests); n == 0 || len(s.waiting) != 900-n || &s.waiting[899-n] != last {
		t.Fatalf("%d are admitted and %d wait, want the last where it was", n, len(s.waiting))
	}
	for range 2000 {
		s.Cancel(s.waiting[0])
		if _, err := s.Add(Request{Prompt: 10, MaxNew: 5}); err != nil {
			t.Fatal(err)
		}
	}
	if cap(s.line) > 5000 {
		t.Errorf("memory for %d requests while 900 wait: the room of those who left is not used", cap(s.line))
	}
}

// TestLeavingTheQueue holds the queue against a plain list.
func TestLeavingTheQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := crowded(t, 0)
		var want []int32
		for range rapid.IntRange(1, 80).Draw(t, "calls") {
			if n := len(want); n > 0 && rapid.IntRange(0, 2).Draw(t, "leaves") == 0 {
				i := rapid.IntRange(0, n-1).Draw(t, "which")
				if !s.Cancel(want[i]) {
					t.Fatalf("request %d is not there", want[i])
				}
				want = slices.Delete(want, i, i+1)
			} else {
				id, err := s.Add(Request{Prompt: 10, MaxNew: 5})
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, id)
			}
			if !slices.Equal(s.waiting, want) || s.Waiting() != len(want) {
				t.Fatalf("%v wait, want %v", s.waiting, want)
			}
		}
	})
}
