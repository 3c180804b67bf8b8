package mock_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/llmprof/llmprof/mock"
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
