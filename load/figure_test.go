package load

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

const ms = time.Millisecond

// streamed is a good record: sent at send, chunks at the given times of one
// token each.
func streamed(sched, send time.Duration, chunks ...time.Duration) Record {
	r := Record{Sched: sched, Send: send, Sent: true, Status: 200, Output: Count{len(chunks), FromUsage}, Spread: FromChunks}
	for i, at := range chunks {
		r.Chunks = append(r.Chunks, Chunk{at, 1, int32(i)})
	}
	r.End = chunks[len(chunks)-1]
	r.Close = r.End + ms
	return r
}

func TestDefinitions(t *testing.T) {
	r := streamed(10*ms, 12*ms, 100*ms, 120*ms, 150*ms)
	for _, test := range []struct {
		metric Metric
		want   time.Duration
		why    string
	}{
		{SendLag, 2 * ms, "sent 2 ms after its time"},
		{TTFT, 88 * ms, "from sending"},
		{TTFTSched, 90 * ms, "from the schedule"},
		{TPOT, 25 * ms, "the first token is not in the divisor"},
		{NTPOT, 46 * ms, "holds TTFT"},
		{E2EL, 138 * ms, "to the last chunk, not to the close"},
		{E2ELSched, 140 * ms, "from the schedule"},
	} {
		if got, ok := r.value(test.metric); !ok || got != test.want {
			t.Errorf("%s: %v, want %v: %s", test.metric, got, test.want, test.why)
		}
	}
	one := streamed(0, 0, 5*ms)
	if _, ok := one.TPOT(); ok {
		t.Error("one token has no gap, so no TPOT")
	}
	if !(SLOs{{Metric: TPOT, Limit: 1}}).Met(&one) {
		t.Error("one token passes a limit on TPOT")
	}
	if (SLOs{{Metric: TTFT, Limit: 50}}).Met(&r) {
		t.Error("a TTFT of 90 ms passes a limit of 50")
	}
	quantile := SLOs{{Metric: TTFT, Quantile: 0.9, Limit: 50}}
	if !quantile.Met(&r) || quantile.Single() {
		t.Error("a limit on a quantile is held against one request")
	}
	for _, limits := range []SLOs{nil, quantile} {
		whole, _ := (&Result{Schedule: &workload.Schedule{}, Records: []Record{r}, Elapsed: time.Second}).Summaries(limits)
		if whole.Goodput != nil || whole.GoodShare != nil {
			t.Errorf("goodput of limits %v is known", limits)
		}
	}
}

func TestITLSharesAGap(t *testing.T) {
	r := streamed(0, 0, 10*ms, 20*ms, 26*ms, 40*ms)
	r.Chunks[1].Tokens, r.Chunks[2].Tokens, r.Chunks[3].Tokens = 2, 0, 4
	got := (&Result{Records: []Record{r}}).Samples(Whole, 0, 0)
	if want := []float64{5, 5, 5, 5, 5, 5}; !slices.Equal(got[ITL], want) {
		t.Errorf("ITL %v, want %v: a gap is shared by its tokens, and one without tokens goes to the next", got[ITL], want)
	}
	if want := []float64{10, 6, 14}; !slices.Equal(got[ICL], want) {
		t.Errorf("ICL %v, want %v", got[ICL], want)
	}
}

func TestFigureHidesWhatItCannotSay(t *testing.T) {
	if f := NewFigure(nil); f.Mean != nil || f.P50 != nil || f.N != 0 {
		t.Errorf("an empty sample has %+v", f)
	}
	if f := NewFigure(make([]float64, 99)); f.P99 != nil || f.P95 == nil {
		t.Errorf("99 values: %+v", f)
	}
	if f := NewFigure(make([]float64, 100)); f.P99 == nil {
		t.Error("100 values have a p99")
	}
}

// TestConcurrencySweep compares the sweep with counting at many instants.
func TestConcurrencySweep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var records []Record
		var area time.Duration
		for range rapid.IntRange(1, 20).Draw(t, "requests") {
			send := time.Duration(rapid.IntRange(0, 50).Draw(t, "send")) * ms
			length := time.Duration(rapid.IntRange(1, 30).Draw(t, "length")) * ms
			records = append(records, Record{Sent: true, Send: send, Close: send + length})
			area += length
		}
		most := 0
		for at := ms / 2; at < 100*ms; at += ms {
			n := 0
			for _, r := range records {
				if r.Send <= at && at < r.Close {
					n++
				}
			}
			most = max(most, n)
		}
		c := concurrency(sweeps(records), 0, 0.1)
		if want := area.Seconds() / 0.1; math.Abs(c.Mean-want) > 1e-9 || c.Max != most {
			t.Fatalf("%+v, want mean %g and maximum %d", c, want, most)
		}
	})
}

// TestWindows checks that the steady window is inside the whole run and never
// counts more.
func TestWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "requests")
		result := &Result{Schedule: &workload.Schedule{}}
		at, failed, all := time.Duration(0), 0, 0
		for i := range n {
			at += time.Duration(rapid.IntRange(0, 50).Draw(t, "gap")) * ms
			r := streamed(at, at+ms, at+5*ms, at+9*ms, at+20*ms)
			if rapid.IntRange(0, 5).Draw(t, "fate") == 0 {
				r.Failure = fail(FailCut, "made")
				failed++
			} else {
				all += 3
			}
			r.ID = i
			result.Records = append(result.Records, r)
			result.Schedule.Requests = append(result.Schedule.Requests, workload.Request{ID: i, At: unit.Seconds(at.Seconds())})
			result.Elapsed = max(result.Elapsed, r.Close)
		}
		whole, steady := result.Summaries(nil)
		if whole.Completed != n-failed || whole.Failed != failed || whole.SendLag.N != n || whole.TTFT.N != n-failed {
			t.Fatalf("whole %+v", whole)
		}
		if steady.Completed > whole.Completed || steady.ICL.N > whole.ICL.N || steady.From < whole.From || steady.To > whole.To {
			t.Fatalf("steady %+v exceeds whole %+v", steady, whole)
		}
		if whole.Duration > 0 && math.Abs(*whole.OutputThroughput*whole.Duration-float64(all)) > 1e-6 {
			t.Fatalf("throughput %g over %g s, %d tokens", *whole.OutputThroughput, whole.Duration, all)
		}
	})
}

func TestHistogram(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h histogram
	var exact []time.Duration
	for range 10_000 {
		v := time.Duration(math.Exp(r.NormFloat64()*2 + 16))
		exact = append(exact, v)
		h.add(v, 1)
	}
	slices.Sort(exact)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99} {
		want := exact[int(math.Ceil(q*10_000))-1].Seconds()
		if got := h.quantile(q).Seconds(); math.Abs(got/want-1) > 0.01 {
			t.Errorf("quantile %g: %g, want %g", q, got, want)
		}
	}
}

func TestParseSLOs(t *testing.T) {
	got, err := ParseSLOs("ttft:500 tpot:50, e2el:p99.5<2s itl:p95<40ms")
	want := SLOs{{Metric: TTFT, Limit: 500}, {Metric: TPOT, Limit: 50}, {Metric: E2EL, Quantile: 0.995, Limit: 2000}, {Metric: ITL, Quantile: 0.95, Limit: 40}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for text, says := range map[string]string{
		"ttft": "form", "ttft:": "form", "ttft:-5": "form", "ttft:0": "above zero", "foo:5": "ttft", "itl:40": "quantile", "ttft:p100<5": "below p100", "ttft:p99>5": "form",
	} {
		if _, err := ParseSLOs(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v does not say %q", text, err, says)
		}
	}
}

func TestGate(t *testing.T) {
	run := func(change func(*Result)) Gate {
		r := &Result{Schedule: &workload.Schedule{}, Machine: Machine{Cores: 2, LoadBefore: new(0.1), CPUSeconds: new(1.0)}}
		for i := range 4000 {
			at := time.Duration(i) * 10 * ms
			rec := streamed(at, at, at+20*ms, at+30*ms)
			rec.ID, rec.Forced, rec.Asked = i, true, 2
			r.Records = append(r.Records, rec)
			r.Schedule.Requests = append(r.Schedule.Requests, workload.Request{ID: i, At: unit.Seconds(at.Seconds()), InputLen: 32, Seed: uint64(i)})
			r.Elapsed = rec.Close
		}
		change(r)
		whole, steady := r.Summaries(nil)
		return Judge(r, whole, steady, DefaultLimits())
	}
	each := func(share float64, change func(*Record)) func(*Result) {
		return func(r *Result) {
			for i := range int(share * float64(len(r.Records))) {
				change(&r.Records[len(r.Records)/2+i])
			}
		}
	}
	few := func(n int, change func(*Result)) func(*Result) {
		return func(r *Result) {
			r.Records, r.Schedule.Requests = r.Records[:n], r.Schedule.Requests[:n]
			change(r)
		}
	}
	together := func(r *Result) {
		for i := range r.Records {
			r.Schedule.Requests[i].At, r.Records[i].Sched, r.Records[i].Send = 0, 0, 0
		}
	}
	// A closed loop of 100 clients that ask together once a second.
	closed := func(r *Result) {
		for i := range r.Records {
			at := time.Duration(i/100) * time.Second
			rec := streamed(at, at, at+20*ms, at+30*ms)
			rec.ID, rec.Forced, rec.Asked = i, true, 2
			r.Records[i], r.Schedule.Requests[i].At = rec, 0
			if i >= 100 {
				r.Schedule.Requests[i].After = &workload.Dependency{Request: workload.AnyRequest}
			}
		}
	}
	begin := func(r *Result) {
		for i := range 100 {
			r.Records[i].Send += 8 * ms
		}
	}
	usage := func(tokens int) Count { return Count{tokens, FromUsage} }
	for _, test := range []struct {
		why    string
		change func(*Result)
		want   Grade
	}{
		{"nothing is wrong", func(*Result) {}, Valid},
		{"3 % sent late", each(0.03, func(r *Record) { r.Send += ms }), Degraded},
		{"3 % sent very late", each(0.03, func(r *Record) { r.Send += 10 * ms }), Invalid},
		{"clients that begin at once are late at their begin alone", func(r *Result) { closed(r); begin(r) }, Valid},
		{"all at once in an open loop", begin, Invalid},
		{"a closed loop that is late throughout", func(r *Result) { closed(r); each(0.03, func(r *Record) { r.Send += 10 * ms })(r) }, Invalid},
		{"a busy client", func(r *Result) { r.Machine.CPUSeconds = new(0.7 * 2 * r.Elapsed.Seconds()) }, Degraded},
		{"a client at its limit", func(r *Result) { r.Machine.CPUSeconds = new(0.9 * 2 * r.Elapsed.Seconds()) }, Invalid},
		{"CPU time is not known", func(r *Result) { r.Machine.CPUSeconds = nil }, Valid},
		{"a busy machine", func(r *Result) { r.Machine.LoadBefore = new(1.5) }, Degraded},
		{"1 % failed", each(0.01, func(r *Record) { r.Failure = fail(FailCut, "made") }), Degraded},
		{"10 % failed", each(0.1, func(r *Record) { r.Failure = fail(FailCut, "made") }), Invalid},
		{"one short answer", each(0.0005, func(r *Record) { r.Output.Tokens = 1 }), Degraded},
		{"many short answers", each(0.1, func(r *Record) { r.Output.Tokens = 1 }), Invalid},
		{"chunks come together", each(0.2, func(r *Record) { r.Chunks[1].Read = r.Chunks[0].Read }), Degraded},
		{"a tenth slower than asked", func(r *Result) {
			for i := range r.Schedule.Requests {
				r.Schedule.Requests[i].At *= 0.9
			}
		}, Invalid},
		{"a short run", func(r *Result) { r.Records, r.Schedule.Requests = r.Records[:50], r.Schedule.Requests[:50] }, Degraded},
		{"few requests, one of them sent late", few(60, func(r *Result) { r.Records[30].Send += 5 * ms }), Degraded},
		{"few requests, a tenth of them sent late", few(60, func(r *Result) {
			for i := 30; i < 36; i++ {
				r.Records[i].Send += 5 * ms
			}
		}), Invalid},
		{"all at once", func(r *Result) { together(r) }, Degraded},
		{"all at once, and held back", func(r *Result) { together(r); r.MaxConcurrency = 4000 }, Invalid},
		{"prompts that were in the cache", each(0.5, func(r *Record) { r.Prompt, r.Cached = usage(32), usage(16) }), Degraded},
		{"prompts of which nothing was in the cache", each(0.5, func(r *Record) { r.Prompt, r.Cached = usage(32), usage(0) }), Valid},
		{"a chat template in the cache", each(0.5, func(r *Record) { r.Prompt, r.Cached = usage(32+16), usage(16) }), Valid},
		{"a prefix in the cache", func(r *Result) {
			for i := range r.Records {
				r.Schedule.Requests[i].Prefix = []workload.Span{{Seed: 9, Len: 16}}
				r.Records[i].Prompt, r.Records[i].Cached = usage(32), usage(16)
			}
		}, Valid},
		{"a cache that only the server counts", func(r *Result) { r.ServerHits = new(16.0 * 4000) }, Degraded},
		{"a cache that the server counts otherwise", func(r *Result) {
			each(0.5, func(r *Record) { r.Prompt, r.Cached = usage(32), usage(0) })(r)
			r.ServerHits = new(16.0 * 4000)
		}, Valid},
		{"ended early", func(r *Result) { r.Partial, r.Unsent = "interrupted", 5 }, Degraded},
		{"nothing was sent", func(r *Result) { r.Records = nil }, Invalid},
	} {
		if gate := run(test.change); gate.Grade != test.want || (len(gate.Reasons()) == 0) != (test.want == Valid) {
			t.Errorf("%s: %s %v, want %s", test.why, gate.Grade, gate.Reasons(), test.want)
		}
	}
}

func TestLive(t *testing.T) {
	l := newLive(100)
	for i := range 10 {
		at := time.Duration(i) * time.Second
		rec := streamed(at, at, at+40*ms, at+50*ms, at+60*ms)
		l.add(&rec)
	}
	l.add(&Record{Failure: fail(FailStatus, "500")})
	l.add(&Record{Failure: fail(FailCut, "one")})
	l.add(&Record{Failure: fail(FailCut, "two")})
	for i := range 100 { // two a second come due, one a second is sent
		now := time.Duration(i+1) * 100 * ms
		l.figures(now, 1, i/10, i/5)
	}
	got := l.figures(10*time.Second, 3, 10, 20)
	if got.Done != 10 || got.Failed != 3 || got.Failures[FailCut] != 2 || got.Failures[FailStatus] != 1 || got.LastFailure.Message != "two" {
		t.Errorf("%+v", got)
	}
	near := func(got, want float64) bool { return math.Abs(got/want-1) < 0.15 }
	if !near(got.DueRate, 2) || !near(got.SendRate, 1) || !near(got.RequestRate, 1) || !near(got.TokenRate, 3) {
		t.Errorf("%g/s due, %g/s sent, %g/s ended, %g tokens/s: want 2, 1, 1, 3", got.DueRate, got.SendRate, got.RequestRate, got.TokenRate)
	}
	if !near(got.TTFT99.Seconds(), 0.04) || !near(got.ITL50.Seconds(), 0.01) {
		t.Errorf("TTFT %v, ITL %v: want 40 and 10 ms", got.TTFT99, got.ITL50)
	}
}
