package place

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/llmprof/llmprof/engine"
)

// relayProgram is run at the place: it connects its stdin and stdout with a
// port there. Where an engine is there is a Python, mostly.
//
//go:embed relay.py
var relayProgram string

// relayScript runs the relay, or what bash has of one where there is no
// Python.
func relayScript(mark string, port int) string {
	n := strconv.Itoa(port)
	return `for python in python3 python; do
if command -v $python >/dev/null 2>&1; then exec $python -c ` + quote(relayProgram) + ` ` + mark + ` ` + n + `; fi; done
if command -v bash >/dev/null 2>&1; then exec bash -c ` + quote(`exec 3<>/dev/tcp/127.0.0.1/`+n+` || { echo `+mark+` refused; exit 1; }
echo `+mark+` open; (cat <&3; kill -KILL $$) & cat >&3; kill -KILL $!`) + `; fi
echo ` + mark + ` missing
`
}

// Dial connects to a port of the place's loopback address, through a small
// relay that is run there; the connection has no deadlines. The
// relay adds its own delay to every piece, up to milliseconds over a network:
// what is timed through it is the engine and the way to it.
func (r *Remote) Dial(ctx context.Context, port int) (net.Conn, error) {
	what := fmt.Sprintf("connect to port %d on %s", port, r)
	if port < 1 || port > 65535 {
		return nil, fmt.Errorf("%s: no such port", what)
	}
	s, err := r.run(ctx, func(mark string) string { return relayScript(mark, port) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	switch s.word {
	case "open":
		return &relayConn{session: s, port: port}, nil
	case "missing":
		s.drop()
		return nil, &engine.UnusableError{
			Problem: engine.ProgramMissing, What: what,
			Remedy: "install python3 (or bash) on " + r.String() + ": either can relay the connection",
		}
	}
	s.drop()
	if s.rest == "" {
		s.rest = "connection refused"
	}
	return nil, fmt.Errorf("%s: %w", what, errors.New(s.rest))
}

// relayConn is a connection through a relay.
type relayConn struct {
	*session
	port int
}

var _ net.Conn = (*relayConn)(nil)

// Read takes what the engine says.
func (c *relayConn) Read(b []byte) (int, error) { return c.out.Read(b) }

// Write says something to the engine.
func (c *relayConn) Write(b []byte) (int, error) { return c.link.stdin().Write(b) }

// Close closes the connection and waits a little for the relay's end.
func (c *relayConn) Close() error {
	c.close(time.Second)
	return nil
}

// LocalAddr is this program.
func (c *relayConn) LocalAddr() net.Addr { return relayAddr("llmprof") }

// RemoteAddr names the place and the port.
func (c *relayConn) RemoteAddr() net.Addr {
	return relayAddr(c.place + " port " + strconv.Itoa(c.port))
}

// SetDeadline fails: a relay has no deadlines.
func (c *relayConn) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline fails, too.
func (c *relayConn) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline fails, too.
func (c *relayConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// relayAddr is the name of an end of a relay.
type relayAddr string

// Network is "relay".
func (relayAddr) Network() string { return "relay" }

// String is the name.
func (a relayAddr) String() string { return string(a) }
