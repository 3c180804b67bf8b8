//go:build !unix

package main

// terminalSize is how many columns and rows stderr shows: elsewhere than on
// Unix the usual ones.
func (a *app) terminalSize() (columns, rows int) { return usualColumns, usualRows }
