package fit

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Sizes of what a predictor remembers of its training rows.
const (
	// maxHashedRows bounds the rows that are remembered one by one.
	maxHashedRows = 4096
	// rowHashBytes is the length of one row's hash: that among a million other
	// rows one is taken for a known one has a chance of 1 in 70,000.
	rowHashBytes = 6
)

// rowHash stands for the configuration of a row.
type rowHash [rowHashBytes]byte

// fingerprint remembers the configurations that a mode was trained on: each
// by its hash, or above maxHashedRows only the set of all.
type fingerprint struct {
	rows   int
	hashes []rowHash // in rising order; nil where only set is known
	set    [sha256.Size]byte
}

// hash is a digest of what was run, whatever time it took. A server runs equal
// mixed steps over and over, so of those it is a digest of the sizes and of
// the time.
func (r *Row) hash() rowHash {
	k := r.key()
	text := []byte(k.mode)
	numbers := []uint64{uint64(k.batch), uint64(k.input), math.Float64bits(k.context)} //nolint:gosec // counts are checked to be 0 to 2^40
	if k.mode == Mixed {
		w := r.work()
		numbers = numbers[:0]
		for _, v := range []float64{w.prefillTokens, w.decodeTokens, w.prefillRequests, w.decodeRequests, w.cached, r.Median} {
			if math.IsNaN(v) {
				v = -1
			}
			numbers = append(numbers, math.Float64bits(v))
		}
	}
	for _, v := range numbers {
		text = binary.LittleEndian.AppendUint64(text, v)
	}
	sum := sha256.Sum256(text)
	return rowHash(sum[:rowHashBytes])
}

// fingerprintOf is the fingerprint of rows of one mode.
func fingerprintOf(rows []Row) *fingerprint {
	hashes := make([]rowHash, len(rows))
	for i, r := range rows {
		hashes[i] = r.hash()
	}
	slices.SortFunc(hashes, func(a, b rowHash) int { return bytes.Compare(a[:], b[:]) })
	f := &fingerprint{rows: len(rows)}
	if len(rows) <= maxHashedRows {
		f.hashes = hashes
		return f
	}
	digest := sha256.New()
	for _, h := range hashes {
		digest.Write(h[:])
	}
	digest.Sum(f.set[:0])
	return f
}

// count is the number of rows whose configuration was trained on, or nil if
// that is not known: nothing is remembered, or only a set that is not the
// rows'.
func (f *fingerprint) count(rows []Row) *int {
	switch {
	case f == nil:
		return nil
	case f.hashes == nil:
		if other := fingerprintOf(rows); other.rows != f.rows || other.set != f.set {
			return nil
		}
		n := len(rows)
		return &n
	}
	n := 0
	for _, r := range rows {
		want := r.hash()
		_, found := slices.BinarySearchFunc(f.hashes, want, func(a, b rowHash) int { return bytes.Compare(a[:], b[:]) })
		if found {
			n++
		}
	}
	return &n
}

// trainedJSON is a fingerprint in a file; bytes are in base64.
type trainedJSON struct {
	Rows   int    `json:"rows"`
	Hashes []byte `json:"row_hashes,omitempty"`
	Set    []byte `json:"set_hash,omitempty"`
}

func (f *fingerprint) toJSON() *trainedJSON {
	if f == nil {
		return nil
	}
	j := &trainedJSON{Rows: f.rows}
	if f.hashes == nil {
		j.Set = f.set[:]
		return j
	}
	for _, h := range f.hashes {
		j.Hashes = append(j.Hashes, h[:]...)
	}
	return j
}

// fingerprint reads a fingerprint back; nil for none.
func (j *trainedJSON) fingerprint() (*fingerprint, error) {
	if j == nil {
		return nil, nil //nolint:nilnil // a file without one is sound
	}
	f := &fingerprint{rows: j.Rows}
	if len(j.Set) > 0 {
		if len(j.Set) != len(f.set) || len(j.Hashes) > 0 || j.Rows <= maxHashedRows {
			return nil, fmt.Errorf("trained_on: %d rows, a set hash of %d bytes and row hashes of %d: want %d bytes and no others for more than %d rows",
				j.Rows, len(j.Set), len(j.Hashes), len(f.set), maxHashedRows)
		}
		copy(f.set[:], j.Set)
		return f, nil
	}
	if j.Rows < 1 || j.Rows > maxHashedRows || len(j.Hashes) != j.Rows*rowHashBytes {
		return nil, fmt.Errorf("trained_on: %d rows and %d bytes of hashes: want %d bytes for each of 1 to %d rows", j.Rows, len(j.Hashes), rowHashBytes, maxHashedRows)
	}
	f.hashes = make([]rowHash, 0, j.Rows)
	for text := range slices.Chunk(j.Hashes, rowHashBytes) {
		f.hashes = append(f.hashes, rowHash(text))
	}
	if !slices.IsSortedFunc(f.hashes, func(a, b rowHash) int { return bytes.Compare(a[:], b[:]) }) {
		return nil, errors.New("trained_on: row hashes are not in rising order")
	}
	return f, nil
}
