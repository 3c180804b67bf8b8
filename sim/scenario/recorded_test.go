package scenario_test

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/sim/scenario"
)

// TestRecorded decides every schedule that was recorded from vLLM's scheduler,
// and compares each line.
func TestRecorded(t *testing.T) {
	const want = 117
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
			if at, got, want := difference(schedule, expected); at > 0 {
				t.Fatalf("line %d of the schedule\n got %s\nwant %s", at, got, want)
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

// TestRunIsBounded gives up a schedule that would fill the memory.
func TestRunIsBounded(t *testing.T) {
	var load strings.Builder
	load.WriteString("config num_blocks=1000 block_size=4 max_num_batched_tokens=64 max_num_seqs=1 max_model_len=3000\n")
	for i := range 5000 {
		fmt.Fprintf(&load, "req waits-for-very-long-%d arrival=1 prompt=1 output=200\n", i)
	}
	_, _, err := scenario.Run("long", strings.NewReader(load.String()))
	if err == nil || !strings.Contains(err.Error(), "longer than 67108864 bytes at step ") {
		t.Errorf("a schedule without end: %v", err)
	}
}

// line is the i-th line, empty beyond the last.
func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}
