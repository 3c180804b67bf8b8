package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/measure"
)

// meter shows how far a measurement is: one line that is written over on a
// terminal, a line a task elsewhere.
type meter struct {
	w        io.Writer
	live     bool // w is a terminal that can move its cursor
	quiet    bool
	held     int // points that were there before
	width    int // of the line that stands on the terminal
	last     time.Time
	interval time.Duration
}

// newMeter returns a meter on stderr. NO_COLOR and TERM=dumb ask for plain
// lines.
func (a *app) newMeter() *meter {
	m := &meter{w: a.stderr, quiet: a.quiet || a.logFormat == "json", interval: 5 * time.Second}
	if file, ok := a.stderr.(*os.File); ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			m.live, m.interval = true, 100*time.Millisecond
		}
	}
	return m
}

// show prints progress. Between two lines at least the interval passes, so
// that a log stays readable; notes and the end are always printed.
func (m *meter) show(p measure.Progress, now time.Time) {
	if m.quiet {
		return
	}
	if p.Note != "" {
		m.say("note: " + p.Note)
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "[%d/%d] %s", m.held+p.Done, m.held+p.Total, taskText(p.Task))
	if p.Failed > 0 {
		fmt.Fprintf(&b, ", %d failed", p.Failed)
	}
	if p.Repeated > 0 {
		fmt.Fprintf(&b, ", %d to repeat", p.Repeated)
	}
	fmt.Fprintf(&b, ", %s", p.Elapsed.Round(time.Second))
	if p.Left > 0 {
		fmt.Fprintf(&b, ", about %s left", rough(p.Left))
	}
	m.line(b.String(), p.Done == p.Total, now)
}

// line prints a line of progress, over the last one on a terminal; important
// ones come whatever the time.
func (m *meter) line(line string, important bool, now time.Time) {
	if m.quiet || !important && now.Sub(m.last) < m.interval {
		return
	}
	m.last = now
	if !m.live {
		_, _ = fmt.Fprintln(m.w, line)
		return
	}
	_, _ = fmt.Fprintf(m.w, "\r%s%s", line, strings.Repeat(" ", max(0, m.width-len(line))))
	m.width = len(line)
}

// now shows progress at this moment.
func (m *meter) now(p measure.Progress) { m.show(p, time.Now()) }

// say prints a line of its own.
func (m *meter) say(text string) {
	m.end()
	_, _ = fmt.Fprintln(m.w, text)
}

// end leaves the line that is written over.
func (m *meter) end() {
	if m.live && m.width > 0 {
		_, _ = fmt.Fprintln(m.w)
	}
	m.width = 0
}

// rough rounds a time that is only estimated.
func rough(d time.Duration) time.Duration {
	switch {
	case d > time.Hour:
		return d.Round(5 * time.Minute)
	case d > 2*time.Minute:
		return d.Round(time.Minute)
	case d > 20*time.Second:
		return d.Round(10 * time.Second)
	}
	return d.Round(time.Second)
}

func taskText(t engine.Task) string {
	switch {
	case t.Step != nil:
		return fmt.Sprintf("%d × %d tokens", t.Step.BatchSize, t.Step.InputLen)
	case t.Layers != nil && t.Layers.Context > 0:
		return fmt.Sprintf("%d tokens after %d", t.Layers.Tokens, t.Layers.Context)
	case t.Layers != nil:
		return fmt.Sprintf("%d tokens", t.Layers.Tokens)
	}
	return "starting"
}
