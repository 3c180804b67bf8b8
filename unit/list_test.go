package unit_test

import (
	"testing"

	"github.com/llmprof/llmprof/unit"
)

func TestList(t *testing.T) {
	type policy string
	for _, c := range []struct {
		names []policy
		want  string
	}{{nil, ""}, {[]policy{"fcfs"}, "fcfs"}, {[]policy{"fcfs", "lpm", "lof"}, "fcfs, lpm, lof"}} {
		if got := unit.List(c.names); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
