package layerscsv_test

import (
	"fmt"
	"os"
	"strings"

	"github.com/llmprof/llmprof/format/layerscsv"
)

// A table is read, and written again with a scaled column.
func Example() {
	table := `hardware,model,layer_name,input,kv_cache,latency(ns)
RTX3090,meta-llama/Llama-3.1-8B,embedding,1,0,46750
RTX3090,meta-llama/Llama-3.1-8B,attn,1,1024,15582
`
	p, _, err := layerscsv.Read("RTX3090.csv", strings.NewReader(table), layerscsv.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, point := range p.Points {
		t, _ := point.Mean()
		fmt.Println(point.Layer.Name, point.Layer.Tokens, point.Layer.Context, t)
	}
	if err := layerscsv.Write(os.Stdout, p, layerscsv.WriteOptions{Scale: 1.05, KeepUnscaled: true}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// embedding 1 0 46.75 µs
	// attn 1 1024 15.58 µs
	// hardware,model,layer_name,input,kv_cache,latency(ns),scaled_latency(ns)
	// RTX3090,meta-llama/Llama-3.1-8B,embedding,1,0,46750,49087
	// RTX3090,meta-llama/Llama-3.1-8B,attn,1,1024,15582,16361
}
