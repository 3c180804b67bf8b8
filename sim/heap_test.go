package sim_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/sim"
)

// rank is an item of a heap.
type rank int

// Before orders ranks.
func (r rank) Before(o rank) bool { return r < o }

// TestHeap holds a heap against a sorted list.
func TestHeap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h sim.Heap[rank]
		var plain []rank
		for _, n := range rapid.SliceOf(rapid.IntRange(-2, 30)).Draw(t, "items") {
			if n >= 0 {
				h.Push(rank(n))
				plain = append(plain, rank(n))
				slices.Sort(plain)
			} else if len(plain) > 0 {
				if got := h.Pop(); got != plain[0] {
					t.Fatalf("took %d, want %d", got, plain[0])
				}
				plain = plain[1:]
			}
		}
		for _, want := range plain {
			if got := h.Pop(); got != want {
				t.Fatalf("took %d, want %d", got, want)
			}
		}
		if len(h) != 0 {
			t.Fatalf("%d are left", len(h))
		}
	})
}
