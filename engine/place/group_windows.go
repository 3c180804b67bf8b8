package place

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// group is a process and what it starts.
type group struct{ process *os.Process }

func (g *group) prepare(*exec.Cmd)     {}
func (g *group) started(cmd *exec.Cmd) { g.process = cmd.Process }
func (g *group) close()                {}
func (g *group) endLeft()              {}

// terminate does nothing: Windows has no way to ask a process without a
// window. The close of its stdin is what asks a probe.
func (g *group) terminate() {}

// kill ends the process and, with the system's own tool, its children.
func (g *group) kill() {
	tree := exec.Command(filepath.Join(os.Getenv("SystemRoot"), "System32", "taskkill.exe"), "/T", "/F", "/PID", strconv.Itoa(g.process.Pid))
	_ = tree.Run()
	_ = g.process.Kill()
}

// endingSignal is empty: Windows has exit codes only.
func endingSignal(*os.ProcessState) string { return "" }
