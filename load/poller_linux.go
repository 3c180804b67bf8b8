package load

import (
	"errors"
	"fmt"
	"net"
	"os"
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
	sockets map[int32]*socketLink // by file descriptor
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
	n.sockets, n.ended = map[int32]*socketLink{}, make(chan struct{})
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
	n.sockets[int32(fd)] = l
	if err := unix.EpollCtl(n.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		delete(n.sockets, int32(fd))
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
	buffer := make([]byte, readBuffer)
	for {
		count := 0
		err := set.Read(func(fd uintptr) bool {
			count = ready(fd, events)
			return count > 0
		})
		for _, event := range events[:count] {
			n.guard.Lock()
			l := n.sockets[event.Fd]
			n.guard.Unlock()
			if l == nil {
				continue // the wake-up
			}
			if event.Events&unix.EPOLLOUT != 0 {
				l.flush()
			}
			if event.Events&^unix.EPOLLOUT != 0 && !l.read(buffer) {
				n.remove(l)
			}
		}
		n.guard.Lock()
		closing := n.closing || err != nil
		n.guard.Unlock()
		if closing {
			n.abandon()
			return
		}
	}
}

// abandon closes all sockets.
func (n *network) abandon() {
	n.guard.Lock()
	n.closing = true
	var left []*socketLink
	for _, l := range n.sockets {
		left = append(left, l)
	}
	n.guard.Unlock()
	for _, l := range left {
		l.conn.lost(net.ErrClosed, false)
		n.remove(l)
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

// transfer reads into or writes from p, which is not empty, without waiting.
func transfer(call uintptr, fd int, p []byte) (int, error) {
	count, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(count), nil
}

// remove closes a socket that has ended.
func (n *network) remove(l *socketLink) {
	n.guard.Lock()
	delete(n.sockets, int32(l.fd))
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

// read takes what is there with one call; false at the end of the connection.
func (l *socketLink) read(buffer []byte) bool {
	count, err := transfer(unix.SYS_READ, l.fd, buffer)
	at := l.net.clock.now()
	switch {
	case count > 0:
		return l.conn.received(buffer[:count], at)
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
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
		count, err := transfer(unix.SYS_WRITE, l.fd, l.rest)
		switch {
		case count > 0:
			l.rest = l.rest[count:]
		case errors.Is(err, unix.EAGAIN):
			return l.watch(unix.EPOLLIN | unix.EPOLLOUT)
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
		_ = l.watch(unix.EPOLLIN)
	}
}

func (l *socketLink) watch(events uint32) error {
	return unix.EpollCtl(l.net.epoll, unix.EPOLL_CTL_MOD, l.fd, &unix.EpollEvent{Events: events, Fd: int32(l.fd)})
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
