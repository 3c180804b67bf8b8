//go:build unix && !linux

package place

import "syscall"

// dieWithParent does nothing: only Linux knows such a signal. The guard ends
// the process here.
func dieWithParent(*syscall.SysProcAttr) {}

// allZombies does not know.
func allZombies(int) bool { return false }
