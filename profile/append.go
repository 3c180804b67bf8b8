package profile

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

// File is what [Append] needs of a file; *os.File satisfies it.
type File interface {
	io.ReadWriteSeeker
	// Truncate cuts the file to size bytes.
	Truncate(size int64) error
}

// Append continues the profile in f, which must be open for reading and
// writing; an empty file is started with header. It first repairs what a
// crash left: a partial last line is removed, an unfinished gzip member is
// ended after its last whole point, and new points go into a member of their
// own. The header on file stays; a header that contradicts it is a
// [*ClashError]. A file that is no profile is left untouched.
func Append(name string, f File, header Header) (*Writer, error) {
	fail := func(err error) (*Writer, error) { return nil, fmt.Errorf("append to %s: %w", name, err) }
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return fail(err)
	}
	var head [2]byte
	if size > 0 {
		if err := readAt(f, 0, head[:min(size, 2)]); err != nil {
			return fail(err)
		}
		if head[0] != headerStart[0] && head[0] != 0x1f && head[0] != 0xef {
			return fail(errors.New("not a profile: it begins neither with a header nor as gzip"))
		}
	}
	gz := isGzip(head[:]) || size == 1 && head[0] == 0x1f
	onFile, err := headerOf(name, f, size)
	if err != nil {
		return fail(err)
	}
	if onFile.Schema != "" {
		a, b := onFile, header
		a.Source, b.Source = name, "the points to append"
		if _, err := mergeHeaders([]*Header{&a, &b}); err != nil {
			return fail(err)
		}
		header = onFile
	}
	if gz {
		size, err = repairGzip(f)
	} else {
		size, err = repairPlain(f, size)
	}
	if err != nil {
		return fail(err)
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return fail(err)
	}
	if size == 0 {
		return NewWriter(name, f, header)
	}
	return newWriter(name, f, gz), nil
}

// headerOf reads the header on file; it is empty where the file holds no more
// than the beginning of one.
func headerOf(name string, f File, size int64) (Header, error) {
	if size <= 1 {
		return Header{}, nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return Header{}, err
	}
	h, fault := NewReader(name, f).Header()
	if fault == nil {
		return h, nil
	}
	bad, _ := errors.AsType[*SyntaxError](fault)
	if !errors.Is(fault, io.ErrUnexpectedEOF) && (bad == nil || !bad.Truncated) {
		return Header{}, fault
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return Header{}, err
	}
	start := make([]byte, len(headerStart))
	n := 0
	if text, err := Expand(f, Bounds{}); err == nil {
		n, _ = io.ReadFull(text, start) // how far it goes is all that counts
	}
	if string(start[:n]) != headerStart[:n] {
		return Header{}, fault
	}
	return Header{}, nil
}

func readAt(f File, at int64, p []byte) error {
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return err
	}
	_, err := io.ReadFull(f, p)
	return err
}

// headerStart is how every header line begins.
const headerStart = `{"schema":"` + Schema + `"`

// repairPlain makes a plain file end with a line feed and returns its size.
func repairPlain(f File, size int64) (int64, error) {
	var tail []byte
	const block = 64 << 10
	at := size
	for at > 0 {
		n := min(at, block)
		part := make([]byte, n, n+int64(len(tail)))
		if err := readAt(f, at-n, part); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			tail = append(part[i+1:], tail...)
			at += int64(i+1) - n
			break
		}
		tail = append(part, tail...)
		at -= n
		if len(tail) > maxLine {
			return 0, fmt.Errorf("the last line is longer than %d bytes", maxLine)
		}
	}
	// at is now where the last, unfinished line starts.
	if len(tail) == 0 {
		return size, nil
	}
	var whole bool
	if at == 0 {
		var h Header
		whole = (&Reader{}).decodeHeader(tail, &h) == nil
	} else {
		_, err := decodePoint(tail)
		whole = err == nil
	}
	if !whole {
		return at, f.Truncate(at)
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return 0, err
	}
	_, err := f.Write([]byte{'\n'})
	return size + 1, err
}

// repairGzip makes a gzip file end after a complete member and returns its
// size.
func repairGzip(f File) (int64, error) {
	start := int64(0)
	for {
		if _, err := f.Seek(start, io.SeekStart); err != nil {
			return 0, err
		}
		in := &byteCounter{r: bufio.NewReader(f)}
		text := &textSum{}
		zr, err := gzip.NewReader(in)
		if err == nil {
			zr.Multistream(false)
			_, err = io.Copy(text, zr)
		}
		switch {
		case err == nil:
			start += in.n
		case errors.Is(err, io.EOF) && in.n == 0:
			return start, nil
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return endMember(f, start, text.lines)
		default:
			return 0, err
		}
	}
}

// flushMark is the empty stored block with which a deflate stream is flushed
// (RFC 1951, 3.2.4), at a byte boundary.
const flushMark = "\x00\x00\xff\xff"

// endMember ends the unfinished gzip member that begins at start after its
// last flush, so that it is whole again, and returns the size of the file. A
// member without a flush that holds at most one line, the one in flight, is
// removed.
func endMember(f File, start int64, lines int) (int64, error) {
	const headerSize = 10 // RFC 1952 without optional fields, as Writer writes
	head := make([]byte, headerSize)
	if err := readAt(f, start, head); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return start, f.Truncate(start)
	} else if err != nil {
		return 0, err
	}
	marks, err := flushMarks(bufio.NewReader(f))
	if err != nil {
		return 0, err
	}
	for i := len(marks) - 1; i >= 0 && head[3] == 0; i-- {
		if _, err := f.Seek(start+headerSize, io.SeekStart); err != nil {
			return 0, err
		}
		final := []byte("\x01\x00\x00\xff\xff") // an empty last block
		in := &byteCounter{r: bufio.NewReader(io.MultiReader(io.LimitReader(f, marks[i]), bytes.NewReader(final)))}
		text := &textSum{crc: crc32.NewIEEE()}
		_, err := io.Copy(text, flate.NewReader(in))
		// An earlier end means that the mark itself is in a last block.
		if err != nil || text.last != '\n' || in.n != marks[i]+int64(len(final)) {
			continue
		}
		end := start + headerSize + marks[i]
		if err := f.Truncate(end); err != nil {
			return 0, err
		}
		if _, err := f.Seek(end, io.SeekStart); err != nil {
			return 0, err
		}
		final = binary.LittleEndian.AppendUint32(final, text.crc.Sum32())
		final = binary.LittleEndian.AppendUint32(final, text.size)
		_, err = f.Write(final)
		return end + int64(len(final)), err
	}
	if lines <= 1 {
		return start, f.Truncate(start)
	}
	return 0, errors.New("the compressed data is cut off and has no point to resume from")
}

// flushMarks returns where the last few flush marks of r end, relative to its
// beginning. A mark may be a chance pattern in the data.
func flushMarks(r io.ByteReader) ([]int64, error) {
	const keep = 16
	var marks []int64
	var window [4]byte
	for n := int64(1); ; n++ {
		b, err := r.ReadByte()
		if errors.Is(err, io.EOF) {
			return marks, nil
		}
		if err != nil {
			return nil, err
		}
		copy(window[:], window[1:])
		window[3] = b
		if n >= 4 && string(window[:]) == flushMark {
			if len(marks) == keep {
				copy(marks, marks[1:])
				marks = marks[:keep-1]
			}
			marks = append(marks, n)
		}
	}
}

// byteCounter counts what a decompressor takes; as an [io.ByteReader] it
// keeps the decompressor from reading ahead.
type byteCounter struct {
	r *bufio.Reader
	n int64
}

func (c *byteCounter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// ReadByte counts one byte.
func (c *byteCounter) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}

// textSum takes what a member's trailer and its end are judged by.
type textSum struct {
	crc   hash.Hash32 // may be nil
	size  uint32      // modulo 2^32, as RFC 1952 wants it
	lines int
	last  byte
}

func (t *textSum) Write(p []byte) (int, error) {
	if len(p) > 0 {
		t.last = p[len(p)-1]
	}
	t.lines += bytes.Count(p, []byte{'\n'})
	t.size += uint32(len(p))
	if t.crc != nil {
		return t.crc.Write(p)
	}
	return len(p), nil
}
