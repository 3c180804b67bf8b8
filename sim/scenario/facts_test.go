package scenario_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/sim/scenario"
)

// fact is one rule on the smallest load that shows it, worked out by hand.
type fact struct {
	why    string
	config string   // changes to the standard replica
	load   []string // lines of requests, without "req"
	want   []string // "step N" or "end" with some fields; "no step N"
}

// standard is 16 usable blocks of 4 tokens, 16 tokens a step, 4 seats.
const standard = "vllm=0.33.0 num_blocks=17 block_size=4 max_num_batched_tokens=16 max_num_seqs=4 max_model_len=32"

// text is the fact as a scenario.
func (f fact) text() string {
	settings := map[string]string{}
	for _, word := range strings.Fields(standard + " " + f.config) {
		key, value, _ := strings.Cut(word, "=")
		settings[key] = value
	}
	text := "config"
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		text += " " + key + "=" + settings[key]
	}
	for _, line := range f.load {
		text += "\nreq " + line
	}
	return text + "\n"
}

// check decides the load and looks for what is wanted.
func (f fact) check(t *testing.T) {
	schedule, _, err := scenario.Run("fact", strings.NewReader(f.text()))
	if err != nil {
		t.Fatalf("%s: %v\n%s", f.why, err, f.text())
	}
	lines := map[string][]string{}
	for line := range strings.Lines(schedule) {
		words := strings.Fields(line)
		if words[0] == "step" {
			words = append([]string{"step " + words[1]}, words[2:]...)
		}
		lines[words[0]] = words[1:]
	}
	for _, want := range f.want {
		if absent, ok := strings.CutPrefix(want, "no "); ok {
			if lines[absent] != nil {
				t.Errorf("%s: there is a %s", f.why, absent)
			}
			continue
		}
		words := strings.Fields(want)
		at := words[0]
		if at == "step" {
			at, words = "step "+words[1], words[1:]
		}
		for _, field := range words[1:] {
			if !slices.Contains(lines[at], field) {
				t.Errorf("%s: %s wants %s\n%s%s", f.why, at, field, f.text(), schedule)
			}
		}
	}
}

func checkFacts(t *testing.T, facts []fact) {
	t.Helper()
	for _, f := range facts {
		t.Run(f.why, f.check)
	}
}

func TestFactsOfBudget(t *testing.T) {
	checkFacts(t, []fact{
		{
			why:  "a prompt longer than the budget is cut to it, and puts out nothing before its end",
			load: []string{"A arrival=1 prompt=20 output=1"},
			want: []string{"step 1 sched=A:16 out=-", "step 2 sched=A:4 out=A:1 finish=A", "no step 3"},
		},
		{
			why:  "one token beyond the budget costs a step of its own",
			load: []string{"A arrival=1 prompt=17 output=1"},
			want: []string{"step 1 sched=A:16 out=-", "step 2 sched=A:1 out=A:1"},
		},
		{
			why:  "a decode comes first, an admission gets what it leaves",
			load: []string{"A arrival=1 prompt=4 output=4", "B arrival=2 prompt=20 output=1"},
			want: []string{"step 2 sched=A:1,B:15", "step 3 sched=A:1,B:5 out=A:3,B:1"},
		},
		{
			why:  "a prompt under way stands at its place in the list: a decode behind it is served after it",
			load: []string{"A arrival=1 prompt=14 output=3", "B arrival=1 prompt=3 output=3"},
			want: []string{"step 1 sched=A:14,B:2 out=A:1", "step 2 sched=A:1,B:1 out=A:2,B:1"},
		},
		{
			why:  "without budget nobody is admitted, whatever is free",
			load: []string{"A arrival=1 prompt=16 output=2", "B arrival=1 prompt=1 output=1"},
			want: []string{"step 1 sched=A:16 wait=B", "step 2 sched=A:1,B:1"},
		},
		{
			why:  "two prompts share a budget, the second is cut",
			load: []string{"A arrival=1 prompt=10 output=2", "B arrival=1 prompt=10 output=1"},
			want: []string{"step 1 sched=A:10,B:6 out=A:1", "step 2 sched=A:1,B:4 out=A:2,B:1"},
		},
		{
			why: "a seat that is given up is taken in the next step", config: "max_num_seqs=1",
			load: []string{"A arrival=1 prompt=4 output=2", "B arrival=1 prompt=4 output=1"},
			want: []string{"step 1 run=A wait=B", "step 2 sched=A:1 wait=B finish=A", "step 3 sched=B:4 run=B"},
		},
		{
			why:  "equal arrivals keep the order in which they stand",
			load: []string{"B arrival=1 prompt=2 output=1", "A arrival=1 prompt=2 output=1"},
			want: []string{"step 1 sched=B:2,A:2"},
		},
		{
			why:  "an earlier arrival goes first wherever it stands",
			load: []string{"B arrival=2 prompt=2 output=1", "A arrival=1 prompt=2 output=2"},
			want: []string{"step 1 sched=A:2", "step 2 sched=A:1,B:2"},
		},
		{
			why:  "steps with nothing to do are not steps",
			load: []string{"A arrival=1 prompt=4 output=1", "B arrival=5 prompt=4 output=1"},
			want: []string{"no step 2", "no step 4", "step 5 sched=B:4", "end steps=2"},
		},
		{
			why: "prompt and output end at max_model_len", config: "max_model_len=12",
			load: []string{"A arrival=1 prompt=11 output=5"},
			want: []string{"step 1 out=A:1 finish=A", "no step 2"},
		},
		{
			why: "an output that ends at max_model_len is whole", config: "max_model_len=12",
			load: []string{"A arrival=1 prompt=9 output=3"},
			want: []string{"step 3 out=A:3 finish=A", "no step 4"},
		},
	})
}

func TestFactsOfLongPrompts(t *testing.T) {
	whole := "chunked=0 max_num_batched_tokens=32"
	queue := []string{"A arrival=1 prompt=20 output=1", "B arrival=1 prompt=14 output=2", "C arrival=1 prompt=13 output=1", "D arrival=1 prompt=2 output=2"}
	checkFacts(t, []fact{
		{
			why: "whole prompts: a head longer than what is left stops the pass", config: whole, load: queue,
			want: []string{"step 1 sched=A:20 wait=B,C,D", "step 2 sched=B:14,C:13,D:2"},
		},
		{
			why: "to 0.11.2 such a head is set aside, the next may run, and those set aside return reversed", config: whole + " vllm=0.11.2", load: queue,
			want: []string{"step 1 sched=A:20,D:2 wait=C,B", "step 2 sched=D:1,C:13,B:14"},
		},
		{
			why: "from 0.12 it stops the pass", config: whole + " vllm=0.12.0", load: queue,
			want: []string{"step 1 sched=A:20 wait=B,C,D"},
		},
		{
			why: "the threshold comes before the test of whole prompts, so a long one is cut all the same", config: whole + " threshold=8",
			load: []string{"A arrival=1 prompt=20 output=1", "B arrival=1 prompt=14 output=2"},
			want: []string{"step 1 sched=A:8,B:8", "step 2 sched=A:8,B:6", "step 3 sched=A:4,B:1"},
		},
		{
			why: "the threshold does not cut a request that is alone", config: "threshold=3",
			load: []string{"A arrival=1 prompt=8 output=1"},
			want: []string{"step 1 sched=A:8 out=A:1"},
		},
		{
			why: "before 0.31 it does", config: "threshold=3 vllm=0.30.0",
			load: []string{"A arrival=1 prompt=8 output=1"},
			want: []string{"step 1 sched=A:3", "step 2 sched=A:3", "step 3 sched=A:2 out=A:1"},
		},
		{
			why: "it cuts where two are present, and no more when the other has gone", config: "threshold=3",
			load: []string{"A arrival=1 prompt=9 output=1", "B arrival=1 prompt=2 output=1"},
			want: []string{"step 1 sched=A:3,B:2 finish=B", "step 2 sched=A:6 out=A:1"},
		},
		{
			why: "one that waits is present too", config: "threshold=3 max_num_seqs=1",
			load: []string{"A arrival=1 prompt=8 output=1", "B arrival=1 prompt=2 output=1"},
			want: []string{"step 1 sched=A:3 wait=B"},
		},
		{
			why: "a threshold above the need changes nothing", config: "threshold=9",
			load: []string{"A arrival=1 prompt=8 output=1", "B arrival=1 prompt=2 output=1"},
			want: []string{"step 1 sched=A:8,B:2"},
		},
	})
}

func TestFactsOfBlocks(t *testing.T) {
	small := "num_blocks=9 max_num_batched_tokens=32 prefix_caching=0"
	pair := []string{"A arrival=1 prompt=8 output=4", "B arrival=2 prompt=20 output=1"}
	gated := []string{"A arrival=1 prompt=12 output=8", "B arrival=2 prompt=24 output=1"}
	checkFacts(t, []fact{
		{
			why:  "one block of the pool is never used",
			load: []string{"A arrival=1 prompt=4 output=1"},
			want: []string{"step 1 free=15 end_free=16"},
		},
		{
			why:  "blocks are taken for the tokens of the step, not for the whole prompt",
			load: []string{"A arrival=1 prompt=20 output=1"},
			want: []string{"step 1 free=12", "step 2 free=11"},
		},
		{
			why:  "the token after a full block takes a new one",
			load: []string{"A arrival=1 prompt=4 output=2"},
			want: []string{"step 1 free=15", "step 2 free=14"},
		},
		{
			why:  "a token that fits takes none",
			load: []string{"A arrival=1 prompt=3 output=3"},
			want: []string{"step 2 free=15", "step 3 free=14"},
		},
		{
			why:  "the last token put out needs no KV",
			load: []string{"A arrival=1 prompt=3 output=2"},
			want: []string{"step 2 free=15 finish=A"},
		},
		{
			why: "blocks must be free for all tokens of a request before its first piece runs", config: "num_blocks=9 max_num_batched_tokens=8", load: gated,
			want: []string{"step 2 sched=A:4 wait=B free=5"},
		},
		{
			why: "with reserve_full_isl off for its first piece only", config: "num_blocks=9 max_num_batched_tokens=8 reserve_full_isl=0", load: gated,
			want: []string{"step 2 sched=A:4,B:4 wait=- free=4"},
		},
		{
			why: "before 0.19 there is no such gate", config: "num_blocks=9 max_num_batched_tokens=8 vllm=0.18.0", load: gated,
			want: []string{"step 2 sched=A:4,B:4"},
		},
		{
			why: "from 0.19 there is", config: "num_blocks=9 max_num_batched_tokens=8 vllm=0.19.0", load: gated,
			want: []string{"step 2 sched=A:4 wait=B"},
		},
		{
			why: "an admission leaves the watermark free while others run", config: small + " watermark=0.25", load: pair,
			want: []string{"step 2 sched=A:1 wait=B free=5", "step 5 sched=B:20"},
		},
		{
			why: "without it the request is admitted", config: small, load: pair,
			want: []string{"step 2 sched=A:1,B:20 free=0"},
		},
		{
			why: "the watermark is rounded down to blocks: 0.11 of 9 is none", config: small + " watermark=0.11", load: pair,
			want: []string{"step 2 sched=A:1,B:20"},
		},
		{
			why: "releases before 0.24 have no watermark", config: small + " watermark=0.25 vllm=0.23.0", load: pair,
			want: []string{"step 2 sched=A:1,B:20"},
		},
		{
			why: "with nothing running the watermark does not count", config: small + " watermark=0.5",
			load: []string{"A arrival=1 prompt=31 output=1"},
			want: []string{"step 1 sched=A:31 free=0"},
		},
		{
			why: "whoever does not fit holds up those behind", config: small,
			load: []string{"A arrival=1 prompt=16 output=3", "B arrival=2 prompt=20 output=1", "C arrival=2 prompt=1 output=1"},
			want: []string{"step 2 sched=A:1 wait=B,C free=3", "step 4 sched=B:20,C:1"},
		},
	})
}

func TestFactsOfCache(t *testing.T) {
	roomy := "max_num_batched_tokens=32"
	tight := "num_blocks=9 max_num_batched_tokens=32"
	turns := []string{
		"A arrival=1 prompt=9 output=1 group=P shared=8", "B arrival=2 prompt=9 output=1 group=Q shared=8",
		"C arrival=3 prompt=9 output=1 group=P shared=8", "D arrival=4 prompt=24 output=1",
	}
	checkFacts(t, []fact{
		{
			why: "only full blocks are found", config: roomy,
			load: []string{"A arrival=1 prompt=10 output=1 group=P shared=6", "B arrival=2 prompt=10 output=1 group=P shared=6"},
			want: []string{"step 2 hit=B:4 sched=B:6"},
		},
		{
			why: "the last token is always computed", config: roomy,
			load: []string{"A arrival=1 prompt=8 output=1 group=P shared=8", "B arrival=2 prompt=8 output=1 group=P shared=8"},
			want: []string{"step 2 hit=B:4 sched=B:4"},
		},
		{
			why: "with one token more both blocks are found", config: roomy,
			load: []string{"A arrival=1 prompt=9 output=1 group=P shared=8", "B arrival=2 prompt=9 output=1 group=P shared=8"},
			want: []string{"step 2 hit=B:8 sched=B:1"},
		},
		{
			why: "a block is found in the pass that gives it out, and counts once", config: roomy,
			load: []string{"A arrival=1 prompt=9 output=1 group=P shared=8", "B arrival=1 prompt=9 output=1 group=P shared=8"},
			want: []string{"step 1 sched=A:9,B:1 hit=A:0,B:8 free=12 end_free=16"},
		},
		{
			why: "without a cache nothing is found", config: roomy + " prefix_caching=0",
			load: []string{"A arrival=1 prompt=9 output=1 group=P shared=8", "B arrival=2 prompt=9 output=1 group=P shared=8"},
			want: []string{"step 2 hit=B:0 sched=B:9 evict=-"},
		},
		{
			why: "groups have nothing in common", config: roomy,
			load: []string{"A arrival=1 prompt=9 output=1 group=P shared=8", "B arrival=2 prompt=9 output=1 group=Q shared=8"},
			want: []string{"step 2 hit=B:0"},
		},
		{
			why: "the smaller share counts", config: roomy,
			load: []string{"A arrival=1 prompt=16 output=1 group=P shared=12", "B arrival=2 prompt=16 output=1 group=P shared=8"},
			want: []string{"step 2 hit=B:8 sched=B:8"},
		},
		{
			why: "of a prompt in pieces only what was given blocks can be found", config: "max_num_batched_tokens=10",
			load: []string{"A arrival=1 prompt=13 output=2 group=P shared=12", "B arrival=2 prompt=13 output=1 group=P shared=12"},
			want: []string{"step 1 sched=A:10", "step 2 sched=A:3,B:1 hit=B:12"},
		},
		{
			why: "freed blocks without content are used before cached ones", config: tight,
			load: []string{"A arrival=1 prompt=10 output=1", "B arrival=2 prompt=21 output=1"},
			want: []string{"step 2 free=2 evict=-"},
		},
		{
			why: "before 0.24 all freed blocks queue in one order", config: tight + " vllm=0.23.0",
			load: []string{"A arrival=1 prompt=10 output=1", "B arrival=2 prompt=25 output=1"},
			want: []string{"step 2 free=1 evict=A#1"},
		},
		{
			why: "the end of a prefix goes before its start", config: tight,
			load: []string{"A arrival=1 prompt=12 output=1", "B arrival=2 prompt=28 output=1"},
			want: []string{"step 2 evict=A#2,A#1"},
		},
		{
			why: "what was found again goes last", config: tight, load: turns,
			want: []string{"step 3 hit=C:8", "step 4 evict=Q#1,Q#0"},
		},
		{
			why: "a block of output is found by nobody else", config: roomy,
			load: []string{"A arrival=1 prompt=4 output=6 group=P shared=4", "B arrival=7 prompt=9 output=1 group=P shared=4"},
			want: []string{"step 7 hit=B:4"},
		},
		{
			why: "a hit on a free block takes it out of the free list, which the gate counts", config: "num_blocks=5 max_num_batched_tokens=16 max_model_len=16",
			load: []string{"A arrival=1 prompt=9 output=1 group=P shared=8", "B arrival=2 prompt=8 output=2", "C arrival=2 prompt=9 output=1 group=P shared=8"},
			want: []string{"step 2 sched=B:8 wait=C free=2"},
		},
	})
}
