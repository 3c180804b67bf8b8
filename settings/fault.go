package settings

import (
	"fmt"
	"strings"
	"unicode"
)

// LineError is one thing that is wrong with a file or with flags.
type LineError struct {
	// File is the name given to the reader, empty for flags; Line and Column
	// count from 1 and are 0 where the whole file is meant.
	File         string
	Line, Column int
	// Text says what is wrong, Advice what to write instead; Advice may be
	// empty.
	Text, Advice string
	// Excerpt is the source line with a caret under the place.
	Excerpt string
}

// Error gives place and text, then the excerpt on lines of its own.
func (f *LineError) Error() string {
	text := f.Text
	switch {
	case f.Line > 0:
		text = fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Text)
	case f.File != "":
		text = f.File + ": " + f.Text
	}
	if f.Excerpt != "" {
		text += "\n" + f.Excerpt
	}
	return text
}

// Hint says what to write instead.
func (f *LineError) Hint() string { return f.Advice }

// FileError carries all faults of a file, in the order of the text.
type FileError struct{ Faults []*LineError }

// shownFaults is how many faults one error prints.
const shownFaults = 40

// Error lists the faults.
func (e *FileError) Error() string {
	var texts []string
	for i, fault := range e.Faults {
		if i == shownFaults {
			texts = append(texts, fmt.Sprintf("and %d more faults", len(e.Faults)-i))
			break
		}
		texts = append(texts, fault.Error())
	}
	return strings.Join(texts, "\n")
}

// Hint joins the advice of all faults.
func (e *FileError) Hint() string {
	var hints []string
	seen := map[string]bool{}
	for _, fault := range e.Faults[:min(len(e.Faults), shownFaults)] {
		hint := fault.Advice
		if hint == "" || seen[hint] {
			continue
		}
		seen[hint] = true
		if fault.Line > 0 && len(e.Faults) > 1 {
			hint = fmt.Sprintf("line %d: %s", fault.Line, hint)
		}
		hints = append(hints, hint)
	}
	return strings.Join(hints, "; ")
}

// Unwrap gives the faults one by one.
func (e *FileError) Unwrap() []error {
	errs := make([]error, len(e.Faults))
	for i, fault := range e.Faults {
		errs[i] = fault
	}
	return errs
}

// ExitCode is that of an invalid configuration.
func (e *FileError) ExitCode() int { return 2 }

// Excerpt shows a line with a caret under a column, both counted from 1; the
// column counts characters. It is empty where there is no such line.
func Excerpt(lines []string, line, column int) string {
	if line < 1 || line > len(lines) {
		return ""
	}
	const before, shown = 80, 120
	runes := []rune(strings.TrimRight(lines[line-1], "\r\n"))
	column = min(max(column, 1), len(runes)+1)
	from := max(0, column-1-before)
	text := strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return '·'
		}
		return r
	}, string(runes[from:min(len(runes), from+shown)]))
	return fmt.Sprintf("%5d | %s\n        %s^", line, text, strings.Repeat(" ", column-1-from))
}
