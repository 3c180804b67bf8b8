package main

import (
	"encoding/json"
	"testing"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/profile"
)

// TestPredictorsSayWhatWasMeasured: a predictor keeps the model and the device of
// its profile, and of a benchmark's metadata every word.
func TestPredictorsSayWhatWasMeasured(t *testing.T) {
	cat, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	own := deploy.Config{Model: "Qwen/Qwen3-4B"}
	for _, c := range []struct {
		why    string
		header profile.Header
		want   string
	}{
		{"a profile of ours says how its engine ran, too", profile.Header{
			Deploy: own, Device: profile.Device{Reported: "NVIDIA A100-SXM4-80GB"}, Metadata: map[string]json.RawMessage{profile.RunKey: json.RawMessage(`{}`)},
		}, `{"gpu_type":"a100-sxm-80gb","model_path":"Qwen/Qwen3-4B","run":{}}`},
		{"a device that the catalog does not know", profile.Header{Device: profile.Device{Reported: "Abacus 3"}}, `{"gpu_type":"Abacus 3"}`},
		{"a benchmark's own words", profile.Header{
			Deploy: own, Metadata: map[string]json.RawMessage{"model_path": json.RawMessage(`"/models/qwen"`)},
		}, `{"model_path":"/models/qwen"}`},
		{"nothing is named", profile.Header{}, `{}`},
	} {
		got, err := json.Marshal(metadataOf(cat, &profile.Profile{Header: c.header}))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v, want %s", c.why, got, err, c.want)
		}
	}
}
