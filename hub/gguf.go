package hub

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Bounds on a GGUF header. The largest published ones have 60 metadata
// entries, 2,000 tensors and 15 MB, nearly all of it the vocabulary.
const (
	maxGGUFHeader  = 256 << 20 // bytes
	maxGGUFEntries = 1 << 16
	maxGGUFTensors = 1 << 17
	maxGGUFName    = 1 << 10 // bytes of a key or a tensor's name
	maxGGUFText    = 1 << 12 // bytes of a text value that is kept
	maxGGUFList    = 1 << 13 // numbers of a list that is kept
)

// ggufValue is one metadata value. Only what describes an architecture is
// kept: numbers, switches, short texts, lists of whole numbers; of any other
// list its length.
type ggufValue struct {
	kind   uint32
	number float64 // of a number or a switch (0, 1)
	text   string
	list   []int64
	length uint64 // of a list
}

// ggufFile is the head of a GGUF file.
type ggufFile struct {
	version uint32
	meta    map[string]ggufValue
	header  Header
}

// The value kinds of GGUF.
const (
	ggufUint8 = iota
	ggufInt8
	ggufUint16
	ggufInt16
	ggufUint32
	ggufInt32
	ggufFloat32
	ggufBool
	ggufString
	ggufArray
	ggufUint64
	ggufInt64
	ggufFloat64
)

// ggufReader reads little-endian values and keeps the first fault with the
// byte where it stands.
type ggufReader struct {
	name string
	in   *bufio.Reader
	at   int64
	err  error
}

func (r *ggufReader) fail(field, problem string, cause error) {
	if r.err == nil {
		if field == "" {
			field = fmt.Sprintf("byte %d", r.at)
		} else {
			field = fmt.Sprintf("byte %d: %s", r.at, field)
		}
		r.err = &FileError{File: r.name, Field: field, Problem: problem, Err: cause}
	}
}

// bytes reads exactly n bytes into a fresh buffer; n is small.
func (r *ggufReader) bytes(n int, what string) []byte {
	buffer := make([]byte, n)
	if r.err != nil {
		return buffer
	}
	if r.at+int64(n) > maxGGUFHeader {
		r.fail("", fmt.Sprintf("the header is longer than %d bytes", maxGGUFHeader), nil)
		return buffer
	}
	got, err := io.ReadFull(r.in, buffer)
	r.at += int64(got)
	if err != nil {
		r.cutOff(what, err)
	}
	return buffer
}

func (r *ggufReader) cutOff(what string, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		r.fail("", "the header is cut off within "+what, nil)
		return
	}
	r.fail("", "read "+what, err)
}

// skip passes over n bytes.
func (r *ggufReader) skip(n uint64, what string) {
	if r.err != nil {
		return
	}
	if n > maxGGUFHeader || r.at+int64(n) > maxGGUFHeader {
		r.fail("", fmt.Sprintf("%s would make the header longer than %d bytes", what, maxGGUFHeader), nil)
		return
	}
	for n > 0 {
		got, err := r.in.Discard(int(min(n, 1<<20)))
		r.at += int64(got)
		if err != nil {
			r.cutOff(what, err)
			return
		}
		n -= uint64(got)
	}
}

func (r *ggufReader) uint32(what string) uint32 {
	return binary.LittleEndian.Uint32(r.bytes(4, what))
}

func (r *ggufReader) uint64(what string) uint64 {
	return binary.LittleEndian.Uint64(r.bytes(8, what))
}

// label reads a key or a tensor's name.
func (r *ggufReader) label(what string) string {
	length := r.uint64(what)
	if r.err == nil && length > maxGGUFName {
		r.fail("", fmt.Sprintf("%s is said to be %d bytes long", what, length), nil)
	}
	if r.err != nil {
		return ""
	}
	return string(r.bytes(int(length), what))
}

// scalarSize is the storage of a number in bytes; 0 for texts and lists.
func scalarSize(kind uint32) int {
	switch kind {
	case ggufUint8, ggufInt8, ggufBool:
		return 1
	case ggufUint16, ggufInt16:
		return 2
	case ggufUint32, ggufInt32, ggufFloat32:
		return 4
	case ggufUint64, ggufInt64, ggufFloat64:
		return 8
	}
	return 0
}

func (r *ggufReader) scalar(kind uint32, key string) float64 {
	b := r.bytes(scalarSize(kind), key)
	switch kind {
	case ggufUint8, ggufBool:
		return float64(b[0])
	case ggufInt8:
		return float64(int8(b[0]))
	case ggufUint16:
		return float64(binary.LittleEndian.Uint16(b))
	case ggufInt16:
		return float64(int16(binary.LittleEndian.Uint16(b)))
	case ggufUint32:
		return float64(binary.LittleEndian.Uint32(b))
	case ggufInt32:
		return float64(int32(binary.LittleEndian.Uint32(b)))
	case ggufFloat32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case ggufUint64:
		return float64(binary.LittleEndian.Uint64(b))
	case ggufInt64:
		return float64(int64(binary.LittleEndian.Uint64(b)))
	case ggufFloat64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	return 0
}

func (r *ggufReader) value(key string) ggufValue {
	v := ggufValue{kind: r.uint32(key)}
	switch {
	case r.err != nil:
	case v.kind == ggufString:
		length := r.uint64(key)
		if r.err == nil && length <= maxGGUFText {
			v.text = string(r.bytes(int(length), key))
		} else {
			r.skip(length, key)
		}
	case v.kind == ggufArray:
		r.list(key, &v)
	case scalarSize(v.kind) > 0:
		v.number = r.scalar(v.kind, key)
	default:
		r.fail(key, fmt.Sprintf("has the unknown kind %d", v.kind), nil)
	}
	return v
}

// list reads a list of whole numbers that is not long, and passes over any
// other.
func (r *ggufReader) list(key string, v *ggufValue) {
	kind := r.uint32(key)
	v.length = r.uint64(key)
	if r.err != nil {
		return
	}
	size := uint64(scalarSize(kind))
	switch {
	case kind == ggufString:
		// Each text takes at least the eight bytes of its length.
		if v.length > maxGGUFHeader/8 {
			r.fail(key, fmt.Sprintf("is said to have %d texts", v.length), nil)
		}
		for range v.length {
			r.skip(r.uint64(key), key)
			if r.err != nil {
				return
			}
		}
	case size == 0:
		r.fail(key, fmt.Sprintf("is a list of the unknown or nested kind %d", kind), nil)
	case v.length > maxGGUFHeader/size:
		r.fail(key, fmt.Sprintf("is said to have %d numbers", v.length), nil)
	case v.length > maxGGUFList || kind == ggufFloat32 || kind == ggufFloat64:
		r.skip(v.length*size, key)
	default:
		for range v.length {
			n := r.scalar(kind, key)
			if r.err != nil {
				return
			}
			if math.Abs(n) > 1<<53 {
				n = math.Copysign(1<<53, n)
			}
			v.list = append(v.list, int64(n))
		}
	}
}

// readGGUF reads metadata and tensor list of a GGUF file of version 2 or 3.
// It reads the head only, and keeps nothing of the vocabulary but its length.
func readGGUF(name string, in io.Reader) (*ggufFile, error) {
	r := &ggufReader{name: name, in: bufio.NewReaderSize(in, 64<<10)}
	magic := r.bytes(4, "the magic bytes")
	if r.err == nil && !bytes.Equal(magic, []byte("GGUF")) {
		return nil, &FileError{File: name, Problem: fmt.Sprintf("starts with %q: not a GGUF file", magic)}
	}
	f := &ggufFile{version: r.uint32("the version"), meta: map[string]ggufValue{}}
	switch swapped := bits.ReverseBytes32(f.version); {
	case r.err != nil:
		return nil, r.err
	case swapped == 2 || swapped == 3:
		return nil, &UnsupportedError{File: name, Key: "byte order", Name: "big-endian", Missing: "convert the file with gguf_convert_endian.py"}
	case f.version != 2 && f.version != 3:
		return nil, &UnsupportedError{File: name, Key: "GGUF version", Name: strconv.FormatUint(uint64(f.version), 10), Missing: "known are 2 and 3: convert the model again with a current llama.cpp"}
	}
	tensors, entries := r.uint64("the number of tensors"), r.uint64("the number of metadata entries")
	switch {
	case r.err != nil:
	case tensors > maxGGUFTensors:
		r.fail("", fmt.Sprintf("the file is said to have %d tensors", tensors), nil)
	case entries > maxGGUFEntries:
		r.fail("", fmt.Sprintf("the file is said to have %d metadata entries", entries), nil)
	}
	for range entries {
		if r.err != nil {
			break
		}
		key := r.label("a metadata key")
		f.meta[key] = r.value(key)
	}
	for range tensors {
		if r.err != nil {
			break
		}
		f.addTensor(r)
	}
	if r.err != nil {
		return nil, r.err
	}
	return f, nil
}

// addTensor reads one entry of the tensor list.
func (f *ggufFile) addTensor(r *ggufReader) {
	t := Tensor{Name: r.label("a tensor's name"), Elements: 1}
	field := "tensor " + shorten(t.Name)
	rank := r.uint32(field)
	if r.err == nil && rank > 8 {
		r.fail(field, fmt.Sprintf("has %d dimensions", rank), nil)
	}
	if r.err != nil {
		return
	}
	for range rank {
		extent := r.uint64(field)
		high, low := bits.Mul64(uint64(t.Elements), extent)
		if r.err == nil && (high != 0 || low > maxOffset) {
			r.fail(field, "has more elements than a file can hold", nil)
		}
		if r.err != nil {
			return
		}
		t.Elements = int64(low)
		t.Shape = append(t.Shape, int64(extent))
	}
	id := r.uint32(field)
	r.uint64(field) // the place of the data
	kind, ok := ggmlTypeOf(id)
	switch {
	case r.err != nil:
		return
	case !ok:
		r.fail(field, fmt.Sprintf("has the unknown format %d", id), nil)
		return
	case t.Elements%kind.elements != 0:
		r.fail(field, fmt.Sprintf("has %d elements, not a multiple of the block of %s, %d", t.Elements, kind.name, kind.elements), nil)
		return
	}
	t.DType, t.Bytes = kind.name, t.Elements/kind.elements*kind.bytes
	if f.header.Bytes+t.Bytes > maxOffset || f.header.Elements+t.Elements > maxOffset {
		r.fail(field, "the tensors have more elements than a file can hold", nil)
		return
	}
	f.header.Tensors = append(f.header.Tensors, t)
	f.header.Elements += t.Elements
	f.header.Bytes += t.Bytes
}

// word is a text of the metadata, "" where it is absent or no text.
func (f *ggufFile) word(key string) string { return strings.ToValidUTF8(f.meta[key].text, "?") }
