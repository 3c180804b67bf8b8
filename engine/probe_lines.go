package engine

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
)

// maxProbeLine is the longest line in bytes that a probe may print. The
// longest honest one, 100 runs of 32k decode steps, is of 70 MB.
const maxProbeLine = 128 << 20

// keptOfLong is how many bytes of a line that is too long are kept. Whoever
// shows less of it, after secrets were taken out, shows none that was cut here.
const keptOfLong = 4 << 10

// probeLine is one line of a probe: an event, chatter, or a broken event.
type probeLine struct {
	event *probeEvent
	// text is the line where it is no event.
	text string
	// broken says why a line that set out to be an event is none.
	broken error
}

// notFinite finds the numbers that Python's json module writes and JSON does
// not know.
var notFinite = regexp.MustCompile(`-?\b(NaN|Infinity)\b`)

// parseProbeLine tells what a line is. A line is meant as an event when it is
// an object with the key "event"; a number that is not finite becomes 0, which
// no time may be.
func parseProbeLine(line []byte) probeLine {
	line = bytes.TrimSpace(line)
	if !bytes.HasPrefix(line, []byte("{")) {
		return probeLine{text: string(line)}
	}
	var event probeEvent
	err := json.Unmarshal(line, &event)
	if err != nil && notFinite.Match(line) {
		event = probeEvent{}
		err = json.Unmarshal(notFinite.ReplaceAllLiteral(line, []byte("null")), &event)
	}
	switch {
	case err == nil && event.Event != "":
		return probeLine{event: &event}
	case err != nil && bytes.Contains(line, []byte(`"event"`)):
		return probeLine{text: string(line), broken: err}
	}
	return probeLine{text: string(line)}
}

// redact takes secrets out of all that a person may come to read.
func (e *probeEvent) redact(r *Redactor) {
	for _, text := range []*string{
		&e.Event, &e.Schema, &e.Engine, &e.EngineVersion, &e.Device, &e.Driver, &e.Clock, &e.Timer, &e.DType,
		&e.KVCacheDType, &e.Quantization, &e.Weights, &e.Reason, &e.Message, &e.Hint,
	} {
		*text = r.Redact(*text)
	}
	for i := range e.Warnings {
		e.Warnings[i] = r.Redact(e.Warnings[i])
	}
	for i := range e.Layers {
		e.Layers[i].Name = r.Redact(e.Layers[i].Name)
	}
	for name, version := range e.Libraries {
		e.Libraries[name] = r.Redact(version)
	}
}

// probeReader cuts a probe's output into lines of at most limit bytes.
type probeReader struct {
	r     *bufio.Reader
	limit int
}

// next returns the next line; io.EOF after the last one. The rest of a line
// that is too long is passed over.
func (p *probeReader) next() (probeLine, error) {
	var line []byte
	long := false
	for {
		part, err := p.r.ReadSlice('\n')
		if !long {
			line = append(line, part...)
		}
		if len(line) > p.limit {
			line, long = line[:min(len(line), p.limit, keptOfLong)], true
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (len(line) == 0 || !errors.Is(err, io.EOF)):
			return probeLine{}, err
		}
		if !long {
			return parseProbeLine(line), nil
		}
		cut := probeLine{text: string(line)}
		if bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")) {
			cut.broken = fmt.Errorf("a line of more than %d bytes", p.limit)
		}
		return cut, nil
	}
}
