//go:build unix

package store_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/llmprof/llmprof/store"
)

// openAsNobody opens a store in a process without the rights of root, and
// returns what it says.
func openAsNobody(t *testing.T, path string) string {
	t.Helper()
	const nobody = 65534
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	if os.Getuid() == 0 {
		// The test's binary lies where only root may look.
		text, err := os.ReadFile(self)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Path = filepath.Join(readable(t), "self")
		if err := os.WriteFile(cmd.Path, text, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	cmd.Dir = filepath.Dir(cmd.Path)
	cmd.Env = append(os.Environ(), roleVariable+"=work", pathVariable+"="+path)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err == nil {
		return "no error"
	} else if said.Len() == 0 {
		t.Skip("no process without rights here:", err)
	}
	return said.String()
}

// readable is a new folder that everybody may look into.
func readable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestWithoutPermission(t *testing.T) {
	tests := []struct {
		why        string
		prepare    func(t *testing.T, dir string) (path string)
		want, hint string
	}{
		{"a folder in which nothing can be made", func(t *testing.T, dir string) string {
			if err := os.Chmod(dir, 0o555); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(dir, "s.db")
		}, "s.db cannot be opened", "check the folder and its permissions"},
		{"nor a folder", func(t *testing.T, dir string) string {
			if err := os.Chmod(dir, 0o555); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(dir, "llmprof", "s.db")
		}, "permission denied", "check the folder and its permissions"},
		{"a store in a folder that is read only", func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "s.db")
			fill(t, path)
			if err := os.Chmod(dir, 0o555); err != nil {
				t.Fatal(err)
			}
			return path
		}, "s.db cannot be ", "check the "},
		{"a store that may not be read", func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "s.db")
			fill(t, path)
			if err := os.Chmod(path, 0); err != nil {
				t.Fatal(err)
			}
			return path
		}, "s.db cannot be opened", "check the folder and its permissions"},
		{"a store that may only be read", func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "s.db")
			fill(t, path)
			if err := os.Chmod(path, 0o444); err != nil {
				t.Fatal(err)
			}
			return path
		}, "begin cell c0: ", "check the permissions of the file"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			dir := filepath.Join(readable(t), "data")
			if err := os.Mkdir(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			path := test.prepare(t, dir)
			defer os.Chmod(dir, 0o700)
			said := openAsNobody(t, path)
			t.Log(said)
			if !strings.Contains(said, test.want) || !strings.Contains(said, "hint: "+test.hint) {
				t.Errorf("said:\n%swant %q and the hint %q", said, test.want, test.hint)
			}
		})
	}
}

// fill makes a store with run "r" of one cell.
func fill(t *testing.T, path string) {
	t.Helper()
	st, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.CreateRun(t.Context(), store.Run{ID: "r"}, cellsOf(1)); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}
