package engine

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Hidden stands in texts where a secret was.
const Hidden = "[redacted]"

// shortestSecret is the number of characters from which on a value is taken
// out of texts: a shorter one would blank out ordinary words.
const shortestSecret = 6

// Redactor takes secrets out of texts: the values of the environment variables
// whose names say that they are secret (see [SecretName]), and whatever looks
// like a key of a known service, a bearer token, a password in an address or
// the value of an option such as --api-key. It is safe for concurrent use.
type Redactor struct {
	values []string // longest first, so that no secret is cut by a part of it
}

// NewRedactor returns a redactor that knows the secrets of an environment,
// "NAME=value".
func NewRedactor(env ...string) *Redactor {
	return (&Redactor{}).With(env...)
}

// With returns a redactor that knows the secrets of more variables, too.
func (r *Redactor) With(env ...string) *Redactor {
	values := slices.Clone(r.values)
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		if !SecretName(name) {
			continue
		}
		// Texts are searched line by line, so each line of a key that has
		// several is a secret of its own.
		for line := range strings.Lines(value) {
			if line = strings.TrimSpace(line); len([]rune(line)) >= shortestSecret {
				values = append(values, line)
			}
		}
	}
	slices.SortFunc(values, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return &Redactor{values: slices.Compact(values)}
}

// SecretName says whether an environment variable's name promises a secret:
// one of its words ends in token, key, secret, password or the like. HF_TOKEN,
// OPENAI_API_KEY and AWS_SECRET_ACCESS_KEY do; TOKENIZERS_PARALLELISM, MAX_TOKENS
// and PWD do not.
func SecretName(name string) bool {
	for word := range strings.FieldsFuncSeq(strings.ToUpper(name), func(r rune) bool { return r == '_' || r == '-' || r == '.' }) {
		for _, end := range []string{"TOKEN", "KEY", "APIKEYS", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS"} {
			if strings.HasSuffix(word, end) {
				return true
			}
		}
	}
	return false
}

// Redact returns the text with every secret replaced by [Hidden].
func (r *Redactor) Redact(text string) string {
	spans := r.find(text)
	if len(spans) == 0 {
		return text
	}
	var clean strings.Builder
	from := 0
	for _, s := range spans {
		clean.WriteString(text[from:s.from])
		clean.WriteString(Hidden)
		from = s.to
	}
	clean.WriteString(text[from:])
	return clean.String()
}

// RedactEnv returns variables as they may be recorded in a profile: the values
// of those with a secret name are hidden whatever they are, and so are secrets
// in the others.
func (r *Redactor) RedactEnv(env []string) []string {
	known := r.With(env...)
	clean := make([]string, len(env))
	for i, entry := range env {
		name, value, found := strings.Cut(entry, "=")
		switch {
		case !found:
			clean[i] = known.Redact(entry)
		case SecretName(name) && value != "":
			clean[i] = name + "=" + Hidden
		default:
			clean[i] = name + "=" + known.Redact(value)
		}
	}
	return clean
}

// Writer returns a writer that passes texts on without their secrets, line by
// line, so that a secret that comes in two pieces is found as well. A carriage
// return ends a line too, for progress bars. Close passes on what is left; it
// does not close w. Errors of w are dropped: whoever talks must not be held up
// by who listens.
func (r *Redactor) Writer(w io.Writer) io.WriteCloser {
	return &redactingWriter{redactor: r, to: w}
}

// span is a part of a text.
type span struct{ from, to int }

// find returns the secrets of a text in order, without overlaps.
func (r *Redactor) find(text string) []span {
	var spans []span
	for _, value := range r.values {
		for from := 0; ; {
			at := strings.Index(text[from:], value)
			if at < 0 {
				break
			}
			spans = append(spans, span{from + at, from + at + len(value)})
			from += at + len(value)
		}
	}
	at := 0
	for line := range strings.Lines(text) {
		spans = findByLooks(spans, line, at)
		at += len(line)
	}
	slices.SortFunc(spans, func(a, b span) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to
	})
	merged := spans[:0]
	for _, s := range spans {
		if last := len(merged) - 1; last >= 0 && s.from < merged[last].to {
			merged[last].to = max(merged[last].to, s.to)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// findByLooks adds what looks like a secret in a line that begins at a place of
// the text.
func findByLooks(spans []span, line string, at int) []span {
	lower := strings.ToLower(line)
	for _, look := range []struct {
		pattern *regexp.Regexp
		words   []string // the pattern is slow, and needs one of these
	}{
		{keyPattern, []string{"hf_", "sk-", "nvapi-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "akia", "asia", "eyj"}},
		{bearerPattern, []string{"bearer"}},
		{addressPattern, []string{"://"}},
		{optionPattern, []string{"key", "token", "password", "secret"}},
		{fieldPattern, []string{"key", "token", "passw", "secret"}},
	} {
		if !slices.ContainsFunc(look.words, func(word string) bool { return strings.Contains(lower, word) }) {
			continue
		}
		for _, group := range look.pattern.FindAllStringSubmatchIndex(line, -1) {
			// The group is the secret; what stands around it ("Bearer ",
			// "--api-key=") is worth reading.
			spans = append(spans, span{at + group[2], at + group[3]})
		}
	}
	return spans
}

// The patterns find secrets by their looks; the one group of each is what to
// hide.
var (
	// keyPattern: keys of Hugging Face, OpenAI and its like, NVIDIA, GitHub,
	// GitLab, Slack, AWS, and JSON web tokens.
	keyPattern = regexp.MustCompile(`\b(hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{16,}|nvapi-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|` +
		`glpat-[A-Za-z0-9_-]{20,}|xox[abprs]-[A-Za-z0-9-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}\b|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_.-]{8,})`)
	// bearerPattern: an HTTP header.
	bearerPattern = regexp.MustCompile(`(?i)\bbearer\s+([A-Za-z0-9._~+/=-]{6,})`)
	// addressPattern: the password in an address.
	addressPattern = regexp.MustCompile(`://[^/\s:@]*:([^/\s@]+)@`)
	// optionPattern: an option of a command line.
	optionPattern = regexp.MustCompile(`(?i)(?:^|[\s"'\x60\[(,=])--?[a-z-]*(?:api[_-]?key|token|password|secret)(?:=|["']?,?\s+)["']?([^\s"',\]}-][^\s"',\]}]{5,})`)
	// fieldPattern: a named value in a log line, JSON or Python's repr.
	fieldPattern = regexp.MustCompile(`(?i)(?:api_?key|access_?key|hf_?token|auth_?token|password|passwd|secret)["']?\s*[:=]\s*[\["']*([^\s"',\]}]{6,})`)
)

// The bounds of a line that is held back: a longer one is passed on in pieces,
// the last kept of which is long enough for any secret that has begun in it.
const (
	longestLine = 64 << 10
	heldBack    = 4 << 10
)

// redactingWriter is what [Redactor.Writer] returns.
type redactingWriter struct {
	mu       sync.Mutex
	redactor *Redactor
	to       io.Writer
	line     []byte
}

// Write takes a piece of text; it never fails.
func (w *redactingWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line = append(w.line, p...)
	if end := slices.IndexFunc(w.line, lineEnd); end >= 0 {
		end = len(w.line) // the last line end
		for !lineEnd(w.line[end-1]) {
			end--
		}
		w.pass(end)
	}
	if len(w.line) > longestLine {
		cut := len(w.line) - heldBack
		for _, s := range w.redactor.find(string(w.line)) {
			if s.from < cut && cut < s.to {
				cut = s.from
			}
		}
		w.pass(cut)
	}
	return len(p), nil
}

// Close passes on an unfinished line.
func (w *redactingWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass(len(w.line))
	return nil
}

// pass hands on the first n bytes.
func (w *redactingWriter) pass(n int) {
	if n > 0 {
		_, _ = io.WriteString(w.to, w.redactor.Redact(string(w.line[:n])))
		w.line = append(w.line[:0], w.line[n:]...)
	}
}

// lineEnd says whether a byte ends a line.
func lineEnd(b byte) bool { return b == '\n' || b == '\r' }
