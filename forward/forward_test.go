package forward_test

import (
	"fmt"
	"testing"

	"github.com/llmprof/llmprof/forward"
)

func TestCounts(t *testing.T) {
	p := forward.Pass{
		Prefill: []forward.Chunk{{Count: 2, New: 100, Last: true}, {Count: 1, New: 512, Context: 1024}},
		Decode:  forward.Sequences{Count: 5, SumContext: 1000},
	}
	if got := p.Tokens(); got != 717 {
		t.Errorf("tokens: got %d, want 2·100 + 512 + 5", got)
	}
	if got := p.Rows(); got != 7 {
		t.Errorf("rows of logits: got %d, want 2 finished prompts and 5 decodes", got)
	}
	if got := p.MeanDecodeContext(); got != 200 {
		t.Errorf("mean context: got %g, want 200", got)
	}
	if got := (forward.Pass{}).MeanDecodeContext(); got != 0 {
		t.Errorf("mean context without decodes: got %g, want 0", got)
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		why  string
		pass forward.Pass
		ok   bool
	}{
		{"a prompt", forward.Prefill(1, 10, 0), true},
		{"a decode step", forward.Decode(3, 0), true},
		{"nothing to compute", forward.Pass{}, false},
		{"a chunk of no tokens", forward.Prefill(1, 0, 5), false},
		{"negative context", forward.Prefill(1, 5, -1), false},
		{"negative sequences", forward.Decode(-1, 5), false},
		{"a list of the wrong length", forward.Pass{Decode: forward.Sequences{Count: 2}, DecodeContexts: []int{1}}, false},
		{"contexts from 3 to 5 tokens", forward.Pass{Decode: forward.Sequences{Count: 2, SumContext: 8, Shortest: 3, Longest: 5}}, true},
		{"a mean below the shortest context", forward.Pass{Decode: forward.Sequences{Count: 2, SumContext: 5, Shortest: 3, Longest: 5}}, false},
		{"a mean above the longest context", forward.Pass{Decode: forward.Sequences{Count: 2, SumContext: 11, Shortest: 3, Longest: 5}}, false},
		{"a longest context below the shortest", forward.Pass{Decode: forward.Sequences{Count: 2, Shortest: 3}}, false},
	} {
		t.Run(c.why, func(t *testing.T) {
			if err := c.pass.Validate(); (err == nil) != c.ok {
				t.Errorf("got %v, want ok %v", err, c.ok)
			}
		})
	}
}

func TestAdd(t *testing.T) {
	var s forward.Sequences
	for _, context := range []int{0, 7, 3} {
		s.Add(context)
	}
	if want := (forward.Sequences{Count: 3, SumContext: 10, Longest: 7}); s != want {
		t.Errorf("got %+v, want %+v", s, want)
	}
	s = forward.Sequences{Count: 2, SumContext: 10} // of unknown contexts
	s.Add(1)
	if want := (forward.Sequences{Count: 3, SumContext: 11}); s != want {
		t.Errorf("after unknown ones: got %+v, want %+v", s, want)
	}
}

func ExampleDecode() {
	p := forward.Decode(32, 1500)
	fmt.Println(p.Tokens(), p.Rows(), p.Decode.SumContext)
	// Output: 32 32 48000
}
