// Command llmprof tells people who serve large language models how fast, how
// big and how well configured a model is.
//
// Run "llmprof quickstart" for a tour on built-in data, "llmprof help" for
// the commands. Results go to stdout, everything else to stderr; with --json
// stdout is exactly one document. Exit codes: 0 done, 1 the verdict is no, 2
// wrong usage, 3 unknown model, device or file version, 4 something outside
// failed, 5 incomplete, 70 a bug in llmprof, 130 interrupted.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(exitCode(err))
}

// run is the whole program but for the process: it reads args, works, writes
// results to stdout and messages to stderr, and returns what went wrong after
// it has been said.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	defer func() {
		if fault := recover(); fault != nil {
			err = &bugError{fault}
		}
		if err != nil {
			err = settle(ctx, err)
			a.complain(err)
		}
	}()
	root := a.root()
	root.SetArgs(joinOptionalValues(args))
	return root.ExecuteContext(ctx)
}
