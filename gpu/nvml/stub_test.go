//go:build !nvml || !linux

package nvml_test

import (
	"errors"
	"testing"

	"github.com/llmprof/llmprof/gpu/nvml"
)

func TestStub(t *testing.T) {
	source, err := nvml.Open()
	if source != nil || !errors.Is(err, nvml.ErrNone) {
		t.Errorf("got %v, %v", source, err)
	}
}
