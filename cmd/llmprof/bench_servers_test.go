package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/mock"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/report"
)

// benchDocument runs bench and reads its document; a busy machine may make the
// run INVALID.
func benchDocument(t *testing.T, args ...string) report.BenchDocument {
	t.Helper()
	keys, err := benched(t, args...)
	if err != nil && exitCode(err) != codeNo {
		t.Fatal(err)
	}
	text, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	var d report.BenchDocument
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestBenchServers puts a load on two servers in turn: each one's metrics are
// read, and their counters added up.
func TestBenchServers(t *testing.T) {
	one, two := mockAt(t, mock.Options{KVBlocks: 1000}), mockAt(t, mock.Options{KVBlocks: 1000, Timer: mock.Timing{First: 40 * time.Millisecond, Gap: time.Millisecond}})
	out := t.TempDir()
	load := []string{"--request-rate", "100", "--num-prompts", "40", "--random-input-len", "32", "--random-output-len", "8", "--metrics-interval", "20ms", "--num-warmups", "4"}
	// The first is named twice, and read once.
	d := benchDocument(t, append([]string{one, two, strings.Replace(one, "127.0.0.1", "localhost", 1) + "/v1", "-o", out}, load...)...)
	if len(d.Servers) != 2 || d.Servers[0].URL != one || d.Servers[1].URL != two {
		t.Fatalf("%+v", d.Servers)
	}
	sum := d.ServerWhole
	if sum == nil || *sum.Requests != 40 || *sum.GenerationTokens != 320 || sum.Running != nil || sum.KVUsage != nil || sum.TTFT != nil {
		t.Fatalf("together %+v", sum)
	}
	a, b := d.Servers[0].Whole, d.Servers[1].Whole
	if *a.Requests+*b.Requests != 40 || *a.Requests < *b.Requests || a.Running == nil || b.Running == nil || a.KVUsage == nil || a.TTFT == nil || *b.TTFT < 40 {
		t.Errorf("%+v and %+v: two of three requests go to the first, and the second takes 40 ms at least", a, b)
	}
	if d.EngineVersion != "0.32.0" || len(d.Warnings) != 0 {
		t.Errorf("release %q, warnings %q", d.EngineVersion, d.Warnings)
	}
	file, err := os.Open(filepath.Join(out, "run.llmprof"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p, _, err := profile.Read("run", file)
	if err != nil {
		t.Fatal(err)
	}
	wholes := 0
	for _, point := range p.Filter(profile.ByKind(profile.KindServer)).Points {
		if strings.HasPrefix(point.Server.Window, "whole, http://127.0.0.1:") && point.Server.Running != nil {
			wholes++
		}
	}
	if wholes != 2 {
		t.Errorf("%d servers in the profile, want each by itself", wholes)
	}
	var shown strings.Builder
	if err := report.Text(&shown, report.BenchTables(d, nil)...); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"What the servers say together", "What each server says", one, two} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("no %q in\n%s", want, shown.String())
		}
	}

	// One that tells nothing leaves no sum, and the other one's figures stand.
	behind, err := url.Parse(two)
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
	d = benchDocument(t, append([]string{one, silent.URL, "--seed", "3"}, load...)...)
	if d.ServerWhole != nil || d.Server != nil || len(d.Servers) != 2 || d.Servers[0].Whole == nil || *d.Servers[0].Whole.Requests != 20 || d.Servers[1].Whole != nil {
		t.Errorf("together %+v, each %+v", d.ServerWhole, d.Servers)
	}
	if said := strings.Join(d.Warnings, "; "); !strings.Contains(said, "status 404") || !strings.Contains(said, "no sums") {
		t.Errorf("warnings %q", said)
	}
}
