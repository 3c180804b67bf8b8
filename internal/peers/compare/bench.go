package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/internal/peers"
)

// bench is a comparison.
type bench struct {
	settings

	llmprof string // command, of the server
	dir     string // for everything that is written
	stderr  io.Writer
	folders int
}

// row is one run.
type row struct {
	usage     peers.Usage
	client    ttft
	server    ttft
	tokens    int     // that the server sent
	machine   float64 // load average of a minute, before the run
	complaint string  // about a run whose figures are there all the same
}

// perToken is the client's processor time in µs.
func (r row) perToken() float64 {
	return float64(r.usage.CPU.Nanoseconds()) / 1e3 / float64(r.tokens)
}

// compare measures every tool at every level and prints the tables.
func (b *bench) compare(ctx context.Context, tools []tool, stdout io.Writer) error {
	var out tables
	failed := 0
	for _, t := range tools {
		if t.command == "" {
			out.missing(t)
			continue
		}
		failed += b.tool(ctx, t, &out)
	}
	if _, err := io.WriteString(stdout, out.text()); err != nil {
		return fmt.Errorf("print the tables: %w", err)
	}
	if failed > 0 {
		return fmt.Errorf("%d of the measurements failed; the table says which", failed)
	}
	return nil
}

// tool measures one tool and says how many measurements failed.
func (b *bench) tool(ctx context.Context, t tool, out *tables) (failed int) {
	help, err := b.least(t, "help", func() (row, error) { return b.help(ctx, t) })
	if err != nil {
		failed++
		out.failed(t, nil, err)
	} else {
		out.help(t, help)
	}
	for _, l := range b.levels {
		best, err := b.least(t, fmt.Sprint("c = ", l.clients), func() (row, error) { return b.measure(ctx, t, l) })
		if err != nil {
			failed++
			out.failed(t, &l, err)
			continue
		}
		out.run(t, l, best)
	}
	return failed
}

// least repeats a measurement and keeps the one with the least processor time.
func (b *bench) least(t tool, what string, measure func() (row, error)) (best row, err error) {
	for i := range b.runs {
		r, err := measure()
		if err != nil {
			return row{}, err
		}
		fmt.Fprintf(b.stderr, "%s, %s, run %d: %.2f CPU s in %.1f s\n", t.name, what, i+1, r.usage.CPU.Seconds(), r.usage.Wall.Seconds())
		if i == 0 || r.usage.CPU < best.usage.CPU {
			best = r
		}
	}
	return best, nil
}

// help is a start that does nothing.
func (b *bench) help(ctx context.Context, t tool) (row, error) {
	usage, err := b.start(ctx, t, t.client.help, b.dir)
	return row{usage: usage}, err
}

// measure runs a client once against a server of its own.
func (b *bench) measure(ctx context.Context, t tool, l level) (r row, err error) {
	b.folders++
	dir := filepath.Join(b.dir, strconv.Itoa(b.folders))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return row{}, fmt.Errorf("make a folder for the results: %w", err)
	}
	r.machine = machineLoad()
	s, err := serve(ctx, b.llmprof)
	if err != nil {
		return row{}, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	todo := load{level: l, url: s.url, tokenizer: tokenizerFolder(b.dir), dir: dir}
	if t.config != nil {
		if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(t.config(todo)), 0o600); err != nil {
			return row{}, fmt.Errorf("write the configuration: %w", err)
		}
	}
	usage, failure := b.start(ctx, t, t.args(todo), dir)
	r.usage = usage
	if r.client, err = t.report.read(dir); err != nil {
		return row{}, errors.Join(failure, err)
	}
	all, err := s.truth(ctx)
	if err != nil {
		return row{}, err
	}
	r.server, r.tokens = seen(all)
	if r.server.requests == 0 {
		return row{}, errors.Join(failure, errors.New("the server has answered no request"))
	}
	if r.client.requests != l.requests {
		r.complaint = fmt.Sprintf("%d requests were asked for, %d reported, %d answered by the server", l.requests, r.client.requests, r.server.requests)
	}
	if failure != nil {
		r.complaint = failure.Error()
	}
	return r, nil
}

// start runs a command of a tool, with its output in the folder.
func (b *bench) start(ctx context.Context, t tool, args []string, dir string) (usage peers.Usage, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	stdout, err := os.Create(filepath.Join(dir, "stdout"))
	if err != nil {
		return peers.Usage{}, fmt.Errorf("keep the output: %w", err)
	}
	defer func() { err = errors.Join(err, stdout.Close()) }()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, t.command, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, stdout, &stderr
	cmd.Env = append(os.Environ(), "HF_HOME="+filepath.Join(b.dir, "hf"), "HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1")
	usage, err = peers.Measure(cmd)
	if said := lastLine(stderr.String()); err != nil && said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return usage, err
}

// lastLine is where programs say why they ended.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// machineLoad is the load average of the last minute.
func machineLoad() float64 {
	text, _ := os.ReadFile("/proc/loadavg") // Measure needs Linux anyhow
	first, _, _ := strings.Cut(string(text), " ")
	value, _ := strconv.ParseFloat(first, 64) // the kernel writes a number
	return value
}
