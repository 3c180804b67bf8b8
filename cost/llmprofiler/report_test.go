package llmprofiler

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestNumberText(t *testing.T) {
	for _, test := range []struct {
		why, got, want string
	}{
		{"nothing above T", numberText(int64(4574250228776960)), "4574.25 T"},
		{"at least one decimal", numberText(int64(1000)), "1.0 K"},
		{"short form", numberText(int64(9895604649984)), "9.9 T"},
		{"below the first threshold an integer stays", numberText(int64(999)), "999"},
		{"zero", numberText(int64(0)), "0"},
		{"a float stays a float", memoryText(215.0), "215.0B"},
		{"an integer count", memoryText(int64(388)), "388B"},
		{"a count above 1000", memoryText(int64(240249)), "240.25 KB"},
		{"negative values stay raw", memoryText(-48.0), "-48.0B"},
		{"negative integers stay raw", memoryText(int64(-123456)), "-123456B"},
		{"bytes", memoryText(17178624000.0), "17.18 GB"},
		{"millions", numberText(int64(150994944)), "150.99 M"},
		{"far above T", numberText(int64(math.MaxInt64)), "9223372.04 T"},
	} {
		if test.got != test.want {
			t.Errorf("%s: got %q, want %q", test.why, test.got, test.want)
		}
	}
}

func TestLatencyText(t *testing.T) {
	for _, test := range []struct {
		seconds float64
		want    string
	}{
		{0, "0.0 us"},
		{0.0000646, "64.6 us"},
		{0.001, "1000.0 us"},
		{0.0010001, "1.0 ms"},
		{0.0009590405716327259, "959.04 us"},
		{0.35241, "352.41 ms"},
		{1, "1000.0 ms"},
		{1.004, "1.0 s"},
		{7.8954159549717335, "7.9 s"},
		{60, "1.0 minutes"},
		{5399, "1.5 hours"},
		{3599.9, "60.0 minutes"},
		{86400, "1.0 days"},
		{200000, "2.31 days"},
	} {
		if got := latencyText(test.seconds); got != test.want {
			t.Errorf("%g s: got %q, want %q", test.seconds, got, test.want)
		}
	}
}

func TestPythonLiterals(t *testing.T) {
	for _, test := range []struct {
		value any
		want  string
	}{
		{0.0001, "0.0001"},
		{0.00001, "1e-05"},
		{6.796325925925926e-06, "6.796325925925926e-06"},
		{1e15, "1000000000000000.0"},
		{1e16, "1e+16"},
		{-3.0, "-3.0"},
		{int64(7), "7"},
		{"llama", "'llama'"},
		{"it's", `"it's"`},
		{`it's "x"`, `'it\'s "x"'`},
		{"a\nb\x01\\", `'a\nb\x01\\'`},
	} {
		if got := literal(test.value); got != test.want {
			t.Errorf("%v: got %s, want %s", test.value, got, test.want)
		}
	}
}

func TestFloorDiv(t *testing.T) {
	for _, test := range []struct{ a, b, want float64 }{
		{7, 2, 3},
		{-7, 2, -4},
		{-8, 2, -4},
		{1, 2, 0},
		{-1, 2, -1},
		{1, 0.1, 9}, // 0.1 is a little more than a tenth; Floor(1/0.1) is 10
		{0, 3, 0},
	} {
		if got := floorDiv(test.a, test.b); got != test.want {
			t.Errorf("%g // %g: got %g, want %g", test.a, test.b, got, test.want)
		}
	}
}

func TestQuotient(t *testing.T) {
	// (2^53+1)/3 is an integer, but 2^53+1 is not a float64.
	if got, want := quotient(1<<53+1, 3), 3002399751580331.0; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := quotient(1, 3), 1.0/3; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestReportLabels(t *testing.T) {
	m, err := LookupModel("qwen3-30b-a3b")
	if err != nil {
		t.Fatal(err)
	}
	g, err := LookupGPU("h100-sxm-80gb")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		version Version
		want    []string
	}{
		{Seed, []string{"'model_name': 'qwen3-30b-a3b'", "'prefill_latency': '", "'decode_latency': '"}},
		{June2025, []string{"'model_name': 'Qwen3-30B-A3B'", "    'TTFT': '", "    'TTOT': '"}},
	} {
		r, err := Analyze(Input{Model: m, GPU: g, TP: 1, PP: 1, Batch: 1, InputLen: 128, OutputLen: 128, Version: test.version})
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := Report(&text, r); err != nil {
			t.Fatal(err)
		}
		for _, line := range append(test.want, "'intermediate_size': 768", "'name': 'a100-sxm-80gb'", "'gpu_fp16_TFLOPS': '1979 TFLOPS'", "'prefill_tp_comm': '0.0 us'") {
			if !strings.Contains(text.String(), line) {
				t.Errorf("%s: no %q in\n%s", test.version, line, text.String())
			}
		}
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestReportWriteError(t *testing.T) {
	full := errors.New("disk full")
	if err := Report(brokenWriter{full}, Result{}); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
}
