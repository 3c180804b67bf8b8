package peers_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llmprof/llmprof/internal/peers"
	"github.com/llmprof/llmprof/unit"
)

// burned is the processor time that every burning process of the tests takes.
const burned = 300 * time.Millisecond

// held is the memory that it holds.
const held = 64 * unit.MiB

// TestMain makes the test binary a tree of processes where a test asks for it.
func TestMain(m *testing.M) {
	role := os.Getenv("PEERS_TEST_ROLE")
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(role); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

func play(role string) error {
	switch role {
	case "burn", "stay": // until standard input ends, or for a minute
		memory := bytes.Repeat([]byte{1}, int(held))
		for cpu() < burned {
			bytes.Count(memory, []byte{1})
		}
		fmt.Fprintln(os.Stdout, "burned", memory[len(memory)-1])
		if role == "stay" {
			time.Sleep(time.Minute)
		}
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	case "waits": // for two children that hold memory at one time
		return family("burn", 2, func(children []*exec.Cmd, release func()) error {
			release()
			for _, child := range children {
				if err := child.Wait(); err != nil {
					return err
				}
			}
			return nil
		})
	case "leaves": // a child in a session of its own
		return family("stay", 1, func(children []*exec.Cmd, _ func()) error {
			fmt.Fprintln(os.Stdout, children[0].Process.Pid)
			return nil
		})
	case "fails":
		return errors.New("it fails")
	}
	return errors.New("no role " + role)
}

func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// family starts children, waits until all have burned and has been held for
// several looks, and hands them on.
func family(role string, n int, then func([]*exec.Cmd, func()) error) error {
	var children []*exec.Cmd
	var inputs []interface{ Close() error }
	for range n {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "PEERS_TEST_ROLE="+role)
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		in, err := child.StdinPipe()
		if err != nil {
			return err
		}
		out, err := child.StdoutPipe()
		if err != nil {
			return err
		}
		if err := child.Start(); err != nil {
			return err
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			return err
		}
		children, inputs = append(children, child), append(inputs, in)
	}
	time.Sleep(3 * time.Second)
	return then(children, func() {
		for _, in := range inputs {
			_ = in.Close() // the child then ends
		}
	})
}

// measured runs the test binary in a role.
func measured(t *testing.T, role string) (peers.Usage, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "PEERS_TEST_ROLE="+role)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	used, err := peers.Measure(cmd)
	return used, out.String(), err
}

func TestMeasureChildren(t *testing.T) {
	used, out, err := measured(t, "waits")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if used.CPU < 2*burned {
		t.Errorf("two children burned %v each, measured are %v together", burned, used.CPU)
	}
	if used.Peak < 2*held {
		t.Errorf("two children held %v each at one time, measured are %v", held, used.Peak)
	}
	if used.Wall < time.Second {
		t.Errorf("wall time %v of a command that slept", used.Wall)
	}
}

// A child that nobody waits for is in no sum of the kernel, and in another
// session out of reach of the group.
func TestMeasureOrphan(t *testing.T) {
	used, out, err := measured(t, "leaves")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if used.CPU < burned-20*time.Millisecond { // /proc counts whole ticks
		t.Errorf("the child burned %v, measured are %v", burned, used.CPU)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	for range 6000 { // a killed process takes a moment to end
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(state, []byte(") Z ")) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("the child is left running")
}

func TestMeasureFailure(t *testing.T) {
	used, out, err := measured(t, "fails")
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(out, "it fails") {
		t.Errorf("error %v, output %q", err, out)
	}
	if used.Peak == 0 || used.Wall == 0 {
		t.Errorf("usage of a command that failed: %+v", used)
	}
	if _, err := peers.Measure(exec.CommandContext(t.Context(), "/no/such/command")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such command: %v", err)
	}
}
