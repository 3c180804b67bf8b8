package scenario_test

import (
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/sim/scenario"
)

// TestRecorded decides every schedule that was recorded from vLLM's scheduler,
// and compares each line.
func TestRecorded(t *testing.T) {
	const want = 93
	ran := 0
	files := os.DirFS("../testdata/scheduler")
	err := fs.WalkDir(files, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".txt") {
			return err
		}
		ran++
		t.Run(name, func(t *testing.T) {
			text, err := files.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer text.Close()
			schedule, expected, err := scenario.Run(name, text)
			if err != nil {
				t.Fatal(err)
			}
			got, recorded := strings.Split(schedule, "\n"), strings.Split(expected, "\n")
			for i := range max(len(got), len(recorded)) {
				if line(got, i) != line(recorded, i) {
					t.Fatalf("line %d of the schedule\n got %s\nwant %s", i+1, line(got, i), line(recorded, i))
				}
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if ran != want {
		t.Errorf("%d recorded schedules, want %d", ran, want)
	}
}

// line is the i-th line, empty beyond the last.
func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}
