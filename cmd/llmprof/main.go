// Command llmprof tells people who serve large language models how fast, how
// big and how well configured a model is.
//
// Run "llmprof quickstart" for a tour on built-in data, "llmprof help" for
// the commands. Results go to stdout, everything else to stderr; with --json
// stdout is exactly one document. Exit codes: 0 done, 1 the verdict is no, 2
// wrong usage, 3 unknown model, device or file version, 4 something outside
// failed, 5 incomplete, 70 a bug in llmprof, 130 interrupted, 143 terminated.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

func main() {
	// A reader that went away shows as a failed write, not as a signal.
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		received := <-signals
		signal.Stop(signals) // a second signal ends the process at once
		cancel(&interruption{received})
	}()
	os.Exit(exitCode(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)))
}

// run is the whole program but for the process: it reads args, works, writes
// results to stdout and messages to stderr, and returns what went wrong after
// it has been said.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, format: formatTable}
	defer func() {
		if fault := recover(); fault != nil {
			err = &bugError{fault, debug.Stack()}
		}
		if err != nil {
			err = settle(ctx, err)
			a.complain(err)
		}
	}()
	root := a.root()
	if wantsJSON(args) {
		a.format = formatJSON // for errors before the flags are read
	}
	root.SetArgs(joinValues(args))
	if err := strayHelp(root, args); err != nil {
		return err
	}
	return root.ExecuteContext(ctx)
}
