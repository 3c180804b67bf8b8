package main

import (
	"slices"
	"strings"
	"testing"
)

// TestNear names what may have been meant, and nothing far off.
func TestNear(t *testing.T) {
	flags := strings.Fields("batch-size gpu goodput help json max-num-batched-tokens max-num-seqs num-iters num-iters-warmup num-layers num-prompts slo tensor-parallel-size warmup")
	for _, c := range []struct{ why, name, want string }{
		{"a letter too many", "gpuu", "gpu"},
		{"one word more in the name of the flag", "num-warmup", "num-iters-warmup"},
		{"a word spelt out", "max-num-sequences", "max-num-seqs"},
		{"the end is missing", "tensor-parallel", "tensor-parallel-size"},
		{"a word of two", "batch", "batch-size"},
		{"the flag is the end of the word", "kv-warmup", "warmup"},
		{"letters changed places", "josn", "json"},
		{"nothing is near", "foo", ""},
		{"nothing is near, and long", "frobnicate-it", ""},
	} {
		t.Run(c.why, func(t *testing.T) {
			if got := strings.Join(near(c.name, flags), " "); got != c.want {
				t.Errorf("near %s: %q, want %q", c.name, got, c.want)
			}
		})
	}
	if got := near("analyse", []string{"analyze", "batch", "compare"}); !slices.Equal(got, []string{"analyze"}) {
		t.Errorf("near analyse: %q", got)
	}
}
