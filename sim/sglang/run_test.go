package sglang_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/sim/sglang"
)

// TestRecorded compares what is decided with what SGLang's own code decided,
// line by line.
func TestRecorded(t *testing.T) {
	files, err := filepath.Glob("testdata/0.*/*.txt")
	if err != nil || len(files) != 42 {
		t.Fatalf("recorded files: %d, %v; want 42", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimPrefix(file, "testdata/"), func(t *testing.T) {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			got, want, err := sglang.Run(file, f)
			if err != nil {
				t.Error(err)
			}
			if want == "" {
				t.Fatal("no expectation")
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
