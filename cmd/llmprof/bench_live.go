package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/load/metrics"
)

// benchLive shows how a run goes on stderr: on a terminal a block of lines that
// is written over and in the end removed, elsewhere a line now and then. It
// draws by itself, so that a terminal that stands still holds up no request.
type benchLive struct {
	w             io.Writer
	size          func() (columns, rows int) // nil for plain lines
	servers       metrics.Group              // empty for no figures of the server
	stop, stopped chan struct{}              // nil for no output at all

	mu    sync.Mutex
	seen  benchSeen
	began time.Time // of the run, after its warm-up
}

// benchSeen is what a block shows.
type benchSeen struct {
	// title says which run of several it is; empty for the only one.
	title string
	// open says that the times of the requests are known beforehand.
	open bool
	// figures are nil during the warm-up, server where nothing is known of it.
	figures *load.Live
	server  *metrics.Latest
}

// newBenchLive begins to show a run.
func (a *app) newBenchLive(seen benchSeen, servers metrics.Group) *benchLive {
	l := &benchLive{w: a.stderr, servers: servers, seen: seen, began: time.Now()}
	plain := a.newMeter()
	if plain.quiet {
		return l
	}
	every := plain.interval
	if plain.live && !a.verbose {
		every, l.size = 250*time.Millisecond, a.terminalSize
	}
	l.stop, l.stopped = make(chan struct{}), make(chan struct{})
	go l.run(every)
	return l
}

func (l *benchLive) run(every time.Duration) {
	defer close(l.stopped)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			if l.size != nil {
				_, _ = io.WriteString(l.w, "\r\x1b[J") // stderr is for people: nothing depends on it
			}
			return
		case <-tick.C:
			l.draw()
		}
	}
}

// begin says that the warm-up is over.
func (l *benchLive) begin() {
	l.mu.Lock()
	l.began = time.Now()
	l.mu.Unlock()
}

// tick takes the figures so far.
func (l *benchLive) tick(s load.Live) {
	l.mu.Lock()
	l.seen.figures = &s
	l.mu.Unlock()
}

// end removes the block.
func (l *benchLive) end() {
	if l.stop != nil {
		close(l.stop)
		<-l.stopped
	}
}

// draw shows what is known. The cursor stays at the block's first line, so that
// a terminal that is resized, and breaks lines anew, takes it along.
func (l *benchLive) draw() {
	l.mu.Lock()
	seen, began := l.seen, l.began
	l.mu.Unlock()
	if l.size == nil {
		if seen.figures != nil {
			_, _ = fmt.Fprintln(l.w, benchLine(seen))
		}
		return
	}
	if l.servers.Followed() && seen.figures != nil {
		now := l.servers.Latest(began)
		seen.server = &now
	}
	columns, rows := l.size()
	lines := benchBlock(seen, time.Since(began), columns)
	lines = lines[:min(len(lines), max(rows-1, 1))]
	// A line that is too long after all is cut and not wrapped.
	_, _ = fmt.Fprintf(l.w, "\r\x1b[J\x1b[?7l%s\n\x1b[?7h\x1b[%dA", strings.Join(lines, "\n"), len(lines))
}

// The size of a terminal that does not tell its own.
const usualColumns, usualRows = 80, 24

// benchLine is a run's state on one line.
func benchLine(seen benchSeen) string {
	s := seen.figures
	parts := []string{fmt.Sprintf("%d of %d", s.Done+s.Failed, s.Total), fmt.Sprintf("%d running", s.Running)}
	if seen.title != "" {
		parts = append([]string{seen.title}, parts...)
	}
	if s.Waiting > 0 {
		parts = append(parts, fmt.Sprintf("%d held back", s.Waiting))
	}
	if s.Failed > 0 {
		parts = append(parts, fmt.Sprintf("%d failed (%s)", s.Failed, strings.Join(failureCounts(s.Failures), ", ")))
	}
	parts = append(parts, fmt.Sprintf("%.1f req/s", s.RequestRate), fmt.Sprintf("%.0f tok/s", s.TokenRate))
	for _, c := range latencyPairs(s) {
		if c.half > 0 {
			parts = append(parts, fmt.Sprintf("%s %s / %s", c.name, shortTime(c.half), shortTime(c.most)))
		}
	}
	return strings.Join(append(parts, s.Elapsed.Round(time.Second).String()), ", ")
}

// benchBlock is a run's state as lines that are shorter than a terminal is wide.
func benchBlock(seen benchSeen, elapsed time.Duration, columns int) []string {
	width := max(columns-1, 20)
	var lines []string
	if seen.title != "" {
		lines = append(lines, clip(seen.title, width))
	}
	s := seen.figures
	if s == nil {
		return append(lines, clip(clockText(elapsed)+"  warming up", width))
	}
	lines = append(lines, progressBar(s, width))
	add := func(name string, parts ...string) { lines = append(lines, flow(name, parts, width)...) }
	rates := []string{perSecond(s.SendRate) + " sent", perSecond(s.RequestRate) + " ended"}
	if seen.open {
		rates = append([]string{perSecond(s.DueRate) + " asked"}, rates...)
	}
	add("rate", rates...)
	add("client", fmt.Sprintf("%d running", s.Running), fmt.Sprintf("%d held back", s.Waiting))
	add("output", fmt.Sprintf("%.0f tok/s", s.TokenRate))
	for _, c := range latencyPairs(s) {
		add(c.name, "p50 "+shortTime(c.half), "p99 "+shortTime(c.most))
	}
	if seen.server != nil {
		add("server", serverParts(seen.server)...)
	}
	if s.Failed > 0 {
		add("failed", failureCounts(s.Failures)...)
		if s.LastFailure != nil {
			lines = append(lines, clip("last    "+printable(s.LastFailure.Message), width))
		}
	}
	return lines
}

// progressBar is the first line: the time, a bar and what is done.
func progressBar(s *load.Live, width int) string {
	done := s.Done + s.Failed
	left, right := clockText(s.Elapsed)+"  ", fmt.Sprintf("  %d of %d", done, s.Total)
	room := width - len(left) - len(right)
	if room < 5 || s.Total == 0 {
		return clip(left+strings.TrimSpace(right), width)
	}
	full := min(room*done/s.Total, room)
	return left + strings.Repeat("█", full) + strings.Repeat("░", room-full) + right
}

// latencyPairs are the latencies that are shown while a run goes on.
func latencyPairs(s *load.Live) []struct {
	name       string
	half, most time.Duration // p50 and p99
} {
	return []struct {
		name       string
		half, most time.Duration
	}{{"TTFT", s.TTFT50, s.TTFT99}, {"ITL", s.ITL50, s.ITL99}}
}

// serverParts are what the server said last.
func serverParts(now *metrics.Latest) []string {
	var parts []string
	add := func(v *float64, form string, scale float64) {
		if v != nil {
			parts = append(parts, fmt.Sprintf(form, *v*scale))
		}
	}
	add(now.Running, "%.0f running", 1)
	add(now.Waiting, "%.0f waiting", 1)
	add(now.KVUsage, "KV cache %.0f %%", 100)
	add(now.HitRate, "prefix hits %.0f %%", 100)
	return parts
}

// failureCounts are the kinds of failures, the most frequent first.
func failureCounts(counts map[load.FailureKind]int) []string {
	kinds := slices.SortedFunc(maps.Keys(counts), func(a, b load.FailureKind) int {
		return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b))
	})
	parts := make([]string, len(kinds))
	for i, kind := range kinds {
		parts[i] = fmt.Sprintf("%d %s", counts[kind], kind)
	}
	return parts
}

// flow sets parts beside a name, on as many lines as they need.
func flow(name string, parts []string, width int) []string {
	var lines []string
	line := fmt.Sprintf("%-6s", name)
	empty := len(line)
	for _, part := range parts {
		if len(line) > empty && utf8.RuneCountInString(line+"  "+part) > width {
			lines, line = append(lines, clip(line, width)), strings.Repeat(" ", empty)
		}
		line += "  " + part
	}
	return append(lines, clip(line, width))
}

// clip cuts a text to so many columns. East Asian characters and emoji take two.
func clip(text string, width int) string {
	used := 0
	for i, r := range text {
		used++
		if r >= 0x2e80 {
			used++
		}
		if used > width {
			kept := []rune(text[:i])
			return string(kept[:max(len(kept)-1, 0)]) + "…"
		}
	}
	return text
}

// printable leaves out what would move a terminal's cursor.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsPrint(r):
			return r
		}
		return -1
	}, text)
}

func perSecond(rate float64) string { return fmt.Sprintf("%.1f/s", rate) }

// shortTime is a time with about three digits; a dash before the first one.
func shortTime(d time.Duration) string {
	switch ms := float64(d) / float64(time.Millisecond); {
	case d == 0:
		return "–"
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 100:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// clockText is a time as a clock shows it.
func clockText(d time.Duration) string {
	s := int(d.Seconds())
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}
