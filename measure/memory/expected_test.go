package memory_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/measure/memory"
	"github.com/llmprof/llmprof/unit"
)

func model(t *testing.T, name string) *catalog.Model {
	t.Helper()
	models, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	m, err := models.Model(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// bytes is a size that may be unknown; -1 where it is.
func bytes(b *unit.Bytes) int64 {
	if b == nil {
		return -1
	}
	return int64(*b)
}

func TestExpect(t *testing.T) {
	const (
		llama  = 2 * 8_030_261_248
		norms  = (2*32 + 1) * 4096 * 2 // every rank has its own
		linear = 8_030_261_248 - 2*128256*4096 - norms/2
	)
	for _, c := range []struct {
		why, model            string
		deploy                deploy.Config
		weights, token, batch int64
		note                  string
	}{
		{"the public figures, with KV heads and not heads", "Llama-3.1-8B", deploy.Config{}, llama, 131072, 8 * 1024 * 131072, ""},
		{"the ranks add up, but for the norms that each has", "Llama-3.1-8B", deploy.Config{TensorParallel: 4}, llama + 3*norms, 131072, 8 * 1024 * 131072, ""},
		{"with more ranks than KV heads they are held twice", "Llama-3.1-8B", deploy.Config{TensorParallel: 16}, -1, 2 * 131072, 2 * 8 * 1024 * 131072, ""},
		{"a cache of 8 bits takes half", "Llama-3.1-8B", deploy.Config{KVCacheDType: catalog.FP8}, llama, 65536, 8 * 1024 * 65536, ""},
		{"quantised weights take their real bits; tables and norms stay", "Llama-3.1-8B", deploy.Config{Quantization: "awq"}, llama - linear*2 + linear*415625/100000/8, 131072, 8 * 1024 * 131072, ""},
		{"latent attention: 512 + 64 numbers a layer", "DeepSeek-V2-Lite", deploy.Config{}, 2 * 15_706_484_224, 27 * 576 * 2, 8 * 1024 * 27 * 576 * 2, ""},
		{"and each rank holds all of them", "DeepSeek-V2-Lite", deploy.Config{TensorParallel: 2}, -1, 2 * 27 * 576 * 2, 2 * 8 * 1024 * 27 * 576 * 2, ""},
		{"of pipeline stages the fullest stands for all", "Llama-3.1-8B", deploy.Config{PipelineParallel: 2}, -1, 131072, 8 * 1024 * 131072, "the fullest pipeline stage"},
	} {
		e, err := memory.Expect(model(t, c.model), c.deploy, engine.StepTask{BatchSize: 8, InputLen: 512, OutputLen: 500})
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
			continue
		}
		if got := bytes(e.Weights); got != c.weights && c.weights >= 0 {
			t.Errorf("%s: weights of %d bytes, want %d", c.why, got, c.weights)
		}
		if bytes(e.KVPerToken) != c.token || bytes(e.KVBatch) != c.batch {
			t.Errorf("%s: %d bytes a token, %d for the batch; want %d, %d", c.why, bytes(e.KVPerToken), bytes(e.KVBatch), c.token, c.batch)
		}
		if bytes(e.Activations) <= 0 || !strings.Contains(e.Note, c.note) || e.Source != "architecture of "+c.model {
			t.Errorf("%s: activations %d, note %q, from %q", c.why, bytes(e.Activations), e.Note, e.Source)
		}
	}
	if _, err := memory.Expect(model(t, "Llama-3.1-8B"), deploy.Config{TensorParallel: 3}, engine.StepTask{BatchSize: 1, InputLen: 1, OutputLen: 1}); err == nil ||
		!strings.Contains(err.Error(), "expect the memory of Llama-3.1-8B") || !strings.Contains(err.Error(), "does not divide") {
		t.Errorf("a layout that there cannot be: %v", err)
	}
}

func TestStatedArchitecture(t *testing.T) {
	task := engine.StepTask{BatchSize: 8, InputLen: 512, OutputLen: 512}
	const bound = "upper bound"
	for _, c := range []struct {
		why                   string
		stated                memory.Architecture
		weights, token, batch int64
		note                  string
	}{
		{"the profiler's own example, whose model has a KV head for each head", memory.Architecture{Parameters: 6.7e9, Layers: 32, Heads: 32, HiddenSize: 4096, WeightBytes: 2, KVElementBytes: 2}, 13_400_000_000, 524288, 8 * 1024 * 524288, bound},
		{"KV heads are no bound", memory.Architecture{Layers: 32, Heads: 32, KVHeads: 8, HiddenSize: 4096, KVElementBytes: 2}, -1, 131072, 8 * 1024 * 131072, ""},
		{"the size of heads wins over a quotient", memory.Architecture{Layers: 2, Heads: 16, KVHeads: 4, HeadDim: 256, HiddenSize: 1024, KVElementBytes: 1}, -1, 4096, 8 * 1024 * 4096, ""},
		{"the hidden size alone is a bound", memory.Architecture{Layers: 80, HiddenSize: 8192, KVElementBytes: 2}, -1, 2 * 80 * 8192 * 2, 8 * 1024 * 2 * 80 * 8192 * 2, bound},
		{"KV heads of no known size are not those of the hidden size", memory.Architecture{Layers: 32, KVHeads: 8, HiddenSize: 4096, KVElementBytes: 2}, -1, -1, -1, ""},
		{"4-bit weights", memory.Architecture{Parameters: 13e9, WeightBytes: 0.5}, 6_500_000_000, -1, -1, ""},
		{"layers alone say nothing", memory.Architecture{Layers: 32, KVElementBytes: 2}, -1, -1, -1, ""},
		{"a size of elements is not guessed", memory.Architecture{Parameters: 7e9, Layers: 32, HiddenSize: 4096}, -1, -1, -1, bound},
	} {
		e := c.stated.Expect(task)
		if bytes(e.Weights) != c.weights || bytes(e.KVPerToken) != c.token || bytes(e.KVBatch) != c.batch {
			t.Errorf("%s: weights %d, %d a token, %d for the batch; want %d, %d, %d", c.why, bytes(e.Weights), bytes(e.KVPerToken), bytes(e.KVBatch), c.weights, c.token, c.batch)
		}
		if strings.Contains(e.Note, bound) != (c.note == bound) || e.Activations != nil {
			t.Errorf("%s: note %q, activations %v", c.why, e.Note, e.Activations)
		}
	}
}

// TestExpected: the engine's own deployment counts, and a model that cannot be
// laid out leaves what the user states.
func TestExpected(t *testing.T) {
	o := &memory.Observation{Task: engine.StepTask{BatchSize: 1, InputLen: 16, OutputLen: 16}}
	o.Facts.Deploy = deploy.Config{KVCacheDType: catalog.FP8}
	s := memory.Subject{Model: model(t, "Llama-3.1-8B"), Asked: deploy.Config{KVCacheDType: catalog.BF16, DType: catalog.FP32, TensorParallel: 2}}
	if e, err := s.Expected(o); err != nil || bytes(e.KVPerToken) != 65536 || bytes(e.Weights) != 4*(8_030_261_248+(2*32+1)*4096) {
		t.Errorf("%d bytes a token, weights %d, %v", bytes(e.KVPerToken), bytes(e.Weights), err)
	}
	s.Asked.TensorParallel, s.Stated = 3, memory.Architecture{Parameters: 1e9}
	if e, err := s.Expected(o); err == nil || bytes(e.Weights) != 4e9 || e.Source != "stated architecture" {
		t.Errorf("weights %d from %q, %v", bytes(e.Weights), e.Source, err)
	}
}

// TestStatedWins: what the user states counts in place of the model's own, and
// the model fills the blanks.
func TestStatedWins(t *testing.T) {
	o := &memory.Observation{Task: engine.StepTask{BatchSize: 1, InputLen: 16, OutputLen: 16}}
	for _, c := range []struct {
		why            string
		stated         memory.Architecture
		weights, token int64
		source         string
	}{
		{"nothing stated", memory.Architecture{}, 2 * 8_030_261_248, 131072, "architecture of Llama-3.1-8B"},
		{"parameters", memory.Architecture{Parameters: 7e9}, 14e9, 131072, "stated architecture, what it lacks as in Llama-3.1-8B"},
		{"KV heads: the size of a head is the model's", memory.Architecture{Parameters: 7e9, KVHeads: 4}, 14e9, 65536, "stated architecture, what it lacks as in Llama-3.1-8B"},
		{"layers", memory.Architecture{Parameters: 7e9, Layers: 16}, 14e9, 65536, "stated architecture, what it lacks as in Llama-3.1-8B"},
		{"layers alone: the weights follow", memory.Architecture{Layers: 16}, 2 * ((8_030_261_248-2*128256*4096-4096)/2 + 2*128256*4096 + 4096), 65536, "stated architecture, what it lacks as in Llama-3.1-8B"},
	} {
		s := memory.Subject{Name: "m", Model: model(t, "Llama-3.1-8B"), Stated: c.stated}
		e, err := s.Expected(o)
		if err != nil || bytes(e.Weights) != c.weights || bytes(e.KVPerToken) != c.token || e.Source != c.source {
			t.Errorf("%s: weights %d, %d a token, from %q, %v; want %d, %d", c.why, bytes(e.Weights), bytes(e.KVPerToken), e.Source, err, c.weights, c.token)
		}
		d := o.Document(s, time.Unix(0, 0))
		var kept catalog.Model
		if err := json.Unmarshal(d.ModelInfo.Architecture, &kept); err != nil {
			t.Fatal(err)
		}
		if got := 2 * kept.KVElementsPerToken(); got != c.token || kept.Validate() != nil {
			t.Errorf("%s: the file's architecture has %d bytes a token", c.why, got)
		}
		if w := d.MemoryBreakdown.Part(memprofile.PartWeights); bytes(w.Bytes) != c.weights || string(w.Source) != c.source {
			t.Errorf("%s: part %+v", c.why, w)
		}
	}
	s := memory.Subject{Model: model(t, "Llama-3.1-8B"), Stated: memory.Architecture{Parameters: 7e9, KVHeads: 5, HeadDim: 64, Layers: 2}}
	if e, err := s.Expected(o); err == nil || bytes(e.Weights) != 14e9 || bytes(e.KVPerToken) != 2*2*5*64*2 || e.Source != "stated architecture" {
		t.Errorf("what makes no model stands alone: %+v, %v", e, err)
	}
	if d := o.Document(s, time.Unix(0, 0)); d.ModelInfo.Architecture != nil || *d.ModelInfo.KVHeads != 5 || *d.ModelInfo.Heads != 32 {
		t.Errorf("model %+v", d.ModelInfo)
	}
}
