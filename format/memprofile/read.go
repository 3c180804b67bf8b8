package memprofile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// Detect tells by the beginning of a text whether it is a memory profile of
// any generation.
func Detect(head []byte) bool {
	keys, schema := format.TopKeys(bytes.TrimPrefix(head, []byte("\ufeff")))
	return schema == SchemaName || keys["memory_breakdown"] || keys["memory_measurements"] ||
		keys["model_info"] && (keys["benchmark_parameters"] || keys["gpu_info"] || keys["latency_stats"])
}

// Read reads a memory profile: ours, the v2.0 that LLM Sizer's profiler
// writes, the shape that its guide documents, and the older ones. It may be
// gzip. The warnings tell what was passed over or had to be understood.
//
// A newer major version of ours is a [*profile.VersionError]; every other
// fault is a [*format.Error] with its place.
func Read(name string, r io.Reader, limits format.Limits) (*Document, []string, error) {
	text, err := format.ReadText(name, r, limits)
	if err != nil {
		return nil, nil, err
	}
	values, err := format.ParseJSON(name, text, limits)
	if err != nil {
		return nil, nil, err
	}
	if len(values) != 1 || values[0].Kind() != format.Object {
		return nil, nil, &format.Error{File: name, Err: errors.New("want one JSON object: a memory profile")}
	}
	top := values[0]
	if !Detect(text) {
		return nil, nil, &format.Error{File: name, Err: errors.New("is no memory profile: has neither memory_breakdown nor memory_measurements")}
	}
	if schema := top.Get("schema"); schema.Present() {
		return readOurs(name, top)
	}
	return readForeign(name, top)
}

// readOurs reads a document of this package, held to its JSON Schema.
func readOurs(name string, top format.Node) (*Document, []string, error) {
	schema, err := top.Get("schema").Text()
	if err != nil {
		return nil, nil, err
	}
	if schema != SchemaName {
		return nil, nil, top.Get("schema").Errorf("want %q, got %q", SchemaName, schema)
	}
	version, err := top.Get("version").Text()
	if err != nil {
		return nil, nil, err
	}
	major, minor, ok := versionOf(version)
	if !ok {
		return nil, nil, top.Get("version").Errorf("want a version such as %s, got %q", Version, version)
	}
	knownMajor, knownMinor, _ := versionOf(Version)
	newer := &profile.VersionError{File: name, Kind: SchemaName, Version: version, Supported: Version}
	if major > knownMajor {
		return nil, nil, newer
	}
	var warnings []string
	if minor > knownMinor {
		warnings = append(warnings, newer.Error())
	}
	text, ok := top.JSON()
	if !ok {
		return nil, nil, &format.Error{File: name, Err: errors.New("holds a number that is not finite, which no such document does")}
	}
	if err := validate(text, false); err != nil {
		return nil, nil, &format.Error{File: name, Err: err}
	}
	d := &Document{}
	in := decoder{skipped: func(string) bool { return false }}
	if err := in.object(top, reflect.ValueOf(d).Elem()); err != nil {
		return nil, nil, err
	}
	stated := &Document{} // Fill changes what it is called for, lists included
	again := decoder{skipped: in.skipped}
	if err := again.object(top, reflect.ValueOf(stated).Elem()); err != nil {
		return nil, nil, err
	}
	d.Fill()
	for _, p := range d.MemoryBreakdown.Parts {
		if !slices.Contains(partNames(), p.Name) {
			warnings = append(warnings, fmt.Sprintf("memory_breakdown.parts: part %q is not known: it counts to the sum only", p.Name))
		}
	}
	return d, slices.Concat(warnings, in.remarks(), disagreements(stated, d)), nil
}

// versionOf splits "1.0" into its numbers.
func versionOf(version string) (major, minor int, ok bool) {
	first, second, ok := strings.Cut(version, ".")
	major, errMajor := strconv.Atoi(first)
	minor, errMinor := strconv.Atoi(second)
	return major, minor, ok && errMajor == nil && errMinor == nil && major >= 0 && minor >= 0
}
