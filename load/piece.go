package load

import (
	"bytes"
	"encoding/json"
	"math"
)

// piece is what an object of an answer says: a chunk of a stream, or the whole
// of an answer that is none.
type piece struct {
	choices int    // how many entries
	text    bool   // it carries text, reasoning or a tool call
	words   []byte // the raw text that it carries; nil for a tool call
	tokens  int    // listed by id or log-probability; 0 where they are not
	finish  []byte // raw finish_reason without quotes
	usage   *usage
	server  *ServerTimes
	failure bool // it is an error object
}

// usage is the token count of an answer.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Details    struct {
		Cached *int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// maxTokens bounds a count that a server may claim for one answer.
const maxTokens = 1 << 30

// parsePiece reads one object of an answer.
func parsePiece(text []byte) (piece, error) {
	var p piece
	err := walkObject(text, p.member)
	return p, err
}

// member reads a member of the object.
func (p *piece) member(key, value []byte) error {
	switch string(key) {
	case "choices":
		if !isNull(value) {
			return walkArray(value, p.choice)
		}
	case "usage":
		p.usage = parseUsage(value)
	case "metrics":
		p.server = vllmTimes(value)
	case "timings":
		p.server = llamaTimes(value)
	case "error":
		p.failure = !isNull(value)
	case "object":
		p.failure = p.failure || bytes.Equal(value, []byte(`"error"`))
	}
	return nil
}

// choice reads an entry of choices.
func (p *piece) choice(value []byte) error {
	p.choices++
	return walkObject(value, func(key, value []byte) error {
		switch string(key) {
		case "text":
			p.say(value)
		case "delta", "message":
			if !isNull(value) {
				return walkObject(value, p.message)
			}
		case "finish_reason":
			if filled(value) {
				p.finish = value[1 : len(value)-1]
			}
		case "token_ids":
			p.tokens = max(p.tokens, length(value))
		case "logprobs":
			if !isNull(value) {
				return walkObject(value, func(key, value []byte) error {
					if string(key) == "tokens" || string(key) == "content" {
						p.tokens = max(p.tokens, length(value))
					}
					return nil
				})
			}
		}
		return nil
	})
}

// message reads a member of a chat message or its delta.
func (p *piece) message(key, value []byte) error {
	switch string(key) {
	case "content", "reasoning", "reasoning_content", "refusal":
		p.say(value)
	case "tool_calls":
		p.text = p.text || length(value) > 0
	}
	return nil
}

// say takes a raw value as text, if it is a string with text in it.
func (p *piece) say(value []byte) {
	if filled(value) {
		p.text, p.words = true, value
	}
}

func isNull(value []byte) bool { return string(value) == "null" }

// parseUsage reads usage; nil where it says no sound counts.
func parseUsage(value []byte) *usage {
	if isNull(value) {
		return nil
	}
	u := &usage{Completion: -1}
	if json.Unmarshal(value, u) != nil || u.Completion < 0 || u.Completion > maxTokens || u.Prompt < 0 || u.Prompt > maxTokens {
		return nil
	}
	if c := u.Details.Cached; c != nil && (*c < 0 || *c > maxTokens) {
		u.Details.Cached = nil
	}
	return u
}

// vllmTimes reads the metrics of vLLM's --enable-per-request-metrics.
func vllmTimes(value []byte) *ServerTimes {
	var m struct {
		TTFT       *float64 `json:"time_to_first_token_ms"`
		Generation *float64 `json:"generation_time_ms"`
		Queue      *float64 `json:"queue_time_ms"`
	}
	if json.Unmarshal(value, &m) != nil {
		return nil
	}
	return serverTimes(m.Queue, m.TTFT, m.Generation)
}

// llamaTimes reads llama-server's timings.
func llamaTimes(value []byte) *ServerTimes {
	var m struct {
		Prompt    *float64 `json:"prompt_ms"`
		Predicted *float64 `json:"predicted_ms"`
	}
	if json.Unmarshal(value, &m) != nil {
		return nil
	}
	return serverTimes(nil, m.Prompt, m.Predicted)
}

// serverTimes keeps the times that are sound; nil where none is.
func serverTimes(queue, prefill, generation *float64) *ServerTimes {
	sound := func(v *float64) *float64 {
		if v == nil || *v < 0 || math.IsInf(*v, 0) {
			return nil
		}
		return v
	}
	t := ServerTimes{sound(queue), sound(prefill), sound(generation)}
	if t == (ServerTimes{}) {
		return nil
	}
	return &t
}
