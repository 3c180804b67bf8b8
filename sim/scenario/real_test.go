package scenario_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/internal/enginetest"
	"github.com/llmprof/llmprof/sim/scenario"
)

// TestRealScheduler lets the installed vLLM's own scheduler decide random
// scenarios, and compares each line with ours.
func TestRealScheduler(t *testing.T) {
	const count, release = 200, "0.32.0"
	python := enginetest.Python(t)
	texts := map[string]string{} // of the scenarios, by the name of their file
	args := []string{filepath.Join("testdata", "record.py")}
	dir := t.TempDir()
	for i := range count {
		s := randomScenario(t, draws{rand.New(rand.NewPCG(1, uint64(i)))}, release)
		var text strings.Builder
		if err := s.Write(&text); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, strconv.Itoa(i)+".txt")
		if err := os.WriteFile(name, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		texts[name], args = text.String(), append(args, name)
	}
	cmd := exec.CommandContext(t.Context(), python, args...)
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "VLLM_NO_USAGE_STATS=1")
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, complaint.String())
	}
	recorded := strings.Split(string(out), "file ")
	if got := recorded[0]; !strings.HasPrefix(got, "vllm "+release) {
		t.Fatalf("recorded by %q, want vLLM %s", got, release)
	}
	if len(recorded)-1 != count {
		t.Errorf("%d schedules were recorded, want %d", len(recorded)-1, count)
	}
	for _, r := range recorded[1:] {
		name, want, _ := strings.Cut(r, "\n")
		got, _, err := scenario.Run(name, strings.NewReader(texts[name]))
		if err != nil {
			t.Fatal(err)
		}
		if at, ours, theirs := difference(got, want); at > 0 {
			t.Errorf("line %d of the schedule\n got %s\nwant %s\n%s", at, ours, theirs, texts[name])
		}
	}
	for _, e := range []struct {
		why, text string
		least     int
	}{
		{"steps", "\nstep ", 10_000},
		{"victims", "preempt=R", 500},
		{"evicted prefixes of groups", "evict=G", 500},
		{"evicted blocks of requests", "evict=R", 1000},
	} {
		n := strings.Count(string(out), e.text)
		t.Logf("%d schedules, %d lines with %s", count, n, e.why)
		if n < e.least {
			t.Errorf("%d lines with %s, want at least %d: the scenarios do not try enough", n, e.why, e.least)
		}
	}
}

// difference is the first line in which two texts differ, counted from 1; 0 for
// none.
func difference(a, b string) (at int, inA, inB string) {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range max(len(as), len(bs)) {
		if line(as, i) != line(bs, i) {
			return i + 1, line(as, i), line(bs, i)
		}
	}
	return 0, "", ""
}
