// Package place is where engine processes run: on this machine, in a container
// of Docker or Podman, in a pod of Kubernetes, on another host over ssh. A
// driver that is given an [engine.Place] starts, feeds, reads and stops its
// processes in the same way at each.
//
//	at, err := place.Parse("kubectl:serving/vllm-0") // or Local, Docker, Podman, Kubectl, SSH, RunImage
//	…
//	process, err := at.Start(ctx, engine.Command{Argv: []string{"python3", probe}, Env: []string{"HF_TOKEN=…"}})
//
// # What every place keeps
//
// A process leads a group of its own. Stop asks the group to end with SIGTERM
// and kills it after the grace; the end of the context does the same. When the
// process ends by itself, what it has left behind is ended too, since it would
// hold the device's memory. When this program dies, of whatever, the group is
// ended: on Linux the kernel kills the process, and on every Unix a small shell
// stands guard, whose stdin closes with this program. A process that leaves its
// group (setsid) is out of reach. On Windows the local place kills the process
// tree, and nothing is ended when this program dies but what reads its stdin.
//
// Stdout must be read to its end; a little of it is held for those who read
// only after Wait. Stderr goes to the command's writer line by line, and its
// last 4 KiB to the [engine.ExitError]; both without secrets, see [engine.Redactor].
//
// A place that cannot be used says why with an [engine.UnusableError], whose
// hint is the command that mends it; a place's method Available finds out.
//
// # How a remote place works
//
// A remote place needs a POSIX shell, cat, chmod, mktemp, mv, rm and wc. The
// shell is started through the Engine API ("exec"), through "kubectl exec -i"
// or through "ssh -o BatchMode=yes", and reads what to do from its stdin:
// arguments, all variables (secret or not) and the working folder go that way,
// never through a command line, where every user of the machine could read
// them, and never through a temporary file. Once the program runs, its own
// arguments can be read there as any program's can: give a secret as a
// variable.
//
// The environment of a remote program is what the container, or sshd, gives it,
// without a login's start-up files: a program that they put on PATH is given
// with its full path.
//
// Each process takes two connections: one for its streams, one for the guard.
// The guard is told what to do on Stop, since the Engine API and kubectl have
// no way to end what they have started; when its connection breaks it ends the
// group at the place. So a broken network ends an engine within seconds, as far
// as ssh or the service notices it: ssh does after a minute.
//
// Files are copied through the shell, and their length is checked. Dial starts
// a small relay at the place, in Python or bash, and talks through it; that
// adds its own delay to what is timed.
//
// [RunImage] starts a container that ends, and is removed, with this program.
//
// # What was tried
//
// The local place, on Linux: all of it; it also builds for macOS and Windows,
// where it was not run. ssh: all of it, against OpenSSH 9.2 (sh, bash, zsh,
// fish, tcsh and mksh as login shells against an imitation of ssh). Podman: all
// of it, against Podman 4.3 run by root, with the shells of busybox and Debian;
// of RunImage, neither GPUs nor mounts. Docker: against a server of the tests
// that answers as the Engine API is documented; no Docker daemon, no TLS.
// Kubernetes: against an imitation of kubectl that runs the command and fails
// with kubectl's known texts, and the texts of kubectl 1.32 without a cluster;
// no cluster. The tests run against real places with
//
//	PLACE_SPECS="docker:vllm ssh:gpu7" go test ./engine/place -run TestReal
package place
