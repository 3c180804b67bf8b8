package gpu

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

const testMark = "LLMPROF_RUN=a1b2"

// process is a made-up process below a root.
func process(t *testing.T, root string, pid, parent int, environ string, resident, peak int) {
	t.Helper()
	status := fmt.Sprintf("Name:\tpython (x) y\nPid:\t%d\nPPid:\t%d\nVmPeak:\t  999999 kB\n", pid, parent)
	if peak > 0 {
		status += fmt.Sprintf("VmHWM:\t%8d kB\nVmRSS:\t%8d kB\nRssAnon:\t      5 kB\n", peak, resident)
	}
	plant(t, root, map[string]string{
		fmt.Sprintf("proc/%d/environ", pid): environ,
		fmt.Sprintf("proc/%d/status", pid):  status,
	})
}

// host is a made-up host with processes.
func host(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	plant(t, root, map[string]string{
		"proc/meminfo":     "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:   12000000 kB\nBuffers: 3 kB\n",
		"proc/stat":        "cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 100 0 50 800 50 0 0 0 0 0\n",
		"proc/self/cgroup": "1:name=systemd:/other\n0::/user/one\n",
		"proc/version":     "Linux\n",
	})
	process(t, root, 1, 0, "HOME=/\x00", 10, 10)
	process(t, root, 300, 1, "A=b\x00"+testMark+"\x00C=d\x00", 1000, 1500)
	process(t, root, 20, 300, "\x00\x00\x00", 2000, 2000)  // has overwritten its environment with a title
	process(t, root, 4000, 20, "HOME=/x\x00", 400, 500)    // its child
	process(t, root, 4001, 300, testMark+"\x00", 0, 0)     // a zombie
	process(t, root, 500, 1, "A=b\x00"+testMark+"7", 7, 7) // another mark
	return root
}

// ways are the sources that read root: directly, and through a shell.
func ways(t *testing.T, root, mark string) map[string]Source {
	t.Helper()
	out := map[string]Source{"here": procHere{root, mark}}
	for _, shell := range shells(t) {
		out[shell] = procThere{host: shellHost{Local(), shell}, root: root, mark: mark}
	}
	return out
}

func TestProcesses(t *testing.T) {
	root := host(t)
	for way, source := range ways(t, root, testMark) {
		all, err := snapshots(t, source, 8)
		if err != nil || len(all) != 8 {
			t.Fatalf("%s: %d snapshots, %v", way, len(all), err)
		}
		r := all[7].Readings[0]
		if *r.MemoryTotal != 16000000<<10 || *r.MemoryUsed != 4000000<<10 || r.Name != "host memory" {
			t.Errorf("%s: the host is %+v", way, r)
		}
		// grep also takes an entry that the mark is the beginning of.
		want, peak, count := int64(3400), int64(4000), 3
		if way != "here" {
			want, peak, count = want+7, peak+7, count+1
		}
		if *r.ProcessMemory != want<<10 || *r.ProcessPeak != peak<<10 || r.Processes != count {
			t.Errorf("%s: processes hold %d KiB, at most %d KiB, and are %d; want %d, %d, %d",
				way, *r.ProcessMemory>>10, *r.ProcessPeak>>10, r.Processes, want, peak, count)
		}
		if r.Utilization != nil {
			t.Errorf("%s: utilisation %g of no time", way, *r.Utilization)
		}
	}
}

func TestProcessesComeAndGo(t *testing.T) {
	for way := range ways(t, host(t), testMark) {
		root := host(t)
		source := ways(t, root, testMark)[way]
		ctx, cancel := context.WithCancel(t.Context())
		var busy []string
		steps := []struct {
			why    string
			want   int // processes
			change func()
		}{
			{"at first", 3, func() {
				process(t, root, 6000, 4000, "", 600, 600) // a grandchild
				process(t, root, 6001, 1, "HOME=/\x00", 600, 600)
				plant(t, root, map[string]string{"proc/stat": "cpu  130 0 50 860 60 0 0 0 0 0\n"})
			}},
			{"with a grandchild", 4, func() { process(t, root, 6001, 1, testMark+"\x00", 600, 600) }}, // gets its own environment late
			{"with one that got the mark late", 5, func() { os.RemoveAll(filepath.Join(root, "proc/300")) }},
			{"after one has ended; its children stay", 4, cancel},
		}
		// What is read may be older than the last change: each has to be seen some
		// time, and to stay.
		step, reads, last, offset := 0, 0, 0, 0
		err := source.Follow(ctx, 1e7, func(s Snapshot) {
			r := s.Readings[0]
			if r.Utilization != nil {
				busy = append(busy, fmt.Sprint(*r.Utilization))
			}
			if last = r.Processes; step == 0 {
				offset = last - 3 // what grep takes in addition
			}
			reads++
			if step == len(steps) || last-offset != steps[step].want {
				if reads > 30_000 {
					cancel()
				}
				return
			}
			if reads > 9 {
				steps[step].change()
				step, reads = step+1, 0
			}
		})
		if err != nil {
			t.Fatal(way, err)
		}
		if step < len(steps) {
			t.Errorf("%s: %d processes %s, want %d", way, last-offset, steps[step].why, steps[step].want)
		}
		if len(busy) != 1 || busy[0] != "0.3" {
			t.Errorf("%s: utilisation %v, want one of 0.3", way, busy)
		}
	}
}

func TestHostAlone(t *testing.T) {
	root := host(t)
	for way, source := range ways(t, root, "") {
		all, err := snapshots(t, source, 1)
		if err != nil {
			t.Fatal(way, err)
		}
		if r := all[0].Readings[0]; r.ProcessMemory != nil || r.ProcessPeak != nil || r.Processes != 0 || *r.MemoryUsed != 4000000<<10 {
			t.Errorf("%s: %+v", way, r)
		}
	}
}

func TestCgroupLimit(t *testing.T) {
	for _, c := range []struct {
		why         string
		files       map[string]string
		total, used int64
	}{
		{"no limit anywhere", map[string]string{"user/one/memory.max": "max\n", "user/memory.max": "max\n"}, 16000000 << 10, 4000000 << 10},
		{"its own limit; file contents that can be dropped do not count", map[string]string{
			"user/one/memory.max": "8000000000\n", "user/one/memory.current": "5000000000\n", "user/one/memory.stat": "anon 1\ninactive_file 1500000000\nactive_file 7\n",
		}, 8000000000, 3500000000},
		{"the lower limit is its parent's", map[string]string{
			"user/one/memory.max": "8000000000\n", "user/memory.max": "6000000000\n", "user/memory.current": "100\n",
		}, 6000000000, 100},
		{"the root of a container", map[string]string{"memory.max": "4000000000\n", "memory.current": "300\n", "memory.stat": "inactive_file 500\n"}, 4000000000, 0},
		{"a limit above what the host has", map[string]string{"memory.max": "99000000000000\n", "memory.current": "300\n"}, 16000000 << 10, 4000000 << 10},
	} {
		root := host(t)
		plant(t, filepath.Join(root, "sys/fs/cgroup"), c.files)
		for way, source := range ways(t, root, "") {
			all, err := snapshots(t, source, 1)
			if err != nil {
				t.Fatal(way, err)
			}
			if r := all[0].Readings[0]; r.MemoryUsed == nil || *r.MemoryTotal != c.total || *r.MemoryUsed != c.used {
				t.Errorf("%s, %s: total %d, used %v; want %d, %d", c.why, way, *r.MemoryTotal, r.MemoryUsed, c.total, c.used)
			}
		}
	}
}

func TestNoProcesses(t *testing.T) {
	for way, source := range ways(t, t.TempDir(), testMark) {
		if _, err := snapshots(t, source, 1); err == nil || !strings.Contains(err.Error(), "no sampler here") || !strings.Contains(err.Error(), "meminfo") {
			t.Errorf("%s: error %v, want what cannot be read", way, err)
		}
	}
	for _, mark := range []string{"LLMPROF_RUN", "=7", "A=b\nc", "A=b\x00"} {
		for way, source := range ways(t, host(t), mark) {
			if _, err := snapshots(t, source, 1); err == nil || !strings.Contains(err.Error(), "NAME=value") {
				t.Errorf("%s: error %v for the mark %q", way, err, mark)
			}
		}
	}
}

// TestHungryChild is the child of TestRealProcess: it takes memory in steps, by
// one for every line that it is told.
func TestHungryChild(t *testing.T) {
	if os.Getenv("LLMPROF_HUNGRY") == "" {
		t.Skip("started by TestRealProcess")
	}
	var held [][]byte
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		mib, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		piece := make([]byte, mib<<20)
		for i := range piece {
			piece[i] = byte(i) | 1
		}
		held = append(held, piece)
		fmt.Println("took")
	}
	runtime.KeepAlive(held)
}

func TestRealProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has /proc")
	}
	mark := fmt.Sprintf("LLMPROF_TEST_RUN=%d", os.Getpid())
	// A shell between, so that the mark is inherited.
	child := exec.CommandContext(t.Context(), "sh", "-c", `"$0" -test.run '^TestHungryChild$'; :`, os.Args[0])
	child.Env = append(os.Environ(), mark, "LLMPROF_HUNGRY=1")
	say, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	hear, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer say.Close()
	answers := bufio.NewScanner(hear)
	recordings := map[string]*Recording{}
	for way, source := range map[string]Source{"here": Processes(Local(), mark), "there": procThere{host: Local(), mark: mark}} {
		recordings[way] = Record(t.Context(), source, RecordOptions{Every: 2e7})
	}
	wait := func(way string, good func(Reading) bool) Reading {
		t.Helper()
		if _, err := recordings[way].First(t.Context()); err != nil {
			t.Fatal(way, err)
		}
		for range 60_000 { // five minutes
			if s, ok := recordings[way].Latest(); ok && good(s.Readings[0]) {
				return s.Readings[0]
			}
			pause(t)
		}
		s, _ := recordings[way].Latest()
		t.Fatalf("%s: never as it should be: %+v", way, s.Readings[0])
		return Reading{}
	}
	for way := range recordings {
		wait(way, func(r Reading) bool { return r.Processes == 2 })
	}
	held := map[string]int64{}
	for _, mib := range []int{16, 64} {
		for way := range recordings {
			held[way] = *wait(way, func(Reading) bool { return true }).ProcessMemory
		}
		fmt.Fprintln(say, mib)
		for answers.Scan() && answers.Text() != "took" {
		}
		for way := range recordings {
			r := wait(way, func(r Reading) bool { return *r.ProcessMemory >= held[way]+int64(mib)<<20-4<<20 })
			if *r.ProcessPeak < *r.ProcessMemory {
				t.Errorf("%s: at most %d bytes, but %d now", way, *r.ProcessPeak, *r.ProcessMemory)
			}
		}
	}
	say.Close()
	for way, recording := range recordings {
		wait(way, func(r Reading) bool { return r.Processes == 0 && *r.ProcessMemory == 0 })
		timeline, err := recording.Stop()
		if err != nil {
			t.Fatal(way, err)
		}
		device := timeline.Devices[0]
		top, ok := device.MaxProcess(0, device.Last)
		if !ok || *top.Process < 76<<20 || *top.Process > 300<<20 {
			t.Errorf("%s: the child held %v bytes at most, want 80 MiB and a little", way, top.Process)
		}
		t.Logf("%s: peak %d MiB in %d samples", way, *top.Process>>20, len(device.Samples))
	}
}

// pause is the length of a step of a recording, 5 ms.
func pause(t *testing.T) {
	t.Helper()
	source, err := Replay(strings.NewReader(`{"at_s": 0.005}` + "\n"))
	if err == nil {
		err = source.Follow(t.Context(), 0, func(Snapshot) {})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// BenchmarkRound reads this machine's /proc once.
func BenchmarkRound(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("only Linux has /proc")
	}
	watch := procWatch{procHere: procHere{"/", testMark}, rescan: 5}
	for b.Loop() {
		if _, err := watch.round(); err != nil {
			b.Fatal(err)
		}
	}
}
