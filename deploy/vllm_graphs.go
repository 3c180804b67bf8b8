package deploy

import "slices"

// VLLMGraphSizes are the numbers of tokens for which vLLM captures device graphs
// when no sizes are given: 1, 2, 4, the multiples of 8 below 256 and those of 16
// up to the largest size, which is twice the seats and at most 512, or 1024 on a
// Blackwell device for data centres; and the seats and the budget of a step where
// they are within that. Device is the catalog's name of it. Read in release
// 0.32.0 (vllm/config/vllm.py); older ones differ above 256.
func VLLMGraphSizes(v VLLM, device string) []int {
	most := 512
	switch device {
	case "b200-sxm", "b300-sxm", "gb200", "gb300":
		most = 1024
	}
	most = min(most, 2*v.MaxNumSeqs)
	var sizes []int
	add := func(from, to, step int) {
		for n := from; n < to && n <= most && n <= v.MaxNumBatchedTokens; n += step {
			sizes = append(sizes, n)
		}
	}
	add(1, 2, 1)
	add(2, 3, 1)
	add(4, 5, 1)
	add(8, 256, 8)
	add(256, most+1, 16)
	for _, n := range []int{v.MaxNumSeqs, v.MaxNumBatchedTokens} {
		if i, known := slices.BinarySearch(sizes, n); !known && n <= min(most, v.MaxNumBatchedTokens) {
			sizes = slices.Insert(sizes, i, n)
		}
	}
	return sizes
}
