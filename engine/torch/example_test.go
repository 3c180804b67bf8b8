package torch_test

import (
	"fmt"

	"github.com/llmprof/llmprof/engine/torch"
)

func Example() {
	driver := torch.New()
	fmt.Println(driver.Name(), driver.Abilities().Steps, driver.Abilities().Layers, driver.Abilities().Clocks)
	// Output: torch true true [wall device cpu]
}
