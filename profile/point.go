package profile

import (
	"encoding/json"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// Header says under which conditions the points were taken.
type Header struct {
	// Schema is "llmprof/profile".
	Schema string `json:"schema"`
	// Version is "major.minor" of the file format.
	Version string `json:"version"`
	// Tool is the llmprof version that wrote the file.
	Tool string `json:"tool,omitempty"`
	// Created is the time of writing in UTC, RFC 3339; empty where an import
	// must stay reproducible.
	Created string `json:"created,omitempty"`
	// Host names the measuring machine.
	Host string `json:"host,omitempty"`
	// Device is what was measured on.
	Device Device `json:"device,omitzero"`
	// Driver is the device driver's version.
	Driver string `json:"driver,omitempty"`
	// Deploy is the deployment that was measured; its Engine and
	// EngineVersion name the engine.
	Deploy deploy.Config `json:"deploy,omitzero"`
	// Source says where the points come from: a file, a command.
	Source string `json:"source,omitempty"`
	// Metadata keeps what a foreign file said about itself, verbatim.
	Metadata map[string]json.RawMessage `json:"metadata,omitempty"`
}

// Device names the measured device.
type Device struct {
	// Name is the canonical catalog name; empty if the catalog has no such
	// device.
	Name string `json:"name,omitempty"`
	// Reported is the name as the driver or the foreign file gave it.
	Reported string `json:"reported,omitempty"`
	// Count is the number of devices used.
	Count int `json:"count,omitempty"`
}

// Kind tells what a point is.
type Kind string

// The kinds of points.
const (
	// KindStep is the time of one forward pass.
	KindStep Kind = "step"
	// KindLayer is the time of one layer of the model.
	KindLayer Kind = "layer"
	// KindMemory is a figure of memory; it holds no time.
	KindMemory Kind = "memory"
	// KindRequest is a request as its client saw it; it holds no samples.
	KindRequest Kind = "request"
	// KindTelemetry is a stretch of readings of a device; it holds no samples.
	KindTelemetry Kind = "telemetry"
	// KindWorkload is the times of a load of equal requests on a server.
	KindWorkload Kind = "workload"
	// KindServer is what a server says of a stretch of time; it holds no
	// samples.
	KindServer Kind = "server"
	// KindFailure is a point that was asked for and could not be measured.
	KindFailure Kind = "failure"
)

// Clock is what the samples were timed with.
type Clock string

// The clocks.
const (
	// ClockWall: host wall time around work that was waited for.
	ClockWall Clock = "wall"
	// ClockDevice: the device's own timer.
	ClockDevice Clock = "device"
	// ClockCPU: CPU time of the process.
	ClockCPU Clock = "cpu"
)

// Point is one measurement, or one failure to measure.
type Point struct {
	Kind Kind `json:"kind"`
	// Step says what was run, for KindStep and for failed steps.
	Step *Step `json:"step,omitempty"`
	// Layer says which layer was run, for KindLayer and for failed layers.
	Layer *Layer `json:"layer,omitempty"`
	// Memory, Request, Telemetry and Server are what points of those kinds say,
	// Workload what was run, for KindWorkload and for failed loads.
	Memory    *Memory    `json:"memory,omitempty"`
	Request   *Request   `json:"request,omitempty"`
	Telemetry *Telemetry `json:"telemetry,omitempty"`
	Workload  *Workload  `json:"workload,omitempty"`
	Server    *Server    `json:"server,omitempty"`
	// Samples are all the times taken, in order, in seconds.
	Samples []float64 `json:"samples_s,omitempty"`
	// Summary is what a foreign file said of samples that it did not keep,
	// or of those it kept.
	Summary *Summary `json:"summary,omitempty"`
	// Clock is what Samples were timed with; empty where it is not known.
	Clock Clock `json:"clock,omitempty"`
	// Reason says why a KindFailure point failed.
	Reason string `json:"reason,omitempty"`
	// Warnings are remarks of the measurer or of lint.
	Warnings []string `json:"warnings,omitempty"`
	// Origin is where the point was read: "file.json: results[3]".
	Origin string `json:"origin,omitempty"`
	// Extra keeps foreign keys that nothing else holds, verbatim.
	Extra map[string]json.RawMessage `json:"extra,omitempty"`
}

// Step is one forward pass of a measured grid.
type Step struct {
	// Mode is "prefill", "decode" or "mixed"; a failed configuration, which
	// has neither mode nor pass, leaves it empty.
	Mode string `json:"mode"`
	// BatchSize and InputLen are the grid coordinates: sequences, and prompt
	// tokens of each. OutputLen is the number of tokens generated after it.
	BatchSize int `json:"batch_size,omitempty"`
	InputLen  int `json:"input_len,omitempty"`
	OutputLen int `json:"output_len,omitempty"`
	// Pass is what the step computed. A decode point that summarises steps
	// at growing context carries their mean context. It is empty where only
	// Totals are known.
	Pass forward.Pass `json:"pass,omitzero"`
	// Totals are the sums of a pass whose shape is not known.
	Totals *forward.Totals `json:"totals,omitempty"`
}

// Sums are the totals of the step, from its pass where that is known.
func (s *Step) Sums() forward.Totals {
	if s.Totals != nil {
		return *s.Totals
	}
	return s.Pass.Totals()
}

// The modes of a [Step].
const (
	Prefill = "prefill"
	Decode  = "decode"
	Mixed   = "mixed"
)

// Summary holds statistics of a point's samples, in seconds.
type Summary struct {
	Mean float64 `json:"mean_s,omitempty"`
	// Std is the population standard deviation.
	Std float64 `json:"std_s,omitempty"`
	// Runs is the number of samples behind the summary.
	Runs int `json:"runs,omitempty"`
}

// Median is the median of the samples, or the summary's mean where samples
// were not kept. ok is false where the point holds no time.
func (p Point) Median() (t unit.Seconds, ok bool) {
	if len(p.Samples) > 0 {
		return unit.Seconds(stat.Median(p.Samples)), true
	}
	return p.Mean()
}

// Mean is the summary's mean, or the mean of the samples where there is no
// summary. ok is false where the point holds no time.
func (p Point) Mean() (t unit.Seconds, ok bool) {
	if p.Summary != nil && p.Summary.Mean > 0 {
		return unit.Seconds(p.Summary.Mean), true
	}
	if len(p.Samples) > 0 {
		return unit.Seconds(stat.Mean(p.Samples)), true
	}
	return 0, false
}
