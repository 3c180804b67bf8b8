package campaign

import (
	"fmt"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/settings"
)

// LineError is one thing that is wrong with a file or with flags.
type LineError = settings.LineError

// FileError carries all faults of a file, in the order of the text.
type FileError = settings.FileError

// Warning is something in a file that has no effect or may surprise.
type Warning struct {
	// File, Line and Column say where it stands; the last two count from 1.
	File         string
	Line, Column int
	// Text says what is meant.
	Text string
}

// String gives place and text.
func (w Warning) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", w.File, w.Line, w.Column, w.Text)
}

// excerpt shows a line with a caret under a column, both counted from 1. A line
// in which something looks like a secret is not shown.
func excerpt(lines []string, line, column int) string {
	text := settings.Excerpt(lines, line, column)
	if text != "" && engine.NewRedactor().Redact(lines[line-1]) != lines[line-1] {
		return ""
	}
	return text
}
