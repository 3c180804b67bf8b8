// Package profile owns the measured artefact: a header that says under which
// conditions something was measured, and a stream of points, each with every
// sample that was taken.
//
// # The file
//
// A profile is JSON Lines: the first line is the [Header], every further line
// is one [Point]. A name that ends in ".gz" is written as gzip; reading looks
// at the content, not at the name. Times are in seconds, as every "_s" key
// says.
//
//	{"schema":"llmprof/profile","version":"1.1","device":{"name":"a100-sxm-80gb"},"deploy":{"model":"Qwen/Qwen3-4B"}}
//	{"kind":"step","step":{"mode":"prefill","batch_size":1,"input_len":512,"pass":{"prefill":[{"count":1,"new":512,"last":true}]}},"samples_s":[0.0204,0.0203]}
//
// A file can be appended to at any time, also after a crash: [Writer] hands
// each point to the file as one whole line, [Append] removes or completes
// what a crash left behind, and [Reader] reports a cut-off end without losing
// the points before it. Two files of the same conditions may also simply be
// concatenated, plain or gzip.
//
// A newer minor version is read with a warning; a newer major version is
// refused with a [*VersionError].
//
// # The algebra
//
// [Merge] joins profiles of the same conditions, [Profile.Filter] picks
// points, [Lint] looks for points that cannot be true or should not be
// trusted, and [Profile.Drop] removes what lint found. Nothing here opens a
// file: the caller brings readers and writers.
package profile

import (
	"fmt"
	"slices"
)

// Profile is a profile in memory.
type Profile struct {
	Header Header
	Points []Point
}

// Predicate picks points; it sees the header of the profile they are in.
type Predicate func(*Header, *Point) bool

// Filter returns a profile with the points that satisfy every predicate. The
// points are shared with p.
func (p *Profile) Filter(preds ...Predicate) *Profile {
	out := &Profile{Header: p.Header}
points:
	for i := range p.Points {
		for _, keep := range preds {
			if !keep(&p.Header, &p.Points[i]) {
				continue points
			}
		}
		out.Points = append(out.Points, p.Points[i])
	}
	return out
}

// OnDevice picks points measured on the named device: its canonical name, or
// the name as reported.
func OnDevice(name string) Predicate {
	return func(h *Header, _ *Point) bool {
		return name != "" && (h.Device.Name == name || h.Device.Reported == name)
	}
}

// ByKind picks points of the given kinds.
func ByKind(kinds ...Kind) Predicate {
	return func(_ *Header, p *Point) bool { return slices.Contains(kinds, p.Kind) }
}

// Not inverts a predicate.
func Not(pred Predicate) Predicate {
	return func(h *Header, p *Point) bool { return !pred(h, p) }
}

// ClashError says that two profiles were taken under different conditions.
type ClashError struct {
	// Field is what differs, as the header's key names it.
	Field string
	// A and B are the two values; AOrigin and BOrigin where they come from.
	A, B             string
	AOrigin, BOrigin string
}

// Error names both values and both origins.
func (e *ClashError) Error() string {
	return fmt.Sprintf("%s differs: %q in %s, %q in %s", e.Field, e.A, e.AOrigin, e.B, e.BOrigin)
}

// Hint says what to do next.
func (e *ClashError) Hint() string {
	return "profiles of different devices, models or deployments stay in separate files"
}
