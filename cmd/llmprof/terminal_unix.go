//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalSize is how many columns and rows stderr shows.
func (a *app) terminalSize() (columns, rows int) {
	if file, ok := a.stderr.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 && size.Row > 0 {
			return int(size.Col), int(size.Row)
		}
	}
	return usualColumns, usualRows
}
