package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/profile"
)

// pointsOf reads a profile's points as text, sorted.
func pointsOf(t *testing.T, name string) []string {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	p, warnings, err := profile.Read(name, file)
	if err := errors.Join(err, file.Close()); err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	var out []string
	for _, point := range p.Points {
		text, err := json.Marshal(point)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(text))
	}
	slices.Sort(out)
	return out
}

// TestKilled kills a measurement 50 times at random moments; resumed, it ends
// with the points of a run that nobody disturbed.
func TestKilled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"llmprof", "fakeprobe"} {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Skip("no symbolic links here:", err)
		}
	}
	for _, c := range []struct {
		name string
		args []string
	}{
		{"plain.llmprof", []string{"step", "--grid", "1,2,3,4,5,6,7,8x16,32,48,64,80,96,112,128,144,160", "--output-len", "3", "--num-runs", "2"}},
		{"packed.llmprof.gz", []string{"layers", "--mode", "prefill", "--prefill-max", "60", "--full", "--repeat", "2", "--format", "llmprof"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			measure := func(out string, pause time.Duration) *exec.Cmd {
				args := append([]string{"profile", c.args[0], "m/m", "--engine", "probe", "--program", filepath.Join(dir, "fakeprobe"), "--resume", "-q", "-o", out}, c.args[1:]...)
				cmd := exec.Command(filepath.Join(dir, "llmprof"), args...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "FAKE_PROBE_PAUSE="+pause.String(), "XDG_CONFIG_HOME="+filepath.Join(dir, "config"))
				return cmd
			}
			undisturbed, disturbed := filepath.Join(dir, "whole-"+c.name), filepath.Join(dir, c.name)
			if out, err := measure(undisturbed, 0).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			chance := rand.New(rand.NewPCG(1, 2))
			size := func() int64 {
				info, err := os.Stat(disturbed)
				if err != nil {
					return 0
				}
				return info.Size()
			}
			for i := range 50 {
				cmd, before, ended := measure(disturbed, 2*time.Millisecond), size(), make(chan struct{})
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				go func() {
					defer close(ended)
					_ = cmd.Wait() // it was killed
				}()
				if i < 5 { // amid the points, however long it takes to come there
					eventually(t, "more points", func() bool {
						select {
						case <-ended:
							return true
						default:
							return size() > before
						}
					})
				} else {
					time.Sleep(time.Duration(chance.IntN(80)) * time.Millisecond)
				}
				if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
					t.Fatal(err)
				}
				<-ended
			}
			if out, err := measure(disturbed, 0).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if diff := cmp.Diff(pointsOf(t, undisturbed), pointsOf(t, disturbed)); diff != "" {
				t.Error(diff)
			}
			// A kill after the last point, before the file was closed.
			if whole, err := os.ReadFile(disturbed); err != nil {
				t.Fatal(err)
			} else if err := os.WriteFile(disturbed, whole[:len(whole)-1], 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := measure(disturbed, 0).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if diff := cmp.Diff(pointsOf(t, undisturbed), pointsOf(t, disturbed)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestInterruptedProfile: Ctrl-C keeps what is done, says so and how to go on,
// and leaves no engine behind.
func TestInterruptedProfile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted there from outside")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"llmprof", "fakeprobe"} {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	var stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(dir, "llmprof"), "profile", "step", "m/m", "--engine", "probe", "--program", filepath.Join(dir, "fakeprobe"),
		"--grid", "1..8x16..1024", "--output-len", "3", "-o", "x.llmprof")
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Env = append(os.Environ(), "FAKE_PROBE_SCRIPT=hang:b4i1024", "XDG_CONFIG_HOME="+filepath.Join(dir, "config"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first points", func() bool {
		info, err := os.Stat(filepath.Join(dir, "x.llmprof"))
		return err == nil && info.Size() > 2000
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != codeInterrupted {
		t.Errorf("ended with %v, want exit code %d", err, codeInterrupted)
	}
	for _, want := range []string{"points are kept in x.llmprof; --resume goes on", "llmprof: interrupted"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("stderr does not say %q:\n%s", want, stderr.String())
		}
	}
	if n := len(pointsOf(t, filepath.Join(dir, "x.llmprof"))); n < 2 || n > 54 {
		t.Errorf("%d points are kept", n)
	}
}
