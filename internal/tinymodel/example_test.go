package tinymodel_test

import (
	"bytes"
	"fmt"

	"github.com/llmprof/llmprof/internal/tinymodel"
)

func Example() {
	var file bytes.Buffer
	err := tinymodel.WriteGGUF(&file, tinymodel.Tiny(), 1)
	fmt.Println(err, string(file.Bytes()[:4]), tinymodel.Tiny().Params(), "parameters", file.Len(), "bytes")
	// Output: <nil> GGUF 3410176 parameters 6838496 bytes
}
