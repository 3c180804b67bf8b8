package engine

import (
	"context"
	"time"
)

// StartImpatient is StartProbe with short limits: what a probe may take to
// close, and its longest line in bytes.
func StartImpatient(ctx context.Context, place Place, cmd Command, setup Setup, patience time.Duration, line int) (Session, error) {
	return startProbe(ctx, place, cmd, setup, probeLimits{close: patience, stop: patience, settle: 10 * time.Second, line: line})
}
