// Package ollama reads the timings that ollama adds to a response of
// /api/generate and /api/chat: in the only object, or with streaming in the
// last line, where done is true. All its durations are whole nanoseconds.
//
// A client that stops early gets no timings. A prompt that came from the cache
// still counts in full; newer releases say how much of it did.
//
//	t, err := ollama.ParseTimings("reply", body)
package ollama

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/unit"
)

// Timings is what ollama says of one request. Fields that the response does
// not hold are nil.
type Timings struct {
	Model string
	// Total is the whole time with queueing and load, Load that of loading the
	// model.
	Total, Load *unit.Seconds
	// PromptTokens counts the prompt with its first special token, also where
	// it came from the cache; CachedTokens those that did.
	PromptTokens, CachedTokens *int
	// Prompt is the time of processing the prompt, without queueing, with the
	// time shared with other requests.
	Prompt *unit.Seconds
	// OutputTokens were generated in Output.
	OutputTokens *int
	Output       *unit.Seconds
	// DoneReason is "stop", "length" or "load"; empty in old releases.
	DoneReason string
}

// reload is the load time from which a sample includes a model load.
const reload = 0.2 // seconds

// Reloaded reports whether the request waited for the model to be loaded, so
// that it says nothing of the engine's speed.
func (t Timings) Reloaded() bool {
	return t.Load != nil && *t.Load > reload || t.DoneReason == "load"
}

// ParseTimings reads a response: one object, or lines of which the last is
// done. The name stands in errors.
func ParseTimings(name string, r io.Reader) (Timings, error) {
	limits := format.Limits{Bytes: 16 << 20}
	text, err := format.ReadText(name, r, limits)
	if err != nil {
		return Timings{}, err
	}
	nodes, err := format.ParseJSON(name, text, limits)
	if err != nil {
		return Timings{}, err
	}
	for i := len(nodes) - 1; i >= 0; i-- {
		n := nodes[i]
		if n.Kind() != format.Object {
			return Timings{}, n.Errorf("want a response of ollama, got %s", n.Got())
		}
		if text, ok := n.Get("done").JSON(); ok && string(text) == "true" {
			return timings(n)
		}
	}
	return Timings{}, &format.Error{File: name, Err: errors.New("no line is done: the response ended early and holds no timings")}
}

func timings(n format.Node) (Timings, error) {
	var t Timings
	var faults []error
	for key, into := range map[string]*string{"model": &t.Model, "done_reason": &t.DoneReason} {
		if v := n.Get(key); v.Present() {
			text, err := v.Text()
			*into, faults = text, append(faults, err)
		}
	}
	for key, into := range map[string]**int{"prompt_eval_count": &t.PromptTokens, "prompt_eval_cached_count": &t.CachedTokens, "eval_count": &t.OutputTokens} {
		if v := n.Get(key); v.Present() {
			count, err := v.Int(0, math.MaxInt32)
			*into, faults = &count, append(faults, err)
		}
	}
	for key, into := range map[string]**unit.Seconds{"total_duration": &t.Total, "load_duration": &t.Load, "prompt_eval_duration": &t.Prompt, "eval_duration": &t.Output} {
		if v := n.Get(key); v.Present() {
			ns, err := v.Int(0, math.MaxInt64)
			seconds := unit.Seconds(time.Duration(ns).Seconds())
			*into, faults = &seconds, append(faults, err)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return Timings{}, fmt.Errorf("timings of ollama: %w", err)
	}
	return t, nil
}
