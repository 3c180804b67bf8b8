package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	dir := t.TempDir()
	gguf, folder := filepath.Join(dir, "t.gguf"), filepath.Join(dir, "t")
	if err := run([]string{"-gguf", gguf, "-folder", folder, "-weights", "-vocab", "600"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{gguf, filepath.Join(folder, "config.json"), filepath.Join(folder, "tokenizer.json"), filepath.Join(folder, "model.safetensors")} {
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, c := range []struct {
		why, want string
		args      []string
	}{
		{"nothing asked for", "nothing to write", nil},
		{"a shape that no model has", "vocabulary 5", []string{"-vocab", "5", "-gguf", filepath.Join(dir, "bad.gguf")}},
		{"an unknown flag", "not defined", []string{"-x"}},
	} {
		if err := run(c.args, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.why, err, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "bad.gguf")); err == nil {
		t.Error("half a file is left behind")
	}
}
