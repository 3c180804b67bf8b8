package place

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent has the kernel kill the process when this program ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// allZombies says whether those that are left of a process group have ended
// and only wait to be asked for their status. Orphans may do so for long in a
// container whose first process does not care for them.
func allZombies(group int) bool {
	folders, err := os.ReadDir("/proc")
	if err != nil || len(folders) == 0 {
		return false
	}
	for _, folder := range folders {
		if name := folder.Name(); name[0] < '0' || name[0] > '9' {
			continue
		}
		text, err := os.ReadFile("/proc/" + folder.Name() + "/stat")
		if err != nil {
			continue
		}
		// The name in brackets may hold anything; state, parent and group
		// follow it.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) > 2 && fields[2] == strconv.Itoa(group) && fields[0] != "Z" && fields[0] != "X" {
			return false
		}
	}
	return true
}
