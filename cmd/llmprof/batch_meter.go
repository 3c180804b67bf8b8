package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/store"
	"github.com/llmprof/llmprof/unit"
)

// batchMeter shows a campaign on stderr: on a terminal the cells that run and
// ended last, elsewhere a line a cell.
type batchMeter struct {
	w             io.Writer
	live, quiet   bool
	began         time.Time
	stop, stopped chan struct{} // of the clock on a terminal

	mu          sync.Mutex
	total, done int
	counts      map[store.State]int
	recent      []string
	group       string
	running     string
	since       time.Time // of running
	height      int       // lines that stand on the terminal
}

// shownCells is the number of ended cells in the live table.
const shownCells = 10

func (a *app) newBatchMeter() *batchMeter {
	plain := a.newMeter()
	m := &batchMeter{
		w: a.stderr, live: plain.live && !plain.quiet && !a.verbose, quiet: plain.quiet, began: time.Now(),
		stop: make(chan struct{}), stopped: make(chan struct{}), counts: map[store.State]int{},
	}
	go m.clock()
	return m
}

// clock draws the time that passes.
func (m *batchMeter) clock() {
	defer close(m.stopped)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-tick.C:
			m.mu.Lock()
			m.draw()
			m.mu.Unlock()
		}
	}
}

func (m *batchMeter) hooks() campaign.Hooks {
	return campaign.Hooks{
		Ready: func(o campaign.Outcome) {
			m.say(func() string {
				m.total = o.Selected
				return ""
			})
		},
		GroupStarted: func(g campaign.Group, number, of int) {
			c := g.Cells[0]
			m.say(func() string {
				m.group = fmt.Sprintf("load %d of %d: %s on %s, %s, %s", number, of, c.ModelID, c.Place, c.Engine, unit.Plural(len(g.Cells), "cell"))
				m.running, m.since = "starting the engine", time.Now()
				return m.group
			})
		},
		CellStarted: func(c campaign.Cell, attempt int) {
			m.say(func() string {
				m.running, m.since = c.Name(), time.Now()
				if attempt > 1 {
					m.running += fmt.Sprintf(", try %d", attempt)
				}
				return ""
			})
		},
		CellDone: m.ended,
		Retrying: func(what string, err error, pause time.Duration) {
			m.say(func() string {
				m.running, m.since = "waiting for another try", time.Now()
				return m.remember(fmt.Sprintf("note: %s: %v; again in %s", what, err, pause))
			})
		},
		Note: m.note,
	}
}

// ended notes a cell.
func (m *batchMeter) ended(c campaign.Cell, end store.Cell) {
	text := fmt.Sprintf("%s: %s", c.Name(), end.State)
	if end.State == store.Done {
		text += cellFigures(end)
	} else if end.Error != "" {
		text += ", " + engine.Shorten(strings.ReplaceAll(end.Error, "\n", " "), 160)
	}
	text += fmt.Sprintf(" (%.1f s)", end.Seconds)
	m.say(func() string {
		m.done++
		m.counts[end.State]++
		m.running = ""
		return m.remember(fmt.Sprintf("[%d/%d] %s", m.done, max(m.total, m.done), text))
	})
}

func (m *batchMeter) note(text string) {
	m.say(func() string { return m.remember("note: " + text) })
}

// remember keeps a line for the live table.
func (m *batchMeter) remember(line string) string {
	m.recent = append(m.recent, line)
	m.recent = m.recent[max(0, len(m.recent)-shownCells):]
	return line
}

// say changes what is known and shows it: in the live table, or elsewhere as the
// line that change returns; empty for none.
func (m *batchMeter) say(change func() string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	line := change()
	m.draw()
	if line != "" && !m.live && !m.quiet {
		_, _ = fmt.Fprintln(m.w, line) // stderr is for people: nothing depends on it
	}
}

// cellFigures are the peak and the latency of a cell that was measured.
func cellFigures(end store.Cell) string {
	d, err := decodeMemoryProfile("cell "+end.Hash, end.Result)
	if err != nil {
		return ""
	}
	text := ""
	if b := d.Memory.TotalBytes; b != nil {
		text += ", peak " + b.String()
	}
	if l := d.LatencyStats.MeanMs; l != nil {
		text += fmt.Sprintf(", %.4g ms", *l)
	}
	return text
}

// draw writes the live table over the last one.
func (m *batchMeter) draw() {
	if !m.live || m.group == "" {
		return
	}
	lines := append([]string{m.group}, m.recent...)
	if m.running != "" {
		lines = append(lines, "now: "+m.running+", "+time.Since(m.since).Round(time.Second).String())
	}
	lines = append(lines, m.summary())
	var b strings.Builder
	if m.height > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", m.height)
	}
	b.WriteString("\x1b[?7l") // a line that is too long is cut and not wrapped
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	b.WriteString("\x1b[?7h")
	m.height = len(lines)
	_, _ = io.WriteString(m.w, b.String()) // stderr is for people: nothing depends on it
}

// summary counts the cells and guesses the time that is left.
func (m *batchMeter) summary() string {
	parts := []string{fmt.Sprintf("%d of %s", m.done, unit.Plural(m.total, "cell"))}
	for _, state := range store.States() {
		if n := m.counts[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	took := time.Since(m.began)
	parts = append(parts, took.Round(time.Second).String())
	if left := m.total - m.done; m.done > 0 && left > 0 {
		parts = append(parts, "about "+rough(took/time.Duration(m.done)*time.Duration(left)).String()+" left")
	}
	return strings.Join(parts, ", ")
}

// end leaves the table as it stands.
func (m *batchMeter) end() {
	close(m.stop)
	<-m.stopped
	m.running = ""
	m.draw()
	m.height = 0
}
