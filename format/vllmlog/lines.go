package vllmlog

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/llmprof/llmprof/profile"
)

// expand gives the text of a log that may be gzip. Idle servers repeat
// themselves, so no ratio of compression is suspicious; nothing holds the text.
func expand(r io.Reader) (io.Reader, error) {
	return profile.Expand(r, profile.Bounds{Ratio: 1 << 20})
}

// lineReader gives the lines of a text one by one.
type lineReader struct {
	r       *bufio.Reader
	max     int // bytes
	number  int // of the line last read, from 1
	tooLong int // lines beyond max
	buffer  []byte
}

func newLineReader(r io.Reader, longest int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), max: longest}
}

// next returns the next line without its end. It is valid until the call after.
// The last line, which may be cut off, comes as any other.
func (l *lineReader) next() ([]byte, error) {
	for {
		line, err := l.whole()
		if len(line) == 0 && err != nil {
			return nil, err
		}
		l.number++
		if len(line) > l.max {
			l.tooLong++
			continue
		}
		return bytes.TrimRight(line, "\r\n"), nil
	}
}

// whole reads to the end of a line; of one that is too long it keeps the start.
func (l *lineReader) whole() ([]byte, error) {
	line, err := l.r.ReadSlice('\n')
	if err == nil || len(line) == 0 {
		return line, err
	}
	l.buffer = append(l.buffer[:0], line...)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = l.r.ReadSlice('\n')
		if len(l.buffer) <= l.max {
			l.buffer = append(l.buffer, line...)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) && len(l.buffer) == 0 {
		return nil, err
	}
	return l.buffer, nil
}
