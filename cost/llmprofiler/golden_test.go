package llmprofiler_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/cost/llmprofiler"
)

// readGolden decodes a compressed file of testdata, numbers kept as text.
func readGolden(t *testing.T, name string, into any) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(plain)
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		t.Fatal(err)
	}
}

func input(t *testing.T, model, gpu string, tp, batch, prompt, generated int, version llmprofiler.Version) llmprofiler.Input {
	t.Helper()
	m, err := llmprofiler.LookupModel(model)
	if err != nil {
		t.Fatal(err)
	}
	g, err := llmprofiler.LookupGPU(gpu)
	if err != nil {
		t.Fatal(err)
	}
	return llmprofiler.Input{Model: m, GPU: g, TP: tp, PP: 1, Batch: batch, InputLen: prompt, OutputLen: generated, Version: version}
}

func analyze(t *testing.T, in llmprofiler.Input) llmprofiler.Result {
	t.Helper()
	r, err := llmprofiler.Analyze(in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// object is v as decoded JSON, numbers kept as text.
func object(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var out any
	if err := decoder.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// diff compares want with got and counts bit-equal numbers. Keys that only
// got has are no difference at the top level.
type diff struct {
	equal, count int
	faults       []string
}

func (d *diff) compare(path string, want, got any) {
	switch want := want.(type) {
	case map[string]any:
		have, ok := got.(map[string]any)
		if !ok {
			d.faults = append(d.faults, fmt.Sprintf("%s: got %v, want an object", path, got))
			return
		}
		if path != "" && len(have) != len(want) {
			d.faults = append(d.faults, fmt.Sprintf("%s: %d keys, want %d", path, len(have), len(want)))
		}
		for key, value := range want {
			d.compare(path+"/"+key, value, have[key])
		}
	case []any:
		have, ok := got.([]any)
		if !ok || len(have) != len(want) {
			d.faults = append(d.faults, fmt.Sprintf("%s: got %v, want %v", path, got, want))
			return
		}
		for i := range want {
			d.compare(fmt.Sprintf("%s/%d", path, i), want[i], have[i])
		}
	case json.Number:
		have, ok := got.(json.Number)
		d.count++
		switch {
		case !ok:
			d.faults = append(d.faults, fmt.Sprintf("%s: got %v, want %v", path, got, want))
		case same(want, have):
			d.equal++
		case !near(want, have):
			d.faults = append(d.faults, fmt.Sprintf("%s: got %v, want %v", path, have, want))
		}
	default:
		if want != got {
			d.faults = append(d.faults, fmt.Sprintf("%s: got %v, want %v", path, got, want))
		}
	}
}

// same compares integers as integers and the rest bit by bit.
func same(want, got json.Number) bool {
	if a, err := want.Int64(); err == nil {
		b, err := got.Int64()
		return err == nil && a == b
	}
	a, errA := want.Float64()
	b, errB := got.Float64()
	return errA == nil && errB == nil && math.Float64bits(a) == math.Float64bits(b)
}

// near allows 1e-12 where the wanted number is not an integer.
func near(want, got json.Number) bool {
	if _, err := want.Int64(); err == nil {
		return false
	}
	a, errA := want.Float64()
	b, errB := got.Float64()
	return errA == nil && errB == nil && math.Abs(a-b) <= 1e-12*math.Abs(a)
}

type goldenRow struct {
	Model  string  `json:"model"`
	GPU    string  `json:"gpu"`
	TP     int     `json:"tp"`
	Batch  int     `json:"bs"`
	Input  int     `json:"seq"`
	Output int     `json:"gen"`
	Fits   bool    `json:"fits_reference_asserts"`
	Error  string  `json:"reference_error"`
	TTOT   float64 `json:"TTOT_seed_sample_version"`
	Total  float64 `json:"total_infer_latency_seed_sample_version"`
}

func (g goldenRow) input(t *testing.T, version llmprofiler.Version) llmprofiler.Input {
	t.Helper()
	return input(t, g.Model, g.GPU, g.TP, g.Batch, g.Input, g.Output, version)
}

func TestGolden(t *testing.T) {
	var golden struct {
		Rows []json.RawMessage `json:"rows"`
	}
	readGolden(t, "golden.json.gz", &golden)
	if len(golden.Rows) != 1080 {
		t.Fatalf("%d rows, want 1080", len(golden.Rows))
	}
	rowsEqual, numbers, numbersEqual := 0, 0, 0
	seedEqual := 0
	for _, raw := range golden.Rows {
		var row goldenRow
		if err := json.Unmarshal(raw, &row); err != nil {
			t.Fatal(err)
		}
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		var want map[string]any
		if err := decoder.Decode(&want); err != nil {
			t.Fatal(err)
		}
		// Derived columns: equal to 1e-12, and compared so below.
		for _, key := range []string{"TTOT_seed_sample_version", "total_infer_latency_seed_sample_version"} {
			delete(want, key)
		}
		name := fmt.Sprintf("%s %s tp %d bs %d seq %d", row.Model, row.GPU, row.TP, row.Batch, row.Input)

		late := analyze(t, row.input(t, llmprofiler.June2025))
		var d diff
		d.compare("", want, object(t, late))
		for _, fault := range d.faults {
			t.Errorf("%s: %s", name, fault)
		}
		numbers += d.count
		numbersEqual += d.equal
		if d.count == d.equal {
			rowsEqual++
		}
		if late.Fits != row.Fits || late.ReferenceError() != row.Error {
			t.Errorf("%s: fits %v %q, want %v %q", name, late.Fits, late.ReferenceError(), row.Fits, row.Error)
		}

		seed := analyze(t, row.input(t, llmprofiler.Seed))
		if math.Abs(seed.TTOT-row.TTOT) > 1e-12*row.TTOT || math.Abs(seed.Total-row.Total) > 1e-12*row.Total {
			t.Errorf("%s: seed TTOT %v total %v, want %v %v", name, seed.TTOT, seed.Total, row.TTOT, row.Total)
		}
		if late.SeedTTOT != seed.TTOT || late.SeedTotal != seed.Total {
			t.Errorf("%s: both versions tell the seed's figures: %v %v, want %v %v", name, late.SeedTTOT, late.SeedTotal, seed.TTOT, seed.Total)
		}
		if seed.TTOT == row.TTOT && seed.Total == row.Total {
			seedEqual++
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("rows equal bit for bit: %d of %d; numbers: %d of %d; seed version rows: %d", rowsEqual, len(golden.Rows), numbersEqual, numbers, seedEqual)
	if rowsEqual != len(golden.Rows) {
		t.Errorf("%d of %d rows equal bit for bit", rowsEqual, len(golden.Rows))
	}
}

func TestGoldenOps(t *testing.T) {
	var golden struct {
		Rows [][]any `json:"rows"`
	}
	readGolden(t, "golden_ops.json.gz", &golden)
	if len(golden.Rows) != 1080 {
		t.Fatalf("%d rows, want 1080", len(golden.Rows))
	}
	for _, row := range golden.Rows {
		number := func(i int) int {
			n, err := row[i].(json.Number).Int64()
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		r := analyze(t, input(t, row[0].(string), row[1].(string), number(2), number(3), number(4), number(5), llmprofiler.June2025))
		var d diff
		d.compare("", row[6], object(t, r.Ops))
		if len(d.faults) > 0 || d.equal != d.count || d.count != 16 {
			t.Fatalf("%v: %d of %d equal bit for bit: %s", row[:6], d.equal, d.count, strings.Join(d.faults, "\n"))
		}
	}
}

func TestGoldenGraph(t *testing.T) {
	var golden struct {
		Rows []struct {
			goldenRow
			Results map[string]map[string]any `json:"results"`
		} `json:"rows"`
	}
	readGolden(t, "golden_graph.json.gz", &golden)
	if len(golden.Rows) != 48 {
		t.Fatalf("%d rows, want 48", len(golden.Rows))
	}
	equal, count := 0, 0
	for _, row := range golden.Rows {
		graph, err := llmprofiler.Graph(row.input(t, ""))
		if err != nil {
			t.Fatal(err)
		}
		for stage, nodes := range map[string][]llmprofiler.Node{"prefill": graph.Prefill, "decode": graph.Decode} {
			want := row.Results[stage]
			var names []string
			for _, node := range nodes {
				names = append(names, node.Name)
				var d diff
				d.compare("", want[node.Name], object(t, node))
				for _, fault := range d.faults {
					t.Errorf("%s %s tp %d %s %s: %s", row.Model, row.GPU, row.TP, stage, node.Name, fault)
				}
				equal += d.equal
				count += d.count
			}
			sort.Strings(names)
			var expected []string
			for name := range want {
				expected = append(expected, name)
			}
			sort.Strings(expected)
			if strings.Join(names, " ") != strings.Join(expected, " ") {
				t.Errorf("%s %s: nodes %v, want %v", row.Model, stage, names, expected)
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("numbers equal bit for bit: %d of %d", equal, count)
	if equal != count {
		t.Errorf("%d of %d numbers equal bit for bit", equal, count)
	}
}

func TestReportGolden(t *testing.T) {
	want, err := os.ReadFile(filepath.Join("testdata", "report_llama2-70b_4185809.txt"))
	if err != nil {
		t.Fatal(err)
	}
	r := analyze(t, input(t, "llama2-70b", "a100-sxm-40gb", 8, 32, 1024, 128, ""))
	var got bytes.Buffer
	if err := llmprofiler.Report(&got, r); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got\n%s\nwant\n%s", got.Bytes(), want)
	}
}
