package mock_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/mock"
	"github.com/llmprof/llmprof/sim"
)

// A stream of three tokens, as its client and as the server saw it.
func Example() {
	ctx := context.Background()
	server, err := mock.New(mock.Options{Timer: mock.Timing{First: 20 * time.Millisecond, Gap: 5 * time.Millisecond}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	if err := server.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	body := strings.NewReader(`{"prompt": [1, 2, 3], "max_tokens": 3, "stream": true}`)
	request, _ := http.NewRequestWithContext(ctx, http.MethodPost, server.URL()+"/v1/completions", body)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	fmt.Println(strings.Count(string(text), `"text":" tok"`), "tokens")

	truth := server.Truth()[0]
	for _, due := range truth.Dues {
		fmt.Println(time.Duration(due - truth.Arrival))
	}
	// Output:
	// 3 tokens
	// 20ms
	// 25ms
	// 30ms
}

// A server whose steps take 10 ms, and 1 ms more for each 16 tokens of a
// prompt: the tokens are due at the ends of steps.
func ExampleSimulation() {
	rules, err := sim.RulesOf("0.32.0")
	if err != nil {
		fmt.Println(err)
		return
	}
	server, err := mock.New(mock.Options{Simulation: &mock.Simulation{
		Scheduler: sim.Config{Rules: rules, Blocks: 64, BlockSize: 16, MaxBatchedTokens: 32, MaxSeqs: 8, MaxModelLen: 256},
		Timer: sim.StepTimerFunc(func(p forward.Pass) (time.Duration, error) {
			return 10*time.Millisecond + time.Duration((p.Tokens()-p.Decode.Count)/16)*time.Millisecond, nil
		}),
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	ctx := context.Background()
	if err := server.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	// 48 tokens take a step of 32 and one of 16.
	body := strings.NewReader(`{"prompt": "` + strings.Repeat("word", 48) + `", "max_tokens": 3}`)
	request, _ := http.NewRequestWithContext(ctx, http.MethodPost, server.URL()+"/v1/completions", body)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	truth := server.Truth()[0]
	for _, due := range truth.Dues {
		fmt.Println(time.Duration(due - truth.Entered))
	}
	// Output:
	// 23ms
	// 33ms
	// 43ms
}
