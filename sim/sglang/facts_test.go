package sglang_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/sim/sglang"
)

// TestFacts checks single rules, worked out by hand: each wants some fields of
// one step.
func TestFacts(t *testing.T) {
	const small = "pool=40 page=1 chunk=32 max_prefill=64 seats=8 policy=fcfs overlap=0"
	const pair = "req A arrival=1 prompt=10 max_new=9\nreq B arrival=1 prompt=10 max_new=9\n"
	const ends = "req A arrival=1 prompt=6 max_new=2\nreq E arrival=1 prompt=6 max_new=8\n"
	const overlap = "pool=200 page=1 chunk=32 max_prefill=64 seats=8 policy=fcfs overlap=1"
	for _, c := range []struct {
		why, release, config, requests string
		step                           int
		want                           string
	}{
		{"0.5.5: 10+9 < 40-19, no page anywhere", "0.5.5", small, pair, 1, "sched=A:10,B:10 full=0"},
		{"0.5.10: 10+9 < 40-20, the batch counts a page; then nothing is left", "0.5.10", small, pair, 1, "sched=A:10,B:10 full=1"},
		{"0.5.16: 10+9+1 is not below 40-20", "0.5.16", small, pair, 1, "sched=A:10 wait=B full=1"},
		{"the flag is lost when A's batch becomes the running one", "0.5.16", small, pair, 2, "sched=B:10 run=A full=0"},
		{"0.4.1 has one flag, which only a leaving request clears", "0.4.1", small, "req A arrival=1 prompt=10 max_new=9\nreq B arrival=1 prompt=20 max_new=9\n", 2, "kind=decode wait=B full=1"},
		{"an end by length wastes a slot up to 0.5.16", "0.5.16", overlap, ends, 3, "sched=A:1,E:1 out=A:2,E:2 finish=A"},
		{"0.5.23 knows it and leaves A out", "0.5.23", overlap, ends, 3, "sched=E:1 out=A:2,E:2 finish=A"},
		{"0.5.5 frees the wasted slot: 7 of A stay in the tree", "0.5.5", overlap, ends, 4, "evictable=7 out=A:wasted,E:3 end_free=184"},
		{"0.5.10 keeps it in the tree: 8", "0.5.10", overlap, ends, 4, "evictable=8 out=A:wasted,E:3 end_free=183"},
		{"a chunk of 24 with pages of 16 is cut to 16", "0.5.10", "pool=320 page=16 chunk=24 max_prefill=64 seats=8 policy=fcfs overlap=0", "req A arrival=1 prompt=50 max_new=3\n", 1, "sched=A:16 chunked=A"},
		{"0.4.7 takes the chunk less a page and one: 24-15", "0.4.7", "pool=320 page=16 chunk=24 max_prefill=64 seats=8 policy=fcfs overlap=0", "req A arrival=1 prompt=50 max_new=3\n", 1, "sched=A:9 chunked=A"},
		{"0.5.16 counts the piece twice: 3 seats, A runs, B goes on, C waits", "0.5.16", "pool=200 page=1 chunk=16 max_prefill=64 seats=3 policy=fcfs overlap=0", "req A arrival=1 prompt=6 max_new=9\nreq B arrival=1 prompt=20 max_new=3\nreq C arrival=2 prompt=3 max_new=3\n", 2, "sched=B:10 wait=C full=1"},
		{"but an ended one that still runs makes up for it", "0.5.16", "pool=200 page=1 chunk=16 max_prefill=64 seats=3 policy=fcfs overlap=0", "req A arrival=1 prompt=6 max_new=2\nreq B arrival=3 prompt=20 max_new=3\nreq C arrival=4 prompt=3 max_new=3\n", 4, "sched=B:4,C:3 run=A"},
		{"lof: the largest max_new first", "", "pool=90 page=1 chunk=10 max_prefill=64 seats=8 policy=lof overlap=0", "req A arrival=1 prompt=10 max_new=2\nreq B arrival=1 prompt=10 max_new=5\nreq C arrival=1 prompt=10 max_new=5\n", 1, "sched=B:10 wait=C,A"},
		{"shortest prefill first", "", "pool=90 page=1 chunk=12 max_prefill=64 seats=8 policy=shortest-prefill-first overlap=0", "req A arrival=1 prompt=10 max_new=2\nreq B arrival=1 prompt=8 max_new=2\nreq C arrival=1 prompt=4 max_new=2\n", 1, "sched=C:4,B:8 wait=A"},
		{"and a long one in pieces leaves room for them", "", "pool=90 page=1 chunk=12 max_prefill=64 seats=8 policy=shortest-prefill-first overlap=0", "req A arrival=1 prompt=30 max_new=2\nreq B arrival=2 prompt=5 max_new=2\n", 2, "sched=A:7,B:5 cached=A:12,B:0 chunked=A"},
		{"routing keys that run go first", "", "pool=90 page=1 chunk=10 max_prefill=64 seats=8 policy=routing-key overlap=0", "req A arrival=1 prompt=10 max_new=9 routing=7\nreq B arrival=2 prompt=10 max_new=2 routing=3\nreq C arrival=2 prompt=10 max_new=2 routing=7\n", 2, "sched=C:10 wait=B"},
		{"heaviest branch first: two wait below g, one beside", "", "pool=300 page=1 chunk=9 max_prefill=64 seats=8 policy=dfs-weight overlap=0", "req A arrival=1 prompt=9 max_new=1 group=h shared=9\nreq B arrival=2 prompt=9 max_new=1 group=g shared=9\nreq C arrival=5 prompt=12 max_new=2 group=h shared=9\nreq D arrival=5 prompt=12 max_new=2 group=g shared=9\nreq E arrival=5 prompt=12 max_new=2 group=g shared=9\n", 5, "sched=D:3,E:3,C:3 cached=D:9,E:9,C:9"},
		{"without a cache lpm is fcfs", "", "pool=90 page=1 chunk=10 max_prefill=64 seats=8 policy=lpm cache=0 overlap=0", "req A arrival=1 prompt=10 max_new=2\nreq B arrival=1 prompt=4 max_new=2\n", 1, "sched=A:10 wait=B"},
		{"requests that ignore EOS count whole while they run: 90-10-50 is less than 35", "", "pool=90 page=1 chunk=32 max_prefill=64 seats=8 policy=fcfs overlap=0", "req A arrival=1 prompt=10 max_new=50 ignore_eos=1\nreq B arrival=2 prompt=10 max_new=24\n", 2, "kind=decode wait=B full=1"},
		{"before 0.5.23 they count by the ratio: 90-10-34 is more", "0.5.16", "pool=90 page=1 chunk=32 max_prefill=64 seats=8 policy=fcfs overlap=0", "req A arrival=1 prompt=10 max_new=50 ignore_eos=1\nreq B arrival=2 prompt=10 max_new=24\n", 2, "sched=B:10 run=A"},
		{"retraction by priority puts the less important back", "", "pool=60 page=1 chunk=64 max_prefill=64 seats=8 policy=fcfs conservativeness=0.1 overlap=0 retraction=priority priority=1", "req A arrival=1 prompt=10 max_new=20 priority=1\nreq B arrival=1 prompt=14 max_new=20 priority=9\nreq C arrival=3 prompt=12 max_new=20 priority=5\n", 12, "kind=decode retract=A"},
		{"the ratio falls to 0.14 of its start and stays", "", "pool=4000 page=1 chunk=64 max_prefill=64 seats=8 policy=fcfs overlap=0", "req A arrival=1 prompt=10 max_new=700\n", 699, "ratio=0.0980"},
	} {
		t.Run(c.why, func(t *testing.T) {
			text := c.config + "\n" + c.requests
			if c.release != "" {
				text = "sglang=" + c.release + " " + text
			}
			schedule, _, err := sglang.Run("fact", strings.NewReader("config "+text))
			if err != nil {
				t.Fatal(err)
			}
			line := stepLine(schedule, c.step)
			for want := range strings.FieldsSeq(c.want) {
				if !strings.Contains(" "+line+" ", " "+want+" ") {
					t.Errorf("want %s in\n%s", want, line)
				}
			}
		})
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
