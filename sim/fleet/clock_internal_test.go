package fleet

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestClock holds the tree against a look at all times.
func TestClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "replicas")
		list, tree := clockOf(n, n), clockOf(n, 0)
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			k, at := rapid.IntRange(0, n-1).Draw(t, "replica"), int64(rapid.IntRange(0, 9).Draw(t, "time"))
			if at == 9 {
				at = idle
			}
			list.set(k, at)
			tree.set(k, at)
			want, when := list.earliest()
			if got, at := tree.earliest(); got != want || at != when {
				t.Fatalf("%v: replica %d at %d is first, want %d at %d", list.at, got, at, want, when)
			}
		}
	})
}

// BenchmarkClock lets the earliest of some replicas move on. From 16 replicas
// on the tree is faster.
func BenchmarkClock(b *testing.B) {
	for _, n := range []int{2, 4, 8, 16, 32, 256} {
		for _, most := range []int{n, 0} {
			name := "tree"
			if most > 0 {
				name = "list"
			}
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				c, draws := clockOf(n, most), rand.New(rand.NewPCG(1, 2))
				for k := range n {
					c.set(k, draws.Int64N(1000))
				}
				for b.Loop() {
					k, at := c.earliest()
					c.set(k, at+500+int64(k)*7%1000)
				}
			})
		}
	}
}
