package engine

import (
	"io"
	"regexp"
	"strings"
	"sync"
)

// probeLog takes what a probe prints beside its events, from several
// goroutines.
type probeLog struct {
	redactor
	mu   sync.Mutex
	w    io.Writer
	tail string
}

// Write passes on what the place has cleaned already.
func (l *probeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w == nil {
		return len(p), nil
	}
	return l.w.Write(p)
}

// line logs one line and remembers it as the last.
func (l *probeLog) line(text string) {
	text = l.clean(shorten(text, 2000))
	if strings.TrimSpace(text) == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = shorten(text, 200)
	if l.w != nil {
		_, _ = io.WriteString(l.w, text+"\n") // a log that fails must not fail the measurement
	}
}

func (l *probeLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tail
}

// secretName finds the variables whose values stay out of logs, hubToken the
// tokens of the Hugging Face hub.
var (
	secretName = regexp.MustCompile(`(?i)token|key|secret|passw`)
	hubToken   = regexp.MustCompile(`hf_[A-Za-z0-9]{16,}`)
)

// redactor removes secrets from what a probe prints.
type redactor struct{ replacer *strings.Replacer }

// newRedactor knows the secrets among the variables of a process.
func newRedactor(env []string) redactor {
	var pairs []string
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		if len(value) >= 8 && secretName.MatchString(name) {
			pairs = append(pairs, value, "***")
		}
	}
	return redactor{strings.NewReplacer(pairs...)}
}

func (r redactor) clean(text string) string {
	return hubToken.ReplaceAllString(r.replacer.Replace(text), "***")
}
