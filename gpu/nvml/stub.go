//go:build !nvml || !linux

package nvml

import (
	"fmt"

	"github.com/llmprof/llmprof/gpu"
)

// Open fails: this build has no library.
func Open() (gpu.Source, error) {
	return nil, fmt.Errorf("%w: this build of llmprof does not load NVIDIA's library; it is one without the tag nvml, or not for Linux", ErrNone)
}
