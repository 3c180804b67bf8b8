package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/llmprof/llmprof/forward"
)

// Serving is a session of a server that clients of its HTTP interface can ask
// meanwhile.
type Serving interface {
	Session
	// Endpoint is where and how it is asked.
	Endpoint() Endpoint
	// Mark is a place in the server's log, from which on Steps tells.
	Mark() int
	// Steps are the steps since a mark, in order. It returns when they have
	// computed so many tokens, when ctx or the log ends, or when the log has
	// told nothing for a while.
	Steps(ctx context.Context, mark, tokens int) []ServedStep
}

// Endpoint is where a server is asked, as this machine reaches it.
type Endpoint struct {
	// URL is the base, "http://127.0.0.1:8000"; Model the name to ask for.
	URL, Model string
	// TokenLow and TokenHigh bound the token ids of prompts, TokenHigh
	// excluded.
	TokenLow, TokenHigh int
}

// ServedStep is one step of a server's engine, as the engine tells it.
type ServedStep struct {
	// Totals is what it computed; its KVTokens are 0.
	Totals forward.Totals
	// Seconds is how long it took, in seconds.
	Seconds float64
	// KVUsage is the share of the KV cache in use after it, 0..1; nil where the
	// engine does not tell.
	KVUsage *float64
}

// Tokens is the number of tokens that the step computed.
func (s ServedStep) Tokens() int { return s.Totals.PrefillTokens + s.Totals.DecodeTokens }

// Tunnel makes a port of a place reachable at an address of this machine's own
// loopback interface, until the returned function is called.
func Tunnel(ctx context.Context, place Place, port int) (address string, end func() error, err error) {
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("forward port %d of %s: %w", port, place, err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var open sync.WaitGroup
	open.Go(func() {
		for {
			here, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() { join(ctx, here, place, port) })
		}
	})
	return listener.Addr().String(), func() error {
		cancel()
		err := listener.Close()
		open.Wait()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		return err
	}, nil
}

// join connects a connection with a port of a place until either ends.
func join(ctx context.Context, here net.Conn, place Place, port int) {
	defer here.Close()
	there, err := place.Dial(ctx, port)
	if err != nil {
		return // the client sees a connection that was closed
	}
	defer there.Close()
	defer context.AfterFunc(ctx, func() { _, _ = here.Close(), there.Close() })()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{here, there}, {there, here}} {
		go func() {
			_, _ = io.Copy(way[0], way[1]) // how it ended, the two ends know
			ended <- struct{}{}
		}()
	}
	<-ended
	here.Close()
	there.Close()
	<-ended
}
