package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/mock"
)

// TestSearchRemarksOnce searches a server without metrics: it is told once that
// they are not read, however many steps there are.
func TestSearchRemarksOnce(t *testing.T) {
	behind, err := url.Parse(mockAt(t, mock.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(behind)
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			http.NotFound(w, r)
			return
		}
		pass.ServeHTTP(w, r)
	}))
	defer silent.Close()
	var stdout, stderr bytes.Buffer
	err = run(t.Context(), []string{
		"bench", silent.URL, "--find-rate", "--slo", "ttft:60000", "--request-rate", "500", "--num-prompts", "4",
		"--random-input-len", "8", "--random-output-len", "2",
	}, strings.NewReader(""), &stdout, &stderr)
	if _, verdict := errors.AsType[*verdictError](err); err != nil && !verdict { // a busy machine may find no rate
		t.Fatal(err)
	}
	if steps := strings.Count(stderr.String(), ": limits "); steps < 2 {
		t.Fatalf("%d steps\n%s", steps, &stderr)
	}
	if said := strings.Count(stderr.String(), "metrics are not read"); said != 1 {
		t.Errorf("said %d times, want once\n%s", said, &stderr)
	}
}

// TestUntilIdle lets a search go on once nothing runs any more.
func TestUntilIdle(t *testing.T) {
	var reads atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\"} %d\n", max(0, 4-reads.Add(1)))
	}))
	defer server.Close()
	a := &app{stderr: &bytes.Buffer{}}
	servers := a.watch(t.Context(), []load.Target{{URL: server.URL}}, &benchFlags{}, time.Hour).group
	defer servers.Stop()
	wait := untilIdle(servers, 250*time.Millisecond) // it waits for 120 of them at most
	if err := wait(t.Context()); err != nil || reads.Load() != 4 {
		t.Errorf("%v after %d readings, want 4: three of them find requests", err, reads.Load())
	}
	if err := wait(t.Context()); err != nil || reads.Load() != 5 {
		t.Errorf("%v after %d readings, want a fresh one for each step", err, reads.Load())
	}
}
