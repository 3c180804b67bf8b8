//go:build unix

package place_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
)

// fakeDaemon answers the part of the Engine API that places use, as its
// documentation says: ping, inspect of a container, create, start and inspect
// of an exec, create, attach, start and delete of a container. What it is asked
// to run runs on this machine, in a session of its own.
type fakeDaemon struct {
	t      *testing.T
	socket string
	// exec says why an exec cannot be started, in the stream and with status
	// 127 as older daemons do, or in the answer as newer ones.
	execText, execAnswer string

	mu    sync.Mutex
	execs map[string]*fakeExec
	made  []json.RawMessage // bodies of container create
	gone  chan string       // containers that were removed
}

// fakeExec is an exec.
type fakeExec struct {
	argv    []string
	running bool
	code    int
}

// newFakeDaemon listens on a socket of the test.
func newFakeDaemon(t *testing.T) *fakeDaemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "llmprof") //nolint:usetesting // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := &fakeDaemon{t: t, socket: filepath.Join(dir, "d.sock"), execs: map[string]*fakeExec{}, gone: make(chan string, 10)}
	listener, err := net.Listen("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", "1.47")
		_, _ = io.WriteString(w, "OK")
	})
	mux.HandleFunc("GET /{version}/containers/{name}/json", d.inspect)
	mux.HandleFunc("POST /{version}/containers/{name}/exec", d.create)
	mux.HandleFunc("POST /{version}/exec/{id}/start", d.start)
	mux.HandleFunc("GET /{version}/exec/{id}/json", d.inspectExec)
	mux.HandleFunc("POST /{version}/containers/create", d.createContainer)
	mux.HandleFunc("POST /{version}/containers/{name}/attach", d.attach)
	mux.HandleFunc("POST /{version}/containers/{name}/start", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("DELETE /{version}/containers/{name}", func(w http.ResponseWriter, r *http.Request) {
		d.gone <- r.PathValue("name")
		w.WriteHeader(http.StatusNoContent)
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return d
}

// env leads to the daemon.
func (d *fakeDaemon) env() []string { return []string{"DOCKER_HOST=unix://" + d.socket} }

// refuse answers with an error as the API does.
func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": fmt.Sprintf(format, args...)})
}

// answer writes JSON.
func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

// inspect knows containers by the state that their name says.
func (d *fakeDaemon) inspect(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	state := map[string]any{"Status": name}
	switch name {
	case "vllm", "made", "stops-now":
		state["Status"], state["Running"] = "running", true
	case "paused":
		state["Running"], state["Paused"] = true, true
	case "restarting":
		state["Restarting"] = true
	case "exited":
		state["OOMKilled"] = true
	case "created":
	case "secret":
		refuse(w, http.StatusForbidden, "authorization denied by plugin")
		return
	default:
		refuse(w, http.StatusNotFound, "No such container: %s", name)
		return
	}
	answer(w, http.StatusOK, map[string]any{"Id": name, "Name": "/" + name, "State": state})
}

func (d *fakeDaemon) create(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("name") == "stops-now" {
		refuse(w, http.StatusConflict, "container stops-now is not running")
		return
	}
	var request struct {
		Cmd                                     []string
		AttachStdin, AttachStdout, AttachStderr bool
		Tty                                     bool
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || !request.AttachStdin || !request.AttachStdout || !request.AttachStderr || request.Tty {
		refuse(w, http.StatusBadRequest, "unexpected exec %+v: %v", request, err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id := fmt.Sprintf("exec%d", len(d.execs))
	d.execs[id] = &fakeExec{argv: request.Cmd}
	answer(w, http.StatusCreated, map[string]string{"Id": id})
}

func (d *fakeDaemon) inspectExec(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.execs[r.PathValue("id")]
	answer(w, http.StatusOK, map[string]any{"ID": r.PathValue("id"), "Running": e.running, "ExitCode": e.code, "Pid": 1})
}

// frames writes one stream of the multiplexed connection.
type frames struct {
	mu     *sync.Mutex
	conn   net.Conn
	stream byte
}

// Write sends a frame: the stream, three zeros, the length, the text.
func (f frames) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	header := [8]byte{f.stream}
	binary.BigEndian.PutUint32(header[4:], uint32(len(p)))
	if _, err := f.conn.Write(append(header[:], p...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// hijack takes a connection over.
func hijack(w http.ResponseWriter) (net.Conn, io.Reader, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	_, err = io.WriteString(conn, "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.multiplexed-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	return conn, buffered.Reader, err
}

func (d *fakeDaemon) start(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	d.mu.Lock()
	e := d.execs[r.PathValue("id")]
	d.mu.Unlock()
	finish := func(code int) {
		d.mu.Lock()
		defer d.mu.Unlock()
		e.running, e.code = false, code
	}
	if d.execAnswer != "" {
		finish(127)
		refuse(w, http.StatusBadRequest, "%s", d.execAnswer)
		return
	}
	conn, stdin, err := hijack(w)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	var mu sync.Mutex
	if d.execText != "" {
		_, _ = frames{&mu, conn, 1}.Write([]byte(d.execText + "\r\n"))
		finish(127)
		return
	}
	cmd := exec.Command(e.argv[0], e.argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdout, cmd.Stderr = frames{&mu, conn, 1}, frames{&mu, conn, 2}
	feed, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		finish(126)
		return
	}
	d.mu.Lock()
	e.running = true
	d.mu.Unlock()
	go func() {
		_, _ = io.Copy(feed, stdin)
		_ = feed.Close()
	}()
	_ = cmd.Wait()
	code := cmd.ProcessState.ExitCode()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	finish(code)
}

func (d *fakeDaemon) createContainer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var request struct{ Image string }
	_ = json.Unmarshal(body, &request)
	if request.Image == "no-such" {
		refuse(w, http.StatusNotFound, "No such image: no-such:latest")
		return
	}
	d.mu.Lock()
	d.made = append(d.made, body)
	d.mu.Unlock()
	answer(w, http.StatusCreated, map[string]any{"Id": "made", "Warnings": []string{}})
}

// attach ends the container when its stdin ends.
func (d *fakeDaemon) attach(w http.ResponseWriter, r *http.Request) {
	conn, stdin, err := hijack(w)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.Copy(io.Discard, stdin)
	d.gone <- "stdin of " + r.PathValue("name")
}

func TestDocker(t *testing.T) {
	env := newFakeDaemon(t).env()
	at := place.Docker("vllm", env...)
	testRemote(t, at, true)
	t.Run("dies with its parent", func(t *testing.T) { remoteDies(t, at, append(os.Environ(), env...)) })
}

func TestDockerUnusable(t *testing.T) {
	dir, err := os.MkdirTemp("", "llmprof") //nolint:usetesting // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.WriteFile(dir+"/dead.sock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	noShell := `OCI runtime exec failed: exec failed: unable to start container process: exec: "sh": executable file not found in $PATH: unknown`
	for _, test := range []struct {
		why, container, host string
		setup                func(*fakeDaemon)
		want                 engine.Problem
		text, hint           string
	}{
		{why: "no such container", container: "none", want: engine.PlaceMissing, text: "docker container none: missing", hint: "docker ps -a"},
		{why: "it has ended", container: "exited", want: engine.PlaceStopped, text: "out of memory", hint: "docker start exited"},
		{why: "it was never started", container: "created", want: engine.PlaceStopped, text: "created", hint: "docker start created"},
		{why: "it is paused", container: "paused", want: engine.PlaceStopped, hint: "docker unpause paused"},
		{why: "it restarts again and again", container: "restarting", want: engine.PlaceStopped, hint: "docker logs restarting"},
		{why: "it ends between two calls", container: "stops-now", want: engine.PlaceStopped, hint: "docker start stops-now"},
		{why: "a plugin of the daemon forbids it", container: "secret", want: engine.PermissionDenied, hint: "usermod"},
		{why: "no shell, told in the stream", container: "vllm", setup: func(d *fakeDaemon) { d.execText = noShell }, want: engine.ProgramMissing, text: "program sh", hint: "shell"},
		{why: "no shell, told in the answer", container: "vllm", setup: func(d *fakeDaemon) { d.execAnswer = noShell }, want: engine.ProgramMissing, text: "program sh", hint: "shell"},
		{why: "no socket", container: "vllm", host: "unix://" + dir + "/none.sock", want: engine.ServiceUnreachable, hint: "DOCKER_HOST"},
		{why: "nobody behind the socket", container: "vllm", host: "unix://" + dir + "/dead.sock", want: engine.ServiceUnreachable, hint: "systemctl start docker"},
		{why: "an address that is none", container: "vllm", host: "nonsense", want: engine.ServiceUnreachable, hint: "DOCKER_HOST"},
		{why: "a daemon behind ssh", container: "vllm", host: "ssh://gpu7", want: engine.ServiceUnreachable, hint: "ssh:gpu7"},
	} {
		t.Run(test.why, func(t *testing.T) {
			daemon := newFakeDaemon(t)
			if test.setup != nil {
				test.setup(daemon)
			}
			env := daemon.env()
			if test.host != "" {
				env = []string{"DOCKER_HOST=" + test.host}
			}
			unusable(t, place.Docker(test.container, env...), test.want, test.text, test.hint)
		})
	}
}

// unusable checks what a place says that cannot be used.
func unusable(t *testing.T, at *place.Remote, want engine.Problem, text, hint string) {
	t.Helper()
	err := at.Available(t.Context())
	if got := engine.Unusable(err); got != want {
		t.Fatalf("problem %q, want %q: %v", got, want, err)
	}
	var known *engine.UnusableError
	if errors.As(err, &known) && !strings.Contains(known.Remedy, hint) {
		t.Errorf("remedy %q lacks %q", known.Remedy, hint)
	}
	if !strings.Contains(err.Error(), text) {
		t.Errorf("error %q lacks %q", err, text)
	}
	if _, startErr := at.Start(t.Context(), sh("true")); engine.Unusable(startErr) != want {
		t.Errorf("start says %v", startErr)
	}
	if copyErr := at.CopyIn(t.Context(), "/tmp/x", strings.NewReader(""), 0o600); engine.Unusable(copyErr) != want {
		t.Errorf("copy says %v", copyErr)
	}
}

func TestDockerSockets(t *testing.T) {
	if conn, err := net.Dial("unix", "/var/run/docker.sock"); err == nil {
		_ = conn.Close()
		t.Skip("a real daemon answers here")
	}
	daemon := newFakeDaemon(t)
	run := filepath.Dir(daemon.socket)
	if err := os.Rename(daemon.socket, filepath.Join(run, "docker.sock")); err != nil {
		t.Fatal(err)
	}
	if err := place.Docker("vllm", "XDG_RUNTIME_DIR="+run).Available(t.Context()); err != nil {
		t.Errorf("the rootless socket was not found: %v", err)
	}
	if err := os.Mkdir(filepath.Join(run, "podman"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(run, "docker.sock"), filepath.Join(run, "podman", "podman.sock")); err != nil {
		t.Fatal(err)
	}
	if err := place.Podman("vllm", "XDG_RUNTIME_DIR="+run).Available(t.Context()); err != nil {
		t.Errorf("podman's socket was not found: %v", err)
	}
	unusable(t, place.Docker("vllm", "XDG_RUNTIME_DIR="+run), engine.ServiceUnreachable, "docker.sock", "systemctl start docker")
	if os.Getuid() == 0 {
		t.Log("the superuser may open every socket: a denied one is not tried")
		return
	}
	if err := os.Chmod(filepath.Join(run, "podman"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(run, "podman"), fs.FileMode(0o700)) })
	unusable(t, place.Podman("vllm", "XDG_RUNTIME_DIR="+run), engine.PermissionDenied, "podman.sock", "user who owns")
}
