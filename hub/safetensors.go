package hub

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// MaxSafetensorsHeader is the longest header that the format allows, in
// bytes.
const MaxSafetensorsHeader = 100_000_000

// Tensor is one entry of a checkpoint file's header.
type Tensor struct {
	Name string
	// DType is the format's own name: "BF16", "F8_E4M3", "Q4_K".
	DType string
	// Shape is the extent of each dimension; empty for a scalar. GGUF lists
	// the fastest dimension first, safetensors last.
	Shape []int64
	// Elements is the product of Shape.
	Elements int64
	// Bytes is the storage of the tensor.
	Bytes int64
}

// Header is what the head of one checkpoint file says.
type Header struct {
	// Tensors are sorted by name.
	Tensors []Tensor
	// Elements is the number of stored numbers, Bytes their storage.
	Elements, Bytes int64
}

// safetensorsBits is the storage of one element in bits; 0 for an unknown
// format. Source: the safetensors format's Dtype enumeration, 0.6.
func safetensorsBits(dtype string) int64 {
	switch dtype {
	case "F64", "I64", "U64", "C64":
		return 64
	case "F32", "I32", "U32":
		return 32
	case "F16", "BF16", "I16", "U16":
		return 16
	case "F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL":
		return 8
	case "F6_E2M3", "F6_E3M2":
		return 6
	case "F4":
		return 4
	}
	return 0
}

// ParseSafetensors reads the header of a safetensors file from r: eight bytes
// with its length, then JSON with each tensor's format, shape and place. size
// is the whole file's length in bytes, or -1 if it is not known; the tensors
// must fill it exactly. The tensors themselves are not read.
func ParseSafetensors(name string, r io.Reader, size int64) (*Header, error) {
	fail := func(problem string, err error) error { return &FileError{File: name, Problem: problem, Err: err} }
	var prefix [8]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, fail("the header's length is cut off", err)
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	switch {
	case length > MaxSafetensorsHeader:
		return nil, fail(fmt.Sprintf("the header is said to be %d bytes long: not a safetensors file", length), nil)
	case size >= 0 && length > uint64(max(size-8, 0)):
		return nil, fail(fmt.Sprintf("the header is said to be %d bytes long, the file has %d", length, size), nil)
	case length < 2:
		return nil, fail(fmt.Sprintf("the header is said to be %d bytes long: want at least 2", length), nil)
	}
	text, err := io.ReadAll(io.LimitReader(r, int64(length)))
	if err == nil && uint64(len(text)) < length {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fail(fmt.Sprintf("the header is cut off after %d of %d bytes", len(text), length), err)
	}
	root, err := parseObject(name, text)
	if err != nil {
		return nil, err
	}
	header := &Header{Tensors: make([]Tensor, 0, len(root.fields))}
	spans := make([]span, 0, len(root.fields))
	for _, key := range sortedKeys(root.fields) {
		if key == "__metadata__" {
			continue
		}
		tensor, place := readTensor(root, key)
		if root.notes.err != nil {
			return nil, root.notes.err
		}
		header.Tensors = append(header.Tensors, tensor)
		header.Elements += tensor.Elements
		header.Bytes += tensor.Bytes
		spans = append(spans, place)
	}
	if err := checkSpans(name, spans, size, int64(length)); err != nil {
		return nil, err
	}
	return header, nil
}

// span is the place of a tensor's data in bytes after the header.
type span struct {
	name       string
	begin, end int64
}

// maxOffset bounds the offsets of a file, so that sums of elements of many
// tensors stay within an int64.
const maxOffset = 1 << 50

func readTensor(root *object, key string) (Tensor, span) {
	tensor := Tensor{Name: key, Elements: 1}
	entry := root.child(key)
	if entry == nil {
		root.fail(key, "is null: want an object")
		return tensor, span{}
	}
	tensor.DType = entry.word("dtype")
	width := safetensorsBits(tensor.DType)
	if width == 0 {
		entry.fail("dtype", fmt.Sprintf("is %q: not a format that is known", shorten(tensor.DType)))
	}
	if !entry.has("shape") {
		entry.fail("shape", "is missing")
	}
	for _, extent := range entry.integers("shape", 0, maxOffset) {
		high, low := bits.Mul64(uint64(tensor.Elements), uint64(extent))
		if high != 0 || low > maxOffset {
			entry.fail("shape", "has more elements than a file can hold")
			return tensor, span{}
		}
		tensor.Elements = int64(low)
		tensor.Shape = append(tensor.Shape, int64(extent))
	}
	offsets := entry.integers("data_offsets", 0, maxOffset)
	if root.notes.err != nil {
		return tensor, span{}
	}
	if len(offsets) != 2 || offsets[0] > offsets[1] {
		entry.fail("data_offsets", fmt.Sprintf("is %s: want begin and end", shorten(fmt.Sprint(offsets))))
		return tensor, span{}
	}
	tensor.Bytes = int64(offsets[1] - offsets[0])
	if tensor.Elements*width != tensor.Bytes*8 {
		entry.fail("data_offsets", fmt.Sprintf("span %d bytes: %d elements of %s take %d", tensor.Bytes, tensor.Elements, tensor.DType, (tensor.Elements*width+7)/8))
	}
	return tensor, span{name: key, begin: int64(offsets[0]), end: int64(offsets[1])}
}

// checkSpans holds the tensors against each other and the file: no holes, no
// overlaps, no missing end.
func checkSpans(name string, spans []span, size, header int64) error {
	slices.SortFunc(spans, func(a, b span) int {
		if a.begin != b.begin {
			return int(max(min(a.begin-b.begin, 1), -1))
		}
		return int(max(min(a.end-b.end, 1), -1))
	})
	at := int64(0)
	for _, s := range spans {
		if s.begin != at {
			return &FileError{File: name, Field: shorten(s.name), Problem: fmt.Sprintf("starts at byte %d of the data: the tensor before ends at %d", s.begin, at)}
		}
		at = s.end
	}
	if size >= 0 && 8+header+at != size {
		return &FileError{File: name, Problem: fmt.Sprintf("the file has %d bytes, its header describes %d: it is cut off or damaged", size, 8+header+at)}
	}
	return nil
}

// Index is what a model.safetensors.index.json says.
type Index struct {
	// TotalBytes is metadata.total_size, the storage of all tensors in bytes;
	// 0 if it is absent.
	TotalBytes int64
	// Files are the checkpoint's files, sorted.
	Files []string
	// Tensors are the names of the stored tensors, sorted.
	Tensors []string
}

// maxShards bounds the files of one checkpoint.
const maxShards = 4096

// ParseIndex reads the index of a checkpoint in several files.
func ParseIndex(name string, text []byte) (*Index, error) {
	root, err := parseObject(name, text)
	if err != nil {
		return nil, err
	}
	index := &Index{}
	if meta := root.child("metadata"); meta != nil {
		index.TotalBytes = int64(meta.integerOr("total_size", 0, 0, maxOffset))
	}
	weights := root.child("weight_map")
	if weights == nil {
		root.fail("weight_map", "is missing")
		return nil, root.notes.err
	}
	seen := map[string]bool{}
	index.Tensors = sortedKeys(weights.fields)
	for _, key := range index.Tensors {
		file := weights.word(key)
		if root.notes.err == nil && (!filepath.IsLocal(file) || strings.ContainsAny(file, `/\`)) {
			weights.fail(key, fmt.Sprintf("is %q: want the name of a file in the same folder", shorten(file)))
		}
		if root.notes.err != nil {
			return nil, root.notes.err
		}
		seen[file] = true
	}
	if len(seen) > maxShards {
		root.fail("weight_map", fmt.Sprintf("names %d files", len(seen)))
	}
	if root.notes.err != nil {
		return nil, root.notes.err
	}
	index.Files = sortedKeys(seen)
	return index, nil
}

// readSafetensors reads the header of one file.
func readSafetensors(path string) (*Header, error) {
	file, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ParseSafetensors(path, file, size)
}

// openRegular opens a file that is one: a folder or a pipe would block or
// give nonsense.
func openRegular(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, fmt.Errorf("open %s: %w", path, withoutPath(err))
	}
	if !info.Mode().IsRegular() {
		return nil, 0, &FileError{File: path, Problem: "is not a regular file"}
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("open %s: %w", path, withoutPath(err))
	}
	return file, info.Size(), nil
}

// withoutPath takes the path out of an error that is about to be told with
// it.
func withoutPath(err error) error {
	if inner, ok := errors.AsType[*os.PathError](err); ok {
		return inner.Err
	}
	return err
}
