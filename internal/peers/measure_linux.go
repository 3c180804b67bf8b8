package peers

import (
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/llmprof/llmprof/unit"
)

// interval is the time between two looks at the processes.
const interval = 500 * time.Millisecond

// Measure runs a command to its end and says what it and its descendants took.
// Their processor time is what the kernel sums up as each is waited for, and that
// of those that are left at the end, which are killed; or, if that is more, what
// was seen of each: a process whose parent does not wait for it is in no sum. The
// end of the command's context kills them all.
//
// The error is that of [exec.Cmd.Wait]; the usage is valid beside it once the
// command has been started.
func Measure(cmd *exec.Cmd) (Usage, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second // for pipes that a descendant holds open
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return Usage{}, fmt.Errorf("measure %s: %w", cmd.Path, err)
	}
	found := newTree(cmd.Process.Pid)
	done, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		ticks := time.NewTicker(interval)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				found.look()
			case <-done:
				return
			}
		}
	}()
	err := cmd.Wait()
	wall := time.Since(begin)
	close(done)
	<-watched
	found.look()
	found.kill()

	seen, left := found.cpu()
	used := Usage{CPU: seen, Wall: wall, Peak: found.peak}
	if sums, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		used.CPU = max(seen, left+time.Duration(sums.Utime.Nano()+sums.Stime.Nano()))
		used.Peak = max(used.Peak, unit.Bytes(sums.Maxrss)*unit.KiB)
	}
	if err != nil {
		return used, fmt.Errorf("measure %s: %w", cmd.Path, err)
	}
	return used, nil
}
