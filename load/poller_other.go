//go:build !linux

package load

import "net"

// poller reads many connections in one loop where the system has epoll.
type poller struct{}

func (n *network) startPoller() error { return nil }

func (n *network) stopPoller() {}

// adopt takes a socket into the network.
func (n *network) adopt(c *conn, socket net.Conn) error {
	n.stream(c, socket)
	return nil
}
