//go:build unix

package place

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// group is a process group: a process and what it starts.
type group struct {
	id int
	// guard is the stdin of a small shell that ends the group when it is
	// closed without a word, as it is when this program dies.
	guard *os.File
	watch *exec.Cmd
}

// guardScript ends the process group $1 unless a line comes on stdin. It
// ignores what a terminal sends to every process in sight.
const guardScript = `trap '' INT TERM HUP QUIT
if ! read -r _; then kill -TERM "-$1"; sleep 2; kill -KILL "-$1"; fi 2>/dev/null`

// prepare makes the command lead a group of its own.
func (g *group) prepare(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
}

// started takes note of the group and sets a guard over it. Where there is no
// shell there is no guard; on Linux the process itself still dies with this
// program.
func (g *group) started(cmd *exec.Cmd) {
	g.id = cmd.Process.Pid
	r, w, err := os.Pipe()
	if err != nil {
		return
	}
	watch := &exec.Cmd{
		Path: "/bin/sh", Args: []string{"sh", "-c", guardScript, "llmprof-guard", strconv.Itoa(g.id)},
		Stdin: r, SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	err = watch.Start()
	_ = r.Close()
	if err != nil {
		_ = w.Close()
		return
	}
	g.guard, g.watch = w, watch
}

// close sends the guard home.
func (g *group) close() {
	if g.guard != nil {
		_, _ = g.guard.WriteString("done\n")
		_ = g.guard.Close()
		_ = g.watch.Wait()
	}
}

func (g *group) terminate() { _ = syscall.Kill(-g.id, syscall.SIGTERM) }
func (g *group) kill()      { _ = syscall.Kill(-g.id, syscall.SIGKILL) }

// alive says whether a process of the group is left that still does something.
func (g *group) alive() bool {
	return syscall.Kill(-g.id, 0) != syscall.ESRCH && !allZombies(g.id)
}

// endLeft ends what the leader left behind: an engine whose front has died
// would keep the device's memory for ever.
func (g *group) endLeft() {
	for _, end := range []func(){g.terminate, g.kill, func() {}} {
		for wait := 5 * time.Millisecond; wait < leftGrace; wait *= 2 {
			if !g.alive() {
				return
			}
			time.Sleep(wait)
		}
		end()
	}
}

// endingSignal names the signal that ended a process.
func endingSignal(state *os.ProcessState) string {
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return ""
	}
	return signalName(int(status.Signal()))
}
