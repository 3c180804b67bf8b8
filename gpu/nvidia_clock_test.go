package gpu

import (
	"testing"
	"time"
)

func TestToolClock(t *testing.T) {
	begin := time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)
	ms := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Millisecond) }
	var c toolClock
	for _, step := range []struct {
		why   string
		stamp string
		now   time.Time
		want  time.Time
	}{
		{"the first line comes when it comes, in another zone", "2026/01/05 10:00:00.000", ms(50), ms(50)},
		{"the next took less time", "2026/01/05 10:00:00.100", ms(110), ms(110)},
		{"this one was held up", "2026/01/05 10:00:00.200", ms(400), ms(210)},
		{"and came with this one", "2026/01/05 10:00:00.300", ms(400), ms(310)},
		{"no stamp", "[N/A]", ms(500), ms(500)},
		{"a stamp of long ago", "0001/01/01 00:00:00.000", ms(600), ms(600)},
		{"the tool's clock was set back an hour", "2026/01/05 09:00:00.600", ms(620), ms(620)},
		{"and goes on", "2026/01/05 09:00:00.700", ms(900), ms(720)},
	} {
		if got := c.at(step.stamp, step.now); !got.Equal(step.want) {
			t.Errorf("%s: got %v, want %v", step.why, got.Sub(begin), step.want.Sub(begin))
		}
	}
}

func TestCycleIsPrompt(t *testing.T) {
	var taken int
	cycle := nvidiaCycle{take: func(s Snapshot) { taken += len(s.Readings) }}
	for _, step := range []struct {
		line string
		want int
	}{
		{"index, memory.used [MiB]", 0},
		{"0, 1", 0},
		{"1, 1", 0}, // is that all?
		{"0, 2", 2}, // it was
		{"1, 2", 4},
		{"0, 3", 4},
		{"0, 4", 6}, // the other device has fallen out
		{"1, 4", 6}, // and is there again
		{"0, 5", 7},
		{"1, 5", 9},
	} {
		if cycle.line(step.line, time.Now()); taken != step.want {
			t.Errorf("after %q: %d readings taken, want %d", step.line, taken, step.want)
		}
	}
}
