package fleet

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestWindowOfAClosedLoop holds the steady part of a closed loop, which is counted
// while it lasts, against one that is found when all is known; and that what is
// kept does not grow with the run.
func TestWindowOfAClosedLoop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := window{full: none, target: 3}
		var all []gapEntry
		var first, final, now, full int64
		full = none
		open, sent := 0, 0
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			now += rapid.Int64Range(0, 2).Draw(t, "later")
			switch what := rapid.IntRange(0, 4).Draw(t, "what"); {
			case what == 0:
				if open++; sent == 0 {
					first = now
				}
				sent, final = sent+1, now
				if open >= w.target && full == none {
					full = now
				}
				w.opened(now, open)
				if kept := slices.IndexFunc(w.log, func(e gapEntry) bool { return full != none || e.at < now }); kept >= 0 {
					t.Fatalf("%+v is kept after the send at %d, full since %d", w.log[kept], now, full)
				}
			case what == 1 && open > 0:
				open--
			case what == 2:
				n := rapid.IntRange(1, 3).Draw(t, "tokens")
				all = append(all, gapEntry{now, none, n})
				w.tokens(now, n)
			case what == 3:
				e := gapEntry{now, rapid.Int64Range(1, 300).Draw(t, "gap"), rapid.IntRange(1, 3).Draw(t, "gaps")}
				all = append(all, e)
				w.gap(e.at, e.gap, e.n)
			case what == 4 && len(all) > 0:
				e := &all[rapid.IntRange(0, len(all)-1).Draw(t, "taken out")]
				if e.n == 0 {
					continue
				}
				e.n--
				if e.gap == none {
					w.tokens(e.at, -1)
				} else {
					w.ungap(e.at, e.gap)
				}
			}
		}
		w.close(first, final)
		from := final
		if full != none {
			from = full
		}
		var want window
		for _, e := range all {
			switch {
			case e.at < from || e.at > final:
			case e.gap == none:
				want.streamed += int64(e.n)
			default:
				want.steady.add(e.gap, e.n)
			}
		}
		if got := &w.steady; w.streamed != want.streamed || got.n != want.steady.n || got.sum != want.steady.sum || got.squares != want.steady.squares {
			t.Fatalf("%d tokens and gaps %+v, want %d and %+v", w.streamed, got, want.streamed, want.steady)
		}
	})
}
