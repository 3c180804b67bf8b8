package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/catalog"
)

// Facts are what the headers of a checkpoint say about it.
type Facts struct {
	// CheckpointBytes is the storage of all tensors in bytes; 0 if unknown.
	CheckpointBytes int64
	// Params is the number of parameters of the decoder: tensors of a vision
	// part, of extra prediction layers and of scales not counted, tied
	// embeddings once. 0 if it is not known, as with packed weights.
	Params int64
	// BitsPerWeight is the storage of one element, averaged over all tensors,
	// in bits; 0 if it is not known.
	BitsPerWeight float64
	// Files is the number of checkpoint files whose headers were read.
	Files int
}

// folderFacts reads the headers of the checkpoint in a folder. A folder
// without one gives nil; a broken one gives warnings, since the architecture
// does not hang on it.
func folderFacts(folder string, m *catalog.Model) (*Facts, []string) {
	names := []string{"model.safetensors"}
	facts := &Facts{}
	indexPath := filepath.Join(folder, "model.safetensors.index.json")
	text, err := readText(indexPath, maxIndexBytes)
	switch {
	case err == nil:
		index, err := ParseIndex(indexPath, text)
		if err != nil {
			return nil, []string{err.Error()}
		}
		names, facts.CheckpointBytes = index.Files, index.TotalBytes
	case !errors.Is(err, fs.ErrNotExist):
		return nil, []string{err.Error()}
	default:
		if _, err := os.Stat(filepath.Join(folder, names[0])); err != nil {
			return nil, nil
		}
	}
	var tensors []Tensor
	var elements, bytes int64
	for _, name := range names {
		header, err := readSafetensors(filepath.Join(folder, name))
		if err != nil {
			if facts.CheckpointBytes == 0 {
				return nil, []string{err.Error()}
			}
			return facts, []string{err.Error()}
		}
		tensors = append(tensors, header.Tensors...)
		elements += header.Elements
		bytes += header.Bytes
		facts.Files++
	}
	facts.CheckpointBytes = bytes
	if elements > 0 {
		facts.BitsPerWeight = float64(bytes) * 8 / float64(elements)
	}
	facts.Params = decoderParams(tensors, m)
	return facts, crossCheck(facts, m)
}

// maxIndexBytes is the longest index that is read, in bytes: the largest
// published ones have about 10 MB.
const maxIndexBytes = 64 << 20

// crossCheck compares the checkpoint with the architecture.
func crossCheck(facts *Facts, m *catalog.Model) []string {
	if facts.Params == 0 {
		return nil
	}
	if want := m.Params().Total; facts.Params != want {
		return []string{fmt.Sprintf("the checkpoint has %d parameters, the architecture %d (%+.2f %%)", facts.Params, want, 100*float64(want-facts.Params)/float64(facts.Params))}
	}
	m.ParamsTotal = facts.Params
	return nil
}

// decoderParams counts the decoder's parameters among the tensors; 0 where
// tensors are packed, so that their elements are no parameters.
func decoderParams(tensors []Tensor, m *catalog.Model) int64 {
	var total int64
	for _, t := range tensors {
		name := t.Name
		switch {
		case foreignTensor(name), m.TieEmbeddings && isHead(name):
			continue
		case strings.HasSuffix(name, ".qweight"), strings.HasSuffix(name, ".weight_packed"), strings.HasSuffix(name, "_blocks"),
			strings.HasSuffix(name, ".weight") && (t.DType == "U8" || t.DType == "I32"):
			return 0
		case layerIndex(name) >= m.NumLayers:
			continue // next-token prediction
		}
		total += t.Elements
	}
	return total
}

// foreignTensor reports whether a tensor is no parameter of the decoder.
func foreignTensor(name string) bool {
	for _, part := range []string{"vision_tower.", "vision_model.", "multi_modal_projector.", "mtp.", "rotary_emb."} {
		if strings.HasPrefix(name, part) || strings.Contains(name, "."+part) {
			return true
		}
	}
	for _, ending := range []string{"weight_scale", "weight_scale_inv", "input_scale", "weight_scale_2", "k_scale", "v_scale", "weight_zero_point", "weight_shape"} {
		if strings.HasSuffix(name, "."+ending) {
			return true
		}
	}
	return false
}

// layerIndex is the N of "….layers.N.…" or "blk.N.…", -1 where there is none.
func layerIndex(name string) int {
	for _, mark := range []string{"layers.", "blk."} {
		i := strings.Index(name, mark)
		if i < 0 || (i > 0 && name[i-1] != '.') {
			continue
		}
		digits, _, _ := strings.Cut(name[i+len(mark):], ".")
		if n, err := strconv.Atoi(digits); err == nil {
			return n
		}
	}
	return -1
}
