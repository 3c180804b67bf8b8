package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/llmprof/llmprof/settings"
	"github.com/llmprof/llmprof/unit"
)

// Described is what a file describes: a load that is made, or a recorded one
// that is replayed.
type Described struct {
	// Spec is the load that is made, where nothing is replayed.
	Spec Spec
	// Recorded are the requests that are replayed; empty for none.
	Recorded []Request
	// Replay says how.
	Replay Replaying
}

// Schedule makes the load; see [BuildContext] for the context.
func (d *Described) Schedule(ctx context.Context) (*Schedule, error) {
	if len(d.Recorded) > 0 {
		return Replay(d.Recorded, d.Replay)
	}
	return BuildContext(ctx, d.Spec)
}

// ReadSpec reads the description of a load in YAML, of which JSON is a part. It is strict: all faults
// come together in one [*settings.FileError], with lines. The name stands in
// errors; open reads the files that the description names.
//
// The keys stand in docs/workloads.md, with an example.
func ReadSpec(name string, r io.Reader, open func(file string) (Records, error)) (*Described, error) {
	text, err := io.ReadAll(io.LimitReader(r, settings.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	f := settings.Open(name, text)
	d := describer{open: open}
	d.read(f.Top())
	if err := f.Err(); err != nil {
		return nil, err
	}
	return &d.out, nil
}

// describer reads a description.
type describer struct {
	open func(string) (Records, error)
	out  Described
}

func (d *describer) read(top settings.Value) {
	if !top.Present() {
		return // the file says why
	}
	f := top.Fields("seed", "count", "duration", "timeout", "arrivals", "lengths", "prefixes", "sessions", "classes", "trace")
	s := &d.out.Spec
	if f.Has("seed") {
		s.Seed = uint64(f.Get("seed").Whole(0, 1<<53))
	}
	if f.Has("timeout") {
		s.Timeout = readSeconds(f.Get("timeout"))
	}
	if f.Has("trace") {
		s.Classes = d.classes(f.Get("classes"), f)
		for _, key := range []string{"count", "duration", "arrivals", "lengths", "prefixes", "sessions"} {
			if f.Has(key) {
				f.Get(key).Fault("", "it has no use with a trace, which holds the whole load")
			}
		}
		d.replay(f.Get("trace"))
		return
	}
	if f.Has("count") {
		s.Count = readCount(f.Get("count"), 1, MaxRequests)
	}
	if f.Has("duration") {
		s.Duration = readSeconds(f.Get("duration"))
	}
	s.Arrivals = readArrivals(f.Get("arrivals"), s.Count)
	if f.Has("lengths") || !f.Has("classes") {
		s.Lengths = d.lengths(f.Get("lengths"))
	}
	s.Classes = d.classes(f.Get("classes"), f)
	if f.Has("prefixes") {
		s.Prefixes = readPrefixes(f.Get("prefixes"))
	}
	if f.Has("sessions") {
		s.Sessions = readSessions(f.Get("sessions"))
	}
	if s.Arrivals != nil && (s.Lengths != nil || s.checkOwnLengths() == nil) {
		settle(top, s.checkEnd())
	}
}

// replay reads the trace that takes the place of all that would be made.
func (d *describer) replay(v settings.Value) {
	f := v.Fields("file", "speed", "limit")
	how := Replaying{Seed: d.out.Spec.Seed, Classes: d.out.Spec.Classes, Timeout: d.out.Spec.Timeout, Speed: 1, Name: f.Get("file").Text()}
	if f.Has("speed") {
		how.Speed = f.Get("speed").Number()
	}
	if f.Has("limit") {
		how.Limit = readCount(f.Get("limit"), 1, MaxRequests)
	}
	settle(v, checkReplay("trace", how.Speed, how.Limit))
	if how.Name == "" {
		return
	}
	switch r, err := d.open(how.Name); {
	case err != nil:
		settle(f.Get("file"), err)
	case !r.Timed:
		f.Get("file").Fault("lengths: {input: file:…, output: file:…} takes its lengths", "%s holds no times", how.Name)
	default:
		d.out.Recorded, d.out.Replay = r.Requests, how
	}
}

// lengths reads how long prompts and answers are.
func (d *describer) lengths(v settings.Value) Lengths {
	if !v.Present() {
		v.Fault("for example lengths: {input: normal:512:256, output: 128}", "want the lengths of prompts and answers, got nothing")
		return nil
	}
	f := v.Fields("input", "output")
	in, okIn := readScalar(f.Get("input"))
	out, okOut := readScalar(f.Get("output"))
	if !okIn || !okOut {
		return nil
	}
	lengths, err := ParseLengths(in, out, d.open)
	settle(v, err)
	return lengths
}

// readScalar is a number or a text as it is written.
func readScalar(v settings.Value) (text string, ok bool) {
	if text, ok = v.Scalar(); !ok {
		v.Fault("a length is such as 512, 4k, normal:512:256 or file:lengths.txt", "want a length")
	}
	return text, ok
}

// settle notes the faults of an error at a value, each by itself.
func settle(v settings.Value, err error) {
	if err == nil {
		return
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range several.Unwrap() {
			settle(v, one)
		}
		return
	}
	advice := ""
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) {
		advice = hinted.Hint()
	}
	v.Fault(advice, "%v", err)
}

// readSeconds reads a time.
func readSeconds(v settings.Value) unit.Seconds {
	text, ok := v.Scalar()
	if !ok {
		v.Fault("", "want a time such as 2.5 (seconds), 250ms or 1m30s")
		return 0
	}
	t, err := ParseSeconds(text)
	if err == nil {
		err = checkDelay("time", t)
	}
	settle(v, err)
	return t
}

// readCount reads a whole number, also 4k and 4Ki.
func readCount(v settings.Value, least, most int) int {
	text, ok := v.Scalar()
	n, err := unit.ParseCount(text)
	if !ok || err != nil || n < least || n > most {
		v.Fault("", "want a whole number from %d to %d", least, most)
		return least
	}
	return n
}

// readLength reads one distribution of lengths.
func readLength(v settings.Value) Length {
	text, ok := readScalar(v)
	if !ok {
		return nil
	}
	if strings.HasPrefix(text, "file:") {
		v.Fault("", "want a distribution: a file holds the lengths of prompts and answers only")
		return nil
	}
	length, err := ParseLength(text)
	settle(v, err)
	return length
}

// readDelay reads a distribution of think times, or a list of recorded ones.
func readDelay(v settings.Value) Delay {
	if v.IsList() {
		var d RecordedDelay
		for _, one := range v.List() {
			d.Values = append(d.Values, readSeconds(one))
		}
		return d
	}
	text, ok := v.Scalar()
	if !ok {
		v.Fault("", "want a think time such as 2s, exponential:2s, or a list of times")
		return nil
	}
	d, err := ParseDelay(text)
	settle(v, err)
	return d
}

// readRate reads requests a second, also inf.
func readRate(v settings.Value) float64 {
	if text, _ := v.Scalar(); text == "inf" || text == ".inf" {
		return math.Inf(1)
	}
	return v.Number()
}
