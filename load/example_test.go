package load_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// Four requests, 10 ms apart, to a server that answers three tokens each.
func ExampleRun() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			_, _ = io.WriteString(w, `data: {"choices":[{"text":"word "}]}`+"\n\n")
		}
		_, _ = io.WriteString(w, `data: {"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":3}}`+"\n\ndata: [DONE]\n\n")
	}))
	defer server.Close()
	schedule := &workload.Schedule{}
	for k := range 4 {
		schedule.Requests = append(schedule.Requests, workload.Request{ID: k, At: unit.Seconds(k) / 100, InputLen: 8, OutputLen: 3, Seed: uint64(k)})
	}
	result, err := load.Run(context.Background(), []load.Target{{URL: server.URL, Model: "m"}}, load.Options{Schedule: schedule})
	if err != nil {
		fmt.Println(err)
		return
	}
	whole, steady := result.Summaries(nil)
	gate := load.Judge(result, whole, steady, load.DefaultLimits())
	fmt.Println(whole.Completed, "completed,", *whole.OutputTokens, "tokens,", whole.TTFT.N, "values of TTFT")
	fmt.Println("valid:", gate.Grade == load.Valid)
	// Output:
	// 4 completed, 12 tokens, 4 values of TTFT
	// valid: false
}

func ExampleParseSLOs() {
	limits, err := load.ParseSLOs("ttft:500 itl:p95<40ms")
	fmt.Println(limits, err)
	// Output:
	// [ttft:500 itl:p95<40ms] <nil>
}
