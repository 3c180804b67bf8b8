package gpu

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// plant makes a tree of files.
func plant(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		// As a whole: somebody may read it meanwhile.
		whole := filepath.Join(root, ".new")
		if err := os.WriteFile(whole, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(whole, file); err != nil {
			t.Fatal(err)
		}
	}
}

// shells are the POSIX shells to try the scripts with; the first is sh.
func shells(t *testing.T) []string {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil || runtime.GOOS == "windows" {
		t.Skip("no POSIX shell here")
	}
	out, known := []string(nil), map[string]bool{}
	for _, name := range []string{"sh", "dash", "bash", "busybox", "mksh"} {
		found, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if target, err := filepath.EvalSymlinks(found); err == nil && !known[target] {
			out, known[target] = append(out, name), true
		}
	}
	return out
}

// shellHost starts programs of this machine, with another sh.
type shellHost struct {
	Host

	shell string
}

func (h shellHost) Start(ctx context.Context, argv ...string) (io.ReadCloser, error) {
	if argv[0] == "sh" {
		argv = append([]string{h.shell}, argv[1:]...)
		if h.shell == "busybox" {
			argv = append([]string{"busybox", "sh"}, argv[1:]...)
		}
	}
	return h.Host.Start(ctx, argv...)
}

// snapshots follows a source for n snapshots.
func snapshots(t *testing.T, s Source, n int) ([]Snapshot, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []Snapshot
	err := s.Follow(ctx, 1e7, func(s Snapshot) {
		all = append(all, s)
		if len(all) == n {
			cancel()
		}
	})
	return all, err
}

func TestAMDFiles(t *testing.T) {
	root := t.TempDir()
	plant(t, root, map[string]string{
		"sys/class/drm/version":       "drm 1.1.0\n",
		"sys/class/drm/card0/dev":     "226:0\n", // a display of the mainboard
		"sys/devices/0000:46:00.0/up": "",
		"sys/devices/0000:0c:00.0/up": "",
	})
	card := func(pci string, files map[string]string) {
		plant(t, filepath.Join(root, "sys/devices", pci), files)
	}
	card("0000:46:00.0", map[string]string{
		"mem_info_vram_total": "206141652992\n", "mem_info_vram_used": "1000\n", "gpu_busy_percent": "97\n", "mem_busy_percent": "42\n",
		"unique_id": "3f2a\n", "product_name": "AMD Instinct MI300X\n",
		"hwmon/hwmon7/power1_input": "412000000\n", "hwmon/hwmon7/power1_cap": "750000000\n",
		"hwmon/hwmon7/temp1_label": "edge\n", "hwmon/hwmon7/temp1_input": "40000\n",
		"hwmon/hwmon7/temp2_label": "junction\n", "hwmon/hwmon7/temp2_input": "61000\n",
		"hwmon/hwmon7/freq1_label": "sclk\n", "hwmon/hwmon7/freq1_input": "2100000000\n",
		"hwmon/hwmon7/freq2_label": "mclk\n", "hwmon/hwmon7/freq2_input": "1300000000\n",
	})
	card("0000:0c:00.0", map[string]string{"mem_info_vram_total": "4096\n", "mem_info_vram_used": "2000\n"})
	for name, pci := range map[string]string{"card1": "0000:46:00.0", "card2": "0000:0c:00.0"} {
		folder := filepath.Join(root, "sys/class/drm", name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(root, "sys/devices", pci), filepath.Join(folder, "device")); err != nil {
			t.Skip(err)
		}
	}
	for _, shell := range shells(t) {
		all, err := snapshots(t, amdgpu{shellHost{Local(), shell}, root}, 3)
		if err != nil || len(all) != 3 {
			t.Fatalf("%s: %d snapshots, %v", shell, len(all), err)
		}
		r := all[2].Readings
		if len(r) != 2 || r[0].Index != 0 || r[1].Index != 1 {
			t.Fatalf("%s: %+v", shell, r)
		}
		if *r[0].MemoryUsed != 2000 || r[0].Power != nil || r[0].Temperature != nil || r[0].Utilization != nil || r[0].Clock != nil || r[0].UUID != "" || r[0].PowerLimit != nil {
			t.Errorf("%s: the device that comes first on the bus is %+v", shell, r[0])
		}
		if got := r[1]; *got.MemoryTotal != 206141652992 || *got.Utilization != 0.97 || *got.MemoryUtilization != 0.42 || *got.Power != 412 ||
			*got.PowerLimit != 750 || *got.Temperature != 61 || *got.Clock != 2.1e9 || *got.MemoryClock != 1.3e9 || got.UUID != "GPU-3f2a" || got.Name != "AMD Instinct MI300X" {
			t.Errorf("%s: the other is %+v", shell, got)
		}
	}
}

func TestAMDFallsBack(t *testing.T) {
	shells(t)
	folder := t.TempDir()
	metric, err := os.ReadFile("testdata/amd-smi-metric.synthetic.json")
	if err != nil {
		t.Fatal(err)
	}
	rocm, err := os.ReadFile("testdata/rocm-smi.synthetic.json")
	if err != nil {
		t.Fatal(err)
	}
	program := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", folder+string(os.PathListSeparator)+os.Getenv("PATH"))
	source := func() *firstOf {
		return &firstOf{sources: []Source{amdgpu{Local(), folder}, amdSMI(Local()), rocmSMI(Local())}}
	}

	s := source()
	if _, err := snapshots(t, s, 1); err == nil || !strings.Contains(err.Error(), "mem_info_vram_total") || !strings.Contains(err.Error(), "rocm-smi") {
		t.Errorf("error %v, want why each of them does not do", err)
	}
	program("rocm-smi", "cat <<'END'\n"+string(rocm)+"\nEND\n")
	s = source()
	if all, err := snapshots(t, s, 2); err != nil || len(all) != 2 || len(all[1].Readings) != 3 || s.Name() != "rocm-smi" {
		t.Errorf("%s: %+v, %v", s.Name(), all, err)
	}
	program("amd-smi", "case $1 in list) echo '[{\"gpu\": 0, \"uuid\": \"18ff74a1\"}, {\"gpu\": 1, \"uuid\": \"N/A\"}]' ;; *) cat <<'END'\n"+string(metric)+"\nEND\nesac\n")
	s = source()
	all, err := snapshots(t, s, 2)
	if err != nil || len(all) != 2 || s.Name() != "amd-smi" || all[0].Readings[0].UUID != "18ff74a1" || all[0].Readings[1].UUID != "" {
		t.Errorf("%s: %+v, %v", s.Name(), all, err)
	}
	// A program that answered before and then does not is given some more tries.
	program("amd-smi", "[ $1 = list ] && exit 1; [ -e '"+folder+"/used' ] && echo worn out >&2 && exit 4; touch '"+folder+"/used'; cat <<'END'\n"+string(metric)+"\nEND\n")
	if all, err := snapshots(t, source(), 2); err == nil || !strings.Contains(err.Error(), "worn out") || len(all) != 1 {
		t.Errorf("%d snapshots, %v", len(all), err)
	}
}

func FuzzRounds(f *testing.F) {
	f.Add("device card1 0000:46:00.0 206141652992 750000000 3f2a AMD Instinct\ncard1 1000 97 42 412000000 61000 2100000000 -\nend\n")
	f.Add("memory 1000 500 - - -\ncpu 1 2 3 4 5 6 7 8\nprocess 7 100 200\nend\ncpu 2 2 3 4 5 6 7 9\nend\n")
	f.Fuzz(func(t *testing.T, text string) {
		amd, proc := amdgpuRounds{}, procRounds{marked: true}
		for line := range strings.Lines(text) {
			readings, err := amd.line(line)
			for _, r := range readings {
				if err != nil || r.MemoryUsed != nil && *r.MemoryUsed < 0 {
					t.Fatalf("%+v, %v", r, err)
				}
			}
			r, done, err := proc.line(line)
			if done && (err != nil || *r.ProcessMemory < 0 || *r.ProcessPeak < *r.ProcessMemory || r.Utilization != nil && !(*r.Utilization >= 0 && *r.Utilization <= 1)) {
				t.Fatalf("%+v, %v", r, err)
			}
		}
	})
}

func FuzzNvidiaSide(f *testing.F) {
	for _, name := range []string{"nvidia-smi-list.synthetic.txt", "nvidia-smi-mig.synthetic.xml"} {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("gpu_uuid, pid, used_gpu_memory [MiB]\nGPU-a, 1, 3\nGPU-a, 2, [N/A]\n")
	f.Add(`[{"gpu": 0, "uuid": "18ff74a1"}]`)
	f.Fuzz(func(t *testing.T, text string) {
		if apps, err := parseNvidiaApps(strings.NewReader(text)); err == nil {
			for device, held := range apps {
				if held.count < 1 || held.bytes != nil && *held.bytes < 0 {
					t.Fatalf("%s: %+v", device, held)
				}
			}
		}
		listing, _ := parseNvidiaList(strings.NewReader(text))
		_, _ = listing.instances(strings.NewReader(text))
		_, _ = parseAMDList(strings.NewReader(text))
		var cycle nvidiaCycle
		cycle.take = func(s Snapshot) {
			if len(s.Readings) == 0 {
				t.Fatal("an empty snapshot")
			}
		}
		for line := range strings.Lines(text) {
			cycle.line(line, time.Now())
		}
		cycle.end()
	})
}
