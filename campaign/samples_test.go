package campaign_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/campaign"
)

// parseFile reads a file of testdata that is right.
func parseFile(t *testing.T, name string) (*campaign.File, []campaign.Warning) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	file, warnings, err := campaign.Parse(name, text)
	if err != nil {
		t.Fatal(err)
	}
	return file, warnings
}

// TestSamples reads every file of both generations of the original's samples.
func TestSamples(t *testing.T) {
	for _, c := range []struct {
		name     string
		old, new int // cells of v2.0 and v2.1; -1 for no such file
	}{
		{"batch-scaling-study", 26, 20},
		{"calculator-test", 1, 1},
		{"glm-4.5-bench", 18, 18},
		{"models-bench-example", 37, 11},
		{"models-comprehensive-enhanced", 340, 340},
		{"models-example", 0, 0}, // prompts and max_tokens: no lengths
		{"models-priority-enhanced", 202, 202},
		{"models-quick-test-enhanced", 16, 16},
		{"moe-study", 26, 26},
		{"multi-gpu-study", 21, 4},
		{"quantization-study", 14, 14},
		{"quick-fixed", 22, 22},
		{"quick", 12, 8},
		{"sequence-scaling-study", 30, 30},
		{"test-cleanup", 2, 2},
		{"validation-campaign", -1, 39},
	} {
		for folder, want := range map[string]int{"configs_v2.0": c.old, "configs_v2.1": c.new} {
			if want < 0 {
				continue
			}
			t.Run(folder+"/"+c.name, func(t *testing.T) {
				file, _ := parseFile(t, folder+"/"+c.name+".yaml")
				cells := file.Cells()
				if len(cells) != want {
					t.Errorf("got %d cells, want %d", len(cells), want)
				}
				seen := map[string]bool{}
				for _, cell := range cells {
					if hash := cell.Hash(); seen[hash] || len(hash) != 16 {
						t.Errorf("%s: hash %q is not its own", cell.Name(), hash)
					} else {
						seen[hash] = true
					}
					if !strings.HasPrefix(cell.Place, "docker:") || cell.ContainerName == "" {
						t.Errorf("place %q of container %q", cell.Place, cell.ContainerName)
					}
				}
			})
		}
	}
}

// TestSampleCell looks at one cell of a sample in full.
func TestSampleCell(t *testing.T) {
	file, warnings := parseFile(t, "configs_v2.0/quick.yaml")
	if len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
	want := campaign.Defaults()
	want.ModelID, want.Place, want.ContainerName = "amd/Llama-3.2-1B-Instruct-FP8-KV", "docker:vllm-inference", "vllm-inference"
	want.InputLen, want.OutputLen, want.BatchSize, want.DType, want.KVCacheDType = 1024, 1024, 8, "float16", "fp8"
	want.Architecture = campaign.Architecture{Params: 1.24e9, NumLayers: 16, NumHeads: 32, HiddenSize: 2048, HeadDim: 64}
	got := file.Cells()[3]
	if got.Hash() != want.Hash() || got.Architecture != want.Architecture {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if name := got.Name(); name != "vllm-inference_1024in_1024out_bs8" {
		t.Errorf("name %q", name)
	}
}

// TestSampleWarnings asks for one warning for each kind of key that has no
// effect, at its first place.
func TestSampleWarnings(t *testing.T) {
	for _, c := range []struct {
		name string
		want []string
	}{
		{"configs_v2.0/moe-study.yaml", []string{
			"configs_v2.0/moe-study.yaml:15:5: num_experts has no effect: experts are read from the model itself (7 times in the file)",
			"configs_v2.0/moe-study.yaml:16:5: experts_per_token has no effect: experts are read from the model itself (7 times in the file)",
		}},
		{"configs_v2.1/validation-campaign.yaml", []string{
			"configs_v2.1/validation-campaign.yaml:14:3: notes has no effect: it is for readers (9 times in the file)",
		}},
	} {
		_, warnings := parseFile(t, c.name)
		var got []string
		for _, w := range warnings {
			got = append(got, w.String())
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
	_, warnings := parseFile(t, "configs_v2.0/models-example.yaml")
	older := 0
	for _, w := range warnings {
		if strings.Contains(w.Text, "makes no cells") {
			older++
		}
	}
	if older != 5 || len(warnings) != 5+4 {
		t.Errorf("the five entries of the older form, and image, max_tokens, port and prompts: got %v", warnings)
	}
}
