package llmservingsim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// DetectHardware reports whether a file, plain or gzip, that begins with head is
// a hardware.yaml: what LLMServingSim measured of a machine's links.
func DetectHardware(head []byte) bool {
	text := format.Head(head)
	return bytes.HasPrefix(text, []byte("hardware:")) && (bytes.Contains(text, []byte("\n    samples:")) || bytes.Contains(text, []byte("\ndefaults:")))
}

// ReadHardware reads the collectives of a hardware.yaml, measured between npus
// ranks, as points of kind layer: all_reduce, all_gather and reduce_scatter by
// the bytes that every rank puts in. Of the times of one call that of a call in
// a CUDA graph is taken, which is how a served engine calls it. Only "key:
// value" lines in block style are read, as they are written by the profiler.
func ReadHardware(name string, r io.Reader, opts Options) (*profile.Profile, []error, error) {
	limits := opts.Limits
	if limits.Bytes == 0 {
		limits.Bytes = maxMeta
	}
	text, err := format.ReadText(name, r, limits)
	if err != nil {
		return nil, nil, err
	}
	values := metaValues(text)
	p := &profile.Profile{Header: profile.Header{Schema: profile.Schema, Version: profile.Version, Source: name}}
	h := &p.Header
	h.Device.Reported = values["spec.gpu_name"]
	if h.Device.Reported == "" {
		h.Device.Reported = values["hardware"]
	}
	findDevice(h, opts.Device, values["spec.gpu_name"], values["hardware"])
	h.Created = values["measured.at"]
	ranks, err := format.ParseSize(values["measured.interconnect.npus"], 2)
	if err != nil || ranks > maxRanks {
		return nil, nil, &format.Error{File: name, Place: "measured.interconnect.npus", Err: fmt.Errorf("got %q: want the number of devices between which was measured", values["measured.interconnect.npus"])}
	}
	h.Deploy.TensorParallel = ranks
	for _, item := range listItems(text, "samples") {
		place := fmt.Sprintf("line %d", item.line)
		layer, seconds, err := item.collective()
		if err != nil {
			return nil, nil, &format.Error{File: name, Place: place, Err: err}
		}
		layer.TensorParallel = ranks
		p.Points = append(p.Points, profile.Point{
			Kind: profile.KindLayer, Layer: layer, Samples: []float64{seconds}, Clock: profile.ClockDevice, Origin: name + ": " + place,
		})
	}
	if len(p.Points) == 0 {
		return nil, nil, &format.Error{File: name, Err: errors.New("holds no times of collectives")}
	}
	return p, nil, nil
}

// listItem is an item of a list: the plain values of a mapping.
type listItem struct {
	line   int
	values map[string]string
}

// listItems are the items of the first list of a name.
func listItems(text []byte, name string) (out []listItem) {
	inside, key, dash, n := false, 0, -1, 0
	for line := range bytes.Lines(text) {
		n++
		row := strings.TrimRight(string(line), " \t\r\n")
		body := strings.TrimLeft(row, " ")
		at := len(row) - len(body)
		switch {
		case body == "" || body[0] == '#':
			continue
		case !inside:
			inside, key = body == name+":", at
			continue
		case dash < 0 && strings.HasPrefix(body, "- ") && at >= key:
			dash = at
		}
		switch {
		case at == dash && strings.HasPrefix(body, "- "):
			out = append(out, listItem{n, map[string]string{}})
			body, at = body[2:], at+2
		case at <= dash || dash < 0:
			return out
		}
		k, value, ok := strings.Cut(body, ":")
		values := out[len(out)-1].values
		if _, twice := values[k]; ok && !twice && at == dash+2 {
			values[k] = plainScalar(strings.TrimSpace(value))
		}
	}
	return out
}

// collective reads a measured call.
func (i listItem) collective() (l *profile.Layer, seconds float64, err error) {
	l = &profile.Layer{Name: i.values["collective"]}
	if l.Name == "" {
		return nil, 0, errors.New("collective is missing: want the name of one")
	}
	size, err := format.ParseSize(i.values["bytes"], 1)
	if err != nil {
		return nil, 0, fmt.Errorf("bytes: %w", err)
	}
	l.MessageBytes = int64(size)
	text := i.values["us_graphed"]
	if text == "" {
		text = i.values["us"]
	}
	t, err := format.ParseTime(text, format.Microseconds)
	if err != nil {
		return nil, 0, fmt.Errorf("us: %w", err)
	}
	return l, float64(t), nil
}
