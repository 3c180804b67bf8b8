package load

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/llmprof/llmprof/workload"
)

// exchange is a request on its way and the answer as far as it is there.
type exchange struct {
	want     *workload.Request
	rec      Record
	request  []byte
	answer   *response
	deadline time.Duration
	conn     atomic.Pointer[conn]
}

// link is the transport below a connection. Its owner, a reader of the
// network, calls received and lost on the connection.
type link interface {
	// send stamps the exchange and writes its request without waiting for the
	// peer; the connection's lock is held.
	send(*exchange) error
	// idle reports whether everything sent has left.
	idle() bool
	// close makes the owner see the end of the connection.
	close()
}

// conn is a connection that carries one request at a time.
type conn struct {
	pool  *pool
	link  link
	mu    sync.Mutex
	ex    *exchange // nil while idle
	reads int32
	stale bool // it lay idle, and the peer may have closed it unseen
	dead  bool
}

// begin sends a request; false says that the connection is gone and the
// exchange untouched.
func (c *conn) begin(ex *exchange) bool {
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return false
	}
	c.ex = ex
	ex.conn.Store(c)
	err := c.link.send(ex)
	c.mu.Unlock()
	if err != nil {
		c.link.close()
		c.lost(err, true)
	}
	return true
}

// received takes what a read brought; false says that the connection is of no
// further use.
func (c *conn) received(p []byte, at time.Duration) bool {
	c.mu.Lock()
	ex := c.ex
	c.reads++
	if ex == nil { // nothing was asked, or it was given up
		c.dead = true
		c.mu.Unlock()
		return false
	}
	n, err := ex.answer.feed(p, at, c.reads)
	if err == nil && ex.answer.stage != complete {
		c.mu.Unlock()
		return true
	}
	c.ex = nil
	c.stale = true
	c.dead = err != nil || n < len(p) || !ex.answer.keepAlive || !c.link.idle()
	alive := !c.dead
	c.mu.Unlock()
	if alive {
		c.pool.put(c)
	}
	switch {
	case errors.Is(err, errBodyTooLarge):
		ex.rec.Failure = fail(FailTooLarge, "%v", err)
	case err != nil:
		ex.rec.Failure = fail(FailHTTP, "%v", err)
	}
	c.pool.net.finish(ex, at)
	return alive
}

// lost says that the connection has ended; err is nil for an orderly end.
// refused says that the peer took nothing of what was sent last.
func (c *conn) lost(err error, refused bool) {
	c.mu.Lock()
	ex := c.ex
	c.ex = nil
	c.dead = true
	again := ex != nil && refused && c.stale && ex.answer.stage == inHeaders && len(ex.answer.line) == 0
	c.mu.Unlock()
	switch {
	case ex == nil:
		return
	case again:
		ex.rec.Retries++
		c.pool.net.dialAndSend(ex)
		return
	}
	started := ex.answer.stage != inHeaders || len(ex.answer.line) > 0
	if end := ex.answer.eof(); end != nil || err != nil {
		kind, text := FailCut, "the connection broke within the answer"
		if !started {
			kind = FailClosed
		}
		if end != nil {
			text = end.Error()
		}
		if err != nil {
			text += ": " + err.Error()
		}
		ex.rec.Failure = fail(kind, "%s", text)
	}
	c.pool.net.finish(ex, c.pool.net.clock.now())
}

// abort ends the exchange with a failure, if it is still on this connection.
func (c *conn) abort(ex *exchange, failure *Failure) {
	c.mu.Lock()
	mine := c.ex == ex
	if mine {
		c.ex, c.dead = nil, true
	}
	c.mu.Unlock()
	if mine {
		c.link.close()
		ex.rec.Failure = failure
		c.pool.net.finish(ex, c.pool.net.clock.now())
	}
}

// pool holds the idle connections to one target.
type pool struct {
	net     *network
	to      *endpoint
	spare   int // connections to keep ready
	mu      sync.Mutex
	idle    []*conn
	opening int
}

// take returns an idle connection, or nil, and has others opened where few are
// left.
func (p *pool) take() *conn {
	p.mu.Lock()
	var c *conn
	if last := len(p.idle) - 1; last >= 0 {
		c, p.idle = p.idle[last], p.idle[:last]
	}
	missing := 0
	if len(p.idle)+p.opening < p.spare/2 {
		missing = p.spare - len(p.idle) - p.opening
		p.opening += missing
	}
	p.mu.Unlock()
	if missing > 0 {
		p.net.tasks.Go(func() { p.open(missing) })
	}
	return c
}

// put gives a connection back.
func (p *pool) put(c *conn) {
	p.mu.Lock()
	p.idle = append(p.idle, c)
	p.mu.Unlock()
}

// drop forgets an idle connection that has ended.
func (p *pool) drop(c *conn) {
	p.mu.Lock()
	for i, other := range p.idle {
		if other == c {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			break
		}
	}
	p.mu.Unlock()
}

// open opens n connections and keeps them idle. It gives up at the first
// failure: a request will dial for itself, and say why that fails.
func (p *pool) open(n int) {
	for failed := false; n > 0; n-- {
		var c *conn
		if !failed {
			ctx, cancel := context.WithTimeout(p.net.ctx, dialTimeout)
			var err error
			c, err = p.dial(ctx)
			cancel()
			failed = err != nil
		}
		p.mu.Lock()
		p.opening--
		if !failed {
			c.stale = true
			p.idle = append([]*conn{c}, p.idle...)
		}
		p.mu.Unlock()
	}
}

// dialTimeout bounds the opening of a connection.
const dialTimeout = 30 * time.Second

// dial opens a connection.
func (p *pool) dial(ctx context.Context) (*conn, error) {
	socket, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.to.address)
	if err != nil {
		return nil, err
	}
	c := &conn{pool: p}
	if p.to.tls == nil {
		return c, p.net.adopt(c, socket)
	}
	secure := tls.Client(socket, p.to.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = socket.Close()
		return nil, err
	}
	p.net.stream(c, secure)
	return c, nil
}

// readBuffer is the size of a read; an arrival larger than that takes several.
const readBuffer = 64 << 10

// network is all connections of a run and what reads them.
type network struct {
	ctx    context.Context // ends dialing
	stop   context.CancelFunc
	clock  clock
	pools  []*pool
	tasks  sync.WaitGroup                           // dials and stream readers
	finish func(ex *exchange, closed time.Duration) // called once an exchange, with no lock held
	mu     sync.Mutex
	open   map[*streamLink]struct{}
	poller
}

// newNetwork makes a network that has no connections yet; close it.
func newNetwork(ctx context.Context, c clock, to []*endpoint, finish func(*exchange, time.Duration)) (*network, error) {
	n := &network{clock: c, finish: finish, open: map[*streamLink]struct{}{}}
	n.ctx, n.stop = context.WithCancel(ctx)
	for _, e := range to {
		n.pools = append(n.pools, &pool{net: n, to: e})
	}
	if err := n.startPoller(); err != nil {
		n.stop()
		return nil, err
	}
	return n, nil
}

// prepare opens spare connections to each target, and keeps about as many
// ready from then on.
func (n *network) prepare(spare int) {
	var all sync.WaitGroup
	for _, p := range n.pools {
		p.mu.Lock()
		p.spare = spare
		missing := max(spare-len(p.idle)-p.opening, 0)
		p.opening += missing
		p.mu.Unlock()
		all.Go(func() { p.open(missing) })
	}
	all.Wait()
}

// send sends a request on an idle connection, or opens one for it.
func (n *network) send(ex *exchange) {
	p := n.pools[ex.rec.Target]
	for c := p.take(); c != nil; c = p.take() {
		if c.begin(ex) {
			return
		}
	}
	n.dialAndSend(ex)
}

// dialAndSend opens a connection for a request without holding up the caller.
func (n *network) dialAndSend(ex *exchange) {
	p := n.pools[ex.rec.Target]
	ex.conn.Store(nil)
	n.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(n.ctx, min(dialTimeout, max(ex.deadline-n.clock.now(), 0)))
		defer cancel()
		c, err := p.dial(ctx)
		switch {
		case err == nil:
			if !c.begin(ex) {
				ex.rec.Failure = fail(FailConnect, "the connection to %s was closed at once", p.to.address)
				n.finish(ex, n.clock.now())
			}
			return
		case n.ctx.Err() != nil:
			ex.rec.Failure = fail(FailCancelled, "the run was ended before a connection was there")
		case errors.Is(err, syscall.EMFILE):
			ex.rec.Failure = fail(FailConnect, "%v: raise the limit on open files (ulimit -n)", err)
		case errors.Is(err, context.DeadlineExceeded):
			ex.rec.Failure = fail(FailTimeout, "no connection in time: %v", err)
		default:
			ex.rec.Failure = fail(FailConnect, "%v", err)
		}
		n.finish(ex, n.clock.now())
	})
}

// close ends all connections and waits for their readers.
func (n *network) close() {
	n.stop()
	n.mu.Lock()
	for l := range n.open {
		l.close()
	}
	n.mu.Unlock()
	n.tasks.Wait()
	n.stopPoller()
}

// streamLink is a connection with a goroutine of its own: TLS, and systems
// without epoll.
type streamLink struct {
	net    *network
	conn   *conn
	socket net.Conn
	busy   atomic.Int32 // writes that have not returned
}

// stream gives a connection to a goroutine that reads it.
func (n *network) stream(c *conn, socket net.Conn) {
	l := &streamLink{net: n, conn: c, socket: socket}
	c.link = l
	n.mu.Lock()
	n.open[l] = struct{}{}
	n.mu.Unlock()
	if n.ctx.Err() != nil {
		l.close()
	}
	n.tasks.Go(l.read)
}

// read hands over what arrives until the connection ends.
func (l *streamLink) read() {
	buffer := make([]byte, readBuffer)
	for {
		n, err := l.socket.Read(buffer)
		at := l.net.clock.now()
		if n > 0 && !l.conn.received(buffer[:n], at) {
			break
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			l.conn.lost(err, errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE))
			break
		}
	}
	l.conn.pool.drop(l.conn)
	l.close()
	l.net.mu.Lock()
	delete(l.net.open, l)
	l.net.mu.Unlock()
}

func (l *streamLink) send(ex *exchange) error {
	l.busy.Add(1)
	l.net.tasks.Go(func() {
		l.conn.mu.Lock()
		if l.conn.ex == ex {
			ex.rec.Send, ex.rec.Sent = l.net.clock.now(), true
		}
		l.conn.mu.Unlock()
		_, err := l.socket.Write(ex.request)
		l.busy.Add(-1)
		if err != nil {
			l.close() // the reader tells
		}
	})
	return nil
}

func (l *streamLink) idle() bool { return l.busy.Load() == 0 }

func (l *streamLink) close() { _ = l.socket.Close() }
