package main

import (
	"fmt"
	"strings"
)

// tables is what is printed, in Markdown.
type tables struct {
	runs, starts, notes strings.Builder
}

// title is a tool with its version.
func title(t tool) string { return strings.TrimSpace(t.name + " " + t.version) }

func (o *tables) run(t tool, l level, r row) {
	fmt.Fprintf(&o.runs, "| %s | %d | %.2f s | %.1f | %.1f / %.1f | %.1f / %.1f | %.0f MB | %.0f s | %.1f |\n", title(t), l.clients,
		r.usage.CPU.Seconds(), r.perToken(), r.client.mean, r.client.p99, r.server.mean, r.server.p99, megabytes(r), r.usage.Wall.Seconds(), r.machine)
	if r.complaint != "" {
		fmt.Fprintf(&o.notes, "%s, c = %d: %s\n", title(t), l.clients, r.complaint)
	}
}

func (o *tables) help(t tool, r row) {
	fmt.Fprintf(&o.starts, "| %s | %.2f s | %.2f s | %.0f MB |\n", title(t), r.usage.Wall.Seconds(), r.usage.CPU.Seconds(), megabytes(r))
}

func megabytes(r row) float64 { return float64(r.usage.Peak) / 1e6 }

// failed notes an error of a run, or of the help where there is no level.
func (o *tables) failed(t tool, l *level, err error) {
	reason := strings.ReplaceAll(err.Error(), "\n", "; ")
	if l == nil {
		fmt.Fprintf(&o.starts, "| %s | FAILED: %s | | |\n", title(t), reason)
		return
	}
	fmt.Fprintf(&o.runs, "| %s | %d | FAILED: %s | | | | | | |\n", title(t), l.clients, reason)
}

func (o *tables) missing(t tool) {
	fmt.Fprintf(&o.runs, "| %s | NOT INSTALLED | | | | | | | |\n", title(t))
}

func (o *tables) text() string {
	return `| client | c | CPU | CPU µs/token | TTFT mean / p99, ms | the server's | memory | wall | load average |
|---|---|---|---|---|---|---|---|---|
` + o.runs.String() + `
| help of | wall | CPU | memory |
|---|---|---|---|
` + o.starts.String() + o.notes.String()
}
