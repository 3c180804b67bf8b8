package mock_test

import (
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/mock"
)

// TestFaults lets each fault strike a stream of six tokens, over both ways that
// streams are written.
func TestFaults(t *testing.T) {
	server := start(t, mock.Options{Timer: mock.Timing{Gap: time.Millisecond}})
	handler := httptest.NewServer(server)
	t.Cleanup(handler.Close)
	c := client(t)
	cutOff := func(t *testing.T, a answer) {
		t.Helper()
		if a.status != 200 || !errors.Is(a.err, io.ErrUnexpectedEOF) || a.done {
			t.Errorf("want a cut stream, got %+v", a)
		}
	}
	sound := func(t *testing.T, a answer, tokens int) {
		t.Helper()
		if a.err != nil || a.status != 200 || !a.done || a.tokens() != tokens {
			t.Errorf("want a sound stream of %d tokens, got %+v", tokens, a)
		}
	}
	tests := []struct {
		fault string
		check func(*testing.T, answer)
	}{
		{"", func(t *testing.T, a answer) { sound(t, a, 6) }},
		{"stall:token=3,for=60ms", func(t *testing.T, a answer) {
			sound(t, a, 6)
			if gap := a.events[2].DueNs - a.events[1].DueNs; gap != 61e6 {
				t.Errorf("the third token is due %d ns after the second, want 61 ms", gap)
			}
			if gap := a.events[3].DueNs - a.events[2].DueNs; gap != 1e6 {
				t.Errorf("the fourth token is due %d ns after the third, want 1 ms", gap)
			}
		}},
		{"cut:at=headers", func(t *testing.T, a answer) {
			if a.err == nil || a.status != 0 {
				t.Errorf("want no answer, got %+v", a)
			}
		}},
		{"cut:at=chunk,token=3", func(t *testing.T, a answer) {
			cutOff(t, a)
			if a.tokens() != 2 || strings.HasSuffix(a.raw, "\n\n") {
				t.Errorf("want two events and a half, got %q", a.raw)
			}
		}},
		{"cut:at=done", func(t *testing.T, a answer) {
			cutOff(t, a)
			if a.tokens() != 6 || a.events[len(a.events)-1].Usage == nil {
				t.Errorf("want all but [DONE], got %q", a.raw)
			}
		}},
		{"429:retry-after=1500ms", func(t *testing.T, a answer) {
			if a.status != 429 || a.header.Get("Retry-After") != "2" || a.events[0].Error == nil {
				t.Errorf("got %+v", a)
			}
		}},
		{"500", func(t *testing.T, a answer) {
			if a.status != 500 || a.events[0].Error == nil {
				t.Errorf("got %+v", a)
			}
		}},
		{"503", func(t *testing.T, a answer) {
			if a.status != 503 || a.header.Get("Retry-After") != "" {
				t.Errorf("got %+v", a)
			}
		}},
		{"status:code=418", func(t *testing.T, a answer) {
			if a.status != 418 {
				t.Errorf("got %+v", a)
			}
		}},
		{"error-event:token=3", func(t *testing.T, a answer) {
			if a.err != nil || a.tokens() != 2 || !a.done || a.events[2].Error == nil {
				t.Errorf("got %+v", a)
			}
		}},
		{"slow-headers:for=50ms", func(t *testing.T, a answer) { sound(t, a, 6) }},
		{"garbage:token=3", func(t *testing.T, a answer) {
			sound(t, a, 6)
			if !strings.Contains(a.raw, "\xff garbage {{{\n") {
				t.Errorf("no garbage in %q", a.raw)
			}
		}},
		{"half-event:token=3,for=20ms", func(t *testing.T, a answer) {
			sound(t, a, 6)
			if gap := a.events[3].EmitNs - a.events[2].EmitNs; gap < 20e6 {
				t.Errorf("the event after the half one came after %d ns", gap)
			}
		}},
		{"half-event:token=6", func(t *testing.T, a answer) { sound(t, a, 6) }},
		{"wrong-usage:by=2", func(t *testing.T, a answer) {
			sound(t, a, 6)
			if got := a.events[len(a.events)-1].Usage.Output; got != 8 {
				t.Errorf("usage says %d tokens, want 8", got)
			}
		}},
		{"duplicate:token=3", func(t *testing.T, a answer) {
			sound(t, a, 7)
			if a.events[2].EmitNs != a.events[3].EmitNs {
				t.Errorf("no event twice in %q", a.raw)
			}
		}},
		{"no-done", func(t *testing.T, a answer) {
			if a.err != nil || a.done || a.tokens() != 6 {
				t.Errorf("got %+v", a)
			}
		}},
		{"wrong-usage; no-done", func(t *testing.T, a answer) {
			if a.done || a.events[6].Usage.Output != 7 {
				t.Errorf("got %+v", a)
			}
		}},
		{"nonsense", func(t *testing.T, a answer) {
			if a.status != 400 || !strings.Contains(a.raw, "nonsense") {
				t.Errorf("got %+v", a)
			}
		}},
	}
	for _, test := range tests {
		for way, url := range map[string]string{"socket": server.URL(), "handler": handler.URL} {
			t.Run(test.fault+" by "+way, func(t *testing.T) {
				test.check(t, ask(t.Context(), c, url+"/v1/completions", stream, test.fault))
			})
		}
	}
	if m := scrape(t, c, server); m.Running.Value != 0 || m.Waiting.Value != 0 {
		t.Errorf("%v requests run and %v wait at the end", m.Running.Value, m.Waiting.Value)
	}
}

func TestFaultsOfWholeAnswers(t *testing.T) {
	server := start(t, mock.Options{})
	c := client(t)
	for fault, check := range map[string]func(answer) bool{
		"cut:at=headers":      func(a answer) bool { return a.err != nil && a.status == 0 },
		"cut:at=chunk":        func(a answer) bool { return errors.Is(a.err, io.ErrUnexpectedEOF) && a.raw != "" },
		"error-event:token=2": func(a answer) bool { return a.status == 500 && a.events[0].Error != nil },
		"garbage":             func(a answer) bool { return a.status == 200 && a.events == nil },
		"wrong-usage":         func(a answer) bool { return a.events[0].Usage.Output == 5 && a.tokens() == 4 },
		"slow-headers:for=1ms; stall:token=2,for=1ms": func(a answer) bool { return a.tokens() == 4 },
	} {
		t.Run(fault, func(t *testing.T) {
			if a := ask(t.Context(), c, server.URL()+"/v1/completions", whole, fault); !check(a) {
				t.Errorf("got %+v", a)
			}
		})
	}
}

func TestFaultsOfTheServer(t *testing.T) {
	every, err := mock.ParseFaults("500:every=3")
	if err != nil {
		t.Fatal(err)
	}
	share := []mock.Fault{{Kind: mock.Status, Code: 503, Share: 0.5}}
	tests := []struct {
		why    string
		faults []mock.Fault
		want   func(failed []int) bool
	}{
		{why: "every third request fails", faults: every, want: func(f []int) bool { return len(f) == 20 && f[0] == 3 && f[19] == 60 }},
		{why: "a share of the requests fails", faults: share, want: func(f []int) bool { return len(f) > 10 && len(f) < 50 }},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			var before []int
			for range 2 { // the same ones each time
				server, c := start(t, mock.Options{Faults: test.faults, Seed: 7}), client(t)
				var failed []int
				for i := 1; i <= 60; i++ {
					if a := ask(t.Context(), c, server.URL()+"/v1/completions", whole, ""); a.status != 200 {
						failed = append(failed, i)
					}
				}
				if !test.want(failed) || before != nil && len(before) != len(failed) {
					t.Errorf("failed: %v, before %v", failed, before)
				}
				if got := server.Summary().Refused; got != int64(len(failed)) {
					t.Errorf("%d are said to be refused", got)
				}
				before = failed
			}
		})
	}
}

func TestServerStall(t *testing.T) {
	// Whenever the request comes, its 40 tokens reach into a stall.
	stall := mock.Fault{Kind: mock.ServerStall, At: 30 * time.Millisecond, For: 100 * time.Millisecond, Period: 300 * time.Millisecond}
	server := start(t, mock.Options{Timer: mock.Timing{First: 10 * time.Millisecond, Gap: 10 * time.Millisecond}, Faults: []mock.Fault{stall}})
	a := ask(t.Context(), client(t), server.URL()+"/v1/completions", strings.Replace(stream, `"max_tokens":6`, `"max_tokens":40`, 1), "")
	if a.tokens() != 40 {
		t.Fatalf("got %+v", a)
	}
	longest := int64(0)
	for i := range a.events[:39] {
		if i > 0 {
			longest = max(longest, a.events[i].DueNs-a.events[i-1].DueNs)
		}
	}
	if longest < int64(80*time.Millisecond) {
		t.Errorf("the longest gap is %v, want the stall in it", time.Duration(longest))
	}
}

func TestParseFaultsRefuses(t *testing.T) {
	for _, text := range []string{
		"stall", "stall:for=-1s", "stall:for=2h", "cut:at=nowhere", "429:retry-after=soon", "status", "status:code=200", "500:every=-1",
		"500:share=2", "500:share=NaN", "garbage:token=x", "garbage:colour=red", "server-stall:for=2s,period=1s", strings.Repeat("500;", 2000),
	} {
		if faults, err := mock.ParseFaults(text); err == nil {
			t.Errorf("%.40q is read as %+v", text, faults)
		}
	}
	if faults, err := mock.ParseFaults(" ; "); len(faults) > 0 || err != nil {
		t.Errorf("nothing is read as %v, %v", faults, err)
	}
}

func FuzzParseFaults(f *testing.F) {
	f.Add("stall:token=3,for=2s; 429:retry-after=1s,every=10")
	f.Add("cut:at=chunk,share=0.5")
	f.Fuzz(func(t *testing.T, text string) {
		faults, err := mock.ParseFaults(text)
		if err != nil {
			return
		}
		if err := (mock.Options{Faults: faults}).Validate(); err != nil {
			t.Errorf("%q is read and then refused: %v", text, err)
		}
	})
}
