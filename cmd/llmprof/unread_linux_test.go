package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// unread is the number of bytes in a pipe that nobody has read yet; 0 where that
// cannot be known.
func unread(pipe *os.File) int {
	n, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}
