package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/load/metrics"
	"github.com/llmprof/llmprof/profile"
)

// The schemas of documents that hold a served load.
const (
	benchSchema      = "llmprof/bench"
	simulationSchema = "llmprof/simulation"
)

// maxServedBytes bounds a document of a served load in bytes. They hold figures
// and no requests, so a few kilobytes are usual.
const maxServedBytes = 32 << 20

// ServedRun is what a [BenchDocument] and a [SimulationDocument] have in common,
// as it is read back.
type ServedRun struct {
	Head
	// Name is that of the file.
	Name string `json:"-"`
	// Verdict, Reasons and Partial are empty in a simulation.
	Verdict string   `json:"verdict"`
	Reasons []string `json:"reasons"`
	Partial string   `json:"partial"`
	// Model, GPU, Engine and Release say what served; empty where it is not
	// known.
	Model    string        `json:"model"`
	GPU      string        `json:"gpu"`
	Engine   string        `json:"engine"`
	Release  string        `json:"engine_version"`
	Workload BenchWorkload `json:"workload"`
	// Whole is the whole run, Steady the part in which the load was steady; nil
	// where the document has none.
	Whole  *load.Summary `json:"whole"`
	Steady *load.Summary `json:"steady"`
	// Server is what a live server said of the whole run, Replicas what
	// simulated ones did; at most one of them is known.
	Server   *metrics.Window    `json:"server_whole"`
	Replicas []SimulatedReplica `json:"replicas"`
	// Reported is what another load tool says of its run; nil for a document of
	// llmprof's. It stands in for Whole, and there is nothing else then.
	Reported *format.Serving `json:"-"`
}

// ReportedRun is a run that another load tool measured, as the reader of its
// file has put it into our words. The name stands in messages.
func ReportedRun(name string, s *format.Serving) *ServedRun {
	count := func(n *int) int {
		if n == nil {
			return 0
		}
		return *n
	}
	spec := []string{s.Load}
	if s.RequestRate != nil {
		spec = append(spec, fmt.Sprintf("%g requests/s", *s.RequestRate))
	}
	if s.Unlimited {
		spec = append(spec, "all at once")
	}
	if s.MaxConcurrency != nil {
		spec = append(spec, fmt.Sprintf("at most %d open", *s.MaxConcurrency))
	}
	asked := s.Requests
	if asked == nil {
		asked = s.Completed
	}
	return &ServedRun{
		Head: Head{Tool: s.Tool}, Name: name, Model: s.Model, Reported: s,
		Workload: BenchWorkload{
			Pattern: s.Load, Spec: strings.Join(slices.DeleteFunc(spec, func(part string) bool { return part == "" }), "; "),
			Requests: count(asked), MaxConcurrency: count(s.MaxConcurrency), InputTokens: count(s.InputTokens), OutputTokens: count(s.OutputTokens),
		},
	}
}

// Simulated reports whether the run was simulated and not measured.
func (r *ServedRun) Simulated() bool { return r.Schema == simulationSchema }

// ReadServed reads what llmprof bench or llmprof simulate said as JSON. The name
// stands in messages; nothing is opened. A warning tells of a newer minor
// version; a newer major one is a [*profile.VersionError].
func ReadServed(name string, in io.Reader) (*ServedRun, []error, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxServedBytes+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > maxServedBytes {
		return nil, nil, &NotServedError{File: name, Err: fmt.Errorf("it is longer than %d MiB", maxServedBytes>>20)}
	}
	var head Head
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, nil, &NotServedError{File: name, Err: fmt.Errorf("it is not one JSON document: %w", err)}
	}
	switch head.Schema {
	case benchSchema, simulationSchema:
	case "":
		return nil, nil, &NotServedError{File: name, Err: errors.New("it says no schema")}
	default:
		return nil, nil, &NotServedError{File: name, Err: fmt.Errorf("its schema is %q", head.Schema)}
	}
	warnings, err := checkServed(name, head)
	if err != nil {
		return nil, nil, err
	}
	run := &ServedRun{}
	if err := json.Unmarshal(text, run); err != nil {
		return nil, nil, &NotServedError{File: name, Err: err}
	}
	if run.Whole == nil {
		return nil, nil, &NotServedError{File: name, Err: errors.New("it has no figures of the whole run")}
	}
	run.Name = name
	return run, warnings, nil
}

// checkServed holds the version of a document against the one written here.
func checkServed(name string, head Head) ([]error, error) {
	supported := NewHead("", "").Version
	major, minor, ok := version(head.Version)
	if !ok {
		return nil, &NotServedError{File: name, Err: fmt.Errorf("version is %q: want major.minor", head.Version)}
	}
	ourMajor, ourMinor, _ := version(supported)
	newer := &profile.VersionError{File: name, Kind: head.Schema, Version: head.Version, Supported: supported}
	switch {
	case major > ourMajor:
		return nil, newer
	case major == ourMajor && minor > ourMinor:
		return []error{newer}, nil
	}
	return nil, nil
}

// version splits "major.minor"; ok is false for anything else, and for a major
// of zero, which no document has.
func version(text string) (major, minor uint64, ok bool) {
	a, b, ok := strings.Cut(text, ".")
	major, errMajor := strconv.ParseUint(a, 10, 31)
	minor, errMinor := strconv.ParseUint(b, 10, 31)
	return major, minor, ok && errMajor == nil && errMinor == nil && major > 0
}

// NotServedError says that a file holds no served load.
type NotServedError struct {
	// File is the name given to the reader.
	File string
	// Err says what is wrong.
	Err error
}

// Error names the file and what is wrong.
func (e *NotServedError) Error() string {
	return fmt.Sprintf("read %s: %v", e.File, e.Err)
}

// Unwrap returns what is wrong.
func (e *NotServedError) Unwrap() error { return e.Err }

// Hint says what is read.
func (e *NotServedError) Hint() string {
	return "read are the run.json of llmprof bench -o FOLDER, what bench --json and simulate --json print, and results of vllm bench serve, sglang.bench_serving, guidellm, aiperf and inference-perf"
}
