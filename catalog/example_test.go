package catalog_test

import (
	"errors"
	"fmt"

	"github.com/llmprof/llmprof/catalog"
)

func Example() {
	known, err := catalog.Builtin()
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := known.Model("qwen/qwen3-30b-a3b")
	if err != nil {
		fmt.Println(err)
		return
	}
	p := m.Params()
	fmt.Printf("%s: %d parameters, %d active\n", m.Name, p.Total, p.Active)
	d, note, err := known.Device("H100")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.FullName)
	fmt.Println(note)
	// Output:
	// Qwen3-30B-A3B: 30532122624 parameters, 3353032704 active
	// NVIDIA H100 SXM5 80GB
	// H100 means h100-sxm-80gb; others: h100-pcie-80gb, h100-nvl-94gb
}

func ExampleCatalog_Model_unknown() {
	known, err := catalog.Builtin()
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = known.Model("Llama-3.1-8b-instrukt")
	var unknown *catalog.UnknownError
	if errors.As(err, &unknown) {
		fmt.Println(unknown)
		fmt.Println(unknown.Hint())
	}
	// Output:
	// model "Llama-3.1-8b-instrukt" is not in the catalog
	// nearest known: Llama-3.1-8B, Llama-3.1-70B, Llama-3.1-405B
}

func ExampleCatalog_Overlay() {
	known, err := catalog.Builtin()
	if err != nil {
		fmt.Println(err)
		return
	}
	mine, err := known.Overlay("mine.yaml", []byte(`
models:
  - name: Qwen3-8B-wide
    base: Qwen3-8B
    intermediate_size: 16384
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := mine.Model("qwen3-8b-wide")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Params().Total, m.Source)
	// Output:
	// 10002674688 mine.yaml, from Qwen3-8B
}

func ExampleModel_Layers() {
	known, err := catalog.Builtin()
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := known.Model("Llama-4-Maverick")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, layer := range m.Layers(0, m.NumLayers) {
		fmt.Printf("%d layers: %s attention, mixture of experts: %v\n", layer.Count, layer.Attention, layer.MoE)
	}
	// Output:
	// 24 layers: chunked attention, mixture of experts: false
	// 12 layers: chunked attention, mixture of experts: true
	// 12 layers: full attention, mixture of experts: true
}
