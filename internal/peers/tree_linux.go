package peers

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/llmprof/llmprof/unit"
)

// tick is the unit of the times in /proc, the same on every architecture that
// Go knows.
const tick = 10 * time.Millisecond

// process is one line of /proc/PID/stat.
type process struct {
	pid, parent, group int
	started            uint64 // ticks since boot; tells it from a later one of the same id
	cpu                time.Duration
}

// tree is a process with all descendants that were ever seen.
type tree struct {
	root int
	seen map[int]process // as last seen
	live map[int]bool    // in the last look
	peak unit.Bytes
}

func newTree(root int) *tree { return &tree{root: root, seen: make(map[int]process)} }

// look finds the descendants of now, their processor time and their memory.
func (t *tree) look() {
	all := processes()
	t.live = make(map[int]bool)
	for more := true; more; {
		more = false
		for _, p := range all {
			if t.live[p.pid] || !t.has(p) {
				continue
			}
			t.seen[p.pid], t.live[p.pid] = p, true
			more = true // its children may stand before it
		}
	}
	var held unit.Bytes
	for pid := range t.live {
		held += memory(pid)
	}
	t.peak = max(t.peak, held)
}

// has reports whether a process belongs to the tree. One whose parent has ended
// is known from before, or by its group.
func (t *tree) has(p process) bool {
	before, known := t.seen[p.pid]
	return p.pid == t.root || p.group == t.root || t.live[p.parent] || known && before.started == p.started
}

// cpu is the processor time of all that were seen, and of those among them that
// the last look found.
func (t *tree) cpu() (all, living time.Duration) {
	for pid, p := range t.seen {
		all += p.cpu
		if t.live[pid] {
			living += p.cpu
		}
	}
	return all, living
}

// kill ends the descendants that the last look found.
func (t *tree) kill() {
	for pid := range t.live {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
	}
}

// processes lists all processes of the machine but those that end meanwhile.
func processes() []process {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is good
	all := make([]process, 0, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if p, ok := parseStat(text); ok {
			all = append(all, p)
		}
	}
	return all
}

// parseStat reads /proc/PID/stat; the name in its second field may hold spaces
// and brackets.
func parseStat(text []byte) (process, bool) {
	number, _, _ := bytes.Cut(text, []byte(" "))
	pid, err := strconv.Atoi(string(number))
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if err != nil || len(fields) < 20 {
		return process{}, false
	}
	at := func(i int) uint64 {
		n, _ := strconv.ParseUint(string(fields[i]), 10, 64) // the kernel writes numbers
		return n
	}
	return process{
		pid: pid, parent: int(at(1)), group: int(at(2)),
		started: at(19), cpu: time.Duration(at(11)+at(12)) * tick,
	}, true
}

// memory is the proportional set size of a process: a page that n processes
// share counts 1/n. It is 0 for one that has ended.
func memory(pid int) unit.Bytes {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup") // ended: nothing
	_, after, _ := bytes.Cut(text, []byte("\nPss:"))
	fields := bytes.Fields(after)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseInt(string(fields[0]), 10, 64) // the kernel writes numbers
	return unit.Bytes(kib) * unit.KiB
}
