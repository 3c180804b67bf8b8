// Compare loads one server with several load generators in turn and tables what
// each costs and how far its figures are from what the server saw. "make peers"
// installs the others and runs it:
//
//	go run ./internal/peers/compare [flags] NAME[@VERSION]=COMMAND...
//
// The server is "llmprof mock": 50 ms to the first token, then one every 20 ms.
// The load is a closed loop of requests of 32 prompt tokens and 128 generated
// ones. Nothing is subtracted from what a client takes: start, making of prompts
// and reports count. Of several runs the one with the least processor time is
// shown whole.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "compare:", err)
		}
		os.Exit(1) //nolint:gocritic // nothing is left to be stopped
	}
}

// settings are the flags.
type settings struct {
	levels []level
	runs   int
	limit  time.Duration // of one run
}

// level is a closed loop.
type level struct{ clients, requests int }

// setLevels reads levels as CLIENTS:REQUESTS,…
func (s *settings) setLevels(text string) error {
	s.levels = nil
	for _, item := range strings.Split(text, ",") {
		clients, requests, _ := strings.Cut(item, ":")
		c, err := strconv.Atoi(clients)
		n, err2 := strconv.Atoi(requests)
		if err := errors.Join(err, err2); err != nil || c < 1 || n < c {
			return fmt.Errorf("level %q: want CLIENTS:REQUESTS, at least one request each", item)
		}
		s.levels = append(s.levels, level{c, n})
	}
	return nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	s := settings{levels: []level{{32, 640}, {256, 2560}}}
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Func("levels", "`CLIENTS:REQUESTS,…` (default 32:640,256:2560)", s.setLevels)
	flags.IntVar(&s.runs, "runs", 2, "runs of each, of which the cheapest is shown")
	flags.DurationVar(&s.limit, "limit", 5*time.Minute, "longest time of one run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	tools, err := parseTools(flags.Args())
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "peers-")
	if err != nil {
		return fmt.Errorf("make a folder for results: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := writeTokenizer(dir); err != nil {
		return err
	}
	b := bench{settings: s, llmprof: tools[0].command, dir: dir, stderr: stderr}
	return b.compare(ctx, tools, stdout)
}

// tool is a client with the command that was given for it.
type tool struct {
	client

	version string
	command string // empty: not installed
}

// parseTools finds the command of every client; llmprof's, the first, is needed,
// since it is the server too.
func parseTools(args []string) ([]tool, error) {
	var tools []tool
	for _, c := range clients() {
		tools = append(tools, tool{client: c})
	}
	for _, arg := range args {
		name, command, ok := strings.Cut(arg, "=")
		name, version, _ := strings.Cut(name, "@")
		known := false
		for i := range tools {
			if tools[i].name == name {
				tools[i].version, tools[i].command, known = version, absolute(command), true
			}
		}
		if !ok || !known {
			return nil, fmt.Errorf("argument %q: want NAME[@VERSION]=COMMAND, a name of %s", arg, names(tools))
		}
	}
	if tools[0].command == "" {
		return nil, errors.New("llmprof=COMMAND is missing")
	}
	return tools, nil
}

// absolute makes a path independent of the folder that a client runs in; a
// command without a folder is found in the PATH.
func absolute(command string) string {
	if !strings.ContainsRune(command, filepath.Separator) {
		return command
	}
	full, err := filepath.Abs(command)
	if err != nil {
		return command // the run will say that it is not there
	}
	return full
}

func names(tools []tool) string {
	var all []string
	for _, t := range tools {
		all = append(all, t.name)
	}
	return strings.Join(all, ", ")
}
