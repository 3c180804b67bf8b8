package cost_test

import (
	"testing"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
)

// TestAnyDevice: sizes on the device that stands for all are those on any other.
func TestAnyDevice(t *testing.T) {
	cat, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why, model, device string
		config             deploy.Config
	}{
		{"dense", "llama-3.1-8b", "rtx-4090", deploy.Config{}},
		{"quantised, with a small cache", "llama-3.1-8b", "h100", deploy.Config{Quantization: "fp8", KVCacheDType: catalog.FP8}},
		{"experts on several devices", "mixtral-8x7b", "h100", deploy.Config{TensorParallel: 4}},
		{"stages", "llama-3.1-70b", "h100", deploy.Config{TensorParallel: 2, PipelineParallel: 4}},
	} {
		t.Run(c.why, func(t *testing.T) {
			model, err := cat.Model(c.model)
			if err != nil {
				t.Fatal(err)
			}
			device, _, err := cat.Device(c.device)
			if err != nil {
				t.Fatal(err)
			}
			var sizes []cost.Memory
			for _, d := range []*catalog.Device{device, cost.AnyDevice()} {
				est, err := cost.New(model, d, c.config, cost.Settings{NoReserve: true})
				if err != nil {
					t.Fatal(err)
				}
				m := est.Memory(8, 1024, 2048)
				m.Device, m.Usable = 0, 0
				sizes = append(sizes, m)
			}
			if sizes[0] != sizes[1] || sizes[0].Weights == 0 || sizes[0].KVCache == 0 || sizes[0].Activations == 0 {
				t.Errorf("on %s %+v, on any %+v", c.device, sizes[0], sizes[1])
			}
		})
	}
}
