package unit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/unit"
)

func TestParseCount(t *testing.T) {
	for _, c := range []struct {
		why, text string
		want      int
		fault     string
	}{
		{why: "plain", text: "4096", want: 4096},
		{why: "k is a thousand", text: "4k", want: 4000},
		{why: "Ki is 1024", text: "4Ki", want: 4096},
		{why: "fractions of a thousand", text: "1.5k", want: 1500},
		{why: "spaces around", text: " 8 ", want: 8},
		{why: "zero", text: "0", want: 0},
		{why: "negative", text: "-3", fault: "negative"},
		{why: "not whole", text: "1.5", fault: "not a whole number"},
		{why: "too large", text: "1e30", fault: "too large"},
		{why: "no number", text: "many", fault: "not a count"},
		{why: "not a number", text: "NaN", fault: "not a count"},
		{why: "infinite", text: "inf", fault: "not a count"},
		{why: "empty", text: "", fault: "not a count"},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, err := unit.ParseCount(c.text)
			checkParsed(t, got, c.want, err, c.fault)
		})
	}
}

func TestParseBytes(t *testing.T) {
	for _, c := range []struct {
		why, text string
		want      unit.Bytes
		fault     string
	}{
		{why: "binary", text: "80GiB", want: 80 << 30},
		{why: "decimal", text: "1.5GB", want: 1_500_000_000},
		{why: "space before the unit", text: "512 MiB", want: 512 << 20},
		{why: "bytes", text: "1024B", want: 1024},
		{why: "a bare number could be GB or GiB", text: "80", fault: "not a memory size"},
		{why: "negative", text: "-1GiB", fault: "not a memory size"},
		{why: "too large", text: "1e30TiB", fault: "not a memory size"},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, err := unit.ParseBytes(c.text)
			checkParsed(t, got, c.want, err, c.fault)
		})
	}
}

func checkParsed[T comparable](t *testing.T, got, want T, err error, fault string) {
	t.Helper()
	switch {
	case fault == "" && err != nil:
		t.Error(err)
	case fault == "" && got != want:
		t.Errorf("got %v, want %v", got, want)
	case fault != "" && (err == nil || !strings.Contains(err.Error(), fault)):
		t.Errorf("got %v and error %v, want an error with %q", got, err, fault)
	}
}

func TestPrinting(t *testing.T) {
	for _, c := range []struct {
		got  fmt.Stringer
		want string
	}{
		{unit.Seconds(0), "0 s"},
		{unit.Seconds(3.2e-9), "3.200 ns"},
		{unit.Seconds(12.34567e-6), "12.35 µs"},
		{unit.Seconds(0.01329), "13.29 ms"},
		{unit.Seconds(-0.5), "-500.0 ms"},
		{unit.Seconds(1234.5), "1234 s"},
		{unit.Bytes(512), "512 B"},
		{unit.Bytes(17_246_470_144), "16.06 GiB"},
		{unit.FLOPsPerSecond(989e12), "989.00 TFLOP/s"},
		{unit.BytesPerSecond(3.35e12), "3.35 TB/s"},
		{unit.FLOPs(4_530_047_633_326_080), "4.53 PFLOP"},
	} {
		if got := c.got.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestParseEngineCount(t *testing.T) {
	for _, c := range []struct {
		why, text string
		want      int
		fault     string
	}{
		{why: "plain", text: "4096", want: 4096},
		{why: "k is a thousand", text: "8k", want: 8000},
		{why: "K is 1024", text: "8K", want: 8192},
		{why: "decimals of a thousand", text: "25.6k", want: 25600},
		{why: "what is left of a token is dropped", text: "0.0019k", want: 1},
		{why: "m and M", text: "1m", want: 1_000_000},
		{why: "a binary million", text: "1M", want: 1 << 20},
		{why: "a binary billion", text: "2G", want: 2 << 30},
		{why: "our own spelling", text: "4Ki", want: 4096},
		{why: "spaces around", text: " 8K ", want: 8192},
		{why: "decimals of 1024", text: "1.5K", fault: "decimals"},
		{why: "negative", text: "-3k", fault: "not a count"},
		{why: "no number", text: "K", fault: "not a count"},
		{why: "an exponent", text: "1e3k", fault: "not a count"},
		{why: "too large", text: "99999T", fault: "too large"},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, err := unit.ParseEngineCount(c.text)
			checkParsed(t, got, c.want, err, c.fault)
		})
	}
}

func TestPlural(t *testing.T) {
	for n, want := range map[int]string{0: "0 cells", 1: "1 cell", 2: "2 cells", -1: "-1 cells"} {
		if got := unit.Plural(n, "cell"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"4k", "25.6k", "8K", ".T", "1e309", "-0", "0x1p-2", "80GiB", "∞B", "1_000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := unit.ParseCount(s); err == nil && n < 0 {
			t.Errorf("count %q is %d", s, n)
		}
		if n, err := unit.ParseEngineCount(s); err == nil && n < 0 {
			t.Errorf("count of an engine %q is %d", s, n)
		}
		if b, err := unit.ParseBytes(s); err == nil && b < 0 {
			t.Errorf("size %q is %d", s, b)
		}
	})
}

func ExampleParseCount() {
	n, err := unit.ParseCount("4Ki")
	fmt.Println(n, err)
	// Output: 4096 <nil>
}
