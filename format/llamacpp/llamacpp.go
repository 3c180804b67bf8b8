// Package llamacpp reads what the tools of llama.cpp print: the results of
// llama-bench, and the timings in the replies of llama-server.
//
// llama-bench writes one record a test, as JSON (-o json), JSON Lines (-o jsonl)
// or CSV (-o csv); plain or gzip. A test of n_prompt tokens becomes a prefill
// step of that many tokens on top of n_depth cached ones. A test of n_gen
// tokens becomes a decode step of one sequence: its samples, which time all
// tokens of a run, are divided by n_gen, and since the single steps run at
// contexts n_depth … n_depth + n_gen − 1 it stands at their mean, taken as
// n_depth + n_gen/2. A depth that a file does not state is 0. Tests of both at
// once cannot be taken apart and are left out with a warning.
//
//	p, warnings, err := llamacpp.Read("bench.jsonl", file, llamacpp.Options{})
//
// The header names the build, the processor or GPU, the model and the formats;
// every condition of the run stays verbatim in its metadata. A file with tests
// under several conditions, as "llama-bench -t 1,2" writes it, holds several
// profiles: [ReadAll].
//
// JSON keeps the time of every repetition. CSV does not: its points carry mean
// and standard deviation only.
package llamacpp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// Options says how a file is read.
type Options struct {
	// Device finds the canonical catalog name of a device by the name that
	// the file gives. Without it, and where it knows no name, the profile
	// holds the reported name alone.
	Device func(reported string) (canonical string, ok bool)
	// Limits bounds what is taken in.
	Limits format.Limits
}

// Bounds of what a record may say. A repetition beyond a day or a test beyond
// 2^30 tokens is a mistaken unit or a broken file.
const (
	maxTokens      = 1 << 30
	maxNanoseconds = 24 * 60 * 60 * 1e9
)

// Read reads the results of llama-bench, which must all be taken under the same
// conditions. The name stands in errors and in the origin of the points; the
// file is told from others by its content. Warnings are remarks on tests that
// were left out and on figures that contradict each other. A fault is a
// [*format.Error] that names file and place.
func Read(name string, r io.Reader, opts Options) (*profile.Profile, []error, error) {
	profiles, warnings, err := ReadAll(name, r, opts)
	if err != nil {
		return nil, nil, err
	}
	if len(profiles) > 1 {
		return nil, nil, &format.Error{File: name, Err: &MixedError{Differ: differences(profiles)}}
	}
	return profiles[0], warnings, nil
}

// MixedError says that a file holds tests under several conditions.
type MixedError struct {
	// Differ are the conditions that differ: "n_threads".
	Differ []string
}

// Error names what differs.
func (e *MixedError) Error() string {
	return "holds tests under several conditions, which are several profiles; they differ in " + strings.Join(e.Differ, ", ")
}

// Hint says what to do next.
func (e *MixedError) Hint() string {
	return "run llama-bench once for each value and keep the results apart"
}

// differences lists the conditions in which profiles differ, sorted.
func differences(profiles []*profile.Profile) []string {
	var list []string
	first := profiles[0].Header.Metadata
	for _, p := range profiles[1:] {
		for _, key := range conditions() {
			if !bytes.Equal(first[key], p.Header.Metadata[key]) && !slices.Contains(list, key) {
				list = append(list, key)
			}
		}
	}
	slices.Sort(list)
	return list
}

// ReadAll reads the results of llama-bench into one profile for each set of
// conditions, in the order in which these come first.
func ReadAll(name string, r io.Reader, opts Options) ([]*profile.Profile, []error, error) {
	text, err := format.ReadText(name, r, opts.Limits)
	if err != nil {
		return nil, nil, err
	}
	b := &reader{name: name, opts: opts}
	var nodes []format.Node
	if looksLikeJSON(text) {
		nodes, err = format.ParseJSON(name, text, opts.Limits)
	} else if text, err = fromCSV(name, text); err == nil {
		nodes, err = format.ParseJSON(name, text, opts.Limits)
	}
	if err != nil {
		// Only records of JSON Lines survive a cut-off end.
		bad, _ := errors.AsType[*format.Error](err)
		if bad == nil || !bad.Truncated || len(nodes) == 0 || nodes[0].Kind() != format.Object {
			return nil, nil, err
		}
		b.warn(err)
	}
	for _, n := range nodes {
		if n.Kind() != format.Array {
			err = b.record(n.At(fmt.Sprintf("line %d", n.Line())))
		} else {
			err = b.list(n)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if len(b.profiles) == 0 {
		return nil, nil, &format.Error{File: name, Err: errors.New("holds no test of prompt processing or of generation alone")}
	}
	return b.profiles, b.warnings, nil
}

// reader turns the records of one file into profiles.
type reader struct {
	name     string
	opts     Options
	warnings []error
	profiles []*profile.Profile
	// sets are the conditions of profiles, as text.
	sets []string
}

func (b *reader) warn(err error) { b.warnings = append(b.warnings, err) }

// list reads the array that -o json writes.
func (b *reader) list(n format.Node) error {
	for i, record := range n.Elements() {
		if err := b.record(record.At(fmt.Sprintf("[%d]", i))); err != nil {
			return err
		}
	}
	return nil
}

// into returns the profile of a record's conditions.
func (b *reader) into(n format.Node) (*profile.Profile, error) {
	meta := map[string]json.RawMessage{}
	var set strings.Builder
	for _, key := range conditions() {
		value := n.Get(key)
		if !value.Present() {
			continue
		}
		text, ok := value.JSON()
		if !ok {
			return nil, value.Errorf("%s is not valid JSON", value.Got())
		}
		meta[key] = text
		fmt.Fprintf(&set, "%s=%s\n", key, text)
	}
	if i := slices.Index(b.sets, set.String()); i >= 0 {
		return b.profiles[i], nil
	}
	header, err := b.header(n)
	if err != nil {
		return nil, err
	}
	header.Metadata = meta
	p := &profile.Profile{Header: header}
	b.sets, b.profiles = append(b.sets, set.String()), append(b.profiles, p)
	return p, nil
}

// HeadSize is the number of bytes of a file with which [Detect] can decide.
const HeadSize = 64 << 10

// Detect tells from the first bytes of a file, plain or gzip, whether it holds
// results of llama-bench. The file's name is not looked at.
func Detect(head []byte) bool {
	text, err := profile.Expand(bytes.NewReader(head), profile.Bounds{})
	if err != nil {
		return false
	}
	part := make([]byte, HeadSize)
	n, _ := io.ReadFull(text, part) // the head may end anywhere
	part = bytes.TrimPrefix(part[:n], []byte("\ufeff"))
	if !looksLikeJSON(part) {
		line, _, _ := bytes.Cut(part, []byte("\n"))
		columns := strings.Split(strings.ReplaceAll(strings.TrimSpace(string(line)), `"`, ""), ",")
		return slices.Contains(columns, keyAverage) && slices.Contains(columns, keyPrompt)
	}
	keys, _ := format.TopKeys(part)
	return keys[keyPrompt] && keys[keyGenerated] && (keys[keyAverage] || keys["build_commit"])
}

func looksLikeJSON(text []byte) bool {
	text = bytes.TrimSpace(text)
	return len(text) > 0 && (text[0] == '{' || text[0] == '[')
}
