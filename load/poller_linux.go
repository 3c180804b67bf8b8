package load

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller reads all plain connections in one goroutine over an epoll set: one
// system call an arrival, and one for all that are ready together. It waits for
// the set in Go's own poller: a thread that blocks in a system call would keep
// the runtime's monitor awake, which costs more than all the reads. For the same
// reason calls that cannot block are raw.
type poller struct {
	set     *os.File // the epoll set
	epoll   int      // its descriptor
	event   int
	guard   sync.Mutex
	sockets []*socketLink // by file descriptor; nil where it is none of ours
	closing bool
	ended   chan struct{}
}

// startPoller starts the loop.
func (n *network) startPoller() error {
	var err error
	if n.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("make an epoll set: %w", err)
	}
	if n.event, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err == nil {
		err = unix.EpollCtl(n.epoll, unix.EPOLL_CTL_ADD, n.event, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(n.event)})
	}
	if err == nil {
		err = unix.SetNonblock(n.epoll, true) // so that the runtime polls it
	}
	if err != nil {
		_ = unix.Close(n.epoll)
		return fmt.Errorf("make an event for the epoll loop: %w", err)
	}
	n.set = os.NewFile(uintptr(n.epoll), "epoll")
	raw, err := n.set.SyscallConn()
	if err != nil {
		_ = n.set.Close()
		_ = unix.Close(n.event)
		return fmt.Errorf("wait for the epoll set: %w", err)
	}
	n.sockets, n.ended = make([]*socketLink, n.event+1), make(chan struct{})
	go n.poll(raw)
	return nil
}

// stopPoller ends the loop and closes what it still holds.
func (n *network) stopPoller() {
	n.guard.Lock()
	n.closing = true
	n.guard.Unlock()
	_, _ = unix.Write(n.event, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-n.ended
	_ = unix.Close(n.event)
	_ = n.set.Close()
}

// adopt takes a socket over from the Go runtime.
func (n *network) adopt(c *conn, socket net.Conn) error {
	defer socket.Close()
	fd := -1
	raw, err := socket.(*net.TCPConn).SyscallConn()
	if err == nil {
		control := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
		err = errors.Join(err, control)
	}
	if err != nil {
		return fmt.Errorf("take over the connection: %w", err)
	}
	l := &socketLink{net: n, conn: c, fd: fd}
	c.link = l
	n.guard.Lock()
	defer n.guard.Unlock()
	if n.closing {
		_ = unix.Close(fd)
		return net.ErrClosed
	}
	if more := fd + 1 - len(n.sockets); more > 0 {
		n.sockets = append(n.sockets, make([]*socketLink, more)...)
	}
	n.sockets[fd] = l
	if err := unix.EpollCtl(n.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: arrivals, Fd: int32(fd)}); err != nil {
		n.sockets[fd] = nil
		_ = unix.Close(fd)
		return fmt.Errorf("watch the connection: %w", err)
	}
	return nil
}

// poll is the loop. It alone closes sockets, so that no descriptor is used
// again while an event for it is under way.
func (n *network) poll(set syscall.RawConn) {
	defer close(n.ended)
	events := make([]unix.EpollEvent, 256)
	links := make([]*socketLink, len(events))
	buffer := make([]byte, readBuffer)
	// One Read is the whole loop: between two of them an arrival could be missed.
	_ = set.Read(func(fd uintptr) bool {
		for {
			count := ready(fd, events)
			closing := n.find(events[:count], links)
			for i, event := range events[:count] {
				links[i].serve(event.Events, buffer)
			}
			if closing || count < len(events) {
				return closing
			}
		}
	})
	n.abandon()
}

// find fills in the sockets of events, nil for the wake-up, and reports whether
// the loop is to end.
func (n *network) find(events []unix.EpollEvent, links []*socketLink) (closing bool) {
	n.guard.Lock()
	defer n.guard.Unlock()
	for i, event := range events {
		links[i] = n.sockets[event.Fd]
	}
	return n.closing
}

// abandon closes all sockets.
func (n *network) abandon() {
	n.guard.Lock()
	n.closing = true
	left := slices.Clone(n.sockets)
	n.guard.Unlock()
	for _, l := range left {
		if l != nil {
			l.conn.lost(net.ErrClosed, false)
			n.remove(l)
		}
	}
}

// ready asks an epoll set for events without waiting.
func ready(fd uintptr, events []unix.EpollEvent) int {
	count, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd, uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(count)
}

// transfer receives into or sends from p, which is not empty, without waiting.
func transfer(call uintptr, fd int, p []byte) (int, error) {
	count, _, errno := unix.RawSyscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(count), nil
}

// remove closes a socket that has ended.
func (n *network) remove(l *socketLink) {
	n.guard.Lock()
	n.sockets[l.fd] = nil
	n.guard.Unlock()
	l.conn.pool.drop(l.conn)
	l.conn.mu.Lock() // nobody writes or shuts down from here on
	l.gone = true
	l.conn.mu.Unlock()
	_ = unix.Close(l.fd)
}

// socketLink is a plain connection that the loop reads.
type socketLink struct {
	net  *network
	conn *conn
	fd   int
	gone bool   // closed; under the connection's lock
	rest []byte // of a request larger than the socket's buffer
}

// arrivals are the events that a socket is watched for: each is told once.
const arrivals = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET

// serve deals with an event; a nil link is the loop's wake-up.
func (l *socketLink) serve(events uint32, buffer []byte) {
	if l == nil {
		return
	}
	if events&unix.EPOLLOUT != 0 {
		l.flush()
	}
	if events&^unix.EPOLLOUT != 0 && !l.read(buffer, events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0) {
		l.net.remove(l)
	}
}

// read takes what is there with one call, and asks for another event where
// more may follow; false at the end of the connection. ended says that the end
// has been told: the event of the last bytes is also that of the end.
func (l *socketLink) read(buffer []byte, ended bool) bool {
	count, err := transfer(unix.SYS_RECVFROM, l.fd, buffer)
	at := l.net.clock.now()
	switch {
	case count > 0:
		if !l.conn.received(buffer[:count], at) {
			return false
		}
		if ended || count == len(buffer) {
			l.again()
		}
		return true
	case errors.Is(err, unix.EINTR):
		l.again()
		return true
	case errors.Is(err, unix.EAGAIN):
		return true
	}
	refused := err != nil
	if err == nil { // the peer's end; an error pending says that it took nothing more
		if pending, e := unix.GetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_ERROR); e == nil && pending != 0 {
			refused = true
		}
	}
	l.conn.lost(err, refused)
	return false
}

func (l *socketLink) send(ex *exchange) error {
	ex.rec.Send, ex.rec.Sent = l.net.clock.now(), true
	l.rest = ex.request
	return l.push()
}

// push writes what the socket takes and asks for an event for the rest.
func (l *socketLink) push() error {
	for len(l.rest) > 0 {
		count, err := transfer(unix.SYS_SENDTO, l.fd, l.rest)
		switch {
		case count > 0:
			l.rest = l.rest[count:]
		case errors.Is(err, unix.EAGAIN):
			return l.watch()
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
	return nil
}

// flush goes on writing when the socket takes more.
func (l *socketLink) flush() {
	l.conn.mu.Lock()
	defer l.conn.mu.Unlock()
	if l.gone || l.conn.dead {
		return
	}
	// A failure shows at the next read.
	if l.push() == nil && len(l.rest) == 0 {
		_ = l.watch()
	}
}

// again has an event told once more.
func (l *socketLink) again() {
	l.conn.mu.Lock()
	defer l.conn.mu.Unlock()
	_ = l.watch() // it knows the socket
}

// watch asks for an event where something is there or comes, and for one when
// the rest of a request can be written; the connection's lock is held.
func (l *socketLink) watch() error {
	event := unix.EpollEvent{Events: arrivals, Fd: int32(l.fd)}
	if len(l.rest) > 0 {
		event.Events |= unix.EPOLLOUT
	}
	return unix.EpollCtl(l.net.epoll, unix.EPOLL_CTL_MOD, l.fd, &event)
}

func (l *socketLink) idle() bool { return len(l.rest) == 0 }

// close shuts the connection down; the loop then sees its end and closes it.
func (l *socketLink) close() {
	l.conn.mu.Lock()
	defer l.conn.mu.Unlock()
	if !l.gone {
		_ = unix.Shutdown(l.fd, unix.SHUT_RDWR)
	}
}
