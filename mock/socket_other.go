//go:build !unix

package mock

import "net"

// socket is for systems that can write without waiting.
type socket struct{ connection net.Conn }

func newSocket(*net.TCPConn) *socket { return nil }

func (*socket) tryWrite([]byte) int { return 0 }
