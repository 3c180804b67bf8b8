package llamacpp

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"

	"github.com/llmprof/llmprof/format"
)

// Timings is what llama-server says of one request.
type Timings struct {
	// PromptTokens were computed, without those that came from the cache, in
	// PromptTime, which is in seconds.
	PromptTokens int
	PromptTime   float64
	// OutputTokens were generated in OutputTime, which is in seconds.
	OutputTokens int
	OutputTime   float64
	// CachedTokens of the prompt came from the cache; nil where the server
	// does not say.
	CachedTokens *int
	// Extra keeps the keys that nothing else holds, verbatim: counts of
	// speculative decoding.
	Extra map[string]json.RawMessage
}

// ParseTimings finds the object "timings" in the body of a reply: a JSON object
// with that key or the object itself, a stream of server-sent events, of which
// the last one has it, or any of these as one JSON string, as some builds sent
// them. The name stands in errors. Warnings tell of figures that contradict
// each other.
func ParseTimings(name string, body []byte) (Timings, []error, error) {
	body = unquote(bytes.TrimSpace(body))
	texts := [][]byte{body}
	if !bytes.HasPrefix(body, []byte("{")) {
		texts = events(body)
	}
	for i := len(texts) - 1; i >= 0; i-- {
		nodes, err := format.ParseJSON(name, texts[i], format.Limits{})
		if err != nil {
			return Timings{}, nil, err
		}
		for j := len(nodes) - 1; j >= 0; j-- {
			n := nodes[j]
			if inner := n.Get("timings"); inner.Kind() == format.Object {
				n = inner
			}
			if n.Has("prompt_ms") || n.Has("predicted_ms") {
				return timings(n)
			}
		}
	}
	return Timings{}, nil, &format.Error{File: name, Err: errors.New("holds no timings")}
}

// unquote takes the text out of a body that is one JSON string.
func unquote(body []byte) []byte {
	var text string
	if bytes.HasPrefix(body, []byte(`"`)) && json.Unmarshal(body, &text) == nil {
		return bytes.TrimSpace([]byte(text))
	}
	return body
}

// events are the data of server-sent events; those that are no object are left
// out.
func events(body []byte) [][]byte {
	var list [][]byte
	for line := range bytes.Lines(body) {
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok && bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
			list = append(list, data)
		}
	}
	return list
}

// timings reads the object.
func timings(n format.Node) (Timings, []error, error) {
	var t Timings
	var warnings []error
	for _, part := range []struct {
		prefix string
		tokens *int
		time   *float64 // in seconds
	}{{"prompt", &t.PromptTokens, &t.PromptTime}, {"predicted", &t.OutputTokens, &t.OutputTime}} {
		count, ms := n.Get(part.prefix+"_n"), n.Get(part.prefix+"_ms")
		if !count.Present() {
			return t, nil, count.Errorf("missing: want a number of tokens")
		}
		var err error
		if *part.tokens, err = count.Int(0, maxTokens); err != nil {
			return t, nil, err
		}
		v, err := ms.Float()
		if err != nil || !(v >= 0) || v*1e6 > maxNanoseconds {
			return t, nil, ms.Errorf("want a number of milliseconds, got %s", ms.Got())
		}
		*part.time = v / 1e3
		per := n.Get(part.prefix + "_per_token_ms")
		if stated, err := per.Float(); per.Present() && *part.tokens > 0 {
			if follows := v / float64(*part.tokens); err != nil || !(math.Abs(stated-follows) <= rateTolerance*follows) {
				warnings = append(warnings, per.Errorf("is %s ms, but %d tokens in %g ms are %.6g ms", per.Got(), *part.tokens, v, follows))
			}
		}
	}
	if cached := n.Get("cache_n"); cached.Present() {
		v, err := cached.Int(0, maxTokens)
		if err != nil {
			return t, nil, err
		}
		t.CachedTokens = &v
	}
	for key, value := range n.Members() {
		if key == "cache_n" || strings.HasPrefix(key, "prompt_") || strings.HasPrefix(key, "predicted_") || value.Kind() == format.Null {
			continue
		}
		if text, ok := value.JSON(); ok {
			if t.Extra == nil {
				t.Extra = map[string]json.RawMessage{}
			}
			t.Extra[key] = text
		}
	}
	return t, warnings, nil
}
