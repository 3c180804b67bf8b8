package place

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/engine"
)

// LocalPlace is this machine. [Local] makes it.
type LocalPlace struct {
	env      []string
	redactor *engine.Redactor
}

// Local returns this machine. The processes get env, "NAME=value"; none at all
// stands for the environment of this program.
func Local(env ...string) *LocalPlace {
	env = ownEnv(env)
	return &LocalPlace{env: env, redactor: engine.NewRedactor(env...)}
}

// ownEnv is the environment that a place looks things up in.
func ownEnv(env []string) []string {
	if len(env) == 0 {
		return os.Environ()
	}
	return env
}

// lookEnv is a variable of an environment; the last one of a name counts.
func lookEnv(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if key, value, _ := strings.Cut(env[i], "="); key == name || runtime.GOOS == "windows" && strings.EqualFold(key, name) {
			return value
		}
	}
	return ""
}

// String is "local".
func (*LocalPlace) String() string { return "local" }

// Redactor knows the secrets of the environment that the processes get.
func (l *LocalPlace) Redactor() *engine.Redactor { return l.redactor }

// Available returns nil: this machine is there.
func (*LocalPlace) Available(ctx context.Context) error { return ctx.Err() }

// Start starts a process in a process group of its own. The group is ended
// when ctx is, when the process itself ends and leaves others behind, and, on
// Unix, when this program dies, even of a SIGKILL.
func (l *LocalPlace) Start(ctx context.Context, cmd engine.Command) (engine.Process, error) {
	if err := checkCommand(ctx, l, cmd); err != nil {
		return nil, err
	}
	env := append(append([]string(nil), l.env...), cmd.Env...)
	program, err := findProgram(l.String(), cmd.Argv[0], cmd.Dir, env)
	if err != nil {
		return nil, err
	}
	if cmd.Dir != "" {
		if info, err := os.Stat(cmd.Dir); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("start %s on %s: folder %s: %w", cmd.Argv[0], l, cmd.Dir, fs.ErrNotExist)
		}
	}
	stderr := listen(cmd, l.redactor.With(cmd.Env...))
	process, err := spawn(ctx, spawned{
		path: program, argv: cmd.Argv, env: env, dir: cmd.Dir,
		place: l.String(), stderr: stderr, last: stderr.last,
	})
	if err != nil {
		return nil, err
	}
	return process, nil
}

// checkCommand refuses what no place can start.
func checkCommand(ctx context.Context, place engine.Place, cmd engine.Command) error {
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return fmt.Errorf("start a process on %s: no program is named", place)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("start %s on %s: %w", cmd.Argv[0], place, err)
	}
	for _, text := range append(append([]string{cmd.Dir}, cmd.Argv...), cmd.Env...) {
		if strings.Contains(text, "\x00") {
			return fmt.Errorf("start %s on %s: an argument, variable or folder holds a zero byte", cmd.Argv[0], place)
		}
	}
	for _, entry := range cmd.Env {
		if name, _, found := strings.Cut(entry, "="); !found || !variableName.MatchString(name) {
			return fmt.Errorf("start %s on %s: environment variable %q: want NAME=value", cmd.Argv[0], place, name)
		}
	}
	return nil
}

// findProgram looks a program up in the PATH that it would itself get.
func findProgram(place, name, dir string, env []string) (string, error) {
	if strings.ContainsRune(name, '/') || strings.ContainsRune(name, filepath.Separator) {
		at := name
		if !filepath.IsAbs(at) && dir != "" {
			at = filepath.Join(dir, name)
		}
		if _, err := exec.LookPath(at); err != nil {
			return "", programError(place, name, err)
		}
		if abs, err := filepath.Abs(at); err == nil {
			return abs, nil
		}
		return at, nil
	}
	err := fs.ErrNotExist
	for _, folder := range filepath.SplitList(lookEnv(env, "PATH")) {
		if !filepath.IsAbs(folder) {
			continue // what lies about in the working folder is not run by name
		}
		found, lookErr := exec.LookPath(filepath.Join(folder, name))
		if lookErr == nil {
			return found, nil
		}
		if errors.Is(lookErr, fs.ErrPermission) {
			err = lookErr
		}
	}
	return "", programError(place, name, err)
}

// programError says why a program cannot be started.
func programError(place, name string, err error) error {
	var looked *exec.Error
	if errors.As(err, &looked) {
		err = looked.Err
	}
	if errors.Is(err, fs.ErrPermission) {
		return &engine.UnusableError{
			Problem: engine.PermissionDenied, What: "program " + name + " on " + place,
			Remedy: "chmod +x " + name, Err: err,
		}
	}
	remedy := "install " + name + " on " + place + ", or put the folder that holds it on PATH"
	if strings.ContainsAny(name, `/\`) {
		remedy = "ls -l " + name + " shows whether the file is there and can be run"
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // the problem says it already
	}
	return &engine.UnusableError{Problem: engine.ProgramMissing, What: "program " + name + " on " + place, Remedy: remedy, Err: err}
}

// CopyIn writes a file, whole or not at all.
func (l *LocalPlace) CopyIn(ctx context.Context, path string, content io.Reader, mode uint32) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("copy to %s on local: %w", path, err)
	}
	_, err = io.Copy(file, contextReader{ctx, content})
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Chmod(file.Name(), fs.FileMode(mode)&fs.ModePerm)
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return fmt.Errorf("copy to %s on local: %w", path, err)
	}
	return nil
}

// CopyOut opens a file.
func (l *LocalPlace) CopyOut(ctx context.Context, path string) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("copy from local: %w", err)
	}
	if info, err := file.Stat(); err == nil && info.IsDir() {
		_ = file.Close()
		return nil, fmt.Errorf("copy from local: %s is a folder", path)
	}
	return file, nil
}

// TempDir makes a folder in the system's own folder for such.
func (l *LocalPlace) TempDir(ctx context.Context) (string, func() error, error) {
	if err := ctx.Err(); err != nil {
		return "", nil, err
	}
	parent := lookEnv(l.env, "TMPDIR")
	dir, err := os.MkdirTemp(parent, "llmprof-*")
	if err != nil {
		return "", nil, fmt.Errorf("make a folder on local: %w", err)
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

// Dial connects to a port of this machine's loopback address, of IPv4 or IPv6.
func (l *LocalPlace) Dial(ctx context.Context, port int) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		six, errSix := dialer.DialContext(ctx, "tcp", net.JoinHostPort("::1", strconv.Itoa(port)))
		if errSix != nil {
			return nil, fmt.Errorf("connect to port %d on local: %w", port, err)
		}
		conn = six
	}
	return conn, nil
}

// contextReader stops reading when its context ends.
type contextReader struct {
	ctx  context.Context
	from io.Reader
}

// Read fails with the context's error.
func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(p)
}
