package main

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/measure"
	"github.com/llmprof/llmprof/measure/memory"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/report"
)

// samplerFlags say how memory is read.
type samplerFlags struct {
	sampler           string
	every, freeWithin time.Duration
	recorded          *gpu.Recorded // of a sampler that is a file
}

func (f *samplerFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.sampler, "sampler", memory.SamplerAuto, "what reads memory: "+strings.Join(memory.Samplers(), ", ")+", or a file with a recording that is played")
	flags.DurationVar(&f.every, "sample-every", 50*time.Millisecond, "time between two readings")
	flags.DurationVar(&f.freeWithin, "free-within", 30*time.Second, "longest wait for the memory to be free again after an engine")
	completeWith(cmd, "sampler", memory.Samplers()...)
	onlyOnCommandLine(flags, "sampler")
}

// validate looks into all that can be known before an engine runs.
func (f *samplerFlags) validate() error {
	switch {
	case f.every < time.Millisecond:
		return usage("for example --sample-every 50ms", "--sample-every is %s: want at least 1ms", f.every)
	case f.freeWithin < 0:
		return usage("for example --free-within 1m", "--free-within is %s: want a time, or 0 not to wait", f.freeWithin)
	case slices.Contains(memory.Samplers(), f.sampler):
		return nil
	case !strings.ContainsAny(f.sampler, "./"):
		return usage("a file with a recording has a dot or a slash in its name", "unknown sampler %q: want one of %s, or a file with a recording", f.sampler, strings.Join(memory.Samplers(), ", "))
	}
	file, err := os.Open(f.sampler)
	if err != nil {
		return fileError("read", f.sampler, err)
	}
	f.recorded, err = gpu.Replay(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return usage("", "read %s: %w", f.sampler, err)
	}
	return nil
}

// memoryRun is an engine whose memory is measured.
type memoryRun struct {
	app        *app
	cat        *catalog.Catalog
	driver     engine.Driver
	place      engine.Place
	setup      engine.Setup
	sampling   memory.Sampling
	every      time.Duration
	freeWithin time.Duration
	each       func(gpu.Snapshot) // see [memory.Options]
	marked     func(engine.Mark)  // beside the experiment; nil for nobody
	subject    memory.Subject
	hardware   string
	// source is the command, in what is written.
	source string
}

// markName is the variable by which the engine's processes are known.
const markName = "LLMPROF_ENGINE_MARK"

// newMemoryRun finds the sampler for an engine at a place. visible names the
// devices to use; empty leaves it to the environment.
func (a *app) newMemoryRun(ctx context.Context, r memoryRun, f samplerFlags, visible []string) (*memoryRun, error) {
	mark := markName + "=" + rand.Text()
	r.app, r.every, r.freeWithin = a, f.every, max(f.freeWithin, 1) // 0 would stand for the default
	r.setup.Env = append(r.setup.Env, visibleVariables(visible)...)
	wanted := memory.Wanted{
		Sampler: f.sampler, CPU: r.setup.Device == "cpu", Mark: mark,
		Devices: max(r.setup.Deploy.TensorParallel, 1) * max(r.setup.Deploy.PipelineParallel, 1),
	}
	if !wanted.CPU && f.sampler != memory.SamplerNone && f.sampler != memory.SamplerProc {
		lists := devicesGiven(ctx, r.place, r.setup.Env)
		if list := lists[cudaVisible]; list != nil {
			wanted.Visible, wanted.VisibleSet = *list, true
		}
		wanted.HIP, wanted.ROCR = lists[hipVisible], lists[rocrVisible]
	}
	r.setup.Env = append(slices.Clone(r.setup.Env), mark)
	var err error
	if f.recorded != nil {
		r.sampling, err = memory.Play(ctx, f.recorded, wanted)
	} else {
		r.sampling, err = memory.FindSampler(ctx, r.place, wanted)
	}
	if err != nil {
		return nil, err
	}
	r.subject.Vendor, r.subject.SystemDevices = r.sampling.Vendor, r.sampling.System
	if r.subject.Vendor == "" && r.setup.Device == "cpu" {
		r.subject.Vendor = "cpu"
	}
	return &r, nil
}

// open starts the engine under the sampler.
func (r *memoryRun) open(ctx context.Context) (*memory.Experiment, error) {
	setup := r.setup
	if r.app.verbose {
		setup.Log = r.app.stderr
	}
	return memory.Open(ctx, memory.Options{
		Source: r.sampling.Source, Keep: r.sampling.Keep, ByProcess: r.sampling.ByProcess, Each: r.each, Every: r.every, FreeWithin: r.freeWithin,
		Start: func(ctx context.Context, marked func(engine.Mark)) (engine.Session, error) {
			setup.Marked = func(m engine.Mark) {
				marked(m)
				if r.marked != nil {
					r.marked(m)
				}
			}
			return r.driver.Start(ctx, r.place, setup)
		},
	})
}

// document is an observation as a memory profile.
func (r *memoryRun) document(o *memory.Observation) *memprofile.Document {
	d := o.Document(r.subject, time.Now())
	d.Metadata.Tool = memprofile.Text(version())
	d.Metadata.Place = memprofile.Text(r.place.String())
	d.Metadata.Source = memprofile.Text(r.source)
	d.Metadata.Command = memprofile.Text(r.commandLine(o))
	if host, err := os.Hostname(); err == nil && r.place.String() == "local" {
		d.Metadata.Host = memprofile.Text(host)
	}
	return d
}

// commandLine is the engine's own command line, secrets removed; empty where its
// driver does not tell it.
func (r *memoryRun) commandLine(o *memory.Observation) string {
	commander, ok := r.driver.(engine.Commander)
	if !ok {
		return ""
	}
	setup := r.setup
	setup.Args = publicArgs(setup.Args, setup.Env)
	return report.CommandLine(commander.CommandLine(setup, o.Task, o.Warmup, o.Runs))
}

// profile is an observation as a profile of points.
func (r *memoryRun) profile(o *memory.Observation) *profile.Profile {
	header := measure.Header(o.Facts)
	header.Schema, header.Version = profile.Schema, profile.Version
	header.Tool, header.Created = version(), time.Now().UTC().Format(time.RFC3339)
	header.Source = r.source
	header.Deploy.Model = r.subject.Name
	if r.hardware != "" {
		header.Device.Name, header.Device.Reported = "", r.hardware
	}
	if header.Device.Reported == "" && len(o.Timeline.Devices) > 0 {
		header.Device.Reported = o.Timeline.Devices[0].Name
	}
	if canonical, ok := deviceNamer(r.cat)(header.Device.Reported); ok {
		header.Device.Name = canonical
	}
	return &profile.Profile{Header: header, Points: o.Points()}
}
