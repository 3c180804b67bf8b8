//go:build unix

package place_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
)

// sh is a command of the shell.
func sh(script string, args ...string) engine.Command {
	return engine.Command{Argv: append([]string{"sh", "-c", script, "sh"}, args...)}
}

// start starts a command and stops it at the end of the test.
func start(t *testing.T, at engine.Place, cmd engine.Command) engine.Process {
	t.Helper()
	process, err := at.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Stop(0) })
	return process
}

// output runs a command to its end and returns its stdout.
func output(t *testing.T, at engine.Place, cmd engine.Command) string {
	t.Helper()
	process := start(t, at, cmd)
	if err := process.Stdin().Close(); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(process.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// readPID reads a number from a line of a process.
func readPID(t *testing.T, from io.Reader) int {
	t.Helper()
	line, err := bufio.NewReader(from).ReadString('\n')
	if err != nil {
		t.Fatalf("read a process id: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// running says whether a process exists and is no zombie.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// dies fails the test where a process lives on.
func dies(t *testing.T, pid int, within time.Duration) {
	t.Helper()
	for end := time.Now().Add(within); running(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("process %d lives on after %v", pid, within)
		}
	}
}

func TestLocalStreams(t *testing.T) {
	var stderr bytes.Buffer
	cmd := sh(`echo "to $GREETING from $(pwd)"; echo aside >&2; cat`)
	cmd.Env, cmd.Dir, cmd.Stderr = []string{"GREETING=you"}, t.TempDir(), &stderr
	process := start(t, place.Local(), cmd)
	if _, err := io.WriteString(process.Stdin(), "fed\n"); err != nil {
		t.Fatal(err)
	}
	if err := process.Stdin().Close(); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(process.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil {
		t.Fatal(err)
	}
	if want := "to you from " + cmd.Dir + "\nfed\n"; string(text) != want {
		t.Errorf("stdout %q, want %q", text, want)
	}
	if stderr.String() != "aside\n" {
		t.Errorf("stderr %q", stderr.String())
	}
	if err := process.Stop(time.Second); err != nil {
		t.Errorf("stop after the end: %v", err)
	}
	if err := process.Stdin().Close(); err != nil {
		t.Errorf("close of stdin after the end: %v", err)
	}
}

func TestLocalEnd(t *testing.T) {
	for _, test := range []struct {
		why, script string
		want        engine.ExitError
	}{
		{"a status is told", "echo broken >&2; exit 3", engine.ExitError{Code: 3, Stderr: "broken"}},
		{"a signal is named", "kill -KILL $$", engine.ExitError{Code: -1, Signal: "SIGKILL"}},
		{"a secret is hidden", "echo token $HF_TOKEN >&2; exit 1", engine.ExitError{Code: 1, Stderr: "token [redacted]"}},
		{"stderr without a line end is kept", "printf half >&2; exit 1", engine.ExitError{Code: 1, Stderr: "half"}},
	} {
		t.Run(test.why, func(t *testing.T) {
			cmd := sh(test.script)
			cmd.Env = []string{"HF_TOKEN=hello-secret"}
			process := start(t, place.Local(), cmd)
			test.want.Program, test.want.Place = "sh", "local"
			var got *engine.ExitError
			if err := process.Wait(); !errors.As(err, &got) {
				t.Fatalf("want an exit error, got %v", err)
			}
			if diff := cmp.Diff(test.want, *got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLocalKeepsTheLastOfStderr(t *testing.T) {
	var all bytes.Buffer
	cmd := sh(`i=0; while [ $i -lt 3000 ]; do echo "line $i" >&2; i=$((i+1)); done; exit 1`)
	cmd.Stderr = &all
	err := start(t, place.Local(), cmd).Wait()
	var exit *engine.ExitError
	if !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if n := len(exit.Stderr); n > 4<<10 || n < 3<<10 {
		t.Errorf("%d bytes kept, want about 4 KiB", n)
	}
	if !strings.HasSuffix(exit.Stderr, "line 2999") || !strings.HasPrefix(exit.Stderr, "line ") {
		t.Errorf("kept %.20q … %q", exit.Stderr, exit.Stderr[len(exit.Stderr)-20:])
	}
	if got := strings.Count(all.String(), "\n"); got != 3000 {
		t.Errorf("the writer got %d lines, want 3000", got)
	}
}

func TestLocalUnusable(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, test := range []struct {
		why  string
		cmd  engine.Command
		want engine.Problem
		hint string
	}{
		{"no such program on PATH", engine.Command{Argv: []string{"llmprof-no-such"}}, engine.ProgramMissing, "install llmprof-no-such"},
		{"the PATH that the process gets counts", engine.Command{Argv: []string{"sh"}, Env: []string{"PATH=" + dir}}, engine.ProgramMissing, "PATH"},
		{"no such file", engine.Command{Argv: []string{dir + "/no"}}, engine.ProgramMissing, "ls -l"},
		{"not executable", engine.Command{Argv: []string{write("plain", "#!/bin/sh\n", 0o644)}}, engine.PermissionDenied, "chmod +x"},
		{"its interpreter is missing", engine.Command{Argv: []string{write("script", "#!/no/python\n", 0o755)}}, engine.ProgramMissing, "interpreter"},
		{"no such folder is no want of a program", engine.Command{Argv: []string{"sh"}, Dir: dir + "/no"}, "", ""},
		{"no program is named", engine.Command{}, "", ""},
		{"a zero byte cannot be passed on", engine.Command{Argv: []string{"sh", "a\x00b"}}, "", ""},
		{"a variable without a name", engine.Command{Argv: []string{"sh"}, Env: []string{"=x"}}, "", ""},
	} {
		t.Run(test.why, func(t *testing.T) {
			_, err := place.Local().Start(t.Context(), test.cmd)
			if err == nil {
				t.Fatal("started")
			}
			if got := engine.Unusable(err); got != test.want {
				t.Fatalf("problem %q, want %q: %v", got, test.want, err)
			}
			var hinted interface{ Hint() string }
			if test.hint != "" && (!errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), test.hint)) {
				t.Errorf("the hint of %v does not hold %q", err, test.hint)
			}
		})
	}
}

// forGood is as long as a test takes at most where a wait does not end.
const forGood = 5 * time.Minute

func TestLocalStop(t *testing.T) {
	for _, test := range []struct {
		why, script, signal string
		grace, least, most  time.Duration
	}{
		{"one that listens ends at once", `echo $$; exec sleep 1000`, "SIGTERM", 2 * forGood, 0, forGood},
		{"one that does not is killed after grace", `trap '' TERM; echo $$; while :; do sleep 0.1; done`, "SIGKILL", 300 * time.Millisecond, 300 * time.Millisecond, forGood},
		{"children are ended too", `sleep 1000 & echo $!; wait`, "SIGTERM", 2 * forGood, 0, forGood},
		{"children that do not listen are killed", `sh -c 'trap "" TERM; echo $$; while :; do sleep 0.1; done' & wait`, "SIGTERM", 300 * time.Millisecond, 300 * time.Millisecond, forGood},
	} {
		t.Run(test.why, func(t *testing.T) {
			process := start(t, place.Local(), sh(test.script))
			pid := readPID(t, process.Stdout())
			begin := time.Now()
			if err := process.Stop(test.grace); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took < test.least || took > test.most {
				t.Errorf("stopped after %v, want %v to %v", took, test.least, test.most)
			}
			dies(t, pid, 0)
			var exit *engine.ExitError
			if err := process.Wait(); !errors.As(err, &exit) || exit.Signal != test.signal {
				t.Errorf("ended with %v, want %s", err, test.signal)
			}
		})
	}
}

func TestLocalEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	process, err := place.Local().Start(ctx, sh(`echo $$; exec sleep 100`))
	if err != nil {
		t.Fatal(err)
	}
	pid := readPID(t, process.Stdout())
	cancel()
	if err := process.Wait(); err == nil {
		t.Error("no error of a process that was ended")
	}
	dies(t, pid, 0)
	if _, err := place.Local().Start(ctx, sh("true")); !errors.Is(err, context.Canceled) {
		t.Errorf("start with an ended context: %v", err)
	}
}

func TestLocalEndsWhatIsLeftBehind(t *testing.T) {
	process := start(t, place.Local(), sh(`sleep 1000 & echo $!; exit 0`))
	pid := readPID(t, process.Stdout())
	begin := time.Now()
	if err := process.Wait(); err != nil {
		t.Fatal(err)
	}
	dies(t, pid, 0)
	if took := time.Since(begin); took > forGood {
		t.Errorf("waited %v", took)
	}
}

func TestLocalStdoutEndsThoughAStrangerHoldsIt(t *testing.T) {
	setsid, err := exec.LookPath("setsid")
	if err != nil {
		t.Skip("no setsid here, so that nothing can leave its group")
	}
	process := start(t, place.Local(), sh(setsid+` sleep 1000 & echo $!; exit 0`))
	pid := 0
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	reader := bufio.NewReader(process.Stdout())
	pid = readPID(t, reader)
	if err := process.Wait(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(reader); err != nil || len(rest) > 0 {
		t.Errorf("rest of stdout: %q, %v", rest, err)
	}
	if !running(pid) {
		t.Error("the stranger has ended, and stdout with it")
	}
}

func TestLocalBigOutput(t *testing.T) {
	const size = 8 << 20
	cmd := sh(fmt.Sprintf(`head -c %d /dev/zero | tr '\0' x >&2 & head -c %d /dev/zero; wait`, size, size))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	process := start(t, place.Local(), cmd)
	n, err := io.Copy(io.Discard, process.Stdout())
	if err != nil || n != size {
		t.Errorf("read %d bytes, %v; want %d", n, err, size)
	}
	if err := process.Wait(); err != nil {
		t.Fatal(err)
	}
	if stderr.Len() != size {
		t.Errorf("%d bytes of stderr, want %d", stderr.Len(), size)
	}
}

func TestLocalOutputAfterTheEnd(t *testing.T) {
	process := start(t, place.Local(), sh(`echo late`))
	if err := process.Wait(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1200 * time.Millisecond) // longer than an abandoned pipe is kept open
	if text, err := io.ReadAll(process.Stdout()); err != nil || string(text) != "late\n" {
		t.Errorf("read %q, %v", text, err)
	}
}

// helpDying starts a process and a child of it, tells their ids in a file, and
// waits to be killed.
func helpDying(t *testing.T, at engine.Place) {
	process, err := at.Start(context.Background(), sh(`trap '' TERM; sleep 1000 & echo $$ $!; cat <&3 3<&0; while :; do sleep 1; done`))
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(process.Stdout()).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv("PLACE_HELPER"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * forGood)
}

// dyingHelper runs a test that calls helpDying in another program.
func dyingHelper(t *testing.T, test string, env []string) (helper *exec.Cmd, child, grandchild int) {
	t.Helper()
	told := filepath.Join(t.TempDir(), "pids")
	helper = exec.Command(os.Args[0], "-test.run="+test)
	helper.Env = append(env, "PLACE_HELPER="+told)
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = helper.Process.Kill() })
	for end := time.Now().Add(forGood); grandchild == 0; time.Sleep(20 * time.Millisecond) {
		if text, err := os.ReadFile(told); err == nil {
			_, _ = fmt.Sscan(string(text), &child, &grandchild)
		}
		if time.Now().After(end) {
			t.Fatal("the helper has started nothing")
		}
	}
	time.Sleep(300 * time.Millisecond) // threads that idle may end meanwhile
	return helper, child, grandchild
}

// TestHelperDies is run by TestLocalDiesWithItsParent.
func TestHelperDies(t *testing.T) {
	if os.Getenv("PLACE_HELPER") == "" {
		t.Skip("runs as a child of another test only")
	}
	helpDying(t, place.Local())
}

func TestLocalDiesWithItsParent(t *testing.T) {
	helper, child, grandchild := dyingHelper(t, "^TestHelperDies$", os.Environ())
	if !running(child) || !running(grandchild) {
		t.Fatal("the processes died before their parent")
	}
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = helper.Wait()
	dies(t, child, forGood)
	dies(t, grandchild, forGood)
}

func TestLocalFiles(t *testing.T) {
	at := place.Local()
	dir, remove, err := at.TempDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "probe.py")
	if err := at.CopyIn(t.Context(), path, strings.NewReader("print(1)\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info, err)
	}
	file, err := at.CopyOut(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(file); err != nil || string(text) != "print(1)\n" {
		t.Errorf("read %q, %v", text, err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	if _, err := at.CopyOut(t.Context(), filepath.Join(dir, "no")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := at.CopyOut(t.Context(), dir); err == nil {
		t.Error("a folder was read as a file")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := at.CopyIn(ctx, path, strings.NewReader("half"), 0o600); !errors.Is(err, context.Canceled) {
		t.Errorf("copy with an ended context: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("a failed copy left something behind: %v, %v", entries, err)
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

// listen answers every connection with what it says, in capitals, until the
// test ends.
func listen(t *testing.T) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				lines := bufio.NewScanner(conn)
				for lines.Scan() {
					_, _ = io.WriteString(conn, strings.ToUpper(lines.Text())+"\n")
				}
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// closedPort is a port that nobody listens on, and that no program is given by
// chance.
const closedPort = 1

// talk says something to the server of listen and checks its answer.
func talk(t *testing.T, at engine.Place, port int) {
	t.Helper()
	conn, err := at.Dial(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(conn)
	for _, word := range []string{"first", "second"} {
		if _, err := io.WriteString(conn, word+"\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := lines.ReadString('\n'); err != nil || line != strings.ToUpper(word)+"\n" {
			t.Fatalf("answer %q, %v", line, err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

func TestLocalDial(t *testing.T) {
	talk(t, place.Local(), listen(t))
	if conn, err := place.Local().Dial(t.Context(), closedPort); err == nil {
		_ = conn.Close()
		t.Error("connected to a port that nobody listens on")
	}
}
