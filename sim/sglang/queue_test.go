package sglang_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/sim/sglang"
)

// TestQueueTooLong holds lpm to giving up above 128 waiting requests: the only
// one with a hit comes last and is tried first only below that.
func TestQueueTooLong(t *testing.T) {
	for _, c := range []struct {
		waiting int
		first   string
	}{{128, "Z:1"}, {129, "R0:9"}} {
		for _, release := range sglang.Releases() {
			var b strings.Builder
			fmt.Fprintf(&b, "config sglang=%s pool=9000 page=1 chunk=-1 max_prefill=9 seats=4 policy=lpm overlap=0\n", release)
			b.WriteString("req S arrival=1 prompt=40 max_new=1 group=g shared=39\n")
			for i := range c.waiting - 1 {
				fmt.Fprintf(&b, "req R%d arrival=4 prompt=9 max_new=1\n", i)
			}
			b.WriteString("req Z arrival=4 prompt=40 max_new=1 group=g shared=39\n")
			schedule, _, err := sglang.Run("queue", strings.NewReader(b.String()))
			if err != nil {
				t.Fatal(err)
			}
			if line := stepLine(schedule, 4); !strings.Contains(line, "sched="+c.first) {
				t.Errorf("release %s, %d waiting: want %s first in\n%.120s", release, c.waiting, c.first, line)
			}
		}
	}
}

// stepLine is the line of an iteration.
func stepLine(schedule string, step int) string {
	for line := range strings.Lines(schedule) {
		if strings.HasPrefix(line, fmt.Sprintf("step %d ", step)) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
