package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/load/metrics"
	"github.com/llmprof/llmprof/profile"
)

// figure is a distribution of 200 values with a mean.
func figure(mean float64) load.Figure {
	return load.FigureOf(200, mean, 1, 2*mean, func(share float64) float64 { return 2 * mean * share })
}

// servedWith is a run of 200 requests with latencies of a multiple of usual
// ones.
func servedWith(kind string, times float64) *ServedRun {
	s := load.Summary{
		Window: load.Whole, Duration: 20, Completed: 200, InputTokens: new(1000), OutputTokens: new(2000), RequestThroughput: new(10.0),
		TTFT: figure(100 * times), TPOT: figure(10 * times), ITL: figure(9 * times), E2EL: figure(300 * times),
	}
	steady := s
	steady.Window, steady.TTFT = load.Steady, figure(50)
	return &ServedRun{
		Head: NewHead(kind, "test"), Name: kind + ".json", Engine: "vllm", Whole: &s, Steady: &steady,
		Workload: BenchWorkload{Pattern: "poisson 10/s", Spec: "a load", Requests: 200, InputTokens: 1000, OutputTokens: 2000},
	}
}

func named(t *testing.T, figures []ServedFigure, name string) ServedFigure {
	t.Helper()
	i := slices.IndexFunc(figures, func(f ServedFigure) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("no figure %s", name)
	}
	return figures[i]
}

func TestCompareServed(t *testing.T) {
	run, sim := servedWith("bench", 1), servedWith("simulation", 1.1)
	run.Whole.CachedTokens = new(96)
	sim.Whole.Goodput = new(3.0)
	for _, c := range []struct {
		why  string
		a, b *ServedRun
	}{
		{"as they are named", run, sim},
		{"the measured one comes first all the same", sim, run},
	} {
		t.Run(c.why, func(t *testing.T) {
			d := CompareServed(c.a, c.b, "", nil, "test")
			if d.A.Kind != "measured" || d.B.Kind != "simulated" || d.A.File != "bench.json" || d.Schema != "llmprof/comparison" {
				t.Errorf("%+v against %+v", d.B, d.A)
			}
			ttft := named(t, d.Whole, "ttft_ms.mean")
			if *ttft.A != 100 || *ttft.B < 109.99 || *ttft.B > 110.01 || *ttft.Difference < 9.99 || *ttft.Difference > 10.01 {
				t.Errorf("TTFT %v, %v, %v %%", *ttft.A, *ttft.B, *ttft.Difference)
			}
			if f := named(t, d.Steady, "ttft_ms.mean"); *f.A != 50 || *f.Difference != 0 {
				t.Errorf("the steady TTFT is %v, off by %v %%", *f.A, *f.Difference)
			}
			if f := named(t, d.Whole, "cached_tokens"); f.A == nil || f.B != nil || f.Difference != nil {
				t.Errorf("cached tokens, which one knows: %+v", f)
			}
			if f := named(t, d.Whole, "request_goodput"); f.A != nil || f.B == nil {
				t.Errorf("goodput, which the other knows: %+v", f)
			}
			if len(d.Warnings) > 0 || len(d.Engines) > 0 {
				t.Errorf("warnings %q, engines %v", d.Warnings, d.Engines)
			}
			var text bytes.Buffer
			if err := Text(&text, ServedTables(d)...); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{
				"not known in the one that was measured: goodput, requests/s", "not known in the one that was simulated: cached tokens", "known in neither: ICL; output tokens/s; goodput, share",
				"measured  simulated  difference", "+10.00 %", "equal",
			} {
				if !strings.Contains(text.String(), want) {
					t.Errorf("%q is missing in\n%s", want, &text)
				}
			}
		})
	}
}

func TestCompareServedKinds(t *testing.T) {
	first, second := servedWith("simulation", 1), servedWith("simulation", 2)
	first.Name = "first"
	d := CompareServed(first, second, load.Whole, nil, "test")
	if d.A.File != "first" || d.Steady != nil || *named(t, d.Whole, "tpot_ms.p50").Difference != 100 {
		t.Errorf("two simulations: %+v", d)
	}
	if a, b := sideNames(d); a != "simulated a" || b != "simulated b" {
		t.Errorf("they are called %q and %q", a, b)
	}
}

func TestCompareServedDoubts(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(run, sim *ServedRun)
		want   string
	}{
		{"an untrusted run", func(r, _ *ServedRun) { r.Verdict, r.Reasons = "INVALID", []string{"late", "busy"} }, "bench.json is INVALID: late; busy"},
		{"a doubtful run", func(r, _ *ServedRun) { r.Verdict, r.Reasons = "DEGRADED", []string{"late"} }, "bench.json is DEGRADED: late"},
		{"a run cut short", func(r, _ *ServedRun) { r.Partial = "interrupted" }, "bench.json ended early: interrupted"},
		{"failed requests", func(_, s *ServedRun) { s.Whole.Completed = 190 }, "simulation.json completed 190 of 200 requests"},
		{"fewer requests", func(_, s *ServedRun) { s.Workload.Requests, s.Whole.Completed = 100, 100 }, "not of the same load: requests 200 and 100"},
		{"other prompts", func(_, s *ServedRun) { s.Workload.InputTokens = 1 }, "input tokens 1000 and 1"},
		{"other answers", func(_, s *ServedRun) { s.Workload.OutputTokens = 1 }, "output tokens 2000 and 1"},
		{"other arrivals", func(_, s *ServedRun) { s.Workload.Pattern = "bursts" }, "pattern poisson 10/s and bursts"},
		{"other draws", func(_, s *ServedRun) { s.Workload.Seed = 7 }, "seed 0 and 7"},
		{"another engine", func(_, s *ServedRun) { s.Engine = "sglang" }, "the engines differ: vllm and sglang"},
	} {
		t.Run(c.why, func(t *testing.T) {
			run, sim := servedWith("bench", 1), servedWith("simulation", 1)
			c.change(run, sim)
			d := CompareServed(run, sim, "", nil, "test")
			if len(d.Warnings) != 1 || !strings.Contains(d.Warnings[0], c.want) {
				t.Errorf("warnings %q, want %q", d.Warnings, c.want)
			}
		})
	}
}

func TestReportedRun(t *testing.T) {
	said := &format.Serving{
		Tool: "vllm bench serve", Model: "m", Load: "poisson", RequestRate: new(4.0), MaxConcurrency: new(8), Requests: new(200), Completed: new(200), Failed: new(0),
		InputTokens: new(1000), OutputTokens: new(2000), Duration: new(20.0), RequestThroughput: new(10.0),
		TTFT: &format.Distribution{Mean: new(80.0), P99: new(400.0)}, ICL: &format.Distribution{Mean: new(9.0)},
	}
	sim := servedWith("simulation", 1)
	d := CompareServed(sim, ReportedRun("vllm.json", said), "", nil, "test")
	if len(d.Warnings) > 0 {
		t.Errorf("warnings %q of the same load", d.Warnings)
	}
	if d.A.File != "vllm.json" || d.A.Kind != "measured" || d.A.Schema != "" || d.A.Tool != "vllm bench serve" || d.A.Workload.Spec != "poisson; 4 requests/s; at most 8 open" {
		t.Errorf("the first one is %+v", d.A)
	}
	if f := named(t, d.Whole, "ttft_ms.mean"); *f.A != 80 || *f.B != 100 || *f.Difference != 25 {
		t.Errorf("ttft %+v", f)
	}
	for _, missing := range []string{"ttft_ms.p50", "itl_ms.mean", "cancelled", "concurrency.mean", "send_rate"} {
		if f := named(t, d.Whole, missing); f.A != nil || f.Difference != nil {
			t.Errorf("%s is %v, and nobody said it", missing, *f.A)
		}
	}
	if d.Steady != nil {
		t.Error("a steady part, which another tool does not have")
	}
	if steady := CompareServed(sim, ReportedRun("vllm.json", said), load.Steady, nil, "test").Steady; named(t, steady, "ttft_ms.mean").A != nil || named(t, steady, "ttft_ms.mean").B == nil {
		t.Error("the steady part that was asked for is not the simulation's alone")
	}
	var text bytes.Buffer
	if err := Text(&text, ServedTables(d)...); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"measured   vllm.json, vllm bench serve, m\n", "not known in the one that was measured: TTFT p50, ms; TTFT p90, ms; TTFT p95, ms; TPOT; ITL; E2EL;"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &text)
		}
	}
	for _, c := range []struct {
		why    string
		change func(*format.Serving)
		want   string
	}{
		{"failures", func(s *format.Serving) { s.Completed = new(190) }, "vllm.json completed 190 of 200 requests"},
		{"another load", func(s *format.Serving) { s.Requests, s.Completed = new(9), new(9) }, "not of the same load: requests 9 and 200"},
		{"other tokens", func(s *format.Serving) { s.InputTokens = new(7) }, "not of the same load: input tokens 7 and 1000"},
		{"a mean over tokens", func(s *format.Serving) { s.TPOT = &format.Distribution{Mean: new(9.0), Over: format.OverTokens} }, "takes TPOT over tokens"},
		{"no counts", func(s *format.Serving) { s.Requests, s.Completed, s.InputTokens, s.OutputTokens = nil, nil, nil, nil }, ""},
	} {
		t.Run(c.why, func(t *testing.T) {
			changed := *said
			c.change(&changed)
			got := strings.Join(CompareServed(ReportedRun("vllm.json", &changed), sim, "", nil, "test").Warnings, "; ")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("warnings %q, want %q", got, c.want)
			}
		})
	}
}

func TestCompareServedBounds(t *testing.T) {
	without := servedWith("simulation", 1)
	without.Whole.TTFT = load.Figure{}
	for _, c := range []struct {
		why    string
		sim    *ServedRun
		window load.Window
		bounds string
		missed []string
	}{
		{"at the bound it holds", servedWith("simulation", 1.25), "", "ttft:26 e2el:26", nil},
		{"the exact difference still holds", servedWith("simulation", 2), "", "tpot:100%", nil},
		{"one of two misses", servedWith("simulation", 1.25), "", "ttft:30, tpot:8", []string{"TPOT +25.00 % (at most 8)"}},
		{"below is missed as well", servedWith("simulation", 0.5), "whole", "itl:49", []string{"ITL -50.00 % (at most 49)"}},
		{"the steady part has its own means", servedWith("simulation", 2), "steady", "ttft:1", nil},
		{"what is not known does not hold", without, "", "TTFT:1000", []string{"TTFT not known (at most 1000)"}},
	} {
		t.Run(c.why, func(t *testing.T) {
			bounds, err := ParseBounds(c.bounds)
			if err != nil {
				t.Fatal(err)
			}
			var missed []string
			for _, b := range CompareServed(servedWith("bench", 1), c.sim, c.window, bounds, "test").Missed() {
				missed = append(missed, b.String())
			}
			if !slices.Equal(missed, c.missed) {
				t.Errorf("missed %q, want %q", missed, c.missed)
			}
		})
	}
	for _, bad := range []string{"ttft", "ttft:", "ttft:-1", "ttft:nan", "ttft:inf", "p99:3", "ttft:3 ttft:4", ":3"} {
		if b, err := ParseBounds(bad); err == nil {
			t.Errorf("%q is taken as %v", bad, b)
		}
	}
}

func TestCompareEngines(t *testing.T) {
	run, sim := servedWith("bench", 1), servedWith("simulation", 1)
	run.Server = &metrics.Window{Engine: "vllm", PrefixHits: new(64.0), Preemptions: new(2.0), KVUsage: &profile.Gauge{Mean: 0.5, Max: 0.9}, Steps: new(30.0)}
	sim.Replicas = []SimulatedReplica{
		{Steps: 10, PrefixQueries: 150, PrefixHits: 70, ResumedQueries: 50, ResumedHits: 30, Preemptions: 1, KVUsage: Level{Mean: 0.4, Max: 0.7}, Running: Level{Mean: 2, Max: 4}},
		{Steps: 20, PrefixQueries: 100, PrefixHits: 24, Preemptions: 0, KVUsage: Level{Mean: 0.2, Max: 0.8}, Running: Level{Mean: 1, Max: 4}},
	}
	d := CompareServed(run, sim, "", nil, "test")
	for _, c := range []struct {
		figure string
		a, b   *float64
	}{
		{"prefix_hits_tokens", new(64.0), new(64.0)},
		{"preemptions", new(2.0), new(1.0)},
		{"steps", new(30.0), new(30.0)},
		{"kv_usage.max", new(0.9), new(0.8)},
		{"prefix_hit_rate", nil, new(0.32)},
		{"running_requests.mean", nil, new(3.0)},
		{"running_requests.max", nil, nil}, // the replicas' own largest do not add up
	} {
		f := named(t, d.Engines, c.figure)
		for _, side := range []struct{ got, want *float64 }{{f.A, c.a}, {f.B, c.b}} {
			if (side.got == nil) != (side.want == nil) || side.got != nil && *side.got != *side.want {
				t.Errorf("%s: %+v", c.figure, f)
			}
		}
	}
	if f := named(t, d.Engines, "kv_usage.mean"); *f.B < 0.29 || *f.B > 0.31 {
		t.Errorf("the mean use of two caches: %v", *f.B)
	}
}

func TestReadServed(t *testing.T) {
	text, err := json.Marshal(SimulationDocument{Head: NewHead("simulation", "x"), Engine: "vllm", Whole: *servedWith("simulation", 1).Whole, Replicas: []SimulatedReplica{{Steps: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	with := func(version string) string {
		return strings.Replace(string(text), `"version":"1.0"`, `"version":"`+version+`"`, 1)
	}
	run, warnings, err := ReadServed("x", strings.NewReader(with("1.7")))
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].Error(), "x: llmprof/simulation version 1.7 is newer than 1.0") {
		t.Fatalf("a newer minor version: %v, %v", warnings, err)
	}
	if !run.Simulated() || *run.Whole.TTFT.Mean != 100 || run.Replicas[0].Steps != 3 || run.Engine != "vllm" {
		t.Errorf("read %+v", run)
	}
	if _, _, err := ReadServed("x", strings.NewReader(with("2.0"))); !isNewer(err) {
		t.Errorf("a newer major version: %v", err)
	}
	for _, c := range []struct{ why, text, want string }{
		{"nothing", "", "read x: it is not one JSON document: unexpected end"},
		{"cut off", string(text[:len(text)/2]), "it is not one JSON document"},
		{"two documents", string(text) + string(text), "it is not one JSON document"},
		{"another document", `{"schema":"llmprof/load","version":"1.0"}`, `its schema is "llmprof/load"`},
		{"no document", `{}`, "it says no schema"},
		{"a list", `[]`, "it is not one JSON document"},
		{"no version", `{"schema":"llmprof/bench"}`, `version is "": want major.minor`},
		{"a broken version", with("1.x"), `version is "1.x"`},
		{"no figures", `{"schema":"llmprof/bench","version":"1.0"}`, "it has no figures of the whole run"},
		{"a word for a number", strings.Replace(string(text), `"completed":200`, `"completed":"all"`, 1), "completed"},
		{"a number too large", strings.Replace(string(text), `"duration_s":20`, `"duration_s":1e999`, 1), "1e999"},
	} {
		t.Run(c.why, func(t *testing.T) {
			_, _, err := ReadServed("x", strings.NewReader(c.text))
			wrong, ok := errors.AsType[*NotServedError](err)
			if !ok || !strings.Contains(err.Error(), c.want) || wrong.Hint() == "" {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	endless := io.MultiReader(strings.NewReader("["), io.LimitReader(spaces{}, maxServedBytes+1))
	if _, _, err := ReadServed("x", endless); err == nil || !strings.Contains(err.Error(), "longer than 32 MiB") {
		t.Errorf("a file without an end: %v", err)
	}
}

func isNewer(err error) bool {
	newer, ok := errors.AsType[*profile.VersionError](err)
	return ok && newer.Kind == simulationSchema
}

// spaces reads as spaces without an end.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestCompareProperties holds what is true of any two runs.
func TestCompareProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.Float64Range(0.01, 100)
		first, second := servedWith("bench", at.Draw(t, "a")), servedWith("bench", at.Draw(t, "b"))
		there, back := CompareServed(first, second, "", nil, "test"), CompareServed(second, first, "", nil, "test")
		for i, f := range there.Whole {
			g := back.Whole[i]
			if f.Difference == nil {
				continue
			}
			// b = a (1 + d), so the differences of both ways cancel out.
			if product := (1 + *f.Difference/100) * (1 + *g.Difference/100); product < 1-1e-9 || product > 1+1e-9 {
				t.Fatalf("%s: %+v there, %+v back", f.Name, f, g)
			}
		}
		for _, f := range CompareServed(first, first, "", nil, "test").Whole {
			if f.Difference != nil && *f.Difference != 0 {
				t.Fatalf("%s of a run and itself differs by %v %%", f.Name, *f.Difference)
			}
		}
	})
}

// FuzzReadServed wants documents that are read to be compared and written
// without a fault, whatever stands in them.
func FuzzReadServed(f *testing.F) {
	for _, d := range []any{
		SimulationDocument{Head: NewHead("simulation", "x"), Whole: *servedWith("simulation", 1).Whole, Replicas: []SimulatedReplica{{Steps: 3}}},
		BenchDocument{Head: NewHead("bench", "x"), Verdict: "INVALID", Whole: *servedWith("bench", 1).Whole, ServerWhole: &metrics.Window{KVUsage: &profile.Gauge{}}},
	} {
		text, err := json.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"schema":"llmprof/simulation","version":"1.9","whole":{"ttft_ms":{"mean":-1e308}},"replicas":[{"kv_usage":{"mean":1e308}},{"kv_usage":{"mean":1e308}}]}`))
	f.Add([]byte(`{"schema":"llmprof/bench","version":"9.0"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		run, _, err := ReadServed("x", bytes.NewReader(text))
		if (run == nil) == (err == nil) {
			t.Fatalf("run %v, error %v", run, err)
		}
		if err != nil {
			return
		}
		for _, pair := range [][2]*ServedRun{{run, servedWith("bench", 1)}, {servedWith("simulation", 1), run}, {run, run}} {
			d := CompareServed(pair[0], pair[1], "", []ServedBound{{load.TTFT, 8}}, "test")
			if err := errors.Join(JSON(io.Discard, d), Text(io.Discard, ServedTables(d)...), CSV(io.Discard, ServedTables(d)...)); err != nil {
				t.Fatal(err)
			}
		}
	})
}
