package sglang_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/sim/sglang"
)

// TestRecorded compares what is decided with what SGLang's own code decided,
// line by line. A run that was not cut off is also decided without its expectation,
// which says where it ends.
func TestRecorded(t *testing.T) {
	files, err := filepath.Glob("testdata/0.*/*.txt")
	if err != nil || len(files) != 62 {
		t.Fatalf("recorded files: %d, %v; want 62", len(files), err)
	}
	cut := []string{"05d_retract_outputs_first.txt", "15_never_fits.txt"}
	for _, file := range files {
		t.Run(strings.TrimPrefix(file, "testdata/"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, want, err := sglang.Run(file, bytes.NewReader(text))
			if err != nil {
				t.Error(err)
			}
			if want == "" {
				t.Fatal("no expectation")
			}
			compare(t, got, want)
			if slices.Contains(cut, filepath.Base(file)) {
				return
			}
			load, _, _ := bytes.Cut(text, []byte("\nexpect\n"))
			got, _, err = sglang.Run(file, bytes.NewReader(load))
			if err != nil {
				t.Error(err)
			}
			compare(t, got, want)
		})
	}
}

// compare reports the first line that differs.
func compare(t *testing.T, got, want string) {
	t.Helper()
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		switch {
		case i >= len(g):
			t.Fatalf("line %d is missing:\n%s", i+1, w[i])
		case i >= len(w):
			t.Fatalf("line %d is too many:\n%s", i+1, g[i])
		case g[i] != w[i]:
			t.Fatalf("line %d differs:\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
}
