package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/llmprof/llmprof/mock"
	"github.com/llmprof/llmprof/profile"
)

// smallCell measures in a moment.
func smallCell(url, out string, more ...string) []string {
	return append([]string{
		"--url", url, "--C", "16", "--B", "1", "--profiling-type", "prefill", "--num-warmup", "0", "--num-measurements", "1", "-o", out,
	}, more...)
}

// TestProfileWorkloadUntold: points of which no document tells are not added to.
func TestProfileWorkloadUntold(t *testing.T) {
	server, out := mockAt(t, mock.Options{}), t.TempDir()
	if _, err := workloads(t, smallCell(server, out, "--M", "1")...); err != nil {
		t.Fatal(err)
	}
	held := filepath.Join(out, "blocks-of-16.llmprof")
	before, err := os.ReadFile(held)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(out, workloadFile)); err != nil {
		t.Fatal(err)
	}
	for _, more := range [][]string{{"--M", "1"}, {"--M", "1", "--resume"}} {
		_, err := workloads(t, smallCell(server, out, more...)...)
		after, unread := os.ReadFile(held)
		if err == nil || exitCode(err) != codeUsage || !strings.Contains(err.Error(), "blocks-of-16.llmprof holds points") || !bytes.Equal(before, after) {
			t.Errorf("%v: %v; the profile was %d bytes and is %d (%v)", more, err, len(before), len(after), unread)
		}
	}
	if _, err := workloads(t, smallCell(server, out, "--M", "1", "--overwrite")...); err != nil {
		t.Fatal(err)
	}
	if n := cellsIn(t, held); n != 1 {
		t.Errorf("%d cells after it was replaced, want 1", n)
	}
}

// TestProfileWorkloadKilled: what a killed run has written of a cell that it did
// not end is dropped, and the cell is measured once.
func TestProfileWorkloadKilled(t *testing.T) {
	server, out := mockAt(t, mock.Options{}), t.TempDir()
	if _, err := workloads(t, smallCell(server, out, "--M", "1")...); err != nil {
		t.Fatal(err)
	}
	document, held := filepath.Join(out, workloadFile), filepath.Join(out, "blocks-of-16.llmprof")
	earlier, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := workloads(t, smallCell(server, out, "--M", "1,2", "--resume")...); err != nil {
		t.Fatal(err)
	}
	// Killed after the points of the second cell and before its document.
	if err := os.WriteFile(document, earlier, 0o600); err != nil {
		t.Fatal(err)
	}
	if n := cellsIn(t, held); n != 2 {
		t.Fatalf("%d cells before the resumed run, want 2", n)
	}
	d, err := workloads(t, smallCell(server, out, "--M", "1,2", "--resume")...)
	if err != nil || len(d.Results) != 2 {
		t.Fatalf("%v, %d results", err, len(d.Results))
	}
	if n := cellsIn(t, held); n != 2 {
		t.Errorf("%d cells in the profile, want each once", n)
	}
	// A profile that has lost points is not gone on with.
	if err := os.Truncate(held, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := workloads(t, smallCell(server, out, "--M", "1,2,3", "--resume")...); err == nil || !strings.Contains(err.Error(), "shorter than it was") {
		t.Errorf("a profile that was cut: %v", err)
	}
}

// cellsIn counts the workload points of a profile.
func cellsIn(t *testing.T, name string) int {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p, _, err := profile.Read(name, file)
	if err != nil {
		t.Fatal(err)
	}
	return len(p.Filter(profile.ByKind(profile.KindWorkload)).Points)
}

// TestProfileWorkloadOtherServer: cells of another release, or of other settings,
// are not put beside those that are done.
func TestProfileWorkloadOtherServer(t *testing.T) {
	behind, err := url.Parse(mockAt(t, mock.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	var version, models atomic.Pointer[string]
	pass := httputil.NewSingleHostReverseProxy(behind)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := map[string]*string{"/version": version.Load(), "/v1/models": models.Load()}[r.URL.Path]
		if said == nil {
			pass.ServeHTTP(w, r)
			return
		}
		_, _ = w.Write([]byte(*said))
	}))
	defer front.Close()
	say := func(number, length string) {
		version.Store(new(`{"version":"` + number + `"}`))
		models.Store(new(`{"data":[{"id":"mock","owned_by":"vllm","max_model_len":` + length + `}]}`))
	}
	out := t.TempDir()
	say("0.32.0", "4096")
	if _, err := workloads(t, smallCell(front.URL, out, "--M", "1")...); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ why, version, length, want string }{
		{"another release", "0.33.0", "4096", "engine_version: 0.32.0 there, 0.33.0 now"},
		{"other settings", "0.32.0", "2048", "max_model_len: 4096 there, 2048 now"},
		{"both", "0.33.0", "2048", "engine_version: 0.32.0 there, 0.33.0 now; max_model_len: 4096 there, 2048 now"},
	} {
		say(c.version, c.length)
		d, err := workloads(t, smallCell(front.URL, out, "--M", "1,2", "--resume")...)
		if err == nil || exitCode(err) != codeUsage || !strings.Contains(err.Error(), c.want) || len(d.Results) != 1 {
			t.Errorf("%s: %v, %d results; want %q", c.why, err, len(d.Results), c.want)
		}
	}
	say("0.32.0", "4096")
	if d, err := workloads(t, smallCell(front.URL, out, "--M", "1,2", "--resume")...); err != nil || len(d.Results) != 2 {
		t.Errorf("the same server: %v, %d results", err, len(d.Results))
	}
}

// TestProfileWorkloadSGLang reads the settings of a server that answers as SGLang
// is documented to: its block size need not be said, and its seats bound B.
func TestProfileWorkloadSGLang(t *testing.T) {
	behind, err := url.Parse(mockAt(t, mock.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(behind)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			_, _ = w.Write([]byte(`{"data":[{"id":"mock","owned_by":"sglang","max_model_len":4096}]}`))
		case "/server_info":
			_, _ = w.Write([]byte(`{"page_size":16,"max_running_requests":2,"chunked_prefill_size":2048,"disable_radix_cache":false,"max_total_num_tokens":5000,"schedule_policy":"fcfs","version":"0.5.10"}`))
		case "/metrics": // without --enable-metrics
			http.NotFound(w, r)
		default:
			pass.ServeHTTP(w, r)
		}
	}))
	defer front.Close()
	args := []string{"--url", front.URL, "--C", "16", "--M", "2", "--profiling-type", "prefill", "--num-warmup", "0", "--num-measurements", "1", "-o", t.TempDir()}
	d, err := workloads(t, append(args, "--B", "2,3")...)
	if err == nil || len(d.Results) != 2 {
		t.Fatalf("%v, %d results", err, len(d.Results))
	}
	r := d.Results[0]
	if p := r.PrefixTokens; r.Failure != "" || r.Config.BlockSize != 16 || p.Asked != 2*32 || p.Found == nil || *p.Found != p.Asked || p.By != "usage of the answers" {
		t.Errorf("%s: blocks of %d, cached %+v", r.Failure, r.Config.BlockSize, p)
	}
	if e := r.Engine; e.Engine != "sglang" || e.EngineVersion != "0.5.10" || e.MaxNumSeqs != 2 || e.SchedulingPolicy != "fcfs" || e.ChunkedPrefill == nil || !*e.ChunkedPrefill {
		t.Errorf("engine %+v", e)
	}
	if !strings.Contains(d.Results[1].Failure, "3 requests at once, and the server runs 2") {
		t.Errorf("failure %q", d.Results[1].Failure)
	}
}
