package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/load/metrics"
)

// someRun is a run in its middle.
func someRun() benchSeen {
	return benchSeen{
		open: true,
		figures: &load.Live{
			Elapsed: 42 * time.Second, Total: 1000, Done: 398, Failed: 14, Running: 8, Waiting: 3, DueRate: 10, SendRate: 9.84, RequestRate: 9.5, TokenRate: 1216,
			TTFT50: 45200 * time.Microsecond, TTFT99: 1880 * time.Millisecond, ITL50: 9876 * time.Microsecond, ITL99: 123400 * time.Microsecond,
			Failures:    map[load.FailureKind]int{load.FailCut: 2, load.FailStatus: 12},
			LastFailure: &load.Failure{Kind: load.FailStatus, Message: "status 503: \x1b[31mtoo busy\r\nfor   this and for all the others of this minute"},
		},
		server: &metrics.Latest{Running: new(8.0), Waiting: new(2.0), KVUsage: new(0.414), HitRate: new(0.125)},
	}
}

func TestBenchBlock(t *testing.T) {
	begun := someRun()
	begun.figures = nil
	small := benchSeen{title: "one request at a time", figures: &load.Live{Elapsed: time.Hour, Total: 20}}
	for _, c := range []struct {
		why     string
		seen    benchSeen
		columns int
		want    string
	}{
		{"a usual terminal", someRun(), 80, `
0:42  ████████████████████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  412 of 1000
rate    10.0/s asked  9.8/s sent  9.5/s ended
client  8 running  3 held back
output  1216 tok/s
TTFT    p50 45.2 ms  p99 1.88 s
ITL     p50 9.88 ms  p99 123 ms
server  8 running  2 waiting  KV cache 41 %  prefix hits 12 %
failed  12 status  2 cut
last    status 503: [31mtoo busy  for   this and for all the others of this mi…`},
		{"a narrow one", someRun(), 40, `
0:42  ████████░░░░░░░░░░░░  412 of 1000
rate    10.0/s asked  9.8/s sent
        9.5/s ended
client  8 running  3 held back
output  1216 tok/s
TTFT    p50 45.2 ms  p99 1.88 s
ITL     p50 9.88 ms  p99 123 ms
server  8 running  2 waiting
        KV cache 41 %  prefix hits 12 %
failed  12 status  2 cut
last    status 503: [31mtoo busy  for …`},
		{"the warm-up", begun, 80, "\n0:05  warming up"},
		{"before the first answer of a run of several", small, 80, `
one request at a time
1:00:00  ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  0 of 20
rate    0.0/s sent  0.0/s ended
client  0 running  0 held back
output  0 tok/s
TTFT    p50 –  p99 –
ITL     p50 –  p99 –`},
	} {
		got := "\n" + strings.Join(benchBlock(c.seen, 5*time.Second, c.columns), "\n")
		if c.want != got {
			t.Errorf("%s: %s", c.why, cmp.Diff(c.want, got))
		}
	}
}

// TestBenchBlockFits checks that no width, however odd, gets a line that it
// cannot hold, or one that moves the cursor.
func TestBenchBlockFits(t *testing.T) {
	seen := someRun()
	seen.figures.LastFailure.Message = "日本語のエラー " + seen.figures.LastFailure.Message
	seen.title = "poisson 12/s"
	for columns := 21; columns < 200; columns++ {
		for _, line := range benchBlock(seen, time.Second, columns) {
			if n := utf8.RuneCountInString(line); n >= columns || strings.ContainsFunc(line, unicode.IsControl) {
				t.Fatalf("%d columns: %d in %q", columns, n, line)
			}
		}
	}
}

func TestClip(t *testing.T) {
	for text, want := range map[string]string{"seven": "seven", "thirteen": "thirt…", "日本": "日本", "日本語": "日本語", "日本語化": "日本…"} {
		if got := clip(text, 6); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestBenchLive plays a run on a terminal that changes its size.
func TestBenchLive(t *testing.T) {
	var out bytes.Buffer
	sizes := [][2]int{{80, 24}, {40, 24}, {40, 4}, {120, 50}}
	l := &benchLive{w: &out, seen: someRun(), began: time.Now(), stop: make(chan struct{}), stopped: make(chan struct{})}
	for _, size := range sizes {
		l.size = func() (int, int) { return size[0], size[1] }
		before := out.Len()
		l.draw()
		shown := screen(t, out.String()[before:], size[0])
		if n := len(shown) - 1; n > size[1]-1 || n != min(len(benchBlock(l.seen, 0, size[0])), size[1]-1) || !strings.HasPrefix(shown[0], "0:42") {
			t.Errorf("%v: %d lines, from %q", size, n, shown[0])
		}
	}
	go l.run(time.Hour)
	l.end()
	if left := strings.TrimSpace(strings.Join(screen(t, out.String(), 80), "")); left != "" {
		t.Errorf("%q is left", left)
	}
}

// TestBenchLines has no terminal: lines, and nothing that a file should not
// hold.
func TestBenchLines(t *testing.T) {
	var out bytes.Buffer
	l := (&app{stderr: &out}).newBenchLive(benchSeen{}, nil)
	l.draw() // the warm-up
	l.tick(*someRun().figures)
	l.draw()
	l.end()
	want := "412 of 1000, 8 running, 3 held back, 14 failed (12 status, 2 cut), 9.5 req/s, 1216 tok/s, TTFT 45.2 ms / 1.88 s, ITL 9.88 ms / 123 ms, 42s\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	out.Reset()
	quiet := (&app{stderr: &out, quiet: true}).newBenchLive(benchSeen{}, nil)
	quiet.tick(*someRun().figures)
	quiet.end()
	if out.Len() > 0 {
		t.Errorf("quiet: %q", out.String())
	}
}
