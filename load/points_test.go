package load

import (
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// TestTokenChunks: where the tokens are asked for, a chunk that brings one
// without text is a chunk.
func TestTokenChunks(t *testing.T) {
	answer := text(sse(`data: {"choices":[{"text":"","token_ids":[1]}]}`+"\n\n", `data: {"choices":[{"text":"bc","token_ids":[2,3]}]}`+"\n\n",
		`data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":3}}`+"\n\n", "data: [DONE]\n\n"), true)
	for _, c := range []struct {
		why    string
		target Target
		tokens []int32
	}{
		{"text is what counts", Target{Engine: VLLM}, []int32{3}},
		{"tokens are what counts", Target{Engine: VLLM, TokenChunks: true}, []int32{1, 2}},
		{"a server that knows no token ids", Target{Engine: OpenAI, TokenChunks: true}, []int32{3}},
	} {
		t.Run(c.why, func(t *testing.T) {
			s := serve(t, answer)
			c.target.URL, c.target.Model = s.url(), "m"
			result, err := Run(t.Context(), []Target{c.target}, Options{Schedule: constant(1, 100, 3)})
			if err != nil {
				t.Fatal(err)
			}
			r := result.Records[0]
			if r.Failure != nil || len(r.Chunks) != len(c.tokens) {
				t.Fatalf("%v, chunks %+v", r.Failure, r.Chunks)
			}
			for i, n := range c.tokens {
				if r.Chunks[i].Tokens != n {
					t.Errorf("chunk %d: %d tokens, want %d", i, r.Chunks[i].Tokens, n)
				}
			}
		})
	}
}

func TestPoint(t *testing.T) {
	rec := &Record{
		ID: 7, Sched: time.Second, Send: 1001 * time.Millisecond, Sent: true, Chunks: []Chunk{{At: 1100 * time.Millisecond, Tokens: 1}, {At: 1150 * time.Millisecond, Tokens: 2}},
		End: 1150 * time.Millisecond, Close: 1151 * time.Millisecond, Prompt: Count{40, FromUsage}, Output: Count{3, FromUsage}, Cached: Count{32, FromUsage},
	}
	p, err := Point(rec, "a run")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	if want := (profile.Request{ID: "7", InputLen: 40, OutputLen: 3, CachedLen: 32, Scheduled: 1, Sent: 1.001, First: 1.1, Last: 1.15}); *p.Request != want {
		t.Errorf("%+v, want %+v", *p.Request, want)
	}
	if run, gaps := format.KeptRun(&p); run != "a run" || len(gaps) != 1 || gaps[0] != 0.05 {
		t.Errorf("run %q, gaps %v", run, gaps)
	}
	rec.Failure = fail(FailStatus, "status 500")
	if p, err = Point(rec, "a run"); err != nil || p.Kind != profile.KindFailure || !strings.Contains(p.Reason, "status 500") || p.Validate() != nil {
		t.Errorf("%+v, %v", p, err)
	}
}
