package deploy_test

import (
	"slices"
	"testing"

	"github.com/llmprof/llmprof/deploy"
)

func TestVLLMGraphSizes(t *testing.T) {
	for _, c := range []struct {
		why           string
		seats, budget int
		device        string
		n, last       int
		has, hasNot   int
	}{
		{"256 seats reach 512", 256, 8192, "h100-sxm-80gb", 3 + 31 + 17, 512, 272, 264},
		{"few seats bound it, and are captured too", 5, 8192, "h100-sxm-80gb", 5, 8, 5, 16},
		{"1024 on Blackwell", 1024, 8192, "gb200", 3 + 31 + 49, 1024, 528, 520},
		{"512 on a workstation's Blackwell", 1024, 8192, "rtx-pro-6000-workstation", 3 + 31 + 17, 512, 272, 528},
		{"a budget off the grid is captured too", 256, 300, "h100-sxm-80gb", 3 + 31 + 3 + 1, 300, 288, 304},
	} {
		got := deploy.VLLMGraphSizes(deploy.VLLM{MaxNumSeqs: c.seats, MaxNumBatchedTokens: c.budget}, c.device)
		if len(got) != c.n || got[len(got)-1] != c.last || !slices.Contains(got, c.has) || slices.Contains(got, c.hasNot) || !slices.IsSorted(got) {
			t.Errorf("%s: %v", c.why, got)
		}
	}
}
