//go:build unix

package mock

import (
	"net"
	"syscall"
)

// socket writes to a connection without waiting.
type socket struct {
	connection net.Conn
	raw        syscall.RawConn
	attempt    func(fd uintptr) bool
	rest       []byte
	taken      int
}

// newSocket returns nil where the connection cannot be written to directly.
func newSocket(c *net.TCPConn) *socket {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	s := &socket{connection: c, raw: raw}
	s.attempt = func(fd uintptr) bool {
		n, err := syscall.Write(int(fd), s.rest)
		if err == nil {
			s.taken = n
		}
		return true // not to be called again when there is room
	}
	return s
}

// tryWrite returns how many bytes were taken at once. Errors show when the rest
// is written.
func (s *socket) tryWrite(b []byte) int {
	s.rest, s.taken = b, 0
	if len(b) > 0 {
		_ = s.raw.Write(s.attempt) // then nothing was taken
	}
	s.rest = nil
	return s.taken
}
