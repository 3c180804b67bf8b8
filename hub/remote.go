package hub

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/unit"
)

// maxRemoteHeader is the longest safetensors header that is fetched, in
// bytes: those of single-file checkpoints have well below 1 MiB.
const maxRemoteHeader = 16 << 20

// sizeTolerance is the share by which a checkpoint's bytes may differ from
// what the architecture implies before a warning says so.
const sizeTolerance = 0.05

// fetchCheckpoint gets what tells the size of the checkpoint: the index, or
// the header of the only file. The architecture does not hang on it, so that
// only the caller's own cancellation is an error.
func (c *Client) fetchCheckpoint(ctx context.Context, repo repository, files *found) error {
	if c.SkipCheckpoint || files.stale {
		return nil
	}
	for _, name := range []string{indexFile, weightsFile} {
		e, err := c.file(ctx, repo, name, files.commit, files)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			files.warnings = append(files.warnings, "the checkpoint was not compared with the architecture: "+err.Error())
			break
		}
		switch {
		case e == nil || e.Absent || len(e.Body) == 0:
		case name == indexFile:
			files.index = e.Body
			return nil
		default:
			files.header = e.Body
		}
	}
	return nil
}

// header reads the header of a safetensors file: its length from the answer
// to a request for the first eight bytes, then the header itself. One that is
// too long to be worth it gives nothing.
func (c *Client) header(ctx context.Context, base *url.URL, repo repository, begin io.Reader) ([]byte, error) {
	var prefix [8]byte
	if n, err := io.ReadFull(begin, prefix[:]); err != nil {
		return nil, fmt.Errorf("the answer ended after %d bytes: %w", n, err)
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	if length > maxRemoteHeader {
		return nil, nil
	}
	if length < 2 {
		return nil, &FileError{File: weightsFile, Problem: fmt.Sprintf("the header is said to be %d bytes long: want at least 2", length)}
	}
	response, _, err := c.get(ctx, base, repo, weightsFile, nil, fmt.Sprintf("bytes=8-%d", 7+length))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusPartialContent {
		return nil, fmt.Errorf("bytes 8 to %d were refused (HTTP %d)", 7+length, response.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, int64(length)))
	if err != nil {
		return nil, fmt.Errorf("the answer ended after %d bytes: %w", len(text), err)
	}
	file := slices.Concat(prefix[:], text)
	if _, err := ParseSafetensors(weightsFile, bytes.NewReader(file), -1); err != nil {
		return nil, err
	}
	return file, nil
}

// reduceIndex cuts an index down to what [found.compare] asks of it: the
// total, and of the tensors one head, one that is no part of the decoder and
// the one of the highest layer.
func reduceIndex(name string, text []byte) ([]byte, error) {
	index, err := ParseIndex(name, text)
	if err != nil {
		return nil, err
	}
	kept := map[string]string{}
	keep := func(is func(tensor string) bool) {
		if i := slices.IndexFunc(index.Tensors, is); i >= 0 {
			kept[index.Tensors[i]] = index.Files[0]
		}
	}
	keep(isHead)
	keep(foreignTensor)
	if len(index.Tensors) > 0 {
		top := slices.MaxFunc(index.Tensors, func(a, b string) int { return layerIndex(a) - layerIndex(b) })
		kept[top] = index.Files[0]
	}
	short, err := json.Marshal(map[string]any{"metadata": map[string]int64{"total_size": index.TotalBytes}, "weight_map": kept})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return short, nil
}

// isHead reports whether a tensor is the output projection.
func isHead(tensor string) bool { return strings.HasSuffix(tensor, "lm_head.weight") }

// compare holds the checkpoint against the architecture: the parameters where
// a header lists the tensors, else the bytes. facts is nil where nothing is
// known about the checkpoint.
func (f *found) compare(repo repository, m *catalog.Model) (facts *Facts, warnings []string) {
	at := repo.id + "@" + repo.revision + "/"
	switch {
	case f.index != nil:
		index, err := ParseIndex(at+indexFile, f.index)
		if err != nil {
			return nil, []string{err.Error()}
		}
		if index.TotalBytes == 0 {
			return nil, nil
		}
		return &Facts{CheckpointBytes: index.TotalBytes}, sizeCheck(index.TotalBytes, index.Tensors, m)
	case f.header != nil:
		header, err := ParseSafetensors(at+weightsFile, bytes.NewReader(f.header), -1)
		if err != nil {
			return nil, []string{err.Error()}
		}
		facts = &Facts{CheckpointBytes: header.Bytes, Files: 1, Params: decoderParams(header.Tensors, m)}
		if header.Elements > 0 {
			facts.BitsPerWeight = float64(header.Bytes) * 8 / float64(header.Elements)
		}
		if facts.Params != 0 {
			return facts, crossCheck(facts, m)
		}
		names := make([]string, len(header.Tensors))
		for i, t := range header.Tensors {
			names[i] = t.Name
		}
		return facts, sizeCheck(header.Bytes, names, m)
	}
	return nil, nil
}

// sizeCheck compares the bytes of a checkpoint with what the architecture
// implies. A checkpoint that also holds a vision part or prediction layers
// may be larger by any amount.
func sizeCheck(total int64, tensors []string, m *catalog.Model) []string {
	implied, err := impliedBytes(m, slices.ContainsFunc(tensors, isHead))
	if err != nil || implied <= 0 {
		return nil // the format is one whose size is not known
	}
	more := float64(total)/implied - 1
	further := slices.ContainsFunc(tensors, func(name string) bool { return foreignTensor(name) || layerIndex(name) >= m.NumLayers })
	if math.Abs(more) <= sizeTolerance || (more > 0 && further) {
		return nil
	}
	format := string(m.DType)
	if m.Quantization != "" {
		format = m.Quantization + " and " + format
	}
	return []string{fmt.Sprintf("the checkpoint has %s, the architecture in %s implies %s (%+.1f %%): its sizes or its number format are others than config.json says",
		unit.Bytes(total), format, unit.Bytes(implied), 100*more)}
}

// impliedBytes is the storage in bytes of the model's weights: the matrices of
// the layers in its weight format with their scales, the embeddings, the
// router and the norms in its number format. A tied head counts only where the
// checkpoint stores it all the same.
func impliedBytes(m *catalog.Model, storesHead bool) (float64, error) {
	if m.DType.Bits() == 0 {
		return 0, errors.New("the number format is not known")
	}
	plain := float64(m.DType.Bits()) / 8
	p := m.Params()
	rest := p.Total
	if m.TieEmbeddings && storesHead {
		rest += p.Embedding
	}
	if m.Quantization == "" {
		return float64(rest) * plain, nil
	}
	format, err := deploy.ParseWeightFormat(m.Quantization, m.DType)
	if err != nil {
		return 0, err
	}
	var packed int64
	for _, layer := range m.Layers(0, m.NumLayers) {
		one := m.LayerParams(layer)
		matrices := one.Attention + one.FFN - one.Router
		if format.ExpertsOnly {
			matrices = one.Experts
		}
		packed += int64(layer.Count) * matrices
	}
	return float64(packed)*format.Bits/8 + float64(rest-packed)*plain, nil
}
