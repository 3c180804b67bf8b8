package scenario_test

import "testing"

func TestFactsOfPreemption(t *testing.T) {
	tight := "num_blocks=7 max_model_len=24 prefix_caching=0"
	fight := []string{"A arrival=1 prompt=8 output=8", "B arrival=1 prompt=8 output=8", "C arrival=3 prompt=2 output=1"}
	middle := []string{"A arrival=1 prompt=5 output=6", "X arrival=2 prompt=7 output=6 priority=9", "B arrival=3 prompt=5 output=6 priority=1"}
	skipped := []string{"V arrival=1 prompt=4 output=2 priority=9", "A arrival=2 prompt=8 output=8", "B arrival=2 prompt=4 output=8"}
	flying := "num_blocks=6 max_model_len=20 async=1 policy=priority prefix_caching=0"
	checkFacts(t, []fact{
		{
			why: "the last one running gives up its blocks, to the head of the queue, and nobody is admitted", config: tight, load: fight,
			want: []string{"step 6 sched=A:1 preempt=B run=A wait=B,C free=2"},
		},
		{
			why: "it keeps its outputs: it computes 8 + 5 tokens again, and its next is its sixth", config: tight, load: fight,
			want: []string{"step 9 sched=B:13,C:2 out=B:6,C:1"},
		},
		{
			why: "the resume obeys the budget", config: tight + " max_num_batched_tokens=10",
			load: []string{"A arrival=1 prompt=8 output=8", "B arrival=2 prompt=8 output=8"},
			want: []string{"step 6 preempt=B out=A:6", "step 9 sched=B:10 out=-", "step 10 sched=B:2 out=B:5"},
		},
		{
			why: "what was not evicted is found again", config: "num_blocks=7 max_model_len=24", load: fight[:2],
			want: []string{"step 6 preempt=B evict=B#2", "step 9 sched=B:5 hit=B:8"},
		},
		{
			why: "nobody is preempted to admit somebody, however important", config: "num_blocks=9 max_num_batched_tokens=32 policy=priority",
			load: []string{"A arrival=1 prompt=24 output=4 priority=5", "B arrival=2 prompt=12 output=1 priority=-5"},
			want: []string{"step 2 sched=A:1 preempt=- wait=B free=1"},
		},
		{
			why: "the least important one is the victim, and those behind it are served", config: "num_blocks=7 max_num_batched_tokens=32 max_model_len=24 policy=priority prefix_caching=0",
			load: middle,
			want: []string{"step 4 sched=A:1,B:1 preempt=X run=A,B wait=X"},
		},
		{
			why: "before 0.33 the walk ends where a request preempts itself", config: "num_blocks=7 max_num_batched_tokens=32 max_model_len=24 policy=priority prefix_caching=0 vllm=0.32.0",
			load: middle,
			want: []string{"step 4 sched=A:1 preempt=X run=A,B wait=X"},
		},
		{
			why: "of equally important ones the later is the victim", config: tight + " policy=priority", load: fight[:2],
			want: []string{"step 6 sched=A:1 preempt=B"},
		},
		{
			why: "a victim that had tokens loses them, and the walk stays at its place", config: "num_blocks=7 max_model_len=24 policy=priority prefix_caching=0",
			load: []string{"A arrival=1 prompt=8 output=8 priority=1", "B arrival=1 prompt=8 output=8"},
			want: []string{"step 6 sched=B:1 preempt=A run=B wait=A", "step 9 sched=A:13"},
		},
		{
			why: "priority orders the queue, not who runs", config: "max_num_seqs=1 policy=priority",
			load: []string{"A arrival=1 prompt=4 output=3 priority=5", "B arrival=2 prompt=4 output=1 priority=9", "C arrival=2 prompt=4 output=1 priority=1"},
			want: []string{"step 2 sched=A:1 wait=C,B", "step 4 sched=C:4 wait=B", "step 5 sched=B:4"},
		},
		{
			why: "under fcfs priorities mean nothing", config: "max_num_seqs=1",
			load: []string{"A arrival=1 prompt=4 output=1 priority=5", "B arrival=1 prompt=4 output=1 priority=1"},
			want: []string{"step 1 sched=A:4", "step 2 sched=B:4"},
		},
		{
			why: "a victim that was skipped does not move the walk past anybody, and the token on its way ends it in the queue", config: flying, load: skipped,
			want: []string{"step 3 sched=A:1,B:1 preempt=V wait=V out=V:2,A:1,B:1 finish=V"},
		},
		{
			why: "before 0.27.1 the one after is passed over", config: flying + " vllm=0.27.0", load: skipped,
			want: []string{"step 3 sched=A:1 preempt=V run=A,B"},
		},
	})
}

func TestFactsOfAsync(t *testing.T) {
	checkFacts(t, []fact{
		{
			why: "results come one pass later", config: "async=1",
			load: []string{"A arrival=1 prompt=4 output=1"},
			want: []string{"step 1 sched=A:4 out=- run=A", "step 2 sched=- out=A:1 finish=A end_free=16", "no step 3"},
		},
		{
			why: "the next token is scheduled before the last one is known", config: "async=1",
			load: []string{"A arrival=1 prompt=4 output=3"},
			want: []string{"step 2 sched=A:1 out=A:1", "step 3 sched=A:1 out=A:2", "step 4 sched=- out=A:3"},
		},
		{
			why: "a piece of a prompt promises no token", config: "async=1",
			load: []string{"A arrival=1 prompt=20 output=1"},
			want: []string{"step 1 sched=A:16 out=-", "step 2 sched=A:4 out=-", "step 3 sched=- out=A:1"},
		},
		{
			why: "an end by the limit is foreseen, but seat and blocks come back one pass later", config: "async=1 max_num_seqs=1",
			load: []string{"A arrival=1 prompt=4 output=2", "B arrival=1 prompt=4 output=1"},
			want: []string{"step 3 sched=- run=A wait=B finish=A", "step 4 sched=B:4"},
		},
		{
			why: "an end by a stop token is not: one slot is lost", config: "async=1",
			load: []string{"A arrival=1 prompt=4 output=2 stop=eos"},
			want: []string{"step 3 sched=A:1 out=A:2 finish=A", "step 4 sched=- out=-", "no step 5"},
		},
		{
			why:  "without async scheduling no slot is lost",
			load: []string{"A arrival=1 prompt=4 output=2 stop=eos"},
			want: []string{"step 2 sched=A:1 out=A:2 finish=A", "no step 3"},
		},
		{
			why: "an end by max_model_len is foreseen too", config: "async=1 max_model_len=8",
			load: []string{"A arrival=1 prompt=6 output=9 stop=eos"},
			want: []string{"step 2 sched=A:1 out=A:1", "step 3 sched=- out=A:2 finish=A", "no step 4"},
		},
	})
}
