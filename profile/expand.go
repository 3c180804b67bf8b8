package profile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// Bounds limits the text that may come out of a stream.
type Bounds struct {
	// Bytes is the largest text in bytes. Default: no limit.
	Bytes int64
	// Ratio is the largest number of text bytes per compressed byte once more
	// than Slack bytes came out. Default 250; measured profiles and benchmark
	// files stay below 50, deflate can reach 1032.
	Ratio int64
	// Slack is the text in bytes up to which Ratio is not looked at.
	// Default 1 MiB.
	Slack int64
}

func (b Bounds) withDefaults() Bounds {
	if b.Bytes == 0 {
		b.Bytes = 1 << 62
	}
	if b.Ratio == 0 {
		b.Ratio = 250
	}
	if b.Slack == 0 {
		b.Slack = 1 << 20
	}
	return b
}

// SizeError says that a stream holds more text than its bounds allow.
type SizeError struct {
	// Text is the number of bytes that came out when reading stopped, Limit
	// the number allowed.
	Text, Limit int64
	// Compressed is the number of compressed bytes read so far; 0 where the
	// stream is plain.
	Compressed int64
}

// Error says which bound was passed.
func (e *SizeError) Error() string {
	if e.Compressed > 0 {
		return fmt.Sprintf("compressed data expands beyond %d bytes after %d bytes of input: refused", e.Limit, e.Compressed)
	}
	return fmt.Sprintf("text is longer than %d bytes: refused", e.Limit)
}

// Expand gives the text of r, which may be plain or gzip (one member or
// several), told apart by content. Reading it returns a [*SizeError] once a
// bound is passed, [io.ErrUnexpectedEOF] where compressed data is cut off.
func Expand(r io.Reader, bounds Bounds) (io.Reader, error) {
	raw := &counter{r: r}
	buffered := bufio.NewReader(raw)
	head, err := buffered.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	e := &expander{text: buffered, raw: raw, bounds: bounds.withDefaults()}
	if isGzip(head) {
		zr, err := gzip.NewReader(buffered)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		e.text, e.compressed = zr, true
	}
	return e, nil
}

// isGzip reports whether head begins with the magic number of RFC 1952.
func isGzip(head []byte) bool { return bytes.HasPrefix(head, []byte{0x1f, 0x8b}) }

// counter counts the bytes read through it.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// expander applies the bounds to a text.
type expander struct {
	text       io.Reader
	raw        *counter
	compressed bool
	out        int64
	bounds     Bounds
}

func (e *expander) Read(p []byte) (int, error) {
	n, err := e.text.Read(p)
	e.out += int64(n)
	limit, compressed := e.bounds.Bytes, int64(0)
	if e.compressed {
		compressed = e.raw.n
		limit = min(limit, e.bounds.Slack+e.bounds.Ratio*e.raw.n)
	}
	if e.out > limit {
		return 0, &SizeError{Text: e.out, Limit: limit, Compressed: compressed}
	}
	return n, err
}
