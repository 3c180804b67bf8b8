package place

import (
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/llmprof/llmprof/engine"
)

// keptStderr is how many bytes of a process's stderr its error shows.
const keptStderr = 4 << 10

// tail keeps the last part of a text and passes all of it on.
type tail struct {
	mu   sync.Mutex
	to   io.Writer // nil for nobody
	kept []byte
	cut  bool
}

// Write never fails, whatever the listener does.
func (t *tail) Write(p []byte) (int, error) {
	if t.to != nil {
		_, _ = t.to.Write(p)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - keptStderr; over > 0 {
		t.cut = true
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

// String is the kept part; it begins with a whole line where it can.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := t.kept
	if t.cut {
		for len(text) > 0 && !utf8.RuneStart(text[0]) {
			text = text[1:]
		}
	}
	kept := string(text)
	if first, rest, found := strings.Cut(kept, "\n"); t.cut && found && strings.TrimSpace(rest) != "" && len(first) < keptStderr/2 {
		kept = rest
	}
	return strings.TrimSpace(strings.ToValidUTF8(kept, "�"))
}

// said is what becomes of a process's stderr: secrets are removed, the
// command's writer gets all of it, and the last part is kept.
type said struct {
	io.WriteCloser
	last *tail
}

// listen makes the stderr of a command.
func listen(cmd engine.Command, redactor *engine.Redactor) said {
	last := &tail{to: cmd.Stderr}
	return said{redactor.Writer(last), last}
}
