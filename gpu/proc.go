package gpu

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Processes reads the memory of a Linux host as if it were a device, and of it
// what the processes hold that carry a mark, "NAME=value", in their
// environment; for engines on a CPU, which have no device to ask. With an empty
// mark it reads the host alone.
//
// MemoryTotal is what the host has, or the limit of this program's cgroup
// (version 2) where that is lower; MemoryUsed is what is not available of it:
// file contents that could be dropped do not count. Utilization is the share of
// the processors' time since the snapshot before.
//
// ProcessMemory is the sum of the resident memory (VmRSS) of the marked
// processes and of what they have started, also where that has lost the mark,
// as a program does that changes its title. Pages that several of them use,
// such as libraries, shared memory and a mapped model file, count once for
// each; pages that are swapped out do not count. (The proportional size of
// smaps_rollup would count shared pages once, but reading it walks all pages
// and holds the process up meanwhile.) ProcessPeak is the sum of
// their high-water marks (VmHWM), which also sees what comes and goes between
// two snapshots; a process that has ended is no longer in it.
//
// A new process is noticed within half a second or five intervals, whichever
// is longer. One whose environment may not be read, being another user's, is
// followed only if its parent is. On this machine the mark must be a whole
// entry of the environment; on others, where grep looks for it, it may also be
// a part of one, so it should be unique.
func Processes(h Host, mark string) Source {
	if _, ok := h.(local); ok {
		return procHere{root: "/", mark: mark}
	}
	return procThere{host: h, mark: mark}
}

// checkMark refuses what cannot be an entry of an environment.
func checkMark(mark string) error {
	name, _, ok := strings.Cut(mark, "=")
	if mark != "" && (!ok || name == "" || strings.ContainsAny(mark, "\x00\n")) {
		return fmt.Errorf("proc: the mark %q of processes is not of the form NAME=value", mark)
	}
	return nil
}

// procScript reads /proc on a host, with nothing but a POSIX shell, sleep and
// grep.
//
//go:embed proc.sh
var procScript string

// procThere reads /proc of another host, below root.
type procThere struct {
	host       Host
	root, mark string
}

// Name is the file system.
func (procThere) Name() string { return "proc" }

// lookAfter is how long a new process may go unnoticed.
const lookAfter = 500 * time.Millisecond

// Follow reads the script's lines as they come.
func (s procThere) Follow(ctx context.Context, every time.Duration, take func(Snapshot)) error {
	if err := checkMark(s.mark); err != nil {
		return err
	}
	every = interval(every)
	rounds := procRounds{marked: s.mark != ""}
	err := eachScriptLine(ctx, s.host, func(line string) error {
		reading, done, err := rounds.line(line)
		if done {
			take(Snapshot{Time: time.Now(), Readings: []Reading{reading}})
		}
		return err
	}, "proc", procScript, s.root, s.mark, hundredths(every), strconv.Itoa(rescan(every)))
	return ended(ctx, s.Name(), err)
}

// rescan is in every how many rounds one looks for new processes.
func rescan(every time.Duration) int { return min(5, int(lookAfter/every)+1) }

// procRounds reads the lines of proc.sh, and makes readings of them.
type procRounds struct {
	marked     bool
	open       procRound
	busy, idle int64 // of the round before, in ticks
}

// procRound is what is read in one round. What is not known is nil.
type procRound struct {
	total, available         *int64   // of the host
	limit, current, inactive *int64   // of the cgroup
	cpu                      []string // /proc/stat's first line
	processes                []procSize
}

// procSize is the memory of a process in bytes.
type procSize struct{ resident, peak *int64 }

// maxProcesses bounds the followed processes.
const maxProcesses = 1 << 16

// line takes a line; done is true where a round is complete.
func (p *procRounds) line(text string) (reading Reading, done bool, err error) {
	words := strings.Fields(text)
	switch {
	case len(words) == 0:
	case words[0] == "none":
		return reading, false, fmt.Errorf("no sampler here: %s cannot be read", strings.Join(words[1:], " "))
	case words[0] == "memory" && len(words) == 6:
		p.open.total, p.open.available = kibibytes(words[1]), kibibytes(words[2])
		p.open.limit, p.open.current, p.open.inactive = counted(words[3]), counted(words[4]), counted(words[5])
	case words[0] == "cpu":
		p.open.cpu = words
	case words[0] == "process" && len(words) == 4 && len(p.open.processes) < maxProcesses:
		p.open.processes = append(p.open.processes, procSize{kibibytes(words[2]), kibibytes(words[3])})
	case words[0] == "end":
		reading, done = p.reading(p.open), true
		p.open = procRound{}
	}
	return reading, done, nil
}

// kibibytes reads a count of KiB as bytes, nil for what is none.
func kibibytes(word string) *int64 {
	v := counted(word)
	if v == nil || *v > maxCount>>10 {
		return nil
	}
	b := *v << 10
	return &b
}

// reading makes a reading of a round.
func (p *procRounds) reading(r procRound) Reading {
	out := Reading{Name: "host memory", MemoryTotal: r.total}
	if r.total != nil && r.available != nil {
		used := max(0, *r.total-*r.available)
		out.MemoryUsed = &used
	}
	if r.limit != nil && (r.total == nil || *r.limit < *r.total) {
		out.MemoryTotal, out.MemoryUsed = r.limit, nil
		if r.current != nil {
			used := *r.current
			if r.inactive != nil {
				used = max(0, used-*r.inactive)
			}
			out.MemoryUsed = &used
		}
	}
	out.Utilization = p.utilization(r.cpu)
	if !p.marked {
		return out
	}
	var resident, peak int64
	for _, size := range r.processes {
		if size.resident == nil {
			continue
		}
		out.Processes++
		resident += *size.resident
		if size.peak != nil {
			peak += max(*size.peak, *size.resident)
		} else {
			peak += *size.resident
		}
	}
	out.ProcessMemory, out.ProcessPeak = &resident, &peak
	return out
}

// utilization is the share of the processors' time that was spent since the
// round before, 0..1.
func (p *procRounds) utilization(cpu []string) *float64 {
	var ticks [8]int64 // user nice system idle iowait irq softirq steal
	if len(cpu) < 5 || cpu[0] != "cpu" {
		return nil
	}
	for i, word := range cpu[1:min(len(cpu), 9)] {
		v := counted(word)
		if v == nil {
			return nil
		}
		ticks[i] = *v
	}
	idle := ticks[3] + ticks[4]
	var busy int64
	for i, v := range ticks {
		if i != 3 && i != 4 {
			busy += v
		}
	}
	before := *p
	p.busy, p.idle = busy, idle
	more, rest := busy-before.busy, max(0, idle-before.idle)
	if before.busy+before.idle == 0 || more < 0 || more+rest == 0 {
		return nil
	}
	share := float64(more) / float64(more+rest)
	return &share
}
