package mock_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmprof/llmprof/mock"
)

// prompt is a body with a prompt of n token ids from the first one on.
func prompt(first, n, tokens int) string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(first + i)
	}
	return fmt.Sprintf(`{"prompt":[%s],"max_tokens":%d,"stream":true,"stream_options":{"include_usage":true}}`, strings.Join(ids, ","), tokens)
}

// heldUp never answers a prompt of 100 tokens, and others at once.
type heldUp struct{}

func (heldUp) FirstToken(l mock.Load) time.Duration {
	if l.Prompt == 100 {
		return time.Hour
	}
	return time.Millisecond
}

func (heldUp) NextToken(mock.Load) time.Duration { return time.Millisecond }

// TestSeats has two requests that hold both seats until four more wait.
func TestSeats(t *testing.T) {
	server, c := start(t, mock.Options{Timer: heldUp{}, MaxNumSeqs: 2}), client(t)
	until := func(running, waiting float64) {
		t.Helper()
		for m := scrape(t, c, server); m.Running.Value != running || m.Waiting.Value != waiting; m = scrape(t, c, server) {
			time.Sleep(time.Millisecond)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	for i := range 2 {
		group.Go(func() { ask(ctx, c, server.URL()+"/v1/completions", prompt(1000*i, 100, 1), "") })
	}
	until(2, 0)
	for i := range 4 {
		group.Go(func() {
			if a := ask(t.Context(), c, server.URL()+"/v1/completions", prompt(1000*i, 4, 4), ""); a.tokens() != 4 {
				t.Errorf("got %+v", a)
			}
		})
	}
	until(2, 4)
	time.Sleep(50 * time.Millisecond) // all four wait so long
	cancel()
	group.Wait()
	m := scrape(t, c, server)
	if sum := m.QueueTime.Histogram.Sum; sum < 4*0.05 {
		t.Errorf("all waited %v s together, want 0.2 s or more", sum)
	}
	if m.KVUsage != nil || m.Cache[0].Blocks != 0 || m.Cache[0].BlockSize != 16 {
		t.Errorf("a cache without limit has the use %v of %+v", m.KVUsage, m.Cache)
	}
}

func TestPrefixCache(t *testing.T) {
	server, c := start(t, mock.Options{KVBlocks: 10}), client(t)
	ask := func(body string) int {
		t.Helper()
		a := ask(t.Context(), c, server.URL()+"/v1/completions", body, "")
		if !a.done {
			t.Fatalf("got %+v", a)
		}
		return a.events[len(a.events)-1].Usage.Details.Cached
	}
	tests := []struct {
		why  string
		body string
		want int // tokens
	}{
		{"the first prompt finds nothing", prompt(0, 64, 1), 0},
		{"the same prompt finds all full blocks but the one of its last token", prompt(0, 64, 1), 48},
		{"a longer one finds all full blocks", prompt(0, 70, 1), 64},
		{"one that begins otherwise finds nothing", prompt(1, 64, 1), 0},
		{"its blocks are there as well", prompt(0, 64, 1), 48},
		{"a large prompt", prompt(5000, 130, 1), 0},
		{"takes the room of the one that was not used for longest", prompt(1, 64, 1), 0},
	}
	queries, hits := 0, 0
	for _, test := range tests {
		if got := ask(test.body); got != test.want {
			t.Errorf("%s: %d tokens cached, want %d", test.why, got, test.want)
		}
		queries += strings.Count(test.body[:strings.Index(test.body, "]")], ",") + 1
		hits += test.want
	}
	m := scrape(t, c, server)
	if m.PrefixQueries.Value != float64(queries) || m.PrefixHits.Value != float64(hits) || m.CachedTokens.Value != float64(hits) {
		t.Errorf("%v queries and %v hits, want %d and %d", m.PrefixQueries.Value, m.PrefixHits.Value, queries, hits)
	}
	if tokens, ok := m.KVTokens(); tokens != 160 || !ok || m.KVUsage.Value != 0 {
		t.Errorf("the cache has %d tokens, and %v is used", tokens, m.KVUsage.Value)
	}
}

func TestNoPrefixCache(t *testing.T) {
	server, c := start(t, mock.Options{NoPrefixCache: true, KVBlocks: 8}), client(t)
	for range 2 {
		if a := ask(t.Context(), c, server.URL()+"/v1/completions", prompt(0, 64, 1), ""); a.events[1].Usage.Details.Cached != 0 {
			t.Errorf("cached: %+v", a)
		}
	}
	if m := scrape(t, c, server); m.PrefixQueries.Value != 0 {
		t.Errorf("%v queries of a cache that is not there", m.PrefixQueries.Value)
	}
}

// TestPreemption runs two requests whose answers do not fit the cache together.
func TestPreemption(t *testing.T) {
	server, c := start(t, mock.Options{Timer: mock.Timing{First: time.Millisecond, Gap: time.Millisecond}, KVBlocks: 6}), client(t)
	m, rounds := scrape(t, c, server), 0.0
	for ; m.Preemptions.Value == 0 && rounds < 100; m = scrape(t, c, server) { // on a busy machine they may follow each other
		rounds++
		var group sync.WaitGroup
		for i := range 3 {
			group.Go(func() {
				if a := ask(t.Context(), c, server.URL()+"/v1/completions", prompt(1000*i, 20, 60), ""); a.tokens() != 60 || !a.done {
					t.Errorf("got %d tokens of 60, %v", a.tokens(), a.err)
				}
			})
		}
		group.Wait()
	}
	if m.Preemptions.Value < 1 || m.RequestPreemptions.Histogram.Sum != m.Preemptions.Value {
		t.Errorf("%v preemptions, %v in requests", m.Preemptions.Value, m.RequestPreemptions.Histogram.Sum)
	}
	if m.GenerationTokens.Value != 180*rounds || m.PromptTokens.Value != 60*rounds || m.KVUsage.Value != 0 {
		t.Errorf("%v tokens, %v of prompts, use %v", m.GenerationTokens.Value, m.PromptTokens.Value, m.KVUsage.Value)
	}
	if a := ask(t.Context(), c, server.URL()+"/v1/completions", prompt(0, 90, 10), ""); a.status != 400 || !strings.Contains(a.raw, "KV blocks") {
		t.Errorf("what never fits: %+v", a)
	}
}

// TestMetricsAreWhole looks for every figure that the manual promises.
func TestMetricsAreWhole(t *testing.T) {
	server, c := start(t, mock.Options{KVBlocks: 100, Model: "tiny model"}), client(t)
	ask(t.Context(), c, server.URL()+"/v1/completions", `{"prompt":"a","max_tokens":3}`, "")
	m := scrape(t, c, server)
	for name, d := range map[string]interface{ Mean() (float64, bool) }{
		"TTFT": m.TTFT, "token gap": m.TokenGap, "request gap": m.RequestGap, "end to end": m.EndToEnd,
		"queue": m.QueueTime, "inference": m.InferenceTime, "prefill": m.PrefillTime, "decode": m.DecodeTime,
		"prompt": m.RequestPrompt, "generation": m.RequestGeneration, "max": m.RequestMaxNumbers, "n": m.RequestN,
		"max_tokens": m.RequestMaxTokens, "computed": m.RequestPrefillComputed, "preemptions": m.RequestPreemptions,
	} {
		if mean, ok := d.Mean(); !ok || math.IsNaN(mean) {
			t.Errorf("%s: no mean", name)
		}
	}
	if m.IterationTokens != nil {
		t.Error("the mock has no steps, and tells of them")
	}
	if m.WaitingBy["capacity"] != 0 || m.Running == nil || m.Finished["length"] != 1 || m.PromptTokensBy["local_compute"] != 1 {
		t.Errorf("got %+v", m)
	}
}
