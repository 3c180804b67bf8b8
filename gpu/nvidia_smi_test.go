package gpu_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/gpu"
)

// nvidiaHead is the header that nvidia-smi prints for NvidiaQuery.
const nvidiaHead = "timestamp, index, uuid, name, power.draw [W], power.limit [W], clocks.current.sm [MHz], clocks.current.memory [MHz], " +
	"temperature.gpu, utilization.gpu [%], utilization.memory [%], memory.total [MiB], memory.used [MiB]"

// fakeNvidia is an nvidia-smi: what it prints for a stream of the devices, for
// the processes and for MIG.
func fakeNvidia(stream, processes, list, log string) map[string]string {
	quote := func(text string) string { return "cat <<'END'\n" + text + "\nEND\n" }
	return map[string]string{"nvidia-smi": `case "$*" in
*--query-gpu=*-lms*) ` + stream + ` ;;
*--query-compute-apps=*) ` + quote(processes) + ` ;;
-L) ` + quote(list) + ` ;;
"-q -x") ` + quote(log) + ` ;;
*) echo "unknown: $*" >&2; exit 2 ;;
esac
`}
}

const noProcesses = "gpu_uuid, pid, used_gpu_memory [MiB]"

func TestNvidiaStream(t *testing.T) {
	stream := `echo 'WARNING: infoROM is corrupted at gpu 0'
echo '` + nvidiaHead + `'
i=0
while [ $i -lt 4 ]; do
	echo "2026/01/05 10:15:00.${i}01, 0, GPU-a, NVIDIA H200, 101.5, 700.00, 1980, 2619, 41, 7, 3, 143771, $((1000 + i))"
	echo 'Unable to determine the device handle for gpu 0000:3B:00.0: Unknown Error'
	echo "2026/01/05 10:15:00.${i}02, 1, GPU-b, NVIDIA H200, [N/A], [Not Supported], 1980, 2619, rubbish, 7, 3, 143771, 5"
	echo "2026/01/05 10:15:00.${i}03, 1, GPU-b, NVIDIA H200, [N/A], [Not Supported], 1980, 2619, N/A, 7, 3, 143771, $((2000 + i))"
	i=$((i + 1))
done
echo '2026/01/05 10:15:00.901, 0, GPU-a, NVIDIA H200, 101.5, 700.00, 1980, 2619, 41, 7, 3, 143771, 1004'
printf '2026/01/05 10:15:00.902, 1, GPU-b, NVIDIA H200, 101.5, 700.00, 1980, 2619, 41, 7, 3, 143771, 20'
echo 'driver went away' >&2; exit 3`
	programs(t, fakeNvidia(stream, noProcesses, "GPU 0: NVIDIA H200 (UUID: GPU-a)", ""))
	all, err := collect(t, gpu.NvidiaSMI(gpu.Local()), 100)
	if err == nil || !strings.Contains(err.Error(), "driver went away") {
		t.Errorf("error %v, want why the program ended", err)
	}
	if len(all) != 4 {
		t.Fatalf("%d snapshots, want 4: the half round at the end is none", len(all))
	}
	for i, s := range all {
		if len(s.Readings) != 2 || s.Readings[0].UUID != "GPU-a" || s.Readings[1].UUID != "GPU-b" {
			t.Fatalf("snapshot %d: %+v", i, s.Readings)
		}
		a, b := s.Readings[0], s.Readings[1]
		if *a.MemoryUsed != int64(1000+i)<<20 || *a.MemoryTotal != 143771<<20 || *a.Power != 101.5 || *b.MemoryUsed != int64(2000+i)<<20 {
			t.Errorf("snapshot %d: %+v", i, s.Readings)
		}
		if b.Power != nil || b.PowerLimit != nil || b.Temperature != nil {
			t.Errorf("snapshot %d: what is not available is %+v", i, b)
		}
		if a.ProcessMemory != nil {
			t.Errorf("snapshot %d: processes hold %d bytes, though none was ever listed", i, *a.ProcessMemory)
		}
		if i > 0 && s.Time.Before(all[i-1].Time) {
			t.Errorf("snapshot %d was taken before the one before it", i)
		}
	}
}

func TestNvidiaTrouble(t *testing.T) {
	for _, c := range []struct{ why, stream, want string }{
		{"the driver is not loaded", `echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."; exit 9`, "couldn't communicate"},
		{"there is no device", `echo 'No devices were found'`, "lists no device; it says \"No devices were found\""},
		{"an old program does not know a field", `echo 'Field "clocks.sm" is not a valid field to query.'; exit 2`, "not a valid field"},
		{"nothing at all", `true`, "lists no device"},
		{"only a header", `echo '` + nvidiaHead + `'`, "lists no device"},
		{"it ends although it should not", `echo '` + nvidiaHead + `'; echo '2026/01/05 10:15:00.001, 0, GPU-a, H200, 1, 1, 1, 1, 1, 1, 1, 1, 1'`, "ended by itself"},
	} {
		t.Run(c.why, func(t *testing.T) {
			programs(t, fakeNvidia(c.stream, noProcesses, "", ""))
			if _, err := collect(t, gpu.NvidiaSMI(gpu.Local()), 100); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	t.Run("there is no such program", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		if _, err := collect(t, gpu.NvidiaSMI(gpu.Local()), 1); !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("error %v, want exec.ErrNotFound", err)
		}
	})
}

// forever is a stream of two cards.
const forever = `echo '` + nvidiaHead + `'
while echo '2026/01/05 10:15:00.001, 0, GPU-a, A100, 1, 1, 1, 1, 1, 1, 1, 40960, 1' &&
	echo '2026/01/05 10:15:00.001, 1, GPU-b, A100, 1, 1, 1, 1, 1, 1, 1, 40960, 1'; do sleep 0.01; done`

// until follows a source until a snapshot is as it should be.
func until(t *testing.T, source gpu.Source, good func(gpu.Snapshot) bool) {
	t.Helper()
	recording := gpu.Record(t.Context(), source, gpu.RecordOptions{Every: 1e7})
	defer recording.Stop()
	if _, err := recording.First(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 30_000 { // five minutes
		s, ok := recording.Latest()
		if ok && good(s) {
			return
		}
		if _, err := collect(t, mustReplay(t, `{"at_s": 0.01}`), 1); err != nil { // a pause of 10 ms
			t.Fatal(err)
		}
	}
	s, _ := recording.Latest()
	t.Fatalf("never as it should be: %+v", s.Readings)
}

func mustReplay(t *testing.T, text string) *gpu.Recorded {
	t.Helper()
	source, err := gpu.Replay(strings.NewReader(text + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func TestNvidiaProcesses(t *testing.T) {
	programs(t, fakeNvidia(forever, noProcesses+"\nGPU-a, 11, 300\nGPU-a, 12, 200\nrubbish\nGPU-a, 13, x", "", ""))
	until(t, gpu.NvidiaSMI(gpu.Local()), func(s gpu.Snapshot) bool {
		a, b := s.Readings[0], s.Readings[1]
		return a.ProcessMemory != nil && *a.ProcessMemory == 500<<20 && a.Processes == 2 && b.ProcessMemory != nil && *b.ProcessMemory == 0
	})
	programs(t, fakeNvidia(forever, noProcesses+"\nGPU-a, 11, 300\nGPU-a, 12, [N/A]\nGPU-a, 13, 4", "", ""))
	until(t, gpu.NvidiaSMI(gpu.Local()), func(s gpu.Snapshot) bool {
		return s.Readings[0].Processes == 3 && s.Readings[0].ProcessMemory == nil
	})
}

func TestNvidiaInstances(t *testing.T) {
	programs(t, fakeNvidia(forever, noProcesses, read(t, "nvidia-smi-list.synthetic.txt"), read(t, "nvidia-smi-mig.synthetic.xml")))
	until(t, gpu.NvidiaSMI(gpu.Local()), func(s gpu.Snapshot) bool { return len(s.Readings) == 4 })
	all, err := collect(t, gpu.NvidiaSMI(gpu.Local()), 1)
	if err != nil || len(all[0].Readings) < 3 {
		t.Fatalf("%+v, %v: want the instances in the first snapshot", all, err)
	}
	last := all[0].Readings[len(all[0].Readings)-1]
	if last.UUID != "MIG-2222" || last.Parent != "GPU-b" || last.Index != 1 || *last.MemoryTotal != 9856<<20 || *last.MemoryUsed != 2048<<20 || last.Name != "NVIDIA A100-SXM4-40GB MIG 2g.10gb" {
		t.Errorf("the second instance is %+v", last)
	}
}
