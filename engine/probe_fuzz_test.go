package engine

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/llmprof/llmprof/profile"
)

// FuzzProbeLines reads anything as the output of a probe: no panic, every line
// within the limit told apart, and every point that comes of it valid.
func FuzzProbeLines(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "{", "{}\n", "null\n[]\n", "Loading…\r\n\r\n",
		`{"event":"ready","schema":"llmprof/probe","version":1,"clock":"wall","dtype":"int9","memory":[{"part":"x"}]}`,
		`{"event":"step","id":1,"prefill_s":[1,2],"decode_s":[[1],[2]]}` + "\n",
		`{"event":"step","id":1,"prefill_s":[1,NaN],"decode_s":[[-Infinity],[1e999]]}`,
		`{"event":"layers","id":1,"layers":[{"name":"","samples_s":[1,1]},{"name":"attn","attention":true,"samples_s":[1,1]}]}`,
		`{"event":"failed","reason":"oom"}` + "\n" + `{"event":5}`,
		`{"event":"fatal","reason":"no-device"` + strings.Repeat(" ", 300),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		const limit = 256
		r := probeReader{r: bufio.NewReaderSize(iotest.OneByteReader(bytes.NewReader(text)), 16), limit: limit}
		for {
			line, err := r.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if line.event == nil {
				if len(line.text) > limit || line.broken != nil && line.broken.Error() == "" {
					t.Errorf("line %q, broken %v", line.text, line.broken)
				}
				continue
			}
			e := line.event
			if e.Event == "" {
				t.Error("an event without a name")
			}
			if facts, err := readFacts(e, Setup{}); err == nil {
				for _, p := range facts.Memory {
					if err := p.Validate(); err != nil {
						t.Error(err)
					}
				}
			}
			_ = fatalError("x", "local", false, 0, e).Error()
			if failure(e.Reason, e.Message) == "" {
				t.Error("a failure without a reason")
			}
			step, _, _ := stepPoints(Task{Step: &StepTask{BatchSize: 2, InputLen: 8, OutputLen: 2}, Runs: 2}, e, profile.ClockWall)
			layers, _ := layerPoints(Task{Layers: &LayersTask{Tokens: 1, Context: 3, Sequences: 2}, Runs: 2}, e, profile.ClockWall)
			for _, p := range append(step, layers...) {
				if err := p.Validate(); err != nil || len(p.Samples) < 2 {
					t.Errorf("%v: %+v", err, p)
				}
			}
		}
	})
}

func TestProbeReaderReportsErrors(t *testing.T) {
	broken := errors.New("pipe burst")
	r := probeReader{r: bufio.NewReader(io.MultiReader(strings.NewReader("whole\nhalf"), iotest.ErrReader(broken))), limit: 100}
	if line, err := r.next(); err != nil || line.text != "whole" {
		t.Errorf("got %q, %v", line.text, err)
	}
	if _, err := r.next(); !errors.Is(err, broken) {
		t.Errorf("got %v, want the reader's error", err)
	}
}
