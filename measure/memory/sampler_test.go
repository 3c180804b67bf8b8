package memory_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/measure/memory"
)

// host is a place that has some of the programs and files which samplers read;
// what is empty is not there.
type host struct {
	nvidia, amd, proc string
	started           []string
	mu                sync.Mutex
}

func (*host) String() string                                          { return "docker:h" }
func (*host) Available(context.Context) error                         { return nil }
func (*host) CopyIn(context.Context, string, io.Reader, uint32) error { return nil }
func (*host) CopyOut(context.Context, string) (io.ReadCloser, error)  { return nil, fs.ErrNotExist }

func (*host) TempDir(context.Context) (string, func() error, error) {
	return "", nil, errors.ErrUnsupported
}

func (*host) Dial(context.Context, int) (net.Conn, error) { return nil, errors.ErrUnsupported }

// nvidiaHead is the header of nvidia-smi's table.
const nvidiaHead = "index, uuid, name, memory.total [MiB], memory.used [MiB]\n"

// nvidiaRows is what nvidia-smi prints of n devices.
func nvidiaRows(n int) string {
	text := nvidiaHead
	for range 3 {
		for i := range n {
			text += fmt.Sprintf("%d, GPU-%d, NVIDIA H200, 143771, %d\n", i, i, 100*(i+1))
		}
	}
	return text
}

// Start prints what the program would.
func (h *host) Start(_ context.Context, cmd engine.Command) (engine.Process, error) {
	text := ""
	line := strings.Join(cmd.Argv, " ")
	switch name := cmd.Argv[0]; {
	case name == "nvidia-smi" && slices.Contains(cmd.Argv, "-lms"):
		text = h.nvidia
	case name == "nvidia-smi" && h.nvidia != "":
		return &tool{stdout: strings.NewReader(""), ended: closed()}, nil
	case name == "sh" && cmd.Argv[3] == "amdgpu":
		text, line = h.amd, "amdgpu"
	case name == "sh" && cmd.Argv[3] == "proc":
		text, line = h.proc, "proc"
	}
	h.mu.Lock()
	h.started = append(h.started, line)
	h.mu.Unlock()
	if text == "" {
		return nil, &engine.UnusableError{Problem: engine.ProgramMissing, What: "program " + cmd.Argv[0]}
	}
	r, w := io.Pipe()
	p := &tool{stdout: r, ended: make(chan struct{})}
	p.stop = func() { _ = w.Close(); close(p.ended) }
	go func() { _, _ = io.WriteString(w, text) }()
	return p, nil
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// tool is a program of a host; it runs until it is stopped.
type tool struct {
	stdout io.Reader
	ended  chan struct{}
	stop   func()
	once   sync.Once
	err    error
}

func (*tool) Stdin() io.WriteCloser { return discard{} }
func (p *tool) Stdout() io.Reader   { return p.stdout }

func (p *tool) Wait() error {
	<-p.ended
	return p.err
}

func (p *tool) Stop(time.Duration) error {
	if p.stop != nil {
		p.once.Do(p.stop)
	}
	return nil
}

type discard struct{ io.Writer }

func (discard) Close() error { return nil }

// What a host's driver of AMD and its /proc say.
const (
	amdText  = "device card0 0000:03:00.0 206141652992 - - AMD_Instinct\ncard0 1000 - - - - - -\nend\n"
	procText = "memory 1000 400 - - -\ncpu 1 1 1 1 1 1 1 1\nprocess 7 100 120\nend\n"
)

func TestFindSampler(t *testing.T) {
	all := func() *host { return &host{nvidia: nvidiaRows(4), amd: amdText, proc: procText} }
	for _, c := range []struct {
		why    string
		host   *host
		wanted memory.Wanted
		name   string // of the source; empty for none
		vendor string
		kept   []int
		system int
		err    string
	}{
		{"NVIDIA comes first", all(), memory.Wanted{Mark: "M=1"}, "nvidia-smi", "cuda", []int{0}, 4, ""},
		{"AMD where NVIDIA is not", &host{amd: amdText, proc: procText}, memory.Wanted{Sampler: "auto", Mark: "M=1"}, "amdgpu sysfs", "rocm", []int{0}, 1, ""},
		{"the processes where there is no device", &host{proc: procText}, memory.Wanted{Mark: "M=1"}, "proc", "cpu", []int{-1, 0, 1}, 0, ""},
		{"and for an engine on a CPU, whatever there is", all(), memory.Wanted{CPU: true, Mark: "M=1"}, "proc", "cpu", []int{-1, 0, 1}, 0, ""},
		{"by name", all(), memory.Wanted{Sampler: "amd"}, "amdgpu sysfs", "rocm", []int{0}, 1, ""},
		{"none is none", all(), memory.Wanted{Sampler: "none"}, "", "", nil, 0, ""},
		{"as many devices as the engine takes", all(), memory.Wanted{Devices: 2}, "nvidia-smi", "cuda", []int{0, 1}, 4, ""},
		{"those that it sees", all(), memory.Wanted{Devices: 2, Visible: "3,1", VisibleSet: true}, "nvidia-smi", "cuda", []int{1, 3}, 4, ""},
		{"by their UUIDs", all(), memory.Wanted{Visible: "GPU-2", VisibleSet: true}, "nvidia-smi", "cuda", []int{2}, 4, ""},
		{"a name that there is not", all(), memory.Wanted{Sampler: "nvidia"}, "", "", nil, 0, `unknown sampler "nvidia": want one of auto, nvml, nvidia-smi, amd, proc, none, or a file`},
		{"one that is named stands alone", &host{amd: amdText}, memory.Wanted{Sampler: "nvidia-smi"}, "", "", nil, 0, "sample memory with nvidia-smi: nvidia-smi: executable file not found"},
		{"the library is of this machine", all(), memory.Wanted{Sampler: "nvml"}, "", "", nil, 0, "can be asked on this machine only"},
		{"a device that there is not: no other sampler is tried", all(), memory.Wanted{Visible: "7", VisibleSet: true}, "", "", nil, 0, `sample memory with nvidia-smi: visible devices "7": there is no device 7`},
		{"too few", all(), memory.Wanted{Devices: 8}, "", "", nil, 0, "the engine takes 8 devices, and 4 are visible to it"},
		{"none to see", all(), memory.Wanted{Visible: "", VisibleSet: true}, "", "", nil, 0, "the engine takes 1 devices, and 0 are visible to it"},
		{"all that was tried", &host{}, memory.Wanted{Mark: "M=1"}, "", "", nil, 0, "nvml: NVIDIA's library can be asked on this machine only; nvidia-smi: nvidia-smi: executable file not found"},
	} {
		t.Run(c.why, func(t *testing.T) {
			s, err := memory.FindSampler(t.Context(), c.host, c.wanted)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			name := ""
			if s.Source != nil {
				name = s.Source.Name()
			}
			if name != c.name || s.Vendor != c.vendor || s.System != c.system || s.ByProcess != (c.name == "proc") {
				t.Errorf("%q of %q, %d devices, by process %v", name, s.Vendor, s.System, s.ByProcess)
			}
			for i := -1; i < 4 && s.Source != nil; i++ {
				r := gpu.Reading{Index: i}
				if c.name == "nvidia-smi" {
					r.UUID = fmt.Sprint("GPU-", i)
				}
				if kept := s.Keep == nil || s.Keep(r); kept != slices.Contains(c.kept, i) && (c.name != "proc" || i < 2) {
					t.Errorf("device %d is kept: %v", i, kept)
				}
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := memory.FindSampler(ctx, all(), memory.Wanted{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// goneHost is a place at which nothing can be started.
type goneHost struct {
	host
	problem engine.Problem
}

func (h *goneHost) Start(_ context.Context, cmd engine.Command) (engine.Process, error) {
	h.started = append(h.started, cmd.Argv[0])
	return nil, &engine.UnusableError{Problem: h.problem, What: "container h"}
}

// TestPlaceIsGone: where the place itself cannot be used no further sampler is
// asked, and the error says of the place what it would say to an engine.
func TestPlaceIsGone(t *testing.T) {
	for _, problem := range []engine.Problem{engine.PlaceMissing, engine.PlaceStopped, engine.ServiceUnreachable, engine.PermissionDenied} {
		for _, sampler := range memory.Samplers() {
			if sampler == memory.SamplerNone || sampler == memory.SamplerNVML {
				continue
			}
			h := &goneHost{problem: problem}
			_, err := memory.FindSampler(t.Context(), h, memory.Wanted{Sampler: sampler, Mark: "M=1"})
			if want := fmt.Sprintf("container h: %s", problem); err == nil || err.Error() != want || engine.Unusable(err) != problem {
				t.Errorf("%s: error %v, want %q", sampler, err, want)
			}
			if sampler == memory.SamplerAuto && slices.Contains(h.started, "sh") {
				t.Errorf("after nvidia-smi others were asked: %q", h.started)
			}
		}
	}
	h := &goneHost{problem: engine.ProgramMissing}
	if _, err := memory.FindSampler(t.Context(), h, memory.Wanted{Mark: "M=1"}); err == nil || len(h.started) < 3 {
		t.Errorf("a program that is missing: %v after %q, want all to be tried", err, h.started)
	}
}

// TestPlay: of a recording the engine's devices count, as of a machine.
func TestPlay(t *testing.T) {
	recording := func() *gpu.Recorded {
		r, err := gpu.Replay(strings.NewReader(`{"at_s": 0, "devices": [{"index": 0, "uuid": "GPU-a"}, {"index": 1, "uuid": "GPU-b"}, {"index": 2, "uuid": "GPU-c"}]}` + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	s, err := memory.Play(t.Context(), recording(), memory.Wanted{Devices: 2, Visible: "2,0", VisibleSet: true})
	if err != nil || s.System != 3 || !s.Keep(gpu.Reading{Index: 2, UUID: "GPU-c"}) || !s.Keep(gpu.Reading{Index: 0, UUID: "GPU-a"}) || s.Keep(gpu.Reading{Index: 1, UUID: "GPU-b"}) {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := memory.Play(t.Context(), recording(), memory.Wanted{CPU: true, Devices: 2}); err != nil || !s.ByProcess || s.Keep != nil {
		t.Errorf("on a CPU: %+v, %v", s, err)
	}
	if _, err := memory.Play(t.Context(), recording(), memory.Wanted{Devices: 4}); err == nil || err.Error() != "sample memory with recording: the engine takes 4 devices, and 3 are visible to it" {
		t.Errorf("too few: %v", err)
	}
}

// failing starts programs that end with a status.
type failing struct {
	host
	code int
}

func (f *failing) Start(context.Context, engine.Command) (engine.Process, error) {
	return &tool{stdout: strings.NewReader("half\n"), ended: closed(), err: &engine.ExitError{Program: "nvidia-smi", Place: "docker:h", Code: f.code}}, nil
}

// TestHostOf: samplers learn that a program is missing however a place says it.
func TestHostOf(t *testing.T) {
	read := func(place engine.Place) error {
		out, err := memory.HostOf(place).Start(t.Context(), "nvidia-smi")
		if err != nil {
			return err
		}
		defer out.Close()
		_, err = io.ReadAll(out)
		return err
	}
	if err := read(&host{}); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("a place that says so: %v", err)
	}
	if err := read(&failing{code: 127}); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("a shell that says so: %v", err)
	}
	var exit *engine.ExitError
	if err := read(&failing{code: 9}); errors.Is(err, exec.ErrNotFound) || !errors.As(err, &exit) || exit.Code != 9 {
		t.Errorf("a program that is there and fails: %v", err)
	}
	if err := read(&failing{}); err == nil {
		t.Error("its failure is lost")
	}
	out, err := memory.HostOf(&host{nvidia: nvidiaRows(1)}).Start(t.Context(), "nvidia-smi", "-lms", "50")
	if err != nil {
		t.Fatal(err)
	}
	head := make([]byte, len(nvidiaHead))
	if _, err := io.ReadFull(out, head); err != nil || string(head) != nvidiaHead {
		t.Errorf("%q, %v", head, err)
	}
	if err := out.Close(); err != nil { // ends a program that runs for ever
		t.Error(err)
	}
}
