package sglang

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/profile"
)

// Batch is one line of a server's log about a step that it starts: a prefill
// of new tokens, or decoding. The log holds no step times.
type Batch struct {
	// Prefill tells a prefill batch from a decode batch.
	Prefill bool
	// Fields are all fields by their name, as text: "#new-token", "token
	// usage". Names differ between releases.
	Fields map[string]string
}

// Number reads the first of the named fields that is there, as a number.
func (b Batch) Number(names ...string) (v float64, ok bool) {
	for _, name := range names {
		if text, ok := b.Fields[name]; ok {
			if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
				return v, true
			}
		}
	}
	return 0, false
}

var (
	logPrefix  = regexp.MustCompile(`^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d((?: [A-Z]+\d+)*)\] `)
	weightsEnd = regexp.MustCompile(`^Load weight end\..*mem usage=([\d.]+) GB`)
	available  = regexp.MustCompile(`avail mem=([\d.]+) GB`)
	allocated  = regexp.MustCompile(`^KV Cache is allocated\.(?: dtype: ([\w.]+),)? #tokens: (\d+), K size: ([\d.]+) GB, V size: ([\d.]+) GB`)
	serverArgs = regexp.MustCompile(`^server_args=`)
	ansi       = regexp.MustCompile("\x1b\\[[0-9;]*m")
)

// ParseBatch reads a batch line with its prefix; ok is false for any other.
func ParseBatch(line string) (b Batch, ok bool) {
	text, _, found := strip(line)
	if !found {
		return Batch{}, false
	}
	switch {
	case strings.HasPrefix(text, "Prefill batch"):
		b.Prefill = true
	case strings.HasPrefix(text, "Decode batch"):
	default:
		return Batch{}, false
	}
	b.Fields = map[string]string{}
	// The first field is the kind of the batch; older releases follow it with
	// ". " instead of ", ".
	text = strings.TrimPrefix(strings.TrimPrefix(text, "Prefill batch"), "Decode batch")
	for field := range strings.SplitSeq(strings.TrimLeft(text, ",. "), ", ") {
		at := strings.LastIndex(field, ": ")
		if at < 0 {
			continue
		}
		b.Fields[strings.TrimSpace(field[:at])] = strings.TrimSpace(field[at+2:])
	}
	return b, len(b.Fields) > 0
}

// poolEnd begins the line after the KV cache is allocated.
const poolEnd = "Memory pool end."

// strip removes colours and prefix; rank is what the prefix says: "TP0 EP0".
func strip(line string) (text, rank string, ok bool) {
	line = ansi.ReplaceAllString(strings.TrimRight(line, "\r\n"), "")
	m := logPrefix.FindStringSubmatch(line)
	if m == nil {
		return "", "", false
	}
	return line[len(m[0]):], strings.TrimSpace(m[1]), true
}

// maxLine bounds a line of a log in bytes; longer ones are passed over.
const maxLine = 1 << 20

// ReadLog reads the memory figures of a server's start from its log, plain or
// gzip, as points of kind memory; the name stands in errors and origins. Batch
// lines are counted only: they say what a step held and not how long it took.
func ReadLog(name string, r io.Reader) (*profile.Profile, []error, error) {
	text, err := profile.Expand(r, profile.Bounds{})
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", name, err)
	}
	p := &profile.Profile{}
	p.Header.Deploy.Engine, p.Header.Source = "sglang", name
	in := bufio.NewReaderSize(text, maxLine)
	batches := 0
	for number := 1; ; number++ {
		line, err := in.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) {
			line = nil
			_, err = in.ReadSlice('\n')
		}
		if len(line) > 0 {
			if _, ok := ParseBatch(string(line)); ok {
				batches++
			}
			for _, m := range memory(string(line)) {
				point := profile.Point{Kind: profile.KindMemory, Memory: &m, Origin: fmt.Sprintf("%s: line %d", name, number)}
				if point.Validate() == nil {
					p.Points = append(p.Points, point)
				}
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read %s: line %d: %w", name, number, err)
		}
	}
	if len(p.Points) == 0 && batches == 0 {
		return nil, nil, fmt.Errorf("read %s: no line of an SGLang server's log", name)
	}
	var warnings []error
	if batches > 0 {
		warnings = append(warnings, fmt.Errorf("%s: %d batch lines hold no step times and were left out", name, batches))
	}
	return p, warnings, nil
}

// gib turns a printed figure in "GB", which are GiB, into bytes.
func gib(text string) int64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v < 0 || v > 1e9 {
		return 0
	}
	return int64(math.Round(v * (1 << 30)))
}

// gibStep is the step of a figure that is printed with two decimals.
const gibStep = (1 << 30) / 100

// memory reads the figures of one line.
func memory(line string) []profile.Memory {
	text, rank, ok := strip(line)
	if !ok {
		return nil
	}
	if m := weightsEnd.FindStringSubmatch(text); m != nil {
		return []profile.Memory{{Part: profile.MemoryWeights, Bytes: gib(m[1]), Resolution: gibStep, Worker: rank}}
	}
	if m := allocated.FindStringSubmatch(text); m != nil {
		tokens, err := strconv.ParseInt(m[2], 10, 64)
		if err != nil {
			return nil
		}
		return []profile.Memory{{Part: profile.MemoryKVCache, Bytes: gib(m[3]) + gib(m[4]), Resolution: 2 * gibStep, Tokens: tokens, Worker: rank}}
	}
	if strings.HasPrefix(text, poolEnd) {
		if m := available.FindStringSubmatch(text); m != nil {
			return []profile.Memory{{Part: profile.MemoryFree, Bytes: gib(m[1]), Resolution: gibStep, Worker: rank}}
		}
	}
	return nil
}

// Detect reports whether the first bytes of a text are of a server's log.
func Detect(head []byte) bool {
	for line := range strings.Lines(string(head)) {
		text, _, ok := strip(line)
		if !ok {
			continue
		}
		if _, batch := ParseBatch(line); batch || len(memory(line)) > 0 || serverArgs.MatchString(text) {
			return true
		}
	}
	return false
}
