package gpu

import (
	stdbytes "bytes"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// procHere reads /proc of this machine, below root.
type procHere struct{ root, mark string }

// Name is the file system.
func (procHere) Name() string { return "proc" }

// Follow reads the files at every interval.
func (s procHere) Follow(ctx context.Context, every time.Duration, take func(Snapshot)) error {
	if err := checkMark(s.mark); err != nil {
		return err
	}
	watch := procWatch{procHere: s, rescan: rescan(interval(every))}
	watch.group, watch.limit = s.lowestLimit()
	rounds := procRounds{marked: s.mark != ""}
	return tick(ctx, every, func() error {
		round, err := watch.round()
		if err != nil {
			return fmt.Errorf("proc: no sampler here: %w", err)
		}
		take(Snapshot{Time: time.Now(), Readings: []Reading{rounds.reading(round)}})
		return nil
	})
}

// lowestLimit is the folder of the cgroup with the lowest limit of those that
// this program is in, and the limit in bytes; nil where there is none.
func (s procHere) lowestLimit() (group string, limit *int64) {
	text, err := os.ReadFile(filepath.Join(s.root, "proc", "self", "cgroup"))
	if err != nil {
		return "", nil
	}
	own := "/"
	for line := range strings.Lines(string(text)) {
		if found, ok := strings.CutPrefix(line, "0::"); ok {
			own = path.Clean("/" + strings.TrimSpace(found))
		}
	}
	for ; ; own = path.Dir(own) {
		folder := filepath.Join(s.root, "sys", "fs", "cgroup", own)
		if v := countIn(folder, "memory.max"); v != nil && (limit == nil || *v < *limit) {
			group, limit = folder, v
		}
		if own == "/" {
			return group, limit
		}
	}
}

// countIn reads a file that holds one count, nil where it does not.
func countIn(folder, name string) *int64 {
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		return nil
	}
	return counted(strings.TrimSpace(string(text)))
}

// fieldsOf finds lines "key value …" or "key: value …" in a file and returns
// their values, empty for what is not there.
func fieldsOf(file string, keys ...string) (values []string, err error) {
	text, err := os.ReadFile(file)
	values = make([]string, len(keys))
	for line := range strings.Lines(string(text)) {
		for i, key := range keys {
			if rest, ok := strings.CutPrefix(line, key); ok && values[i] == "" {
				if words := strings.Fields(strings.TrimPrefix(rest, ":")); len(words) > 0 && rest != strings.TrimLeft(rest, ": \t") {
					values[i] = words[0]
				}
			}
		}
	}
	return values, err
}

// procWatch remembers which processes are followed.
type procWatch struct {
	procHere

	group  string
	limit  *int64
	rescan int
	rounds int
	known  map[int]bool // the processes there are; true: followed
}

// round reads everything once.
func (w *procWatch) round() (procRound, error) {
	proc := filepath.Join(w.root, "proc")
	memory, err := fieldsOf(filepath.Join(proc, "meminfo"), "MemTotal", "MemAvailable")
	if err != nil {
		return procRound{}, err
	}
	r := procRound{total: kibibytes(memory[0]), available: kibibytes(memory[1])}
	if w.limit != nil {
		r.limit, r.current = w.limit, countIn(w.group, "memory.current")
		if inactive, err := fieldsOf(filepath.Join(w.group, "memory.stat"), "inactive_file"); err == nil {
			r.inactive = counted(inactive[0])
		}
	}
	if text, err := os.ReadFile(filepath.Join(proc, "stat")); err == nil {
		line, _, _ := strings.Cut(string(text), "\n")
		r.cpu = strings.Fields(line)
	}
	if w.mark == "" {
		return r, nil
	}
	w.look(proc, w.rounds%w.rescan == 0)
	w.rounds++
	for pid, followed := range w.known {
		if followed {
			sizes, _ := fieldsOf(statusOf(proc, pid), "VmRSS", "VmHWM") // it may just have ended
			r.processes = append(r.processes, procSize{kibibytes(sizes[0]), kibibytes(sizes[1])})
		}
	}
	return r, nil
}

func statusOf(proc string, pid int) string {
	return filepath.Join(proc, strconv.Itoa(pid), "status")
}

// look finds out which processes there are and which of the new ones are to be
// followed; at times also which of the old ones, since a program gets its own
// environment a moment after its process was made.
func (w *procWatch) look(proc string, all bool) {
	folder, err := os.Open(proc)
	if err != nil {
		return
	}
	names, _ := folder.Readdirnames(-1) // what was listed before a fault counts
	_ = folder.Close()
	now := make(map[int]bool, len(names))
	parents := make(map[int]int) // of those that may yet be followed
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid <= 0 {
			continue
		}
		followed, old := w.known[pid]
		if !followed && (all || !old) {
			if followed = w.marked(proc, pid); !followed {
				status, _ := fieldsOf(statusOf(proc, pid), "PPid") // gone or unreadable: no parent
				parents[pid], _ = strconv.Atoi(status[0])
			}
		}
		now[pid] = followed
	}
	for more := true; more; {
		more = false
		for pid, parent := range parents {
			if now[parent] {
				now[pid], more = true, true
				delete(parents, pid)
			}
		}
	}
	w.known = now
}

// marked says whether the environment of a process holds the mark.
func (w *procWatch) marked(proc string, pid int) bool {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "environ"))
	if err != nil {
		return false // another user's, or gone
	}
	mark := []byte(w.mark)
	for entry := range stdbytes.SplitSeq(text, []byte{0}) {
		if stdbytes.Equal(entry, mark) {
			return true
		}
	}
	return false
}
