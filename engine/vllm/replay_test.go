package vllm

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/format/vllmlog"
	"github.com/llmprof/llmprof/forward"
)

// scheduled is what a first-come-first-served scheduler with chunked prefill
// does with requests: running ones in order, then waiting ones, up to a
// budget of tokens and a number of seats.
func scheduled(requests []request, budget, seats int) []forward.Pass {
	states := newReplay(requests).requests
	var passes []forward.Pass
	admitted := 0
	for {
		running := 0
		for _, q := range states[:admitted] {
			if q.generated < q.output {
				running++
			}
		}
		for admitted < len(states) && running < seats {
			admitted++
			running++
		}
		var pass forward.Pass
		left := budget
		for i := range states[:admitted] {
			q := &states[i]
			switch {
			case left == 0 || q.generated == q.output:
			case q.computed < q.prompt:
				c := forward.Chunk{Count: 1, New: min(left, q.prompt-q.computed), Context: q.computed}
				q.computed += c.New
				if c.Last = q.computed == q.prompt; c.Last {
					q.generated = 1
				}
				left -= c.New
				pass.Prefill = appendChunk(pass.Prefill, c)
			default:
				n := q.prompt + q.generated - 1
				pass.DecodeContexts = append(pass.DecodeContexts, n)
				pass.Decode.SumContext += int64(n)
				pass.Decode.Count++
				q.generated++
				left--
			}
		}
		if pass.Tokens() == 0 {
			return passes
		}
		passes = append(passes, pass)
	}
}

// TestReplayFindsPasses: from the totals of each step alone, the replay finds
// what a scheduler computed, and never finds something else.
func TestReplayFindsPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batch := rapid.IntRange(1, 9).Draw(t, "batch")
		input, output := rapid.IntRange(1, 50).Draw(t, "input"), rapid.IntRange(1, 9).Draw(t, "output")
		requests := slices.Repeat([]request{{input, output}}, batch)
		if rapid.Bool().Draw(t, "ahead") {
			requests = slices.Insert(requests, 0, request{rapid.IntRange(1, 90).Draw(t, "length"), 1})
		}
		// With a seat for each and room to decode all, nothing stays behind.
		budget := rapid.IntRange(len(requests), 200).Draw(t, "budget")
		r := newReplay(requests)
		sum := 0
		for i, want := range scheduled(requests, budget, len(requests)) {
			totals := want.Totals()
			totals.KVTokens = 0
			got, ok := r.next(totals)
			if !ok {
				t.Fatalf("step %d: %+v is lost", i, want)
			}
			if c := want.DecodeContexts; len(c) > 0 && slices.Min(c) == slices.Max(c) {
				want.DecodeContexts = nil
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("step %d: %s", i, d)
			}
			if err := got.Validate(); err != nil {
				t.Fatal(err)
			}
			sum += totals.Tokens()
		}
		if sum != tokens(requests) {
			t.Fatalf("%d tokens computed, %d expected", sum, tokens(requests))
		}
	})
}

func TestReplayLoses(t *testing.T) {
	for _, c := range []struct {
		why    string
		totals forward.Totals
	}{
		{"a request of somebody else", forward.Totals{PrefillRequests: 3, PrefillTokens: 30}},
		{"tokens of somebody else", forward.Totals{PrefillRequests: 2, PrefillTokens: 27}},
		{"part of a prompt came from a cache", forward.Totals{PrefillRequests: 2, PrefillTokens: 10}},
		{"a decode before the prompts", forward.Totals{PrefillRequests: 2, PrefillTokens: 20, DecodeRequests: 1, DecodeTokens: 1}},
		{"nothing", forward.Totals{}},
	} {
		t.Run(c.why, func(t *testing.T) {
			r := newReplay([]request{{10, 3}, {10, 3}})
			if pass, ok := r.next(c.totals); ok {
				t.Errorf("taken as %+v", pass)
			}
			if pass, ok := r.next(forward.Totals{PrefillRequests: 2, PrefillTokens: 20}); ok {
				t.Errorf("found again: %+v", pass)
			}
		})
	}
}

// FuzzFollower holds the reader of logs to take any text, to keep what it
// knows within bounds, and to pass no secret on.
func FuzzFollower(f *testing.F) {
	const line = "Engine 000: Iteration(3): 1 context requests, 395 context tokens, 0 generation requests, 0 generation tokens, iteration elapsed time: 53.22 ms, CPU KV cache usage: 0.1%"
	f.Add([]byte(line+"\n"+line+"\n"), 7)
	f.Add([]byte("ValueError: No common block size for 16\r\n\x1b[0mIteration(\n"), 1)
	f.Add([]byte("secret-value hf_abcdefghijklmnopqrs\n\n\n"), 3)
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		var out passedOn
		log := newFollower(engine.Setup{Log: &out}, engine.NewRedactor("API_KEY=secret-value"))
		w := &lineWriter{f: log}
		at := min(max(cut, 0), len(text))
		for _, part := range [][]byte{text[:at], text[at:], []byte("\n")} {
			if n, err := w.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		log.end()
		steps, _, ended := log.since(0)
		if !ended || len(log.tail) > tailLines {
			t.Error("the log goes on, or keeps too much")
		}
		for _, s := range steps {
			if s.Dummy {
				t.Error("a dummy step is kept")
			}
		}
		follow(steps, []request{{10, 2}, {10, 2}}, true)
		if bytes.Contains(out.text, []byte("secret-value")) {
			t.Error("a secret is passed on")
		}
		_ = refusal(log.begun(), nil) // it must not fail on any text
	})
}

// passedOn keeps what is written.
type passedOn struct{ text []byte }

func (l *passedOn) Write(p []byte) (int, error) {
	l.text = append(l.text, p...)
	return len(p), nil
}

func TestFollowerGaps(t *testing.T) {
	log := newFollower(engine.Setup{}, nil)
	for _, n := range []int64{5, 6, 8, 8, 9, 1, 2} {
		log.add(vllmlog.Iteration{Number: n, Seconds: float64(n), Totals: forward.Totals{PrefillRequests: 1, PrefillTokens: 1}}, "Engine 000: Iteration(")
	}
	steps, _, _ := log.since(0)
	var got []string
	for _, s := range steps {
		mark := "-"
		if s.gap {
			mark = "gap"
		}
		got = append(got, mark)
	}
	if d := cmp.Diff([]string{"-", "-", "gap", "-", "gap", "-"}, got); d != "" {
		t.Error(d)
	}
	for n := range int64(maxSteps) {
		log.add(vllmlog.Iteration{Number: 100 + n}, "")
	}
	if mark := log.mark(); mark != maxSteps+6 || len(log.steps) > maxSteps {
		t.Errorf("mark %d, %d steps kept", mark, len(log.steps))
	}
	if steps, _, _ := log.since(maxSteps); len(steps) != 6 || steps[5].Number != 100+maxSteps-1 {
		t.Errorf("%d steps from the mark on", len(steps))
	}
}
