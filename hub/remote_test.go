package hub

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/catalog"
)

// serveFiles answers like the hub for a repository of these files; parts of
// them are served where ranges is true.
func serveFiles(files map[string][]byte, ranges bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Repo-Commit", commit)
		name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		text, ok := files[name]
		if !ok {
			w.Header().Set("X-Error-Code", "EntryNotFound")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", `"e-`+name+`"`)
		if !ranges {
			r.Header.Del("Range")
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
	}
}

// indexOf is an index of the given total and tensors.
func indexOf(t *testing.T, total any, tensors ...string) []byte {
	t.Helper()
	files := map[string]string{}
	for _, name := range tensors {
		files[name] = "model-00001-of-00002.safetensors"
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"total_size": total}, "weight_map": files})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestHubCheckpoint(t *testing.T) {
	config := func(tied bool) []byte { return fmt.Appendf(nil, smallModel, tied) }
	fp8 := []byte(strings.Replace(string(config(false)), "{", `{"quantization_config": {"quant_method": "fp8"}, `, 1))
	const layer1 = "model.layers.1.mlp.up_proj.weight"
	const untied = smallParams + 800
	packed := smallTensors(false)
	for i := range packed {
		if strings.Contains(packed[i].Name, "_proj.") {
			packed[i].DType = "U8"
		}
	}
	huge := binary.LittleEndian.AppendUint64(nil, maxRemoteHeader+1)
	tests := []struct {
		why    string
		config []byte
		file   string
		text   []byte
		// ignored says that the server sends the whole file whatever the range.
		ignored bool
		bytes   int64 // of the checkpoint; 0 where nothing is known
		params  int64
		warning string // "" for none
	}{
		{why: "the index agrees", config: config(false), file: indexFile, text: indexOf(t, 2*untied, layer1), bytes: 2 * untied},
		{why: "so does one that is 4 % larger", config: config(false), file: indexFile, text: indexOf(t, 2*untied*104/100, layer1), bytes: 2 * untied * 104 / 100},
		{why: "a checkpoint in fp32", config: config(false), file: indexFile, text: indexOf(t, 4*untied, layer1), bytes: 4 * untied, warning: "has 24.56 KiB, the architecture in bf16 implies 12.28 KiB (+100.0 %)"},
		{why: "a checkpoint that lacks a part", config: config(false), file: indexFile, text: indexOf(t, untied, layer1), bytes: untied, warning: "(-50.0 %)"},
		{why: "a vision part makes it larger", config: config(false), file: indexFile, text: indexOf(t, 4*untied, layer1, "vision_tower.x.weight"), bytes: 4 * untied},
		{why: "so do prediction layers", config: config(false), file: indexFile, text: indexOf(t, 4*untied, layer1, "model.layers.2.enorm.weight"), bytes: 4 * untied},
		{why: "but neither makes it smaller", config: config(false), file: indexFile, text: indexOf(t, untied, layer1, "vision_tower.x.weight"), bytes: untied, warning: "(-50.0 %)"},
		{why: "a tied head that is stored all the same", config: config(true), file: indexFile, text: indexOf(t, 2*untied, layer1, "lm_head.weight"), bytes: 2 * untied},
		{why: "a head that config.json takes for tied", config: config(true), file: indexFile, text: indexOf(t, 2*untied, layer1), bytes: 2 * untied, warning: "+14.6 %"},
		{why: "a quantised checkpoint counts its matrices in its format", config: fp8, file: indexFile, text: indexOf(t, 2*768+2*1536+2*(untied-2*(768+1536)), layer1), bytes: 2*768 + 2*1536 + 2*(untied-2*(768+1536))},
		{why: "a quantised one that is not", config: fp8, file: indexFile, text: indexOf(t, 2*untied, layer1), bytes: 2 * untied, warning: "the architecture in fp8 and bf16 implies"},
		{why: "an index without a total says nothing", config: config(false), file: indexFile, text: indexOf(t, nil, layer1)},
		{why: "a broken index", config: config(false), file: indexFile, text: []byte(`{"weight_map": []}`), warning: "not compared with the architecture"},
		{why: "a total of words", config: config(false), file: indexFile, text: indexOf(t, "many", layer1), warning: "total_size"},

		{why: "a single file's header lists every tensor", config: config(false), file: weightsFile, text: safetensors(t, smallTensors(false)...), bytes: 2 * untied, params: untied},
		{why: "one tensor more than the architecture has", config: config(true), file: weightsFile, text: safetensors(t, append(smallTensors(true), Tensor{Name: "model.extra.weight", DType: "BF16", Shape: []int64{7}})...), bytes: 2 * (smallParams + 7), params: smallParams + 7, warning: fmt.Sprintf("the checkpoint has %d parameters, the architecture %d", smallParams+7, smallParams)},
		{why: "packed tensors are compared by their bytes", config: config(false), file: weightsFile, text: safetensors(t, packed...), bytes: 2*untied - 2*(768+1536), warning: "(-36.6 %)"},
		{why: "a server without ranges is left alone", config: config(false), file: weightsFile, text: safetensors(t, smallTensors(false)...), ignored: true},
		{why: "a header that is too long is left alone", config: config(false), file: weightsFile, text: append(huge, make([]byte, 64)...)},
		{why: "a header that is cut off", config: config(false), file: weightsFile, text: safetensors(t, smallTensors(false)...)[:100], warning: "cut off"},
		{why: "a file of another kind", config: config(false), file: weightsFile, text: []byte("\x02\x00\x00\x00\x00\x00\x00\x00[]"), warning: "not compared with the architecture"},
		{why: "no checkpoint in this format", config: config(false)},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			files := map[string][]byte{configFile: test.config}
			if test.file != "" {
				files[test.file] = test.text
			}
			hub := newFakeHub(t, serveFiles(files, !test.ignored))
			c := client(t, hub)
			var first string
			for _, try := range []string{"from the hub", "revalidated", "offline"} {
				c.Offline = try == "offline"
				resolved, err := c.Model(t.Context(), "org/name")
				if err != nil {
					t.Fatal(err)
				}
				asked := hub.asked()
				if try == "revalidated" && test.warning == "" && len(asked) != 1 || try == "offline" && len(asked) > 0 {
					t.Errorf("%s: asked for %q", try, asked)
				}
				warnings := strings.Join(resolved.Warnings, "; ")
				if try == "offline" && first != "" && strings.Contains(first, "not compared") {
					continue // a broken file is not cached
				}
				first = warnings
				if (warnings == "") != (test.warning == "") || !strings.Contains(warnings, test.warning) {
					t.Errorf("%s: warned %q, want %q", try, warnings, test.warning)
				}
				facts := Facts{}
				if resolved.Facts != nil {
					facts = *resolved.Facts
				}
				if facts.CheckpointBytes != test.bytes || facts.Params != test.params {
					t.Errorf("%s: facts %+v, want %d bytes and %d parameters", try, facts, test.bytes, test.params)
				}
			}
		})
	}
}

func TestHubCheckpointIsOptional(t *testing.T) {
	files := map[string][]byte{configFile: fmt.Appendf(nil, smallModel, true), indexFile: indexOf(t, 1, "a")}
	hub := newFakeHub(t, serveFiles(files, true))
	c := client(t, hub)
	c.SkipCheckpoint = true
	resolved, err := c.Model(t.Context(), "org/name")
	if err != nil || resolved.Facts != nil || len(resolved.Warnings) > 0 {
		t.Errorf("got %+v, %v", resolved, err)
	}
	if got := fmt.Sprint(hub.asked()); got != "[config.json hf_quant_config.json]" {
		t.Errorf("asked for %s", got)
	}
}

// TestHubHeaderRequests: of the weights only the header is asked for, and the
// token does not follow a redirect there either.
func TestHubHeaderRequests(t *testing.T) {
	weights := safetensors(t, smallTensors(true)...)
	files := map[string][]byte{configFile: fmt.Appendf(nil, smallModel, true), weightsFile: weights}
	elsewhere := newFakeHub(t, serveFiles(files, true))
	direct := serveFiles(files, true)
	hub := newFakeHub(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, weightsFile) {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusFound)
			return
		}
		direct(w, r)
	})
	if _, err := client(t, hub).Model(t.Context(), "org/name"); err != nil {
		t.Fatal(err)
	}
	length := binary.LittleEndian.Uint64(weights)
	want := []string{"bytes=0-7", fmt.Sprintf("bytes=8-%d", 7+length)}
	var got []string
	for _, r := range elsewhere.requests {
		got = append(got, r.Header.Get("Range"))
		if auth := r.Header.Get("Authorization"); auth != "" {
			t.Errorf("another host got %q", auth)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("asked for %q, want %q", got, want)
	}
}

// TestHubCheckpointUnreachable: a hub that answers for the config and then no
// more costs a warning, not the model.
func TestHubCheckpointUnreachable(t *testing.T) {
	plain := serve(readConfig(t, "qwen3"))
	hub := newFakeHub(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, indexFile) {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		plain(w, r)
	})
	resolved, err := client(t, hub).Model(t.Context(), "org/name")
	if err != nil || resolved.Model.NumLayers != 36 || len(resolved.Warnings) != 1 || !strings.Contains(resolved.Warnings[0], "not compared") {
		t.Errorf("got %+v, %v", resolved, err)
	}
}

// TestImpliedBytes holds the sizes against published totals (total_size of
// the repository's index).
func TestImpliedBytes(t *testing.T) {
	cat, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		why, name string
		want      float64 // bytes
	}{
		{"bf16: twice the parameters", "Qwen3-8B", 16_381_470_720},
		{"mxfp4 experts beside bf16: 12.8 GiB on the model card", "gpt-oss-20b", 12.8 * (1 << 30)},
	}
	for _, test := range tests {
		m, err := cat.Model(test.name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := impliedBytes(m, true)
		if err != nil || math.Abs(got/test.want-1) > 0.01 {
			t.Errorf("%s: %s takes %.4g bytes (%v), want %.4g", test.why, test.name, got, err, test.want)
		}
	}
	m, err := cat.Model("Qwen3-8B")
	if err != nil {
		t.Fatal(err)
	}
	odd := m.Clone()
	odd.Quantization = "no such format"
	if got := sizeCheck(1, nil, odd); got != nil {
		t.Errorf("a format of unknown size: warned %q", got)
	}
}
