package engine_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
)

// pythonAt runs what PythonCommand gives and returns what it prints.
func pythonAt(ctx context.Context, at engine.Place, program string) (string, error) {
	p, err := at.Start(ctx, engine.Command{Argv: engine.PythonCommand(program, "an argument")})
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(p.Stdout())
	return strings.TrimSpace(string(text)), errors.Join(err, p.Wait())
}

// script writes a program that says its name and its arguments.
func script(t *testing.T, name string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho "+name+": $#: $1\n"), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPython(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("SKIPPED, NOT TESTED: no sh")
	}
	empty := t.TempDir()
	if err := os.Symlink(shell, filepath.Join(empty, "sh")); err != nil {
		t.Skipf("SKIPPED, NOT TESTED: %v", err)
	}
	own, active, onPath, locked := script(t, "own", 0o755), script(t, "bin/python", 0o755), script(t, "python3", 0o755), script(t, "locked", 0o644)
	environment := filepath.Dir(filepath.Dir(active))
	path := "PATH=" + filepath.Dir(onPath) + ":" + empty
	for _, c := range []struct {
		why     string
		env     []string
		program string
		want    string
		problem engine.Problem
	}{
		{"the program that is named", []string{path, "LLMPROF_PYTHON=" + own}, onPath, "python3: 1: an argument", ""},
		{"the variable of our own", []string{path, "LLMPROF_PYTHON=" + own, "VIRTUAL_ENV=" + environment}, "", "own: 1: an argument", ""},
		{"the active environment", []string{path, "VIRTUAL_ENV=" + environment}, "", "bin/python: 1: an argument", ""},
		{"an environment that is gone", []string{path, "VIRTUAL_ENV=/nowhere"}, "", "python3: 1: an argument", ""},
		{"none on the path", []string{"PATH=" + empty}, "", "", engine.ProgramMissing},
		{"none at the variable", []string{path, "LLMPROF_PYTHON=/nowhere/python"}, "", "", engine.ProgramMissing},
		{"none of the name", []string{path}, "/nowhere/python", "", engine.ProgramMissing},
		{"one that may not run", []string{path, "LLMPROF_PYTHON=" + locked}, "", "", engine.PermissionDenied},
	} {
		t.Run(c.why, func(t *testing.T) {
			at := place.Local(c.env...)
			got, err := pythonAt(t.Context(), at, c.program)
			if c.problem == "" {
				if err != nil || got != c.want {
					t.Errorf("%q, %v; want %q", got, err, c.want)
				}
				return
			}
			err = engine.PythonMissing(err, at, c.program, "torch")
			unusable, ok := errors.AsType[*engine.UnusableError](err)
			if !ok || unusable.Problem != c.problem || !strings.HasSuffix(unusable.Hint(), "name another Python: --program PATH or $LLMPROF_PYTHON") {
				t.Fatalf("%v, hint %q", err, unusable.Hint())
			}
			if what, _, _ := strings.Cut(unusable.What, " "); c.program == "" && what != "Python" || c.program != "" && what != c.program {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestPythonMissingLeavesOtherErrors(t *testing.T) {
	gated := &engine.UnusableError{Problem: engine.PermissionDenied, What: "torch on local", Remedy: "set HF_TOKEN", Err: errors.New("gated")}
	for _, err := range []error{nil, gated, errors.New("no such thing"), &engine.ExitError{Program: "sh", Code: 1}} {
		if got := engine.PythonMissing(err, place.Local(), "", "torch"); !errors.Is(got, err) {
			t.Errorf("%v becomes %v", err, got)
		}
	}
	want := `/venv/bin/python -m pip install "sglang[all]", or name another Python: --program PATH or $LLMPROF_PYTHON`
	if d := cmp.Diff(want, engine.PackageRemedy("/venv/bin/python", `"sglang[all]"`)); d != "" {
		t.Error(d)
	}
}
