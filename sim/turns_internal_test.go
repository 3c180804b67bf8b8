package sim

import (
	"testing"

	"pgregory.net/rapid"
)

// TestInbox holds an inbox against a plain queue, which also while it is never
// empty keeps no more than it needs.
func TestInbox(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b inbox
		next, taken, most := int32(0), int32(0), 0
		for range rapid.IntRange(1, 200).Draw(t, "turns") {
			for range rapid.IntRange(0, 3).Draw(t, "come") {
				b.push(next, int64(next))
				next++
			}
			most = max(most, b.len())
			for range rapid.IntRange(0, 3).Draw(t, "are taken") {
				i, ok := b.pop(int64(next))
				if ok != (taken < next) || ok && i != taken {
					t.Fatalf("took %d (%v), want %d of %d", i, ok, taken, next)
				}
				if ok {
					taken++
				}
			}
			if b.len() != int(next-taken) || len(b.requests) > 2*most+3 || len(b.at) != len(b.requests) {
				t.Fatalf("%d wait in memory for %d, want %d; at most %d did", b.len(), len(b.requests), next-taken, most)
			}
			if _, ok := b.pop(int64(taken) - 1); ok {
				t.Fatal("took one that is not there yet")
			}
		}
	})
}
