//go:build unix

package place_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
)

// testRemote runs everything that a remote place promises. The place has to be
// this machine in truth where here is set: its processes are looked for then.
func testRemote(t *testing.T, at engine.Place, here bool) {
	t.Run("available", func(t *testing.T) {
		if err := at.Available(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("streams", func(t *testing.T) { remoteStreams(t, at) })
	t.Run("words", func(t *testing.T) { remoteWords(t, at) })
	t.Run("ends", func(t *testing.T) { remoteEnds(t, at) })
	t.Run("unusable", func(t *testing.T) { remoteUnusable(t, at) })
	t.Run("stop", func(t *testing.T) { remoteStop(t, at) })
	t.Run("context", func(t *testing.T) { remoteContext(t, at) })
	t.Run("left behind", func(t *testing.T) { remoteLeft(t, at) })
	t.Run("big output", func(t *testing.T) { remoteBig(t, at) })
	t.Run("files", func(t *testing.T) { remoteFiles(t, at) })
	t.Run("dial", func(t *testing.T) { remoteDial(t, at, here) })
	if here {
		t.Run("secrets stay out of command lines", func(t *testing.T) { remoteSecrets(t, at) })
	}
}

func remoteStreams(t *testing.T, at engine.Place) {
	var stderr bytes.Buffer
	cmd := sh(`echo "to $GREETING from $(pwd)"; echo "aside $HF_TOKEN" >&2; cat; echo end >&2`)
	cmd.Env, cmd.Dir, cmd.Stderr = []string{"GREETING=it's \"you\"\n$HOME", "HF_TOKEN=hello-secret"}, "/usr", &stderr
	process := start(t, at, cmd)
	lines := bufio.NewReader(process.Stdout())
	want := "to it's \"you\"\n$HOME from /usr\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(lines, got); err != nil || string(got) != want {
		t.Fatalf("stdout %q, %v; want %q", got, err, want)
	}
	for _, word := range []string{"one\n", "two\n"} { // each is answered before the next is said
		if _, err := io.WriteString(process.Stdin(), word); err != nil {
			t.Fatal(err)
		}
		if line, err := lines.ReadString('\n'); err != nil || line != word {
			t.Fatalf("echo %q, %v", line, err)
		}
	}
	if err := process.Stdin().Close(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("rest %q, %v", rest, err)
	}
	if err := process.Wait(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("aside [redacted]\nend\n", stderr.String()); diff != "" {
		t.Error(diff)
	}
	if err := process.Stop(time.Second); err != nil {
		t.Errorf("stop after the end: %v", err)
	}
	if err := process.Stdin().Close(); err != nil {
		t.Errorf("close of stdin after the end: %v", err)
	}
}

// remoteWords checks that arguments, variables and folders arrive unchanged.
func remoteWords(t *testing.T, at engine.Place) {
	word := rapid.OneOf(
		rapid.StringOf(rapid.RuneFrom([]rune("'\"\\ \n\t$`!*?~#&|;<>(){}[]%^-=aé世😀"))),
		rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return r != 0 })),
	)
	check := func(t interface {
		Fatalf(string, ...any)
		Fatal(...any)
	}, args []string, value string,
	) {
		cmd := engine.Command{
			Argv: append([]string{"sh", "-c", `printf '%s\000' "$VALUE" "$@"`, "sh"}, args...),
			Env:  []string{"VALUE=" + value},
		}
		ctx, cancel := context.WithTimeout(context.Background(), forGood)
		defer cancel()
		process, err := at.Start(ctx, cmd)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(process.Stdout())
		if err != nil {
			t.Fatal(err)
		}
		if err := process.Wait(); err != nil {
			t.Fatal(err)
		}
		want := strings.Join(append([]string{value}, args...), "\x00") + "\x00"
		if want != string(text) {
			t.Fatalf("sent %q, arrived %q", want, text)
		}
	}
	for _, awkward := range []string{"", " ", "'", `"`, `\`, "\n", "a\n", "\n\n", "-n", "$HOME", "`id`", "!!", "*", "é世😀", "\x81\x88\xff", "\r\n", strings.Repeat("long ", 4000)} {
		check(t, []string{awkward, "next"}, awkward)
	}
	if testing.Short() {
		return
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.SliceOfN(word, 0, 5).Draw(t, "args"), word.Draw(t, "value"))
	})
}

func remoteEnds(t *testing.T, at engine.Place) {
	for _, test := range []struct {
		why, script string
		want        engine.ExitError
	}{
		{"a status is told", "echo broken >&2; exit 3", engine.ExitError{Code: 3, Stderr: "broken"}},
		{"a high status is one of a program", "exit 200", engine.ExitError{Code: 200}},
		{"a signal is named", "kill -SEGV $$", engine.ExitError{Code: -1, Signal: "SIGSEGV"}},
		{"the kernel's favourite is named too", "kill -KILL $$", engine.ExitError{Code: -1, Signal: "SIGKILL"}},
	} {
		t.Run(test.why, func(t *testing.T) {
			process := start(t, at, sh(test.script))
			test.want.Program, test.want.Place = "sh", at.String()
			var got *engine.ExitError
			if err := process.Wait(); !errors.As(err, &got) {
				t.Fatalf("want an exit error, got %v", err)
			}
			if test.want.Signal != "" || strings.HasPrefix(got.Stderr, "command terminated") {
				got.Stderr = "" // some shells and kubectl say something on it
			}
			if diff := cmp.Diff(test.want, *got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func remoteUnusable(t *testing.T, at engine.Place) {
	_, err := at.Start(t.Context(), engine.Command{Argv: []string{"llmprof-no-such"}})
	if engine.Unusable(err) != engine.ProgramMissing || !strings.Contains(err.Error(), "llmprof-no-such") {
		t.Errorf("a missing program: %v", err)
	}
	_, err = at.Start(t.Context(), engine.Command{Argv: []string{"/etc/passwd"}})
	if engine.Unusable(err) != engine.PermissionDenied {
		t.Errorf("a file that is no program: %v", err)
	}
	_, err = at.Start(t.Context(), engine.Command{Argv: []string{"sh"}, Dir: "/no/such"})
	if engine.Unusable(err) != "" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing folder: %v", err)
	}
	for why, cmd := range map[string]engine.Command{
		"no program":                        {},
		"a zero byte":                       {Argv: []string{"sh", "\x00"}},
		"a variable that would be a script": {Argv: []string{"sh"}, Env: []string{"A;id;B=1"}},
	} {
		if _, err := at.Start(t.Context(), cmd); err == nil {
			t.Errorf("%s: started", why)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := at.Start(ctx, sh("true")); !errors.Is(err, context.Canceled) {
		t.Errorf("start with an ended context: %v", err)
	}
}

// living says whether a process of the place does anything.
func living(t *testing.T, at engine.Place, pid string) bool {
	t.Helper()
	text := output(t, at, sh(`read -r s 2>/dev/null <"/proc/$1/stat" || exit 0; s=${s##*) }; case $s in Z*|X*) ;; *) echo lives;; esac`, pid))
	return text != ""
}

func remoteStop(t *testing.T, at engine.Place) {
	for _, test := range []struct {
		why, script, signal string
		grace, least        time.Duration
	}{
		{"one that listens ends at once", `echo $$; exec sleep 1000`, "SIGTERM", 2 * forGood, 0},
		{"one that does not is killed after grace", `trap '' TERM; echo $$; while :; do sleep 0.1; done`, "SIGKILL", 300 * time.Millisecond, 300 * time.Millisecond},
		{"children are ended too", `sleep 1000 & echo $!; wait`, "SIGTERM", 2 * forGood, 0},
		{"children that do not listen are killed", `sh -c 'trap "" TERM; echo $$; while :; do sleep 0.1; done' & wait`, "", 300 * time.Millisecond, 300 * time.Millisecond},
	} {
		t.Run(test.why, func(t *testing.T) {
			process := start(t, at, sh(test.script))
			pid := fmt.Sprint(readPID(t, process.Stdout()))
			begin := time.Now()
			if err := process.Stop(test.grace); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took < test.least || took > forGood {
				t.Errorf("stopped after %v", took)
			}
			if living(t, at, pid) {
				t.Errorf("process %s lives on", pid)
			}
			var exit *engine.ExitError
			if err := process.Wait(); !errors.As(err, &exit) || test.signal != "" && exit.Signal != test.signal {
				t.Errorf("ended with %v, want %s", err, test.signal)
			}
		})
	}
}

func remoteContext(t *testing.T, at engine.Place) {
	ctx, cancel := context.WithCancel(t.Context())
	process, err := at.Start(ctx, sh(`echo $$; exec sleep 100`))
	if err != nil {
		t.Fatal(err)
	}
	pid := fmt.Sprint(readPID(t, process.Stdout()))
	cancel()
	if err := process.Wait(); err == nil {
		t.Error("no error of a process that was ended")
	}
	if living(t, at, pid) {
		t.Error("it lives on")
	}
}

// remoteLeft: what a program leaves behind holds its streams and its device.
func remoteLeft(t *testing.T, at engine.Place) {
	process := start(t, at, sh(`sleep 1000 & echo $!; exit 0`))
	lines := bufio.NewReader(process.Stdout())
	pid := fmt.Sprint(readPID(t, lines))
	if _, err := io.ReadAll(lines); err != nil {
		t.Error(err)
	}
	if err := process.Wait(); err != nil {
		t.Fatal(err)
	}
	if living(t, at, pid) {
		t.Error("it lives on")
	}
}

func remoteBig(t *testing.T, at engine.Place) {
	const size = 8 << 20
	cmd := sh(fmt.Sprintf(`head -c %d /dev/zero | tr '\0' x >&2 & head -c %d /dev/zero; wait`, size, size))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	process := start(t, at, cmd)
	n, err := io.Copy(io.Discard, process.Stdout())
	if err != nil || n != size {
		t.Errorf("read %d bytes, %v; want %d", n, err, size)
	}
	if err := process.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(stderr.String(), "x"); got != size {
		t.Errorf("%d bytes of stderr, want %d", got, size)
	}
}

func remoteFiles(t *testing.T, at engine.Place) {
	dir, remove, err := at.TempDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if mode := output(t, at, sh(`ls -ld "$1"`, dir)); !strings.HasPrefix(mode, "drwx------") {
		t.Errorf("folder %s", mode)
	}
	for name, content := range map[string]string{
		"it's a \"name\".py": "print('é')\n",
		"-empty":             "",
		"big":                strings.Repeat("\x00\xff\r\n binary", 500_000),
	} {
		file := path.Join(dir, name)
		if err := at.CopyIn(t.Context(), file, strings.NewReader(content), 0o750); err != nil {
			t.Fatal(err)
		}
		if mode := output(t, at, sh(`ls -l "$1"`, file)); !strings.HasPrefix(mode, "-rwxr-x---") {
			t.Errorf("mode of %s", mode)
		}
		reader, err := at.CopyOut(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reader)
		if err != nil || sha256.Sum256(text) != sha256.Sum256([]byte(content)) {
			t.Errorf("%s: %d bytes came back, %v; want %d", name, len(text), err, len(content))
		}
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	}
	reader, err := at.CopyOut(t.Context(), path.Join(dir, "big"))
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Close(); err != nil {
		t.Errorf("close of a file that was not read: %v", err)
	}
	if _, err := at.CopyOut(t.Context(), path.Join(dir, "no")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := at.CopyOut(t.Context(), dir); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder: %v", err)
	}
	if err := at.CopyIn(t.Context(), path.Join(dir, "no/file"), strings.NewReader("x"), 0o600); err == nil {
		t.Error("copied into a folder that is not there")
	}
	if err := at.CopyIn(t.Context(), "", strings.NewReader("x"), 0o600); err == nil {
		t.Error("copied to no path")
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	if left := output(t, at, sh(`ls -d "$1" 2>/dev/null || :`, dir)); left != "" {
		t.Errorf("the folder is still there: %s", left)
	}
}

func remoteDial(t *testing.T, at engine.Place, here bool) {
	_, err := at.Dial(t.Context(), closedPort)
	if engine.Unusable(err) == engine.ProgramMissing && !here {
		t.Skip(err)
	}
	if err == nil || engine.Unusable(err) != "" {
		t.Errorf("a port that nobody listens on: %v", err)
	}
	if here || os.Getenv("PLACE_LOOPBACK") != "" {
		talk(t, at, listen(t))
	}
}

func remoteSecrets(t *testing.T, at engine.Place) {
	cmd := sh("echo up; cat")
	cmd.Env = []string{"HF_TOKEN=very-private-value", "PLAIN=other-value"}
	process := start(t, at, cmd)
	if line, err := bufio.NewReader(process.Stdout()).ReadString('\n'); err != nil || line != "up\n" {
		t.Fatal(line, err)
	}
	lines, err := os.ReadDir("/proc")
	if err != nil {
		t.Skip("no /proc to look into")
	}
	for _, entry := range lines {
		text, err := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		if err == nil && bytes.Contains(text, []byte("very-private-value")) {
			t.Errorf("command line with the secret: %q", text)
		}
	}
}

// TestRemoteHelperDies starts a process at a place and waits to be killed; it is
// run by remoteDies.
func TestRemoteHelperDies(t *testing.T) {
	spec := os.Getenv("PLACE_HELPER_SPEC")
	if spec == "" {
		t.Skip("runs as a child of another test only")
	}
	at, err := place.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	helpDying(t, at)
}

// remoteDies checks that processes at a place die with the program that
// started them. Env leads another program to the place.
func remoteDies(t *testing.T, at engine.Place, env []string) {
	helper, child, grandchild := dyingHelper(t, "^TestRemoteHelperDies$", append(env, "PLACE_HELPER_SPEC="+at.String()))
	for _, pid := range []int{child, grandchild} {
		if !living(t, at, fmt.Sprint(pid)) {
			t.Fatal("a process died before its parent")
		}
	}
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = helper.Wait()
	for end := time.Now().Add(forGood); living(t, at, fmt.Sprint(child)) || living(t, at, fmt.Sprint(grandchild)); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a process lives on")
		}
	}
}

// fakes is a folder with client programs that run commands on this machine, or
// fail as FAKE_FAILURE says.
func fakes(t *testing.T) (env []string) {
	t.Helper()
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("no setsid here, which the imitations of ssh and kubectl need")
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "PATH="+path.Join(dir, "testdata", "bin")+":"+os.Getenv("PATH"))
}

func TestSSH(t *testing.T) {
	at, env := place.SSH("me@gpu7:2222", fakes(t)...), fakes(t)
	testRemote(t, at, true)
	t.Run("dies with its parent", func(t *testing.T) { remoteDies(t, at, env) })
}

func TestKubectl(t *testing.T) {
	env := fakes(t)
	at := place.Kubectl(place.Pod{Context: "arn:aws:eks:cluster/one", Namespace: "serving", Name: "vllm-0", Container: "engine"}, env...)
	testRemote(t, at, true)
	t.Run("dies with its parent", func(t *testing.T) { remoteDies(t, at, env) })
}

// TestReal runs the same against real places: PLACE_SPECS="docker:vllm ssh:gpu7".
// PLACE_LOOPBACK says that they share this machine's loopback address.
func TestReal(t *testing.T) {
	specs := strings.Fields(os.Getenv("PLACE_SPECS"))
	if len(specs) == 0 {
		t.Skip("set PLACE_SPECS to places that exist, as in PLACE_SPECS=\"docker:vllm ssh:gpu7\"")
	}
	for _, spec := range specs {
		t.Run(spec, func(t *testing.T) {
			at, err := place.Parse(spec)
			if err != nil {
				t.Fatal(err)
			}
			testRemote(t, at, strings.Contains(spec, "localhost") || strings.Contains(spec, "127.0.0.1"))
			t.Run("dies with its parent", func(t *testing.T) { remoteDies(t, at, os.Environ()) })
		})
	}
}
