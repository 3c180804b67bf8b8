package memory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/gpu/nvml"
)

// The samplers that can be asked for by name, beside the name of a file that
// holds a recording.
const (
	SamplerAuto      = "auto"
	SamplerNone      = "none"
	SamplerNVML      = "nvml"
	SamplerNvidiaSMI = "nvidia-smi"
	SamplerAMD       = "amd"
	SamplerProc      = "proc"
)

// Samplers lists the names of samplers.
func Samplers() []string {
	return []string{SamplerAuto, SamplerNVML, SamplerNvidiaSMI, SamplerAMD, SamplerProc, SamplerNone}
}

// Wanted says what is to be sampled.
type Wanted struct {
	// Sampler is one of the Sampler constants; empty means SamplerAuto.
	Sampler string
	// CPU says that the engine computes on the host's processors.
	CPU bool
	// Devices is the number of devices that the engine takes; 0 means 1.
	Devices int
	// Visible is the text of CUDA_VISIBLE_DEVICES or its like, where
	// VisibleSet says that there is one.
	Visible    string
	VisibleSet bool
	// HIP and ROCR are those of HIP_VISIBLE_DEVICES, which on AMD's devices
	// goes before Visible, and of ROCR_VISIBLE_DEVICES, from whose devices it
	// picks; nil where they are not set. They mean nothing to NVIDIA's.
	HIP, ROCR *string
	// Mark is a variable, "NAME=value", that the engine's processes have in
	// their environment and no others.
	Mark string
}

// Sampling is how the memory of an engine is read.
type Sampling struct {
	// Source reads the devices; nil where nothing is sampled.
	Source gpu.Source
	// Keep picks the engine's devices.
	Keep func(gpu.Reading) bool
	// ByProcess: see [Options].
	ByProcess bool
	// Vendor is "cuda", "rocm" or "cpu"; empty where not known.
	Vendor string
	// System is the number of devices of the machine; 0 where its processes are
	// sampled and not its devices.
	System int
}

// FindSampler picks the way to read memory at a place. Without a name it takes
// the first that answers: NVIDIA's library, nvidia-smi, AMD's driver, and for
// engines on a CPU, or where there is no other device, the processes' own
// memory. Of a place that cannot be used the error is the place's.
func FindSampler(ctx context.Context, place engine.Place, w Wanted) (Sampling, error) {
	host := HostOf(place)
	candidates := []struct {
		name, vendor string
		open         func() (gpu.Source, error)
	}{
		{SamplerNVML, "cuda", func() (gpu.Source, error) {
			if host != gpu.Local() {
				return nil, errors.New("NVIDIA's library can be asked on this machine only")
			}
			return nvml.Open()
		}},
		{SamplerNvidiaSMI, "cuda", func() (gpu.Source, error) { return gpu.NvidiaSMI(host), nil }},
		{SamplerAMD, "rocm", func() (gpu.Source, error) { return gpu.AMD(host), nil }},
		{SamplerProc, "cpu", func() (gpu.Source, error) { return gpu.Processes(host, w.Mark), nil }},
	}
	name := w.Sampler
	if name == "" {
		name = SamplerAuto
	}
	if name == SamplerNone {
		return Sampling{}, nil
	}
	var tried []string
	for _, c := range candidates {
		if name != SamplerAuto && name != c.name || name == SamplerAuto && w.CPU && c.name != SamplerProc {
			continue
		}
		source, err := c.open()
		var s Sampling
		if err == nil {
			s = Sampling{Source: source, Vendor: c.vendor, ByProcess: c.name == SamplerProc}
			err = s.pick(ctx, w)
		}
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			return Sampling{}, ctx.Err()
		}
		if gone := placeFault(host, err); gone != nil {
			return Sampling{}, gone
		}
		var wrong *visibleError
		if name != SamplerAuto || errors.As(err, &wrong) {
			return Sampling{}, &SamplerError{c.name, err}
		}
		tried = append(tried, c.name+": "+err.Error())
	}
	if len(tried) == 0 {
		return Sampling{}, fmt.Errorf("unknown sampler %q: want one of %s, or a file with a recording", name, strings.Join(Samplers(), ", "))
	}
	return Sampling{}, &SamplerError{SamplerAuto, errors.New(strings.Join(tried, "; "))}
}

// placeFault is why nothing can be read at a place, whatever would read it: it
// is not there, or does not answer. Nil where another sampler may.
func placeFault(host gpu.Host, err error) error {
	var unusable *engine.UnusableError
	if host == gpu.Local() || !errors.As(err, &unusable) {
		return nil
	}
	switch unusable.Problem {
	case engine.PlaceMissing, engine.PlaceStopped, engine.ServiceUnreachable, engine.PermissionDenied:
		return unusable
	case engine.ProgramMissing, engine.EngineMissing:
	}
	return nil
}

// Play takes the readings of a recording in place of a sampler's; of its
// devices it picks the engine's, as it would of a machine's.
func Play(ctx context.Context, recording *gpu.Recorded, w Wanted) (Sampling, error) {
	s := Sampling{Source: recording, ByProcess: w.CPU}
	if err := s.pick(ctx, w); err != nil {
		return Sampling{}, &SamplerError{recording.Name(), err}
	}
	return s, nil
}

// visibleError says that the devices asked for are not there.
type visibleError struct{ error }

// Unwrap returns what is wrong with them.
func (e *visibleError) Unwrap() error { return e.error }

// probeTime bounds how long a sampler may take to answer for the first time.
const probeTime = 20 * time.Second

// pick reads the devices once and picks the engine's.
func (s *Sampling) pick(ctx context.Context, w Wanted) error {
	first, err := once(ctx, s.Source)
	if err != nil {
		return err
	}
	if s.ByProcess {
		return nil
	}
	for _, r := range first.Readings {
		if r.Parent == "" {
			s.System++
		}
	}
	if len(first.Readings) == 0 {
		return errors.New("it names no device")
	}
	visible, err := w.visible(s.Vendor, first.Readings)
	if err != nil {
		return &visibleError{err}
	}
	n := max(w.Devices, 1)
	if len(visible) < n {
		return &visibleError{fmt.Errorf("the engine takes %d devices, and %d are visible to it", n, len(visible))}
	}
	type identity struct {
		index int
		uuid  string
	}
	chosen := map[identity]bool{}
	for _, r := range visible[:n] {
		chosen[identity{r.Index, r.UUID}] = true
	}
	s.Keep = func(r gpu.Reading) bool { return chosen[identity{r.Index, r.UUID}] }
	return nil
}

// visible picks the devices that the engine may use.
func (w Wanted) visible(vendor string, all []gpu.Reading) ([]gpu.Reading, error) {
	list, set := w.Visible, w.VisibleSet
	if vendor != "cuda" {
		if w.ROCR != nil {
			var err error
			if all, err = gpu.Visible(all, *w.ROCR, true); err != nil {
				return nil, err
			}
		}
		if w.HIP != nil {
			list, set = *w.HIP, true
		}
	}
	return gpu.Visible(all, list, set)
}

// once reads a source one time.
func once(ctx context.Context, source gpu.Source) (first gpu.Snapshot, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	got := false
	err = source.Follow(ctx, 100*time.Millisecond, func(s gpu.Snapshot) {
		if !got {
			first, got = s, true
		}
		cancel()
	})
	switch {
	case got:
		return first, nil
	case err != nil:
		return first, err
	}
	return first, fmt.Errorf("no answer within %v", probeTime)
}

// HostOf is a place as a host whose devices are read.
func HostOf(place engine.Place) gpu.Host {
	if place.String() == "local" {
		return gpu.Local()
	}
	return there{place}
}

// there starts programs at a place.
type there struct{ place engine.Place }

// Start starts a program.
func (t there) Start(ctx context.Context, argv ...string) (io.ReadCloser, error) {
	process, err := t.place.Start(ctx, engine.Command{Argv: argv})
	if err != nil {
		return nil, missing(err)
	}
	_ = process.Stdin().Close() // it reads nothing
	return &output{process: process}, nil
}

// missing makes what a place says of a missing program known to the samplers.
func missing(err error) error {
	if engine.Unusable(err) == engine.ProgramMissing {
		return fmt.Errorf("%w: %w", exec.ErrNotFound, err)
	}
	if exit := (*engine.ExitError)(nil); errors.As(err, &exit) && exit.Code == 127 {
		return fmt.Errorf("%w: %w", exec.ErrNotFound, err)
	}
	return err
}

// output is what a program at a place prints. It may be closed while it is
// read, and several times.
type output struct {
	process engine.Process
	reading sync.Mutex // one reads at a time: a caller, or Close the rest
	once    sync.Once
	err     error // how the process ended
}

// Read ends with the program's failure where it failed.
func (o *output) Read(p []byte) (int, error) {
	o.reading.Lock()
	n, err := o.process.Stdout().Read(p)
	o.reading.Unlock()
	if errors.Is(err, io.EOF) {
		if wait := o.wait(); wait != nil {
			return n, missing(wait)
		}
	}
	return n, err
}

// wait waits for the process's end.
func (o *output) wait() error {
	o.once.Do(func() { o.err = o.process.Wait() })
	return o.err
}

// Close ends the program.
func (o *output) Close() error {
	err := o.process.Stop(time.Second) // which ends what a Read waits for
	o.reading.Lock()
	_, _ = io.Copy(io.Discard, o.process.Stdout()) // so that it can end
	o.reading.Unlock()
	_ = o.wait() // it was stopped
	return err
}
