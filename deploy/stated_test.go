package deploy_test

import (
	"strings"
	"testing"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
)

// TestKVElements: what is cached for a token follows from KV heads and their
// size, or is a bound that is called one, or is not known.
func TestKVElements(t *testing.T) {
	for _, c := range []struct {
		why      string
		stated   deploy.Stated
		ranks    int
		elements float64
		bound    bool
	}{
		{"KV heads and their size", deploy.Stated{Layers: 32, KVHeads: 8, HeadDim: 128}, 1, 2 * 32 * 8 * 128, false},
		{"the size by the heads", deploy.Stated{Layers: 32, Heads: 32, KVHeads: 8, HiddenSize: 4096}, 1, 2 * 32 * 8 * 128, false},
		{"a stated size wins over the quotient", deploy.Stated{Layers: 2, Heads: 16, KVHeads: 4, HeadDim: 256, HiddenSize: 1024}, 1, 2 * 2 * 4 * 256, false},
		{"heads in place of KV heads", deploy.Stated{Layers: 32, Heads: 32, HiddenSize: 4096}, 1, 2 * 32 * 4096, true},
		{"the hidden size alone", deploy.Stated{Layers: 80, HiddenSize: 8192}, 1, 2 * 80 * 8192, true},
		{"KV heads of no known size are not those of the hidden size", deploy.Stated{Layers: 32, KVHeads: 8, HiddenSize: 4096}, 1, 0, false},
		{"nor are heads that do not divide it", deploy.Stated{Layers: 32, Heads: 5, HiddenSize: 4096}, 1, 0, false},
		{"a size without heads", deploy.Stated{Layers: 32, HeadDim: 128, HiddenSize: 4096}, 1, 0, false},
		{"no layers", deploy.Stated{KVHeads: 8, HeadDim: 128}, 1, 0, false},
		{"ranks share the heads", deploy.Stated{Layers: 32, KVHeads: 8, HeadDim: 128}, 4, 2 * 32 * 2 * 128, false},
		{"and hold whole ones", deploy.Stated{Layers: 32, KVHeads: 8, HeadDim: 128}, 16, 2 * 32 * 128, false},
		{"a width is cut anywhere", deploy.Stated{Layers: 80, HiddenSize: 8192}, 4, 2 * 80 * 2048, true},
	} {
		if elements, bound := c.stated.KVElements(c.ranks); elements != c.elements || bound != c.bound {
			t.Errorf("%s: %g elements, a bound: %v; want %g, %v", c.why, elements, bound, c.elements, c.bound)
		}
	}
}

func TestStatedOver(t *testing.T) {
	models, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	model := func(name string) *catalog.Model {
		m, err := models.Model(name)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	llama := model("Llama-3.1-8B")
	if same, err := (deploy.Stated{Parameters: 7e9}).Over(llama); err != nil || same != llama {
		t.Errorf("a number of parameters is no size: %v, %v", same, err)
	}
	for _, c := range []struct {
		why    string
		model  string
		stated deploy.Stated
		token  int64 // numbers
		err    string
	}{
		{"KV heads", "Llama-3.1-8B", deploy.Stated{KVHeads: 4}, 32 * 2 * 4 * 128, ""},
		{"layers", "Llama-3.1-8B", deploy.Stated{Layers: 16}, 16 * 2 * 8 * 128, ""},
		{"KV heads in place of a latent", "DeepSeek-V2-Lite", deploy.Stated{KVHeads: 16, HeadDim: 128}, 27 * 2 * 16 * 128, ""},
		{"layers of latent attention", "DeepSeek-V2-Lite", deploy.Stated{Layers: 10}, 10 * 576, ""},
		{"heads that are no multiple", "Llama-3.1-8B", deploy.Stated{KVHeads: 5}, 0, "Llama-3.1-8B with what is stated of it: model Llama-3.1-8B: num_heads 32 is not a multiple"},
	} {
		m, err := c.stated.Over(model(c.model))
		if c.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%s: error %v", c.why, err)
			}
			continue
		}
		if err != nil || m.KVElementsPerToken() != c.token {
			t.Errorf("%s: %v, %v", c.why, m, err)
		}
	}
	if llama.NumKVHeads != 8 || llama.NumLayers != 32 || llama.ParamsTotal == 0 {
		t.Error("the catalog's model was changed")
	}
	if n, err := (deploy.Stated{Parameters: 7e9}).Bytes(deploy.Config{DType: catalog.FP32}); n != 28e9 || err != nil {
		t.Errorf("%g bytes, %v", n, err)
	}
	if _, err := (deploy.Stated{Parameters: 7e9}).Bytes(deploy.Config{Quantization: "int17"}); err == nil {
		t.Error("an unknown format has a size")
	}
}
