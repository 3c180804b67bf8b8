// Package scenario reads, decides and writes small schedules as text, so that
// a rule of the scheduler can be stated and checked without a program.
//
//	# A decodes while B arrives.
//	config vllm=0.33.0 num_blocks=17 block_size=4 max_num_batched_tokens=16 max_num_seqs=4 max_model_len=32
//	req A arrival=1 prompt=6 output=2
//	req B arrival=2 prompt=4 output=1
//	expect
//	step 1 sched=A:6 hit=A:0 preempt=- evict=- run=A wait=- free=14 out=A:1 finish=- end_free=14
//	step 2 sched=A:1,B:4 hit=B:0 preempt=- evict=- run=A,B wait=- free=13 out=A:2,B:1 finish=A,B end_free=16
//	end steps=2 preemptions=0 hit_tokens=0 evictions=0
//
// # The load
//
// A "#" at the start of a line, or after a space, begins a comment. The config
// line names the release whose rules decide (vllm, default the newest), the pool
// (num_blocks with the null block, block_size) and the limits
// (max_num_batched_tokens, max_num_seqs, max_model_len). With their defaults:
// policy=fcfs (or priority), chunked=1, threshold=0 (none),
// prefix_caching=1, reserve_full_isl=1, watermark=0 (a fraction of num_blocks)
// and async=0; max_num_scheduled_tokens is a smaller budget of a step, from
// 0.17. Other settings that a release does not have are without effect.
//
// Each req line is a request: its name, arrival (the first pass that sees it),
// prompt and output in tokens. The first shared tokens of all requests of a
// group are the same. A smaller priority is more important. With stop=eos a stop
// token ends the request, which the scheduler cannot foresee; else its limit does.
//
// # The schedule
//
// A line for each step that had something to do. sched is the tokens of each
// request, first those that ran before; hit the admissions with what they found
// in the cache; preempt the victims; evict the cached blocks that were given to
// others, P#1 being block 1 of group (or request) P, counted from 0; run and wait
// the lists after the pass, free the blocks in the free list. Then come the
// results: out is each token put out (A:3 is the third), finish who ended, end_free
// the free blocks. With async=1 they are the results of the step before. The end
// line holds the sums.
package scenario

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/sim"
)

// Scenario is one run of one replica.
type Scenario struct {
	// Comments are the lines at the top, without their "#".
	Comments []string
	// Release is the vLLM release whose rules decide.
	Release string
	// Config is the replica.
	Config sim.Config
	// Requests arrive in order of their arrival, those of equal arrival as
	// they stand here.
	Requests []Request
	// Expect is the lines of the expected schedule; nil for none.
	Expect []string
}

// Request is one request of a scenario.
type Request struct {
	// Name stands for the request in the schedule.
	Name string
	// Arrival is the first pass that sees it, counted from 1.
	Arrival int
	// Prompt and Output are its tokens.
	Prompt, Output int
	// Group names the requests that have their first Shared tokens in common;
	// empty for none.
	Group  string
	Shared int
	// Priority is lower for the more important.
	Priority int
	// StopToken says that a stop token ends it, which the scheduler cannot
	// foresee; else it ends by its limit.
	StopToken bool
}

// field is a setting of the text form.
type field struct {
	key  string
	text string // its value; empty where Write leaves it out
	read func(text string) error
}

// configFields are the settings of the config line, but for the release.
func (s *Scenario) configFields() []field {
	c := &s.Config
	return []field{
		count("num_blocks", &c.Blocks, 2, MaxBlocks, 0),
		count("block_size", &c.BlockSize, 1, MaxTokens, 0),
		count("max_num_batched_tokens", &c.MaxBatchedTokens, 1, MaxTokens, 0),
		count("max_num_scheduled_tokens", &c.MaxScheduledTokens, 1, MaxTokens, 0),
		count("max_num_seqs", &c.MaxSeqs, 1, MaxTokens, 0),
		count("max_model_len", &c.MaxModelLen, 2, MaxTokens, 0),
		word("policy", []string{"fcfs", "priority"}, int(c.Policy), func(i int) { c.Policy = sim.Policy(i) }),
		flag("chunked", &c.WholePrompts, true),
		count("threshold", &c.Threshold, 0, MaxTokens, 0),
		flag("prefix_caching", &c.NoPrefixCache, true),
		flag("reserve_full_isl", &c.NoFullSequenceGate, true),
		fraction("watermark", &c.Watermark),
		flag("async", &c.Async, false),
	}
}

// fields are the settings of a request's line.
func (q *Request) fields() []field {
	return []field{
		count("arrival", &q.Arrival, 1, MaxTokens, 0),
		count("prompt", &q.Prompt, 1, MaxTokens, 0),
		count("output", &q.Output, 1, MaxTokens, 0),
		name("group", &q.Group),
		count("shared", &q.Shared, 0, MaxTokens, 0),
		count("priority", &q.Priority, -MaxTokens, MaxTokens, 0),
		word("stop", []string{"len", "eos"}, index(q.StopToken), func(i int) { q.StopToken = i == 1 }),
	}
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

func count(key string, to *int, least, most, standard int) field {
	f := field{key: key, read: func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%s=%.40s: want a whole number from %d to %d", key, text, least, most)
		}
		*to = n
		return nil
	}}
	if *to != standard {
		f.text = strconv.Itoa(*to)
	}
	return f
}

// flag is 0 or 1; with inverted, 1 is what the configuration calls false.
func flag(key string, to *bool, inverted bool) field {
	f := field{key: key, read: func(text string) error {
		if text != "0" && text != "1" {
			return fmt.Errorf("%s=%.40s: want 0 or 1", key, text)
		}
		*to = (text == "1") != inverted
		return nil
	}}
	if *to {
		f.text = strconv.Itoa(index(!inverted))
	}
	return f
}

func word(key string, words []string, at int, set func(int)) field {
	f := field{key: key, read: func(text string) error {
		for i, w := range words {
			if w == text {
				set(i)
				return nil
			}
		}
		return fmt.Errorf("%s=%.40s: want %s", key, text, strings.Join(words, " or "))
	}}
	if at > 0 && at < len(words) {
		f.text = words[at]
	}
	return f
}

func fraction(key string, to *float64) field {
	f := field{key: key, read: func(text string) error {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || !(x >= 0 && x < 1) {
			return fmt.Errorf("%s=%.40s: want a fraction, 0 or more and below 1", key, text)
		}
		*to = x
		return nil
	}}
	if *to != 0 {
		f.text = strconv.FormatFloat(*to, 'g', -1, 64)
	}
	return f
}

func name(key string, to *string) field {
	return field{key: key, text: *to, read: func(text string) error {
		if err := checkName(text); err != nil {
			return fmt.Errorf("%s=%.40s: %w", key, text, err)
		}
		*to = text
		return nil
	}}
}

// checkName refuses names that would not be told apart in a schedule.
func checkName(text string) error {
	if text == "" || text == "-" || len(text) > 64 || strings.ContainsAny(text, ":,=#") {
		return fmt.Errorf(`want a name of 1 to 64 characters, other than "-" and without : , = and #`)
	}
	return nil
}

// Write writes the scenario as text; what has its default is left out.
func (s *Scenario) Write(to io.Writer) error {
	w := bufio.NewWriter(to)
	for _, c := range s.Comments {
		fmt.Fprintf(w, "#%s\n", c)
	}
	fmt.Fprintf(w, "config vllm=%s", s.Release)
	writeFields(w, s.configFields())
	for i := range s.Requests {
		fmt.Fprintf(w, "req %s", s.Requests[i].Name)
		writeFields(w, s.Requests[i].fields())
	}
	if s.Expect != nil {
		fmt.Fprintln(w, "expect")
	}
	for _, line := range s.Expect {
		fmt.Fprintln(w, line)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write scenario: %w", err)
	}
	return nil
}

func writeFields(w *bufio.Writer, fields []field) {
	for _, f := range fields {
		if f.text != "" {
			fmt.Fprintf(w, " %s=%s", f.key, f.text)
		}
	}
	fmt.Fprintln(w)
}
