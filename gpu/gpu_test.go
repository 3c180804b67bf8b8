package gpu_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/gpu"
)

func read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// say writes a reading with "-" for what is absent.
func say(r gpu.Reading) string {
	f := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprint(*v)
	}
	n := func(v *int64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprint(*v)
	}
	return fmt.Sprintf("%d %s %s|%s %s|%s %s|%s %s|%s %s|%s", r.Index, r.Name, r.Time, n(r.MemoryTotal), n(r.MemoryUsed),
		f(r.Utilization), f(r.MemoryUtilization), f(r.Power), f(r.PowerLimit), f(r.Clock), f(r.MemoryClock), f(r.Temperature))
}

func TestNvidiaSMI(t *testing.T) {
	plain, err := gpu.ParseNvidiaSMI(strings.NewReader(read(t, "nvidia-smi-nounits.synthetic.csv")))
	if err != nil || len(plain) != 12 {
		t.Fatal(len(plain), err)
	}
	if got, want := say(plain[0]), "0 Example GPU 80GB 2026/01/05 10:15:00.001|85520809984 77814824960|0.6 0.3|320 700|1.98e+09 2.619e+09|50"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	units, err := gpu.ParseNvidiaSMI(strings.NewReader(read(t, "nvidia-smi-units.synthetic.csv")))
	if err != nil || len(units) != len(plain) {
		t.Fatal(len(units), err)
	}
	absent := 0
	for i := range units {
		if units[i].Power == nil {
			absent++
		}
		if plain[i].Power != nil && units[i].Power != nil && say(units[i]) != say(plain[i]) {
			t.Errorf("with units %s, without %s", say(units[i]), say(plain[i]))
		}
	}
	other := "memory.used [MiB], new.column, index\n[N/A], x, 3\n12, y, 4\n1"
	got, err := gpu.ParseNvidiaSMI(strings.NewReader(other))
	if err != nil || len(got) != 2 || got[0].MemoryUsed != nil || *got[1].MemoryUsed != 12<<20 || got[1].Index != 4 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestROCmSMI(t *testing.T) {
	got, err := gpu.ParseROCmSMI(strings.NewReader(read(t, "rocm-smi.synthetic.json")))
	if err != nil || len(got) != 3 {
		t.Fatal(len(got), err)
	}
	for i, want := range []string{
		"0  |206141652992 185542377472|0.97 -|412 -|- -|61",
		"1  |206141652992 185542377472|0.96 -|405 -|- -|60",
		"2  |206141652992 33554432|0 -|- -|- -|-",
	} {
		if say(got[i]) != want {
			t.Errorf("card %d: got %s, want %s", i, say(got[i]), want)
		}
	}
}

func TestAMDSMI(t *testing.T) {
	text := read(t, "amd-smi-metric.synthetic.json")
	for _, form := range []string{text, `{"gpu_data": ` + text + `}`} {
		got, err := gpu.ParseAMDSMI(strings.NewReader(form))
		if err != nil || len(got) != 2 {
			t.Fatal(len(got), err)
		}
		for i, want := range []string{"0  |206141652992 185542377472|0.97 0.42|412 -|- -|61", "1  |- -|- -|- -|- -|-"} {
			if say(got[i]) != want {
				t.Errorf("device %d: got %s, want %s", i, say(got[i]), want)
			}
		}
	}
}

func TestBroken(t *testing.T) {
	for _, c := range []struct {
		parse      func(io.Reader) ([]gpu.Reading, error)
		text, want string
	}{
		{gpu.ParseNvidiaSMI, "", "header"},
		{gpu.ParseNvidiaSMI, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "names none of"},
		{gpu.ParseNvidiaSMI, "index, memory.total [MiB]\n0, much", "line 2: memory.total: want a number"},
		{gpu.ParseROCmSMI, "", "rocm-smi"},
		{gpu.ParseROCmSMI, `{"system": {}}`, "no card"},
		{gpu.ParseROCmSMI, `{"card0": {"GPU use (%)": "-5"}}`, "card0: GPU use (%): want a number"},
		{gpu.ParseAMDSMI, "[", "amd-smi"},
		{gpu.ParseAMDSMI, "{}", "no device"},
	} {
		if _, err := c.parse(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.text, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"nvidia-smi-nounits.synthetic.csv", "nvidia-smi-units.synthetic.csv", "rocm-smi.synthetic.json", "amd-smi-metric.synthetic.json"} {
		f.Add(read(f, name))
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(io.Reader) ([]gpu.Reading, error){gpu.ParseNvidiaSMI, gpu.ParseROCmSMI, gpu.ParseAMDSMI} {
			readings, err := parse(strings.NewReader(text))
			for _, r := range readings {
				if err == nil && r.MemoryTotal != nil && *r.MemoryTotal < 0 {
					t.Fatalf("%+v", r)
				}
			}
		}
	})
}

func ExampleParseNvidiaSMI() {
	readings, err := gpu.ParseNvidiaSMI(strings.NewReader("index, name, memory.used [MiB]\n0, NVIDIA H200, 1024 MiB\n"))
	fmt.Println(readings[0].Name, *readings[0].MemoryUsed, err)
	// Output: NVIDIA H200 1073741824 <nil>
}
