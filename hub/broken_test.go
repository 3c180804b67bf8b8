package hub

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the expected texts")

// parseAny reads a file by the reader that its name asks for.
func parseAny(name string, text []byte) error {
	var err error
	switch {
	case strings.HasSuffix(name, ".gguf"):
		_, _, _, err = ParseGGUF(name, bytes.NewReader(text))
	case strings.HasSuffix(name, ".safetensors"):
		_, err = ParseSafetensors(name, bytes.NewReader(text), int64(len(text)))
	case strings.HasSuffix(name, ".index.json"):
		_, err = ParseIndex(name, text)
	case strings.HasSuffix(name, ".quant.json"):
		_, _, err = ParseQuantConfig(name, text)
	default:
		_, _, err = ParseConfig(name, text)
	}
	return err
}

// TestBroken reads every file of testdata/broken: each gives one error of one
// line that starts with the file's name; the texts are in want.txt.
func TestBroken(t *testing.T) {
	files, err := filepath.Glob("testdata/broken/*.*")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	count := 0
	for _, file := range files {
		name := filepath.Base(file)
		if name == "want.txt" {
			continue
		}
		count++
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		err = parseAny(name, text)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		message := err.Error()
		if !strings.HasPrefix(message, name+":") || strings.Contains(message, "\n") || len(message) > 300 {
			t.Errorf("%s: want one line that starts with the file's name, got %q", name, message)
		}
		_, inFile := errors.AsType[*FileError](err)
		unsupported, refused := errors.AsType[*UnsupportedError](err)
		if !inFile && !refused {
			t.Errorf("%s: error of type %T", name, err)
		}
		if refused && unsupported.Hint() == "" {
			t.Errorf("%s: refused without saying what is missing", name)
		}
		fmt.Fprintln(&got, message)
	}
	if count < 100 {
		t.Errorf("only %d broken files", count)
	}
	const want = "testdata/broken/want.txt"
	if *update {
		if err := os.WriteFile(want, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(text), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("errors differ from %s (-want +got, -update rewrites):\n%s", want, diff)
	}
}
