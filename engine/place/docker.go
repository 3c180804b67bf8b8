package place

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/llmprof/llmprof/engine"
)

// dockerDoor opens shells in a running container, through the Engine API.
type dockerDoor struct {
	program   string // docker or podman: for remedies, and for where to look
	container string
	env       []string

	mu     sync.Mutex // of client
	client *client.Client
}

// Docker returns a running container of Docker, by name or id. The daemon is
// that of DOCKER_HOST (with DOCKER_TLS_VERIFY and DOCKER_CERT_PATH) or listens
// on one of the usual sockets, rootless ones included. Env, "NAME=value", is
// where these variables and secrets are looked for; none at all stands for the
// environment of this program.
func Docker(name string, env ...string) *Remote {
	return containerPlace("docker", name, env)
}

// Podman returns a running container of Podman, whose service answers the same
// API: at CONTAINER_HOST, or on one of its usual sockets.
func Podman(name string, env ...string) *Remote {
	return containerPlace("podman", name, env)
}

// containerPlace is a container of either program.
func containerPlace(program, name string, env []string) *Remote {
	env = ownEnv(env)
	return &Remote{
		name: program + ":" + name, redactor: engine.NewRedactor(env...),
		door: &dockerDoor{program: program, container: name, env: env},
	}
}

// hostVariable names the variable that says where the service is.
func (d *dockerDoor) hostVariable() string {
	if d.program == "podman" {
		return "CONTAINER_HOST"
	}
	return "DOCKER_HOST"
}

// sockets are the places to look for a service.
func (d *dockerDoor) sockets() []string {
	home, run := lookEnv(d.env, "HOME"), lookEnv(d.env, "XDG_RUNTIME_DIR")
	user := "/run/user/" + strconv.Itoa(os.Getuid())
	if run == "" {
		run = user
	}
	if d.program == "podman" {
		found := []string{run + "/podman/podman.sock", user + "/podman/podman.sock", "/run/podman/podman.sock", "/var/run/podman/podman.sock"}
		if home != "" {
			found = append(found, home+"/.local/share/containers/podman/machine/podman.sock")
		}
		return different(found)
	}
	found := []string{"/var/run/docker.sock", "/run/docker.sock", run + "/docker.sock", user + "/docker.sock"}
	if home != "" {
		for _, at := range []string{".docker/run/docker.sock", ".docker/desktop/docker.sock", ".colima/default/docker.sock", ".orbstack/run/docker.sock", ".rd/docker.sock"} {
			found = append(found, filepath.Join(home, at))
		}
	}
	return different(found)
}

// different are the paths of a list without repetitions.
func different(paths []string) []string {
	var out []string
	for _, path := range paths {
		if !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	return out
}

// host is the service's address: of the variable, or of the first socket that
// is there. A socket that may not be opened is named only where there is no
// other.
func (d *dockerDoor) host(ctx context.Context) (string, error) {
	if host := lookEnv(d.env, d.hostVariable()); host != "" {
		if strings.HasPrefix(host, "ssh://") {
			return "", &engine.UnusableError{
				Problem: engine.ServiceUnreachable, What: d.program + " service at " + host,
				Remedy: "ssh addresses are not followed here: use " + "ssh:" + strings.TrimPrefix(host, "ssh://") + ", or forward the socket with ssh -L and set " + d.hostVariable(),
			}
		}
		return host, nil
	}
	if runtime.GOOS == "windows" {
		return client.DefaultDockerHost, nil
	}
	var denied string
	for _, socket := range d.sockets() {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", socket)
		if err == nil {
			_ = conn.Close()
			return "unix://" + socket, nil
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("%s: %w", d.what(), ctx.Err())
		}
		if errors.Is(err, fs.ErrPermission) && denied == "" {
			denied = socket
		}
	}
	if denied != "" {
		return "", d.deniedError(denied)
	}
	return "", d.unreachableError(fmt.Errorf("no %s socket answers; looked at %s", d.program, strings.Join(d.sockets(), ", ")))
}

// deniedError says that the user may not use the service.
func (d *dockerDoor) deniedError(socket string) error {
	remedy := "sudo usermod -aG docker $USER, then log in again; or run llmprof as a user who may use " + socket
	if d.program == "podman" {
		remedy = "run llmprof as the user who owns the container, or: systemctl --user start podman.socket"
	}
	return &engine.UnusableError{
		Problem: engine.PermissionDenied, What: d.program + " socket " + socket, Remedy: remedy, Err: fs.ErrPermission,
	}
}

// unreachableError says that the service does not answer.
func (d *dockerDoor) unreachableError(err error) error {
	remedy := "sudo systemctl start docker, or set DOCKER_HOST (docker context ls shows addresses)"
	if d.program == "podman" {
		remedy = "systemctl --user start podman.socket (sudo systemctl start podman.socket for root's), or set CONTAINER_HOST"
	}
	return &engine.UnusableError{Problem: engine.ServiceUnreachable, What: d.program + " service", Remedy: remedy, Err: err}
}

// dial returns the client, made at first use.
func (d *dockerDoor) dial(ctx context.Context) (*client.Client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client != nil {
		return d.client, nil
	}
	host, err := d.host(ctx)
	if err != nil {
		return nil, err
	}
	var options []client.Opt
	if certificates := lookEnv(d.env, "DOCKER_CERT_PATH"); certificates != "" && strings.HasPrefix(host, "tcp://") {
		options = append(options, client.WithTLSClientConfig(
			filepath.Join(certificates, "ca.pem"), filepath.Join(certificates, "cert.pem"), filepath.Join(certificates, "key.pem")))
	}
	c, err := client.New(append(options, client.WithHost(host))...)
	if err != nil {
		return nil, d.unreachableError(fmt.Errorf("%s: %w", host, err))
	}
	d.client = c
	return c, nil
}

// what names the container in errors.
func (d *dockerDoor) what() string { return d.program + " container " + d.container }

// translate turns an error of the API into one with a remedy.
func (d *dockerDoor) translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", d.what(), ctx.Err())
	}
	text := strings.ToLower(err.Error())
	unusable := func(problem engine.Problem, remedy string) error {
		return &engine.UnusableError{Problem: problem, What: d.what(), Remedy: remedy, Err: err}
	}
	switch {
	case errors.Is(err, fs.ErrPermission) || errdefs.IsPermissionDenied(err) || strings.Contains(text, "permission denied while trying to connect"):
		return d.deniedError(strings.TrimPrefix(d.address(), "unix://"))
	case client.IsErrConnectionFailed(err) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist):
		return d.unreachableError(err)
	case strings.Contains(text, "executable file not found") || strings.Contains(text, "no such file or directory: oci"):
		return d.noShell(err)
	case strings.Contains(text, "is paused"):
		return unusable(engine.PlaceStopped, d.program+" unpause "+d.container)
	case strings.Contains(text, "not running") || strings.Contains(text, "is restarting") || strings.Contains(text, "container state improper"):
		return unusable(engine.PlaceStopped, d.program+" start "+d.container)
	case errdefs.IsNotFound(err):
		return unusable(engine.PlaceMissing, d.program+" ps -a lists them")
	case errdefs.IsUnauthorized(err):
		return unusable(engine.PermissionDenied, "ask whoever runs the "+d.program+" service for access")
	}
	return fmt.Errorf("%s: %w", d.what(), err)
}

// address is where the client looks for the service.
func (d *dockerDoor) address() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client == nil {
		return d.program + " socket"
	}
	return d.client.DaemonHost()
}

// noShell says that there is no shell in the container.
func (d *dockerDoor) noShell(err error) error {
	return &engine.UnusableError{
		Problem: engine.ProgramMissing, What: "program sh in " + d.what(),
		Remedy: "use an image that has a shell, which llmprof needs there; " + d.program + " exec " + d.container + " sh must work", Err: err,
	}
}

// open runs a shell in the container.
func (d *dockerDoor) open(ctx context.Context, script string, stderr io.WriteCloser, _ *tail) (link, error) {
	c, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	found, err := c.ContainerInspect(ctx, d.container, client.ContainerInspectOptions{})
	if err != nil {
		return nil, d.translate(ctx, err)
	}
	if err := d.runs(found.Container.State); err != nil {
		return nil, err
	}
	made, err := c.ExecCreate(ctx, d.container, client.ExecCreateOptions{
		Cmd: []string{"sh", "-c", script}, AttachStdin: true, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return nil, d.translate(ctx, err)
	}
	attached, err := c.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		// The reason is not in the answer that the client gives; a shell that
		// could not be run has left its status.
		if state, inspectErr := c.ExecInspect(ctx, made.ID, client.ExecInspectOptions{}); inspectErr == nil && (state.ExitCode == 126 || state.ExitCode == 127) {
			return nil, d.noShell(err)
		}
		return nil, d.translate(ctx, err)
	}
	l, err := newExecLink(c, made.ID, attached.HijackedResponse, stderr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.what(), err)
	}
	return l, nil
}

// runs refuses a container that does not run.
func (d *dockerDoor) runs(state *container.State) error {
	if state == nil || state.Running && !state.Paused {
		return nil
	}
	remedy := d.program + " start " + d.container
	switch {
	case state.Paused:
		remedy = d.program + " unpause " + d.container
	case state.Restarting:
		remedy = d.program + " logs " + d.container + " shows why it restarts again and again"
	}
	err := fmt.Errorf("its state is %q", string(state.Status))
	if state.OOMKilled {
		err = fmt.Errorf("its state is %q, after it ran out of memory", string(state.Status))
	}
	return &engine.UnusableError{Problem: engine.PlaceStopped, What: d.what(), Remedy: remedy, Err: err}
}

// explain reads what the runtime says where it finds no shell: in the stream
// of the shell itself, since the connection stands by then.
func (d *dockerDoor) explain(status int, text string) error {
	if status == 126 || status == 127 || strings.Contains(text, "executable file not found") {
		return d.noShell(orSilence(text))
	}
	return nil
}

// execLink is a shell that was started with the exec calls of the API. One
// connection carries its stdin, and its stdout and stderr in frames.
type execLink struct {
	client *client.Client
	id     string
	conn   client.HijackedResponse
	out    *os.File // the stdout that others read
	sink   *os.File // where the frames of stdout go
	cut    sync.Once

	ended  chan struct{} // closed when the fields below are set
	status int
	err    error
}

// newExecLink takes the streams apart.
func newExecLink(c *client.Client, id string, conn client.HijackedResponse, stderr io.WriteCloser) (*execLink, error) {
	out, sink, err := os.Pipe() // it holds a little, so that a short output need not be read before the end
	if err != nil {
		conn.Close()
		return nil, err
	}
	l := &execLink{client: c, id: id, conn: conn, out: out, sink: sink, ended: make(chan struct{})}
	go func() {
		_, copyErr := stdcopy.StdCopy(sink, stderr, conn.Reader)
		_ = stderr.Close()
		_ = sink.Close()
		conn.Close()
		l.status, l.err = l.inspect(copyErr)
		close(l.ended)
	}()
	return l, nil
}

// inspectPatience is how long the service may take to notice the end of a
// program after its streams have ended.
const inspectPatience = 5 * time.Second

// inspect asks for the exit status.
func (l *execLink) inspect(copyErr error) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), inspectPatience)
	defer cancel()
	for wait := 5 * time.Millisecond; ; wait *= 2 {
		state, err := l.client.ExecInspect(ctx, l.id, client.ExecInspectOptions{})
		if err == nil && !state.Running {
			return state.ExitCode, nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			if copyErr != nil {
				err = copyErr
			}
			return -1, errors.Join(errors.New("the connection ended before the program did"), err)
		}
	}
}

func (l *execLink) stdin() io.WriteCloser { return execStdin{l} }
func (l *execLink) stdout() io.Reader     { return &untilEnd{l.out} }

// wait waits for the end.
func (l *execLink) wait() (int, string, error) {
	<-l.ended
	return l.status, "", l.err
}

// drop cuts the connection, which closes the program's stdin.
func (l *execLink) drop() {
	l.cut.Do(func() {
		l.conn.Close()
		_ = l.sink.Close()
		_ = l.out.Close()
	})
}

// execStdin is the way to the program's stdin.
type execStdin struct{ *execLink }

// Write feeds the program.
func (s execStdin) Write(b []byte) (int, error) { return s.conn.Conn.Write(b) }

// Close closes the program's stdin and leaves its output open.
func (s execStdin) Close() error {
	if err := s.conn.CloseWrite(); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.ENOTCONN) {
		return err
	}
	return nil
}
