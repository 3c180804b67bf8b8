package fit

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

// vllmLoads are the loads that a real vLLM served on a CPU. a and a2 are the
// same schedule twice, which shows what the machine's noise alone does.
func vllmLoads() []string {
	return []string{"a-poisson", "a2-poisson", "b-burst-prefix", "g-busy-public"}
}

// kvTokens is the KV cache of that server in tokens.
const kvTokens = 1024 * 32

// unpack reads a compressed file of those loads line by line.
func unpack(tb testing.TB, name string, take func(line []byte)) {
	tb.Helper()
	file, err := os.Open("testdata/vllm-cpu/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		tb.Fatal(err)
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		tb.Fatal(err)
	}
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	for lines.Scan() {
		take(lines.Bytes())
	}
}

// vllmSteps are the engine's steps of a load, in order.
func vllmSteps(tb testing.TB, load string) []profile.Point {
	tb.Helper()
	const format = "Iteration(%d): %d context requests, %d context tokens, %d generation requests, %d generation tokens, " +
		"iteration elapsed time: %f ms, CPU KV cache usage: %f%%"
	var out []profile.Point
	unpack(tb, load+".iterations.log.gz", func(line []byte) {
		var number int
		var ms, usage float64
		t := &forward.Totals{}
		if _, err := fmt.Sscanf(string(line), format, &number, &t.PrefillRequests, &t.PrefillTokens, &t.DecodeRequests, &t.DecodeTokens, &ms, &usage); err != nil {
			tb.Fatalf("%s: %q: %v", load, line, err)
		}
		t.KVTokens = int64(usage / 100 * kvTokens)
		mode := profile.Mixed
		switch {
		case t.PrefillTokens == 0:
			mode = profile.Decode
		case t.DecodeTokens == 0:
			mode = profile.Prefill
		}
		out = append(out, profile.Point{
			Kind: profile.KindStep, Samples: []float64{ms / 1e3}, Clock: profile.ClockWall,
			Step: &profile.Step{Mode: mode, Totals: t}, Origin: fmt.Sprintf("%s: step %d", load, number),
		})
	})
	return out
}

// vllmRequests are the requests of a load as its client saw them.
func vllmRequests(tb testing.TB, load string) []profile.Point {
	tb.Helper()
	var out []profile.Point
	unpack(tb, load+".record.jsonl.gz", func(line []byte) {
		var r struct {
			Sent   float64 `json:"sent_s"`
			First  float64 `json:"first_s"`
			Last   float64 `json:"last_s"`
			Input  int     `json:"prompt_tokens"`
			Output int     `json:"output_tokens"`
			Cached int     `json:"cached_tokens"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			tb.Fatalf("%s: %v", load, err)
		}
		out = append(out, profile.Point{Kind: profile.KindRequest, Origin: load, Request: &profile.Request{
			InputLen: r.Input, OutputLen: r.Output, CachedLen: r.Cached, Sent: r.Sent, First: r.First, Last: r.Last,
		}})
	})
	return out
}

// vllmRows are the rows of some loads together.
func vllmRows(tb testing.TB, loads ...string) []Row {
	tb.Helper()
	var points []profile.Point
	for _, load := range loads {
		points = append(points, vllmSteps(tb, load)...)
	}
	data, err := ObservationsOf(points)
	if err != nil {
		tb.Fatal(err)
	}
	return data.Rows
}
