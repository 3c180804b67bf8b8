package gpu_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/gpu"
)

// needShell skips where the programs of the tests cannot run.
func needShell(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil || runtime.GOOS == "windows" {
		t.Skip("no POSIX shell here, which the made-up programs of this test are written for")
	}
}

// programs puts made-up programs first on PATH.
func programs(t *testing.T, scripts map[string]string) {
	t.Helper()
	needShell(t)
	folder := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", folder+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// elsewhere is a host that is not this one as far as the package can tell.
type elsewhere struct{ gpu.Host }

// collect follows a source until it has given n snapshots, or has ended.
func collect(t *testing.T, source gpu.Source, n int) ([]gpu.Snapshot, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []gpu.Snapshot
	err := source.Follow(ctx, 1e6, func(s gpu.Snapshot) {
		all = append(all, s)
		if len(all) == n {
			cancel()
		}
	})
	return all, err
}

func TestLocal(t *testing.T) {
	needShell(t)
	read := func(argv ...string) (string, error) {
		out, err := gpu.Local().Start(t.Context(), argv...)
		if err != nil {
			return "", err
		}
		defer out.Close()
		text, err := io.ReadAll(out)
		return string(text), err
	}
	if text, err := read("sh", "-c", "echo yes; echo no >&2"); text != "yes\n" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	text, err := read("sh", "-c", "echo half; echo broken driver >&2; exit 9")
	if text != "half\n" || err == nil || !strings.Contains(err.Error(), "exit status 9: broken driver") {
		t.Errorf("got %q, %v: want what was printed, and why it failed", text, err)
	}
	if _, err := read("no-such-program-anywhere"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("error %v, want exec.ErrNotFound", err)
	}
	// One that never ends is ended by Close, also where somebody reads.
	out, err := gpu.Local().Start(t.Context(), "sh", "-c", "echo up; exec sleep 1000")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.ReadAll(out)
	}()
	if err := out.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}
