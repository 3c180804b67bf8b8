package serving_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/load/metrics"
	"github.com/llmprof/llmprof/measure/serving"
	"github.com/llmprof/llmprof/mock"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

const ms = time.Millisecond

// open starts a server and an experiment on it.
func open(t *testing.T, server mock.Options, change func(*serving.Options)) *serving.Experiment {
	t.Helper()
	s, err := mock.New(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	opts := serving.Options{
		Target: load.Target{URL: s.URL(), Model: "mock", Engine: load.VLLM}, Metrics: &metrics.Server{URL: s.URL()},
		Warmup: 1, Runs: 3, Steps: 8, Seed: 1,
	}
	if change != nil {
		change(&opts)
	}
	e, err := serving.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func measure(t *testing.T, e *serving.Experiment, c serving.Cell) *serving.Result {
	t.Helper()
	r, err := e.Measure(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	points, err := r.Points()
	if err != nil {
		t.Fatal(err)
	}
	for i := range points {
		if err := points[i].Validate(); err != nil {
			t.Errorf("point %d: %v", i, err)
		}
	}
	return r
}

// names are the quantities that were not measured.
func names(r *serving.Result) string {
	var out []string
	for _, m := range r.Missing {
		out = append(out, m.What)
	}
	return strings.Join(out, "; ")
}

func TestPrefill(t *testing.T) {
	e := open(t, mock.Options{Timer: mock.Timing{First: 5 * ms, PerPromptToken: ms / 10, Gap: 2 * ms}}, nil)
	c := serving.Cell{Type: profile.Prefill, NewTokens: 100, CachedBlocks: 8, BlockSize: 16, Requests: 4}
	r := measure(t, e, c)
	if r.Failure != "" || r.Decode != nil || r.Mixed != nil || len(r.Prefill.Runs) != 3 {
		t.Fatalf("%+v", r)
	}
	asked, found, _ := r.Proof()
	if want := 3 * 4 * 8 * 16; asked != want || found == nil || *found != want {
		t.Errorf("asked %d, found %v, want %d of both: warm-up runs do not count", asked, found, want)
	}
	side := r.Side(r.Prefill, profile.Prefill)
	if len(side.Latencies) != 12 || side.Tokens != 1200 {
		t.Errorf("%d latencies, %d tokens", len(side.Latencies), side.Tokens)
	}
	// 5 ms and 0.1 ms for each of 100 tokens that no cache has.
	if least := slices.Min(side.Latencies); least < 0.015 {
		t.Errorf("the shortest TTFT is %g s, want 0.015 or more", least)
	}
	for _, rec := range side.Records {
		if rec.Prompt.Tokens != 228 || rec.Output.Tokens != 1 || rec.Cached.Tokens != 128 {
			t.Errorf("%+v", rec)
		}
	}
	if got := names(r); !strings.Contains(got, "steps and batch efficiency") || !strings.Contains(got, "devices") || strings.Contains(got, "cached") || strings.Contains(got, "preemptions") {
		t.Errorf("not measured: %s", got)
	}
	if n := r.Preemptions(); n == nil || *n != 0 {
		t.Errorf("preemptions %v", n)
	}
}

func TestDecode(t *testing.T) {
	// Requests are admitted 30 ms after another, so that the first is far ahead
	// when the last begins.
	e := open(t, mock.Options{Timer: &staggered{gap: 3 * ms}}, nil)
	r := measure(t, e, serving.Cell{Type: profile.Decode, NewTokens: 10, CachedBlocks: 2, BlockSize: 16, Requests: 3})
	if r.Failure != "" {
		t.Fatal(r.Failure)
	}
	for _, run := range r.Decode.Runs {
		if run.To <= run.From {
			t.Errorf("measured from %v to %v", run.From, run.To)
		}
		for _, rec := range run.Decode {
			if rec.Chunks[0].At > run.From || rec.End < run.To {
				t.Errorf("a request decodes from %v to %v, measured is %v to %v", rec.Chunks[0].At, rec.End, run.From, run.To)
			}
		}
	}
	side := r.Side(r.Decode, profile.Decode)
	if len(side.Latencies) != 9 || len(side.Gaps) != side.Tokens || side.Tokens < 9*4 {
		t.Errorf("%d latencies, %d gaps, %d tokens", len(side.Latencies), len(side.Gaps), side.Tokens)
	}
}

// staggered lets each request wait longer than the one before.
type staggered struct {
	gap    time.Duration
	admits int
}

func (s *staggered) FirstToken(mock.Load) time.Duration {
	s.admits++
	return time.Duration(s.admits%3) * 30 * ms
}

func (s *staggered) NextToken(mock.Load) time.Duration { return s.gap }

func TestMixed(t *testing.T) {
	// A step takes 4 ms more for each other request: twice as many requests slow
	// the decodes down, and the prompts do not care.
	e := open(t, mock.Options{Timer: mock.Timing{First: 60 * ms, Gap: 2 * ms, PerRunning: 4 * ms}, BlockSize: 32}, nil)
	r := measure(t, e, serving.Cell{Type: profile.Mixed, NewTokens: 16, CachedBlocks: 3, BlockSize: 32, Requests: 2})
	if r.Failure != "" {
		t.Fatal(r.Failure)
	}
	prefill, decode := r.Side(r.Mixed, profile.Prefill), r.Side(r.Mixed, profile.Decode)
	if len(prefill.Latencies) != 6 || len(decode.Latencies) != 6 {
		t.Fatalf("%d prefills, %d decodes", len(prefill.Latencies), len(decode.Latencies))
	}
	// A token takes 6 ms before the prompts come and 14 ms beside them, never less;
	// a busy machine makes it as slow without them.
	slow, before := serving.Slowdown(decode, r.Side(r.Decode, profile.Decode)), stat.Mean(decode.Before)
	switch {
	case slow == nil:
		t.Error("the slowdown of decodes is not known")
	case before > 0.0075:
		t.Logf("SLOWDOWN NOT JUDGED: this machine is busy, a token takes %.1f ms in place of 6", 1e3*before)
	case *slow <= 1:
		t.Errorf("decodes are slowed down by %v, want about 14/6", *slow)
	}
	if first := serving.Slowdown(prefill, r.Side(r.Prefill, profile.Prefill)); first == nil {
		t.Error("the slowdown of prefills is not known")
	}
	asked, found, _ := r.Proof()
	if found == nil || asked != *found || asked != 3*(2+2+4)*96 {
		t.Errorf("asked %d, found %v", asked, found)
	}
	for _, run := range r.Mixed.Runs {
		for _, rec := range run.Decode {
			if rec.Chunks[0].At > run.From || rec.End < run.To {
				t.Errorf("a decode from %v to %v does not span the prefills, %v to %v", rec.Chunks[0].At, rec.End, run.From, run.To)
			}
		}
	}
}

// TestShortPrefill: a prompt that is computed within one gap of the decodes
// stretches that gap, which counts.
func TestShortPrefill(t *testing.T) {
	e := open(t, mock.Options{Timer: mock.Timing{First: 2 * ms, Gap: 20 * ms, PerRunning: 20 * ms}}, nil)
	r := measure(t, e, serving.Cell{Type: profile.Mixed, NewTokens: 16, BlockSize: 16, Requests: 1})
	if r.Failure != "" {
		t.Fatal(r.Failure)
	}
	decode := r.Side(r.Mixed, profile.Decode)
	if len(decode.Latencies) != 3 || len(decode.Before) != 3 {
		t.Errorf("%d latencies, %d before: want one of each run", len(decode.Latencies), len(decode.Before))
	}
}

func TestFailures(t *testing.T) {
	c := serving.Cell{Type: profile.Prefill, NewTokens: 32, CachedBlocks: 4, BlockSize: 16, Requests: 4}
	no := false
	for _, f := range []struct {
		why    string
		server mock.Options
		change func(*serving.Options)
		want   string
	}{
		{"a server that forgets prompts", mock.Options{NoPrefixCache: true}, nil, "found 0 tokens in its cache"},
		{"one that says so", mock.Options{}, func(o *serving.Options) { o.PrefixCaching = &no }, "does not cache prefixes"},
		{"a cache that is too small for the prefixes", mock.Options{KVBlocks: 8}, nil, "in its cache"},
		{"one whose size is known", mock.Options{}, func(o *serving.Options) { o.KVTokens = 200 }, "do not fit into a KV cache of 200"},
		{"other blocks", mock.Options{}, func(o *serving.Options) { o.BlockSize = 128 }, "blocks hold 128"},
		{"a model that is too short", mock.Options{}, func(o *serving.Options) { o.MaxModelLen = 96 }, "longer than the server's 96"},
		{"too few seats", mock.Options{}, func(o *serving.Options) { o.Seats = 2 }, "the server runs 2"},
		{"requests that fail", mock.Options{Faults: []mock.Fault{{Kind: mock.Status, Code: 500, Share: 1}}}, nil, "status 500"},
	} {
		t.Run(f.why, func(t *testing.T) {
			r := measure(t, open(t, f.server, f.change), c)
			if !strings.Contains(r.Failure, f.want) {
				t.Errorf("failure %q, want %q", r.Failure, f.want)
			}
		})
	}
	e := open(t, mock.Options{}, nil)
	for _, bad := range []serving.Cell{
		{Type: "both", NewTokens: 1, BlockSize: 1, Requests: 1},
		{Type: profile.Decode, BlockSize: 1, Requests: 1},
		{Type: profile.Decode, NewTokens: 1, Requests: 1},
		{Type: profile.Decode, NewTokens: 1, BlockSize: 1},
		{Type: profile.Decode, NewTokens: 1, BlockSize: 1 << 20, CachedBlocks: 1 << 20, Requests: 1},
	} {
		if _, err := e.Measure(t.Context(), bad); err == nil {
			t.Errorf("%+v is measured", bad)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := e.Measure(ctx, c); err == nil || r != nil {
		t.Errorf("after the end of its context: %+v, %v", r, err)
	}
}

// TestWarmServer: a server that has seen the very same measurement is measured
// with other tokens, so that only the prefixes are found in its cache.
func TestWarmServer(t *testing.T) {
	s, err := mock.New(mock.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := serving.Cell{Type: profile.Prefill, NewTokens: 64, CachedBlocks: 2, BlockSize: 16, Requests: 2}
	for session := range 8 {
		e, err := serving.Open(t.Context(), serving.Options{
			Target: load.Target{URL: s.URL(), Model: "mock", Engine: load.VLLM}, Metrics: &metrics.Server{URL: s.URL()}, Warmup: 1, Runs: 2, Seed: 5,
		})
		if err != nil {
			t.Fatal(err)
		}
		r := measure(t, e, c)
		e.Close()
		if asked, found, _ := r.Proof(); r.Failure != "" || found == nil || *found != asked || asked != 2*2*32 {
			t.Errorf("session %d: %s, asked %d, found %v", session, r.Failure, asked, found)
		}
	}
}

// scripted tells the same steps of every run.
type scripted []engine.ServedStep

func (scripted) Mark() int { return 0 }

func (s scripted) Steps(context.Context, int, int) []engine.ServedStep { return s }

// TestSteps: what each step computed, over what it could have.
func TestSteps(t *testing.T) {
	step := func(prefills, tokens, decodes int) engine.ServedStep {
		return engine.ServedStep{Seconds: 0.01, Totals: forward.Totals{PrefillRequests: prefills, PrefillTokens: tokens, DecodeRequests: decodes, DecodeTokens: decodes}}
	}
	e := open(t, mock.Options{}, func(o *serving.Options) {
		o.Budget = 150
		// One request is scheduled alone, then as many as the budget holds.
		o.Log = scripted{step(1, 100, 0), step(2, 150, 0), step(2, 150, 0)}
	})
	r := measure(t, e, serving.Cell{Type: profile.Prefill, NewTokens: 100, CachedBlocks: 0, BlockSize: 16, Requests: 4})
	side := r.Side(r.Prefill, profile.Prefill)
	want := []float64{2. / 3, 1, 1}
	if len(side.Efficiency) != 9 {
		t.Fatalf("efficiencies %v", side.Efficiency)
	}
	for i, got := range side.Efficiency {
		if math.Abs(got-want[i%3]) > 1e-9 {
			t.Errorf("step %d: %g, want %g", i, got, want[i%3])
		}
	}
	if got := names(r); strings.Contains(got, "efficiency") {
		t.Errorf("not measured: %s", got)
	}

	e = open(t, mock.Options{Timer: mock.Timing{First: 20 * ms, Gap: 3 * ms}}, func(o *serving.Options) {
		o.Budget = 128
		// Two decodes begin, decode alone, beside two prompts, and alone again.
		o.Log = scripted{step(1, 16, 0), step(1, 16, 1), step(0, 0, 2), step(2, 32, 2), step(0, 0, 2)}
	})
	r = measure(t, e, serving.Cell{Type: profile.Mixed, NewTokens: 16, BlockSize: 16, Requests: 2})
	if prefill, decode := r.Side(r.Mixed, profile.Prefill), r.Side(r.Mixed, profile.Decode); len(prefill.Steps) != 3 || prefill.Steps[0] != step(2, 32, 2) || len(decode.Steps) != 3 || decode.Efficiency[0] != 1 {
		t.Errorf("steps of the prefills %+v, of the decodes %+v", prefill.Steps, decode.Steps)
	} else if len(prefill.Pure) != 0 || !slices.Equal(decode.Pure, []engine.ServedStep{step(0, 0, 2), step(0, 0, 2), step(0, 0, 2), step(0, 0, 2), step(0, 0, 2), step(0, 0, 2)}) {
		t.Errorf("steps that only decode: %+v, want two of each run", decode.Pure)
	}
	if got := names(r); strings.Contains(got, "only decode") {
		t.Errorf("not measured: %s", got)
	}
	if alone := r.Side(r.Decode, profile.Decode); len(alone.Pure) != 0 {
		t.Errorf("decodes alone are measured as a whole: %+v", alone.Pure)
	}
	if alone := r.Side(r.Decode, profile.Decode); len(alone.Steps) != 9 || alone.Steps[0] != step(0, 0, 2) || alone.Efficiency[0] != 1 || alone.BudgetUse[0] != 2./128 {
		t.Errorf("steps of decodes alone: %+v", alone.Steps)
	}

	// A log in which a prompt is in every step that decodes, and one that is not
	// there.
	always := open(t, mock.Options{Timer: mock.Timing{First: 20 * ms, Gap: 3 * ms}}, func(o *serving.Options) {
		o.Budget, o.Log = 128, scripted{step(2, 32, 0), step(1, 16, 2), step(1, 16, 2)}
	})
	r = measure(t, always, serving.Cell{Type: profile.Mixed, NewTokens: 16, BlockSize: 16, Requests: 2})
	if got := names(r); len(r.Side(r.Mixed, profile.Decode).Pure) != 0 || !strings.Contains(got, "steps that only decode") {
		t.Errorf("not measured: %s", got)
	}
	r = measure(t, open(t, mock.Options{Timer: mock.Timing{First: 20 * ms, Gap: 3 * ms}}, nil), serving.Cell{Type: profile.Mixed, NewTokens: 16, BlockSize: 16, Requests: 2})
	if got := names(r); !strings.Contains(got, "steps and batch efficiency") || strings.Contains(got, "only decode") {
		t.Errorf("without a log its absence is the reason: %s", got)
	}
}
