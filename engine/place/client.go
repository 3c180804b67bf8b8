package place

import (
	"context"
	"errors"
	"io"

	"github.com/llmprof/llmprof/engine"
)

// clientLink is a shell behind a client program of this machine: ssh, kubectl.
type clientLink struct{ *process }

// openClient starts a client program, which dies with this one.
func openClient(ctx context.Context, place string, argv, env []string, stderr io.WriteCloser, last *tail) (link, error) {
	program, err := findProgram("this machine", argv[0], "", env)
	if err != nil {
		return nil, err
	}
	// The client lives longer than ctx: it has to carry the news of its end.
	p, err := spawn(context.WithoutCancel(ctx), spawned{path: program, argv: argv, env: env, place: place, stderr: stderr, last: last})
	if err != nil {
		return nil, err
	}
	return clientLink{p}, nil
}

func (l clientLink) stdin() io.WriteCloser { return l.Stdin() }
func (l clientLink) stdout() io.Reader     { return l.Stdout() }

// drop kills the client.
func (l clientLink) drop() {
	_ = l.Stop(0)
	_ = l.process.stdout.Close()
}

// wait waits for the client, which hands on the status of the remote program.
func (l clientLink) wait() (int, string, error) {
	err := l.Wait()
	var exit *engine.ExitError
	if errors.As(err, &exit) {
		return exit.Code, exit.Signal, nil
	}
	return 0, "", err
}
