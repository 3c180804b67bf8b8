//go:build !linux

package peers

import (
	"errors"
	"fmt"
	"os/exec"
)

// Measure runs a command to its end and says what its processes took; on this
// system it cannot.
func Measure(cmd *exec.Cmd) (Usage, error) {
	return Usage{}, fmt.Errorf("measure %s: its processes are found in Linux's /proc: %w", cmd.Path, errors.ErrUnsupported)
}
