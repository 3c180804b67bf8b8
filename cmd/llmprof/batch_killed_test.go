package main

import (
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/store"
)

// killedCampaign is a file of 200 cells in which much goes wrong: crashes that
// pass and such that do not, errors, refusals, too little memory, and in the
// last model a task without an answer. Two models have the same short name.
func killedCampaign() string {
	const script = "crash:b1i16o2*1,crash:b2i16o2,refuse:b3i32,exception:b2i48o3*2,exception:b4i16o3,oom:b5i64,killed:b4i80o3"
	var b strings.Builder
	fmt.Fprintf(&b, "defaults: {place: local, engine: probe, dtype: bfloat16, engine_env: {FAKE_PROBE_SCRIPT: %q}}\nmodels:\n", script)
	for _, model := range []string{"one/tiny", "two/tiny", "three/small", "four/large"} {
		fmt.Fprintf(&b, "  - model_id: %s\n    input_lengths: [16, 32, 48, 64, 80]\n    output_lengths: [2, 3]\n    batch_sizes: [1, 2, 3, 4, 5]\n", model)
	}
	fmt.Fprintf(&b, "    engine_env: {FAKE_PROBE_SCRIPT: %q}\n", script+",hang:b3i80o3")
	return b.String()
}

// cellKey names a cell of killedCampaign as every report does.
type cellKey struct {
	model                string
	batch, input, output int
}

// expected is the state in which a cell of killedCampaign ends.
func (k cellKey) expected() store.State {
	switch b, i, o := k.batch, k.input, k.output; {
	case b == 5 && i == 64 && o == 2:
		return store.OOM
	case b == 5 && i >= 64:
		return store.Skipped
	case b == 3 && i == 32:
		return store.Refused
	case b == 2 && i == 16 && o == 2, b == 4 && i == 16 && o == 3, b == 4 && i == 80 && o == 3: // crashed, or was killed
		return store.Failed
	case b == 3 && i == 80 && o == 3 && k.model == "four/large":
		return store.Timeout
	}
	return store.Done
}

// TestKilledBatch kills a campaign of 200 cells 50 times at random moments. In
// the end each cell has the state that its script says, is in every report
// once, and nothing else is left.
func TestKilledBatch(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	b := newBench(t)
	b.write("c.yaml", killedCampaign())
	args := []string{
		"batch", "c.yaml", "--program", "fakeprobe", "--sampler", "none", "--sample-every", "1ms", "--num-iters", "3", "--num-iters-warmup", "0",
		"--backoff", "1ms", "--cell-timeout", "10s", "-q", "--resume",
	}
	b.env("FAKE_PROBE_PAUSE=10ms", "FAKE_PROBE_STATE="+b.dir)
	// The run is made by a call that is interrupted before its first cell.
	b.exits(codeIncomplete, append(slices.Clone(args[:len(args)-1]), "--only", "model=one/tiny,batch=2,input=16,output=2")...)
	chance := rand.New(rand.NewPCG(3, 4))
	killed := 0
	for i := range 50 {
		window := 300
		if i%10 == 9 {
			window = 2500
		}
		cmd := b.start(args...)
		time.Sleep(time.Duration(chance.IntN(window)) * time.Millisecond)
		_ = cmd.Process.Kill() // it may have come to its end
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() >= 0 {
			t.Logf("kill %d came too late: %v", i, err)
			continue
		}
		killed++
	}
	t.Logf("%d processes were killed, %d cells were open then", killed, b.count(store.Pending)+b.count(store.Running))
	if killed == 0 {
		t.Error("no process was killed")
	}
	b.exits(codeIncomplete, args...)
	b.checkCells(t)
	b.checkReports(t)
}

// checkCells holds the store and the folder of results against what was
// expected.
func (b *bench) checkCells(t *testing.T) {
	t.Helper()
	cells := b.cells()
	if len(cells) != 200 {
		t.Errorf("%d cells, want 200", len(cells))
	}
	files := map[string]bool{}
	seen := map[cellKey]bool{}
	for _, row := range cells {
		c, err := campaign.Decode(row)
		if err != nil {
			t.Fatal(err)
		}
		key := cellKey{c.ModelID, c.BatchSize, c.InputLen, c.OutputLen}
		if seen[key] {
			t.Errorf("%v is there twice", key)
		}
		seen[key] = true
		if want := key.expected(); row.State != want {
			t.Errorf("%v is %s, want %s; %s", key, row.State, want, row.Error)
		}
		if row.State != store.Done {
			if row.ProfileFile != "" || row.Result != nil || row.Error == "" {
				t.Errorf("%v, which is %s, has the file %q, the result %.40q and the error %q", key, row.State, row.ProfileFile, row.Result, row.Error)
			}
			continue
		}
		d, err := readMemoryProfile(row.ProfileFile)
		if err != nil {
			t.Errorf("%v: %v", key, err)
			continue
		}
		p := d.BenchmarkParameters
		if p.BatchSize == nil || p.InputLen == nil || p.OutputLen == nil {
			t.Errorf("the profile of %v has no sizes: %+v", key, p)
			continue
		}
		if got := (cellKey{string(d.ModelInfo.Name), *p.BatchSize, *p.InputLen, *p.OutputLen}); got != key {
			t.Errorf("the profile of %v is that of %v", key, got)
		}
		for _, name := range []string{row.ProfileFile, filesOf(row.ProfileFile).points} {
			if files[filepath.Base(name)] {
				t.Errorf("%s is the file of several cells", name)
			}
			files[filepath.Base(name)] = true
		}
	}
	for _, name := range b.files() {
		folder, base := filepath.Split(name)
		switch {
		case strings.HasPrefix(base, ".") || strings.HasSuffix(base, "-wal") || strings.HasSuffix(base, "-journal"):
			t.Errorf("%s is left over", name)
		case strings.HasPrefix(folder, "results") && !strings.HasPrefix(base, "batch-bench-") && !files[base]:
			t.Errorf("%s belongs to no cell", name)
		}
	}
	b.checkDatabase(t)
}

// checkDatabase lets SQLite check its file.
func (b *bench) checkDatabase(t *testing.T) {
	t.Helper()
	db, err := sql.Open("sqlite", b.database())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var verdict string
	var locks int
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("integrity: %q, %v", verdict, err)
	}
	if err := db.QueryRow("SELECT count(*) FROM locks").Scan(&locks); err != nil || locks != 0 {
		t.Errorf("%d locks are left, %v", locks, err)
	}
}

// checkReports holds that each cell is in every report once.
func (b *bench) checkReports(t *testing.T) {
	t.Helper()
	want := map[cellKey]int{}
	for _, row := range b.cells() {
		c, err := campaign.Decode(row)
		if err != nil {
			t.Fatal(err)
		}
		want[cellKey{c.ModelID, c.BatchSize, c.InputLen, c.OutputLen}] = 1
	}
	for form, read := range map[string]func(*testing.T, string) map[cellKey]int{
		"batch-bench-results-*.csv": csvCells, "batch-bench-report-enhanced-*.txt": textCells, "batch-bench-report-2*.txt": textCells,
		"batch-bench-report-*.md": markdownCells, "batch-bench-report-*.html": pageCells,
	} {
		names, err := filepath.Glob(filepath.Join(b.dir, memoryFolder, form))
		if err != nil || len(names) != 1 {
			t.Errorf("%s: %v, %v", form, names, err)
			continue
		}
		text, err := os.ReadFile(names[0])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, read(t, string(text)), cmp.AllowUnexported(cellKey{})); diff != "" {
			t.Errorf("%s (-want +got)\n%s", form, diff)
		}
	}
	out := b.exits(0, "runs", "export", "latest", "--format", "json")
	if diff := cmp.Diff(want, jsonCells(t, out), cmp.AllowUnexported(cellKey{})); diff != "" {
		t.Errorf("json (-want +got)\n%s", diff)
	}
}

func whole(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func csvCells(t *testing.T, text string) map[cellKey]int {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	got := map[cellKey]int{}
	for _, row := range rows[1:] {
		got[cellKey{row[0], whole(t, row[4]), whole(t, row[2]), whole(t, row[3])}]++
	}
	return got
}

func jsonCells(t *testing.T, text string) map[cellKey]int {
	t.Helper()
	var d struct {
		Cells []struct {
			Model  string `json:"model_id"`
			Batch  int    `json:"batch_size"`
			Input  int    `json:"input_len"`
			Output int    `json:"output_len"`
		} `json:"cells"`
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	got := map[cellKey]int{}
	for _, c := range d.Cells {
		got[cellKey{c.Model, c.Batch, c.Input, c.Output}]++
	}
	return got
}

// linesOf counts cells line by line: heading finds the model of a section, cell
// the sizes and, where it stands there, the model.
func linesOf(t *testing.T, text string, heading, cell *regexp.Regexp) map[cellKey]int {
	t.Helper()
	got, model := map[cellKey]int{}, ""
	for line := range strings.Lines(text) {
		if m := heading.FindStringSubmatch(line); m != nil {
			model = m[1]
		}
		m := cell.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		key := cellKey{model: model}
		for i, name := range cell.SubexpNames() {
			switch {
			case name == "model" && m[i] != "":
				key.model = m[i]
			case name == "batch":
				key.batch = whole(t, m[i])
			case name == "input":
				key.input = whole(t, m[i])
			case name == "output":
				key.output = whole(t, m[i])
			}
		}
		got[key]++
	}
	return got
}

func textCells(t *testing.T, text string) map[cellKey]int {
	t.Helper()
	// In the section of what was not measured the model has a line of its own.
	text = strings.ReplaceAll(text, "\n  Model: ", " Model: ")
	return linesOf(t, text, regexp.MustCompile(`^MODEL: (.*)\n`),
		regexp.MustCompile(`^Configuration: input=(?P<input>\d+), output=(?P<output>\d+), batch=(?P<batch>\d+)(?: Model: (?P<model>.*))?\n`))
}

func markdownCells(t *testing.T, text string) map[cellKey]int {
	t.Helper()
	return linesOf(t, text, regexp.MustCompile(`^### (.*)\n`),
		regexp.MustCompile(`^\|(?: (?P<model>[^|]*/[^|]*) \|)? (?P<batch>\d+) \| (?P<input>\d+) \| (?P<output>\d+) \|`))
}

func pageCells(t *testing.T, text string) map[cellKey]int {
	t.Helper()
	heading := regexp.MustCompile(`^<h2>(.*)</h2>`)
	got := linesOf(t, text, heading, regexp.MustCompile(`^<tr><td data-sort="(?P<batch>\d+)">\d+</td><td data-sort="(?P<input>\d+)">\d+</td><td data-sort="(?P<output>\d+)">`))
	for key, n := range linesOf(t, text, heading, regexp.MustCompile(`<strong>(?P<model>[^<]*)</strong>, (?P<batch>\d+) × (?P<input>\d+) in, (?P<output>\d+) out`)) {
		got[key] += n
	}
	return got
}
