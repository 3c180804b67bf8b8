package engine

import (
	"errors"
	"regexp"
	"strings"
)

// OutOfMemory reports whether a process seems to have died of want of memory,
// by its [*ExitError]: the kernel kills with SIGKILL and leaves no word,
// libraries say so.
func OutOfMemory(err error) bool {
	var exit *ExitError
	if !errors.As(err, &exit) {
		return false
	}
	switch strings.ToLower(strings.TrimPrefix(strings.ToUpper(exit.Signal), "SIG")) {
	case "kill", "killed", "9":
		return true
	}
	return exit.Code == 128+9 || SaysOutOfMemory(exit.Stderr)
}

// memoryWords are what engines, their libraries and shells say when memory runs
// out.
var memoryWords = regexp.MustCompile(`(?i)out of memory|OutOfMemoryError|\bMemoryError\b|\bbad_alloc\b|(?:cannot|can't|unable to|failed to) allocate|not enough memory|` +
	`failed to create context|exit ?code:? -9\b|^Killed$`)

// memoryAdvice is what they say to those whose memory has not run out yet.
var memoryAdvice = regexp.MustCompile(`(?i)\b(?:if|in case|avoid|avoiding|prevent|prevents)\b.{0,60}?\b(?:out of memory|OutOfMemoryError)`)

// SaysOutOfMemory reports whether a text, as a log or an error's message, says
// that memory ran out. Advice for the case that it does is not meant.
func SaysOutOfMemory(text string) bool {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if memoryWords.MatchString(line) && memoryWords.MatchString(memoryAdvice.ReplaceAllLiteralString(line, "")) {
			return true
		}
	}
	return false
}

// Shorten cuts a text to about n bytes for messages and logs; it stays valid
// UTF-8. Secrets must be taken out before: a part of one is not recognised.
func Shorten(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}
