package engine

import (
	"context"
	"io"
	"time"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/profile"
)

// Driver starts one kind of engine.
type Driver interface {
	// Name is the engine's name: "torch", "vllm".
	Name() string
	// Abilities says what the driver can measure.
	Abilities() Abilities
	// Start brings an engine up and returns once it can run tasks. The error
	// says what is missing and, through a Hint method, what mends it.
	Start(ctx context.Context, place Place, setup Setup) (Session, error)
}

// Abilities says what can be asked of a driver.
type Abilities struct {
	// Steps and Layers: whole forward passes, single layers.
	Steps, Layers bool
	// MaxBatch is the largest batch size that the engine can be asked for; 0
	// where only memory bounds it.
	MaxBatch int
	// Clocks are what samples can be timed with, the default first.
	Clocks []profile.Clock
	// AnewForTask says that the engine is started for each task by itself and
	// holds nothing between two.
	AnewForTask bool
	// CUDAGraphs says that captured graphs can be asked for; otherwise the engine
	// decides about them by itself.
	CUDAGraphs bool
}

// Checker is a driver that can say beforehand what it would not apply.
type Checker interface {
	// Check is why the driver refuses a setup; nil where it would start. It looks
	// at the setup alone.
	Check(setup Setup) error
}

// Check is why a driver refuses a setup, as far as it can say beforehand.
func Check(d Driver, setup Setup) error {
	if checker, ok := d.(Checker); ok {
		return checker.Check(setup)
	}
	return nil
}

// Commander is a driver that can say beforehand what it starts.
type Commander interface {
	// CommandLine is the engine's own command line for a task.
	CommandLine(setup Setup, task StepTask, warmup, runs int) []string
}

// Setup says which model is measured and how. The zero value of a field leaves
// the choice to the engine.
type Setup struct {
	// Model is a folder with a config.json, a .gguf file or a hub id, as the
	// engine's place sees it.
	Model string
	// Deploy holds the deployment that is asked for: formats, parallel sizes,
	// scheduler limits.
	Deploy deploy.Config
	// NumLayers cuts the model to its first layers; 0 keeps all.
	NumLayers int
	// LoadWeights reads the checkpoint instead of random weights.
	LoadWeights bool
	// Device is "cuda", "cpu", …
	Device string
	// Clock is what to time with; one of the driver's.
	Clock profile.Clock
	// MaxBatch, MaxInput and MaxOutput bound the tasks to come, so that the
	// engine can size its KV cache: sequences, and tokens of each.
	MaxBatch, MaxInput, MaxOutput int
	// Threads bounds the threads of an engine on a CPU.
	Threads int
	// CUDAGraphs replays decode steps from captured graphs where the driver
	// can.
	CUDAGraphs bool
	// Seed makes random weights and tokens repeatable.
	Seed int64
	// Program is the interpreter or executable to use instead of the one that
	// the driver looks for.
	Program string
	// Args are further arguments for the engine's own command line.
	Args []string
	// Env are further environment variables, "NAME=value".
	Env []string
	// OwnLimits leaves the longest sequence, the batch and the tokens of a step
	// to the engine where the deployment does not state them; otherwise a server
	// is sized for the tasks to come.
	OwnLimits bool
	// Serve sets a server up as clients meet it: with a tokenizer, counts of
	// cached tokens in its answers, and the engine's own choice of asynchronous
	// scheduling. Otherwise it is set up so that each step can be timed alone.
	Serve bool
	// Log takes what the engine says on stderr; nil discards it. Secrets are
	// removed.
	Log io.Writer
	// Marked is told of moments in the engine's life as soon as they are known,
	// from any goroutine; it may be nil.
	Marked func(Mark)
	// StartTimeout bounds the start, TaskTimeout one run of one task.
	// Defaults: 15 and 10 minutes.
	StartTimeout, TaskTimeout time.Duration
}

// Mark is a moment in an engine's life, as the engine itself tells it.
type Mark struct {
	// Name is one of the Mark constants.
	Name string
	// At is when this program heard of it.
	At time.Time
	// Source is what told it: a line of the log, an event of a probe.
	Source string
}

// The moments that engines tell of. An engine that does not say one leaves it
// out.
const (
	// MarkStarted: the engine's libraries and its device are up, and loading
	// begins.
	MarkStarted = "started"
	// MarkLoaded: the weights are in memory.
	MarkLoaded = "loaded"
	// MarkReady: the start-up is over, with the warm-up that is part of it.
	MarkReady = "ready"
	// MarkWarm: the warm-up runs of a task are over, its timed runs begin.
	MarkWarm = "warm"
)

// Mark tells of a moment, now.
func (s Setup) Mark(name, source string) {
	if s.Marked != nil {
		s.Marked(Mark{Name: name, At: time.Now(), Source: source})
	}
}

// Facts is what a started engine says of itself. What it does not say is
// absent.
type Facts struct {
	// Engine and Version name the engine's release.
	Engine, Version string
	// Libraries are versions of what it runs on: "torch", "cuda", "python".
	Libraries map[string]string
	// Device and Driver are what it runs on.
	Device profile.Device
	Driver string
	// Clock is what its samples are timed with, Timer the name of the timer
	// and Resolution its step in seconds.
	Clock      profile.Clock
	Timer      string
	Resolution float64
	// MaxModelLen is the longest sequence in tokens, MaxTokens the capacity of
	// the KV cache in tokens, MaxBatch the most sequences of a step; 0 where
	// the engine does not say.
	MaxModelLen, MaxTokens, MaxBatch int
	// Layers is the number of decoder blocks that the engine runs; 0 where it
	// does not say.
	Layers int
	// Threads is the number of threads that it computes with on the host's
	// CPU; 0 where it does not say.
	Threads int
	// Memory are points of kind memory that the engine stated.
	Memory []profile.Point
	// Deploy is the deployment that really runs.
	Deploy deploy.Config
	// Warnings are remarks on the engine as it was found.
	Warnings []string
}

// Task is one thing to measure: a step of the grid, or the layers of the model
// at one shape.
type Task struct {
	// ID is unique in a session.
	ID int
	// Step or Layers says what to run; the other is nil.
	Step   *StepTask
	Layers *LayersTask
	// Warmup runs come first and are not counted. Runs are the samples wanted.
	Warmup, Runs int
}

// StepTask asks for a prefill of BatchSize prompts of InputLen tokens in one
// step, and for OutputLen - 1 decode steps after it.
type StepTask struct {
	BatchSize, InputLen, OutputLen int
}

// LayersTask asks for every layer of the model once, for Tokens new tokens of
// each of Sequences sequences that have Context tokens in the KV cache.
type LayersTask struct {
	Tokens, Context, Sequences int
}

// Result is what became of a task.
type Result struct {
	Task Task
	// Points are what was measured: a step's prefill and decode, each layer.
	Points []profile.Point
	// Totals are the times of whole runs of a step task in seconds, prefill and
	// all decode steps; empty where they are not known.
	Totals []float64
	// Memory are points of kind memory that the engine stated of this task; of
	// an engine that starts anew for each task, those of its start too.
	Memory []profile.Point
	// Failure says why nothing more was measured, empty where all was:
	// FailureOOM, FailureLimits, or "runtime_error: …", "exception: …",
	// "timeout: …".
	Failure string
	// Hint is what helps against it; empty where nothing is known.
	Hint string
}

// Reasons of failures, as the forward-time predictor writes them.
const (
	// FailureOOM: the device had not enough memory for the task.
	FailureOOM = "oom"
	// FailureLimits: the engine's limits do not admit the task.
	FailureLimits = "skipped_due_to_limits"
	// FailureRefused is the prefix of why an engine that starts anew for each
	// task did not start for this one.
	FailureRefused = "refused: "
	// FailureRuntime, FailureException and FailureTimeout are prefixes of what
	// the engine said.
	FailureRuntime   = "runtime_error: "
	FailureException = "exception: "
	FailureTimeout   = "timeout: "
)

// Session is a running engine.
type Session interface {
	// Facts is what the engine said when it was ready.
	Facts() Facts
	// Run measures the tasks in order and emits a result for each as soon as
	// it is there. It returns early with the error of ctx or of emit, or with
	// an error of its own where the engine cannot go on; tasks without a
	// result were not measured then.
	Run(ctx context.Context, tasks []Task, emit func(Result) error) error
	// Close ends the engine and waits for it.
	Close() error
}
