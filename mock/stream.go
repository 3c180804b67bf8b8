package mock

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"
)

// ending is how an answer ends.
type ending int

const (
	open ending = iota
	done
	failed
	cut
)

// maxBacklog bounds what waits for a client that does not read, in bytes.
const maxBacklog = 16 << 20

// stream is the way to a client. The pacer writes to the socket itself where it
// can; what the socket does not take, the request's own goroutine writes.
type stream struct {
	socket *socket // nil: everything goes through w
	w      http.ResponseWriter
	framed bool // chunks of the transfer encoding are written by us
	silent bool // an answer that is no stream: only the end counts
	wake   chan struct{}

	mu      sync.Mutex
	backlog []byte
	busy    bool // the goroutine writes
	end     ending
	left    bool
}

// send hands bytes over; it never waits for the client. With an end the request's
// goroutine takes over.
func (o *stream) send(b []byte, end ending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.left || o.end != open {
		return
	}
	if o.socket != nil && !o.busy && len(o.backlog) == 0 {
		b = b[o.socket.tryWrite(b):]
	}
	o.backlog = append(o.backlog, b...)
	o.end = end
	if len(o.backlog) > maxBacklog {
		o.backlog, o.end = nil, cut
	}
	if len(o.backlog) > 0 || o.end != open {
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
}

// serve writes what the pacer could not, and returns how the answer ended. The
// pacer does not touch the connection after it.
func (o *stream) serve(ctx context.Context) (ending, error) {
	defer func() {
		o.mu.Lock()
		o.left = true
		o.mu.Unlock()
	}()
	for {
		select {
		case <-o.wake:
		case <-ctx.Done():
			return cut, ctx.Err()
		}
		if end, err := o.drain(); end != open || err != nil {
			return end, err
		}
	}
}

// drain writes the backlog.
func (o *stream) drain() (ending, error) {
	for {
		o.mu.Lock()
		b, end := o.backlog, o.end
		o.backlog, o.busy = nil, len(b) > 0
		o.mu.Unlock()
		if len(b) == 0 {
			return end, nil
		}
		if err := o.write(b); err != nil {
			return cut, err
		}
	}
}

func (o *stream) write(b []byte) error {
	if o.socket != nil {
		_, err := o.socket.connection.Write(b)
		return err
	}
	if _, err := o.w.Write(b); err != nil {
		return err
	}
	return http.NewResponseController(o.w).Flush()
}

// frameRoom is what the length of a transfer chunk takes at most.
const frameRoom = 18

// finishFrame puts what a buffer holds after its first frameRoom bytes into a
// transfer chunk, where that is ours to do. It returns the buffer, which may have
// grown, and what to send.
func (o *stream) finishFrame(buffer []byte) (grown, sent []byte) {
	if !o.framed {
		return buffer, buffer[frameRoom:]
	}
	var room [frameRoom]byte
	length := strconv.AppendInt(room[:0], int64(len(buffer)-frameRoom), 16)
	length = append(length, "\r\n"...)
	start := frameRoom - len(length)
	copy(buffer[start:], length)
	buffer = append(buffer, "\r\n"...)
	return buffer, buffer[start:]
}

// connectionKey finds the connection in the context of a request.
type connectionKey struct{}

// withConnection is the ConnContext of our server.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// newStream prepares the way to the client of r. It writes past the server to
// the plain sockets that it knows.
func newStream(w http.ResponseWriter, r *http.Request) *stream {
	o := &stream{w: w, wake: make(chan struct{}, 1)}
	if c, ok := r.Context().Value(connectionKey{}).(*net.TCPConn); ok {
		o.socket = newSocket(c)
	}
	o.framed = o.socket != nil && r.ProtoAtLeast(1, 1)
	return o
}
