package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/mock"
	"github.com/llmprof/llmprof/workload"
)

// mockAt starts a mock server and returns its address.
func mockAt(t *testing.T, o mock.Options) string {
	t.Helper()
	emptyHome(t)
	if o.Timer == nil {
		o.Timer = mock.Timing{First: 5 * time.Millisecond, Gap: time.Millisecond}
	}
	o.Listen = "127.0.0.1:0"
	s, err := mock.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.URL()
}

// benched runs bench and reads its document.
func benched(t *testing.T, args ...string) (document map[string]json.RawMessage, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err = run(context.WithoutCancel(t.Context()), append(append([]string{"bench"}, args...), "--json", "-q"), strings.NewReader(""), &stdout, &stderr)
	if stdout.Len() > 0 {
		if bad := json.Unmarshal(stdout.Bytes(), &document); bad != nil {
			t.Fatalf("%v: %s", bad, stdout.String())
		}
	}
	return document, err
}

// summaryOf is a window of a document.
func summaryOf(t *testing.T, document map[string]json.RawMessage, window string) load.Summary {
	t.Helper()
	var s load.Summary
	if err := json.Unmarshal(document[window], &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBench(t *testing.T) {
	url := mockAt(t, mock.Options{})
	out := filepath.Join(t.TempDir(), "run")
	document, err := benched(t, url, "--request-rate", "200", "--num-prompts", "60", "--random-input-len", "32", "--random-output-len", "8",
		"--random-prefix-len", "64", "--goodput", "ttft:2000 tpot:500", "--metrics-interval", "100ms", "--seed", "5", "-o", out)
	if err != nil && exitCode(err) != codeNo { // a busy machine makes it INVALID
		t.Fatal(err)
	}
	whole := summaryOf(t, document, "whole")
	if whole.Completed != 60 || whole.Failed != 0 || whole.OutputTokens == nil || *whole.OutputTokens != 480 || whole.TTFT.N != 60 || whole.Goodput == nil {
		t.Errorf("%+v", whole)
	}
	var server struct {
		Requests float64 `json:"finished_requests"`
		Prompt   float64 `json:"prompt_tokens"`
		Output   float64 `json:"generation_tokens"`
		Hits     float64 `json:"prefix_cache_hits_tokens"`
	}
	if err := json.Unmarshal(document["server_whole"], &server); err != nil {
		t.Fatal(err)
	}
	if server.Requests != 60 || server.Output != 480 || server.Prompt != 60*96 || server.Hits == 0 || int(server.Hits) != *whole.CachedTokens {
		t.Errorf("the server counts %+v, the client %d cached tokens", server, *whole.CachedTokens)
	}
	for _, name := range []string{"run.json", "requests.jsonl", "schedule.jsonl"} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	// The promised keys, whatever the run was like.
	for _, key := range []string{"schema", "version", "verdict", "reasons", "whole", "steady", "server"} {
		if _, ok := document[key]; !ok {
			t.Errorf("no key %q", key)
		}
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(document["whole"], &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range strings.Fields("completed failed duration_s request_throughput output_throughput ttft_ms ttft_sched_ms tpot_ms itl_ms icl_ms e2el_ms e2el_sched_ms send_lag_ms") {
		if _, ok := keys[key]; !ok {
			t.Errorf("no key whole.%s", key)
		}
	}
	again, err := benched(t, url, "--schedule", filepath.Join(out, "schedule.jsonl"), "--no-metrics", "-o", out+"2")
	if err != nil && exitCode(err) != codeNo {
		t.Fatal(err)
	}
	if s := summaryOf(t, again, "whole"); s.Completed != 60 || string(again["server"]) != "null" {
		t.Errorf("the schedule again: %d completed, server %s", s.Completed, again["server"])
	}
	first, second := schedule(t, out), schedule(t, out+"2")
	if len(first) != 60 || !slices.EqualFunc(first, second, func(a, b workload.Request) bool { return a.At == b.At && a.Seed == b.Seed }) {
		t.Error("the replayed schedule is another one")
	}
}

// schedule reads what a run was to send.
func schedule(t *testing.T, folder string) []workload.Request {
	t.Helper()
	file, err := os.Open(filepath.Join(folder, "schedule.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := workload.Read("schedule", file)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return s.Requests
}

func TestBenchInvalid(t *testing.T) {
	faults, err := mock.ParseFaults("500:every=4")
	if err != nil {
		t.Fatal(err)
	}
	url := mockAt(t, mock.Options{Faults: faults})
	out := filepath.Join(t.TempDir(), "run")
	document, err := benched(t, url, "--max-concurrency", "4", "--num-prompts", "40", "--random-input-len", "8", "--random-output-len", "4", "-o", out)
	if code := exitCode(err); code != codeNo {
		t.Errorf("exit code %d, error %v: want %d", code, err, codeNo)
	}
	if whole := summaryOf(t, document, "whole"); string(document["verdict"]) != `"INVALID"` || whole.Failed < 8 || whole.Failed > 12 {
		t.Errorf("verdict %s, %d failed", document["verdict"], whole.Failed)
	}
	if _, err := os.Stat(filepath.Join(out, "run.json")); err != nil {
		t.Error("the file of an invalid run is missing")
	}
}

func TestBenchMistakes(t *testing.T) {
	url := mockAt(t, mock.Options{})
	for _, c := range []struct {
		why  string
		args []string
		code int
		want string
	}{
		{"no server", []string{}, codeUsage, "wants the URL"},
		{"a server that is not there", []string{"http://127.0.0.1:1"}, codeOutside, "127.0.0.1:1"},
		{"no rate", []string{url, "--request-rate", "often"}, codeUsage, "requests a second"},
		{"no such backend", []string{url, "--backend", "vlm"}, codeUsage, "unknown --backend"},
		{"no such endpoint", []string{url, "--endpoint", "embeddings"}, codeUsage, "completions or chat"},
		{"no such data", []string{url, "--dataset-name", "sonnet"}, codeUsage, "unknown --dataset-name"},
		{"a trace without a file", []string{url, "--dataset-name", "trace"}, codeUsage, "--dataset-path"},
		{"a missing trace", []string{url, "--dataset-path", "nowhere.csv"}, codeUsage, "nowhere.csv"},
		{"a wrong limit", []string{url, "--slo", "ttft"}, codeUsage, "--slo"},
		{"a search without limits", []string{url, "--find-rate"}, codeUsage, "--slo"},
		{"a broken body", []string{url, "--extra-body", "{"}, codeUsage, "--extra-body"},
		{"no requests", []string{url, "--num-prompts", "0"}, codeUsage, "one request"},
		{"bursts of nothing", []string{url, "--request-rate", "1", "--burstiness", "-1"}, codeUsage, "urst"},
	} {
		_, err := benched(t, c.args...)
		if err == nil || exitCode(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: exit code %d, error %v: want %d and %q", c.why, exitCode(err), err, c.code, c.want)
		}
	}
}

func TestBenchFindsRate(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for half a minute")
	}
	url := mockAt(t, mock.Options{MaxNumSeqs: 2, Timer: mock.Timing{First: 20 * time.Millisecond, Gap: time.Millisecond}})
	document, err := benched(t, url, "--find-rate", "--slo", "ttft:200", "--request-rate", "40", "--num-prompts", "200", "--random-input-len", "8", "--random-output-len", "4", "--no-metrics")
	if err != nil {
		t.Fatal(err)
	}
	var rate *float64
	if err := json.Unmarshal(document["slo_rate"], &rate); err != nil || rate == nil {
		t.Fatalf("%v: %s", err, document["slo_rate"])
	}
	// Two seats of 23 ms serve 87 requests a second at most.
	t.Logf("%.1f requests/s keep the limit", *rate)
	if *rate < 40 || *rate > 120 {
		t.Errorf("%.1f requests/s keep the limit; two seats of 23 ms serve 87", *rate)
	}
}
