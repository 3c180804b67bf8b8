package gpu

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// stoppedOr is nil where ctx has ended, since then err only follows from it.
func stoppedOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the end of ctx is how a source is stopped
	}
	return err
}

// maxFailures is how many times in a row a program that is polled may fail.
const maxFailures = 5

// failing lets do fail a few times in a row.
func failing(do func() error) func() error {
	failures := 0
	return func() error {
		err := do()
		if err == nil {
			failures = 0
			return nil
		}
		failures++
		if failures == maxFailures {
			return err
		}
		return nil
	}
}

// tick calls do now and then at every interval, until ctx ends or do fails.
func tick(ctx context.Context, every time.Duration, do func() error) error {
	ticker := time.NewTicker(interval(every))
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := do(); err != nil {
			return stoppedOr(ctx, err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return nil
}

// ended is what Follow returns where a program that should run for ever
// has ended.
func ended(ctx context.Context, name string, err error) error {
	if err == nil {
		err = errors.New("it ended by itself")
	}
	return stoppedOr(ctx, fmt.Errorf("%s: %w", name, err))
}

// paceScript is what the scripts begin with: it makes them keep their interval.
//
//go:embed pace.sh
var paceScript string

// eachScriptLine runs a script on a host and hands on its lines.
func eachScriptLine(ctx context.Context, h Host, line func(string) error, name, script string, arguments ...string) error {
	return eachLine(ctx, h, line, append([]string{"sh", "-c", paceScript + script, name}, arguments...)...)
}

// hundredths writes an interval for the scripts.
func hundredths(every time.Duration) string {
	return strconv.FormatInt(max(1, every.Milliseconds()/10), 10)
}
