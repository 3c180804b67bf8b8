package tinymodel_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/hub"
	"github.com/llmprof/llmprof/internal/tinymodel"
)

// expect holds an architecture against the shape that it was written from.
func expect(t *testing.T, m *catalog.Model, warnings []string, s tinymodel.Shape) {
	t.Helper()
	for _, w := range warnings {
		t.Errorf("warning: %s", w)
	}
	got := tinymodel.Shape{
		Layers: m.NumLayers, Hidden: m.HiddenSize, FFN: m.IntermediateSize, Heads: m.NumHeads, KVHeads: m.NumKVHeads,
		Vocab: m.VocabSize, MaxPositions: m.MaxSeqLen,
	}
	if m.Type != "llama" || got != s {
		t.Errorf("read as %s %+v, want llama %+v", m.Type, got, s)
	}
}

func shapes() map[string]tinymodel.Shape {
	wide := tinymodel.Tiny()
	wide.Vocab = 16384
	odd := tinymodel.Shape{Layers: 1, Hidden: 12, FFN: 5, Heads: 3, KVHeads: 1, Vocab: 513, MaxPositions: 64}
	return map[string]tinymodel.Shape{"tiny": tinymodel.Tiny(), "small": tinymodel.Small(), "padded vocabulary": wide, "not aligned": odd}
}

func TestGGUF(t *testing.T) {
	for name, s := range shapes() {
		t.Run(name, func(t *testing.T) {
			var file bytes.Buffer
			if err := tinymodel.WriteGGUF(&file, s, 1); err != nil {
				t.Fatal(err)
			}
			size := int64(file.Len())
			m, facts, warnings, err := hub.ParseGGUF("tiny.gguf", &file)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, m, warnings, s)
			if facts.Params != s.Params() {
				t.Errorf("%d parameters, want %d", facts.Params, s.Params())
			}
			if over := size - facts.CheckpointBytes; over < 0 || over > 64<<10+40*int64(s.Vocab) {
				t.Errorf("%d bytes for %d bytes of tensors", size, facts.CheckpointBytes)
			}
		})
	}
	if n := tinymodel.Tiny().Params(); n != 3_407_872+9*256 {
		t.Errorf("tiny has %d parameters", n)
	}
	if n := tinymodel.Small().Params(); n != 76_283_904+25*768 {
		t.Errorf("small has %d parameters", n)
	}
}

func TestFolder(t *testing.T) {
	for name, s := range shapes() {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "tiny")
			if err := tinymodel.WriteFolder(dir, s); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "config.json")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			m, warnings, err := hub.ParseConfig(path, text)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, m, warnings, s)

			var file bytes.Buffer
			if err := tinymodel.WriteSafetensors(&file, s, 1); err != nil {
				t.Fatal(err)
			}
			header, err := hub.ParseSafetensors("model.safetensors", bytes.NewReader(file.Bytes()), int64(file.Len()))
			if err != nil {
				t.Fatal(err)
			}
			if header.Elements != s.Params() || header.Bytes != 2*s.Params() {
				t.Errorf("weights of %d elements, %d bytes; want %d parameters", header.Elements, header.Bytes, s.Params())
			}
		})
	}
}

func TestDeterministic(t *testing.T) {
	type write = func(io.Writer, tinymodel.Shape, int64) error
	for name, write := range map[string]write{"gguf": tinymodel.WriteGGUF, "safetensors": tinymodel.WriteSafetensors} {
		sum := func(seed int64) [32]byte {
			h := sha256.New()
			if err := write(h, tinymodel.Tiny(), seed); err != nil {
				t.Fatal(err)
			}
			return [32]byte(h.Sum(nil))
		}
		if first, again := sum(7), sum(7); first != again {
			t.Errorf("%s: the same seed gives different files", name)
		}
		if sum(7) == sum(8) {
			t.Errorf("%s: two seeds give the same file", name)
		}
	}
}

func TestRefusedShapes(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(*tinymodel.Shape)
		want   []string
	}{
		{"heads divide the hidden size, into even parts", func(s *tinymodel.Shape) { s.Heads = 3 }, []string{"hidden size 256", "3 heads"}},
		{"KV heads divide the heads", func(s *tinymodel.Shape) { s.KVHeads = 3 }, []string{"8 heads", "3 KV heads"}},
		{"the vocabulary has 512 tokens at least", func(s *tinymodel.Shape) { s.Vocab = 511 }, []string{"vocabulary 511"}},
		{"all faults come at once", func(s *tinymodel.Shape) { *s = tinymodel.Shape{} }, []string{"layers 0", "feed-forward size 0", "positions 0"}},
	} {
		t.Run(c.why, func(t *testing.T) {
			s := tinymodel.Tiny()
			c.change(&s)
			dir := filepath.Join(t.TempDir(), "none")
			for _, err := range []error{tinymodel.WriteGGUF(io.Discard, s, 1), tinymodel.WriteSafetensors(io.Discard, s, 1), tinymodel.WriteFolder(dir, s)} {
				for _, part := range c.want {
					if err == nil || !strings.Contains(err.Error(), part) {
						t.Errorf("error %v, want %q in it", err, part)
					}
				}
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("a folder was made")
			}
		})
	}
}
