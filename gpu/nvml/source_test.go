//go:build nvml && linux

package nvml

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/gpu"
)

// fake compiles the imitation of the library.
func fake(t *testing.T, flags ...string) string {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler cc here, which the imitation of NVIDIA's library needs")
	}
	file := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	argv := append([]string{"-shared", "-fPIC", "-o", file, "testdata/fake.c"}, flags...)
	if out, err := exec.CommandContext(t.Context(), compiler, argv...).CombinedOutput(); err != nil {
		t.Fatalf("compile the imitation: %v\n%s", err, out)
	}
	return file
}

// say writes a reading with "-" for what is absent.
func say(r gpu.Reading) string {
	n := func(v *int64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprint(*v)
	}
	f := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprint(*v)
	}
	return strings.Join([]string{
		fmt.Sprint(r.Index), r.UUID, r.Parent, r.Name, n(r.MemoryTotal), n(r.MemoryUsed), n(r.ProcessMemory), fmt.Sprint(r.Processes),
		f(r.Utilization), f(r.MemoryUtilization), f(r.Power), f(r.PowerLimit), f(r.Temperature), f(r.Clock), f(r.MemoryClock),
	}, "|")
}

func TestSource(t *testing.T) {
	for _, c := range []struct {
		why   string
		flags []string
		want  []string
	}{
		{"a driver of today", nil, []string{
			"0|GPU-aaaa||NVIDIA H200|150754820096|100|500000000000|100|0.97|0.42|412.5|700|61|1.98e+09|2.619e+09",
			"1|GPU-bbbb||NVIDIA A100|75377410048|101|-|1|-|-|-|-|61|1.98e+09|2.619e+09",
			"1|MIG-1111|GPU-bbbb|NVIDIA A100 MIG 3g.20gb|37688705024|102|10000000000|2|-|-|-|-|-|-|-",
			"1|MIG-2222|GPU-bbbb|NVIDIA A100 MIG 2g.10gb|18844352512|103|15000000000|3|-|-|-|-|-|-|-",
		}},
		{"an old driver", []string{"-DOLD"}, []string{
			"0|GPU-aaaa||NVIDIA H200|150754820096|701|-|0|0.97|0.42|412.5|-|61|1.98e+09|2.619e+09",
			"1|GPU-bbbb||NVIDIA A100|75377410048|702|-|0|-|-|-|-|61|1.98e+09|2.619e+09",
		}},
		{"a card that has failed", []string{"-DLOST"}, []string{
			"1|GPU-bbbb||NVIDIA A100|75377410048|101|-|1|-|-|-|-|61|1.98e+09|2.619e+09",
			"1|MIG-1111|GPU-bbbb|NVIDIA A100 MIG 3g.20gb|37688705024|102|10000000000|2|-|-|-|-|-|-|-",
			"1|MIG-2222|GPU-bbbb|NVIDIA A100 MIG 2g.10gb|18844352512|103|15000000000|3|-|-|-|-|-|-|-",
		}},
	} {
		t.Run(c.why, func(t *testing.T) {
			l, err := load(fake(t, c.flags...))
			if err != nil {
				t.Fatal(err)
			}
			readings, err := (&source{l}).read()
			if err != nil || len(readings) != len(c.want) {
				t.Fatalf("%d readings, %v; want %d", len(readings), err, len(c.want))
			}
			for i, r := range readings {
				if say(r) != c.want[i] {
					t.Errorf("got  %s\nwant %s", say(r), c.want[i])
				}
			}
		})
	}
}

func TestFollow(t *testing.T) {
	source, err := open(fake(t))
	if err != nil {
		t.Fatal(err)
	}
	enough := make(chan struct{})
	count := 0
	recording := gpu.Record(t.Context(), source, gpu.RecordOptions{Every: 1e6, Each: func(gpu.Snapshot) {
		if count++; count == 20 {
			close(enough)
		}
	}})
	<-enough
	timeline, err := recording.Stop()
	if err != nil || timeline.Source != "nvml" || len(timeline.Devices) != 4 || len(timeline.Devices[0].Samples) < 20 {
		t.Errorf("%+v, %v", timeline, err)
	}
	if found := gpu.Try(t.Context(), source); !found.Usable || len(found.Devices) != 4 {
		t.Errorf("%+v", found)
	}
}

func TestNone(t *testing.T) {
	for _, c := range []struct{ why, file, want string }{
		{"no library", "libnvidia-ml-that-is-nowhere.so.1", "load libnvidia-ml-that-is-nowhere.so.1"},
		{"another library", "libc.so.6", "has no nvmlInit_v2"},
		{"no driver", fake(t, "-DBROKEN"), "Driver Not Loaded (status 9)"},
	} {
		if source, err := open(c.file); source != nil || !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v; want %q", c.why, source, err, c.want)
		}
	}
}
