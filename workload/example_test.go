package workload_test

import (
	"fmt"

	"github.com/llmprof/llmprof/workload"
)

func ExampleBuild() {
	s, err := workload.Build(workload.Spec{
		Seed:     7,
		Arrivals: workload.Burst{Of: workload.Constant{Rate: 2}, Size: 2},
		Lengths:  workload.Independent{Input: workload.Fixed(512), Output: workload.Uniform{Low: 16, High: 64}},
		Count:    5,
		Prefixes: &workload.Prefixes{Share: 1, Groups: 1, Length: workload.Fixed(128)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Spec)
	for _, q := range s.Requests {
		fmt.Println(q.ID, q.At, q.InputLen, q.Prefix[0].Group, q.PrefixLen())
	}
	// Output:
	// bursts of 2, constant 2/s; input fixed 512; output uniform 16..64; prefixes 100% with one of 1 prefixes, fixed 128; count 5; seed 7
	// 0 0 s 512 g1 128
	// 1 0 s 512 g1 128
	// 2 500.0 ms 512 g1 128
	// 3 500.0 ms 512 g1 128
	// 4 1.000 s 512 g1 128
}

func ExampleTokens() {
	system := []workload.Span{{Group: "system", Seed: 1, Len: 3}}
	for seed := range uint64(2) {
		q := workload.Request{InputLen: 6, Seed: 10 + seed, Prefix: system}
		fmt.Println(len(workload.Tokens(q, 0, 1000)), workload.Tokens(q, 0, 1000)[:3])
	}
	// Output:
	// 6 [275 257 352]
	// 6 [275 257 352]
}

func ExampleParseLength() {
	for _, text := range []string{"4k", "normal:512:256:16:4k", "zipf:1.2:16:512"} {
		length, err := workload.ParseLength(text)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(length)
	}
	_, err := workload.ParseLength("gauss:5")
	fmt.Println(err)
	// Output:
	// fixed 4000
	// normal 512±256 in 16..4000
	// zipf 1.2 in 16..512
	// length "gauss:5": unknown distribution "gauss": want fixed, normal, lognormal, uniform, zipf or histogram
}
