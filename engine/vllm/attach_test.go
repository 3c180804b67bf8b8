package vllm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/vllm"
	"github.com/llmprof/llmprof/profile"
)

func TestAttach(t *testing.T) {
	f := newFake()
	f.slow = 0
	url, log := f.attachable(t)
	// What stands in the log from before is not the session's.
	for n := range 50 {
		fmt.Fprintf(log, "Iteration(%d): 1 context requests, 64 context tokens, 0 generation requests, 0 generation tokens, iteration elapsed time: 9.00 ms\n", 1000+n)
	}
	s, err := (&vllm.Server{URL: url + "/v1/", OpenLog: log.open}).Start(t.Context(), f, engine.Setup{Model: "/m/tiny", TaskTimeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	facts := s.Facts()
	if facts.Version != "0.32.0" || facts.MaxModelLen != 2048 || !strings.Contains(fmt.Sprint(facts.Warnings), "attached to a running server") {
		t.Errorf("facts %+v", facts)
	}
	for _, r := range measured(t, s, []engine.Task{stepTask(1, 2, 1, 64, 4), stepTask(2, 2, 4, 32, 4)}) {
		if r.Failure != "" || len(r.Points) < 2 || len(r.Points[0].Samples) < 2 {
			t.Errorf("%+v: %q, %+v", *r.Task.Step, r.Failure, r.Points)
			continue
		}
		if p := r.Points[0]; p.Step.Mode != profile.Prefill || p.Samples[0] > 8.9e-3 {
			t.Errorf("prefill %+v", p)
		}
	}
	if f.pauses > 0 {
		t.Error("a server of others was paused")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if f.count() == 0 {
		t.Error("no steps")
	}
	select {
	case <-f.closed:
		t.Error("a server of others was ended")
	default:
	}
}

// TestAttachAgain: after one session has ended, the same driver starts another,
// as a measurement does whose server has died.
func TestAttachAgain(t *testing.T) {
	f := newFake()
	f.slow = 0
	url, log := f.attachable(t)
	opened := 0
	driver := &vllm.Server{URL: url, OpenLog: func(ctx context.Context) (io.ReadCloser, error) {
		opened++
		return log.open(ctx)
	}}
	for range 2 {
		s, err := driver.Start(t.Context(), f, engine.Setup{TaskTimeout: 5 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if r := measured(t, s, []engine.Task{stepTask(1, 2, 1, 64, 4)})[0]; r.Failure != "" || len(r.Points) < 2 {
			t.Errorf("failure %q, points %+v", r.Failure, r.Points)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if opened != 2 {
		t.Errorf("the log was opened %d times, want 2", opened)
	}
	lost := errors.New("no such pod")
	driver.OpenLog = func(context.Context) (io.ReadCloser, error) { return nil, lost }
	if _, err := driver.Start(t.Context(), f, engine.Setup{}); !errors.Is(err, lost) {
		t.Errorf("a log that cannot be opened: %v", err)
	}
}

// TestAttachDecided: what the running server has decided cannot be asked for,
// and nothing of it is recorded that the server does not say.
func TestAttachDecided(t *testing.T) {
	f := newFake()
	f.slow = 0
	url, log := f.attachable(t)
	driver := &vllm.Server{URL: url, OpenLog: log.open}
	for want, setup := range map[string]engine.Setup{
		"dtype is":                   {Deploy: deploy.Config{DType: "bf16"}},
		"tensor parallel size is":    {Deploy: deploy.Config{TensorParallel: 2}},
		"pipeline parallel size is":  {Deploy: deploy.Config{PipelineParallel: 2}},
		"block size is":              {Deploy: deploy.Config{BlockSize: 16}},
		"max model len is":           {Deploy: deploy.Config{MaxModelLen: 100}},
		"max num batched tokens are": {Deploy: deploy.Config{MaxNumBatchedTokens: 100}},
		"GPU memory utilization is":  {Deploy: deploy.Config{GPUMemoryUtilization: 0.5}},
		"quantisation is":            {Deploy: deploy.Config{Quantization: "awq"}},
		"weights are":                {LoadWeights: true},
		"number of layers is":        {NumLayers: 2},
		"device, CUDA graphs are":    {Device: "cuda", CUDAGraphs: true},
		"arguments are":              {Args: []string{"--x"}},
		"data parallel size is":      {Deploy: deploy.Config{DataParallel: 2}},
	} {
		if strings.HasPrefix(want, "number of layers") {
			want = "number of layers"
		}
		_, err := driver.Start(t.Context(), f, setup)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "the running server's to decide") || hintOf(err) == "" {
			t.Errorf("%+v: error %v, want %q", setup, err, want)
		}
	}
	s, err := driver.Start(t.Context(), f, engine.Setup{Deploy: deploy.Config{Model: "m", TensorParallel: 1, PipelineParallel: 1}, TaskTimeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := deploy.Config{Engine: "vllm", EngineVersion: "0.32.0", Model: "m", MaxModelLen: 2048, BlockSize: 128}
	if diff := cmp.Diff(want, s.Facts().Deploy); diff != "" {
		t.Errorf("deployment (-want +got):\n%s", diff)
	}
}

// trip is a transport that is a function.
type trip func(*http.Request) (*http.Response, error)

func (t trip) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// TestAttachAccess: every request to a running server carries what its guard
// wants, through the client that was given.
func TestAttachAccess(t *testing.T) {
	f := newFake()
	f.slow = 0
	url, log := f.attachable(t)
	for _, c := range []struct {
		why, key, want string
		header         http.Header
	}{
		{"a key", "secret", "Bearer secret", http.Header{"X-Team": {"search"}}},
		{"a header in place of the key", "secret", "Basic c2VjcmV0", http.Header{"X-Team": {"search"}, "Authorization": {"Basic c2VjcmV0"}}},
		{"no key", "", "", http.Header{"X-Team": {"search"}}},
	} {
		asked := 0
		client := &http.Client{Transport: trip(func(r *http.Request) (*http.Response, error) {
			asked++
			if got := r.Header.Get("Authorization"); got != c.want || r.Header.Get("X-Team") != "search" {
				t.Errorf("%s: %s with %q and %q", c.why, r.URL.Path, got, r.Header.Get("X-Team"))
			}
			return http.DefaultTransport.RoundTrip(r)
		})}
		s, err := (&vllm.Server{URL: url, OpenLog: log.open, APIKey: c.key, Header: c.header, Client: client}).Start(t.Context(), f, engine.Setup{TaskTimeout: 5 * time.Minute})
		if err != nil {
			t.Fatalf("%s: %v", c.why, err)
		}
		if err := s.Close(); err != nil || asked < 4 {
			t.Errorf("%s: %v, %d requests", c.why, err, asked)
		}
	}
}

// TestAttachLearnsBudget has a batch beyond the budget of a server whose
// limits nobody told.
func TestAttachLearnsBudget(t *testing.T) {
	f := newFake()
	f.slow, f.budget = 0, 256
	url, log := f.attachable(t)
	s, err := (&vllm.Server{URL: url, OpenLog: log.open}).Start(t.Context(), f, engine.Setup{TaskTimeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := measured(t, s, []engine.Task{stepTask(1, 2, 4, 100, 4)})[0]
	if !strings.HasSuffix(r.Failure, "400 prompt tokens, and a step holds at most 256") {
		t.Errorf("failure %q, points %+v", r.Failure, r.Points)
	}
}

func TestAttachRefused(t *testing.T) {
	silent := newFake()
	silent.silent = true
	url, log := silent.attachable(t)
	const nobody = "http://127.0.0.1:1" // a port that no program is given by chance
	for _, c := range []struct {
		why, want, hint string
		driver          vllm.Server
		model           string
	}{
		{"no log", "no log of the server at", "--enable-logging-iteration-details", vllm.Server{URL: url}, ""},
		{"a log without iterations", "the server's log tells no iterations", "vllm serve MODEL --enable-logging-iteration-details", vllm.Server{URL: url, OpenLog: log.open}, ""},
		{"nobody there", "unreachable", "check address and port", vllm.Server{URL: nobody, OpenLog: newGrowing().open}, ""},
	} {
		t.Run(c.why, func(t *testing.T) {
			_, err := c.driver.Start(t.Context(), silent, engine.Setup{Model: c.model, TaskTimeout: 5 * time.Second})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(hintOf(err), c.hint) {
				t.Errorf("error %v, hint %q; want %s, %s", err, hintOf(err), c.want, c.hint)
			}
		})
	}
}
