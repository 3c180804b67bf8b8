package load

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/llmprof/llmprof/workload"
)

// takesTokens reports whether the prompt goes out as token ids.
func (e *endpoint) takesTokens() bool {
	return !e.Text && e.Endpoint == Completions && (e.Engine == VLLM || e.Engine == SGLang || e.Engine == LlamaCpp)
}

// forcesLength reports whether the engine can be told to generate exactly as
// many tokens as asked.
func (e *endpoint) forcesLength() bool {
	return e.Engine == VLLM || e.Engine == SGLang || e.Engine == LlamaCpp
}

// byTokens reports whether chunks are told by their tokens.
func (e *endpoint) byTokens() bool { return e.TokenChunks && e.Engine == VLLM }

// appendRequest appends the bytes of a request. text is the prompt where the
// caller has one, empty for random tokens.
func (e *endpoint) appendRequest(dst, scratch []byte, q workload.Request, text string) (request, body []byte, err error) {
	body, err = e.appendBody(scratch, q, text)
	if err != nil {
		return dst, body, err
	}
	dst = append(dst, e.head...)
	dst = strconv.AppendInt(dst, int64(len(body)), 10)
	dst = append(dst, "\r\n\r\n"...)
	return append(dst, body...), body, nil
}

// appendBody appends the JSON body of a request.
func (e *endpoint) appendBody(dst []byte, q workload.Request, text string) ([]byte, error) {
	dst = append(dst, `{"model":`...)
	dst = appendString(dst, e.Model)
	if e.Endpoint == Chat {
		dst = append(dst, `,"messages":[{"role":"user","content":`...)
		dst = e.appendText(dst, q, text)
		dst = append(dst, `}]`...)
	} else {
		dst = append(dst, `,"prompt":`...)
		if text == "" && e.takesTokens() {
			dst = appendTokens(dst, workload.Tokens(q, e.TokenLow, e.TokenHigh))
		} else {
			dst = e.appendText(dst, q, text)
		}
	}
	fields := map[string]any{}
	if e.Endpoint == Chat && e.Engine == OpenAI {
		fields["max_completion_tokens"] = q.OutputLen
	} else {
		fields["max_tokens"] = q.OutputLen
	}
	if e.forcesLength() {
		fields["ignore_eos"], fields["temperature"] = true, 0
		if e.Engine != LlamaCpp {
			fields["min_tokens"] = q.OutputLen
		}
	}
	if q.Priority != 0 {
		fields["priority"] = q.Priority
	}
	fields["stream"] = !e.Unary
	if !e.Unary {
		options := map[string]any{"include_usage": true}
		if e.RunningUsage {
			options["continuous_usage_stats"] = true
		}
		fields["stream_options"] = options
	}
	if e.byTokens() {
		fields["return_token_ids"] = true
	}
	maps.Copy(fields, e.Extra)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value, err := json.Marshal(fields[name])
		if err != nil {
			return dst, fmt.Errorf("body field %s: %w", name, err)
		}
		dst = append(dst, ',')
		dst = appendString(dst, name)
		dst = append(dst, ':')
		dst = append(dst, value...)
	}
	return append(dst, '}'), nil
}

// appendText appends the prompt as a JSON string: the caller's text, or one
// word a token, equal for equal tokens so that shared prefixes stay shared.
func (e *endpoint) appendText(dst []byte, q workload.Request, text string) []byte {
	if text != "" {
		return appendString(dst, text)
	}
	dst = append(dst, '"')
	for i, token := range workload.Tokens(q, e.TokenLow, e.TokenHigh) {
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = append(dst, word(token)...)
	}
	return append(dst, '"')
}

// appendTokens appends token ids as a JSON array.
func appendTokens(dst []byte, tokens []int) []byte {
	dst = append(dst, '[')
	for i, token := range tokens {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(token), 10)
	}
	return append(dst, ']')
}

// appendString appends a JSON string; broken UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil { // a string always has a JSON form
		return append(dst, `""`...)
	}
	return append(dst, text...)
}

// word is a short common word; tokenizers give most of them one token.
func word(token int) string {
	words := [...]string{
		"the", "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state", "family", "student",
		"group", "country", "problem", "hand", "part", "place", "case", "week", "company", "system", "program", "question", "work", "number", "night", "point",
		"home", "water", "room", "mother", "area", "money", "story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word",
		"business", "issue", "side", "kind", "head", "house", "service", "friend", "father", "power", "hour", "game", "line", "end", "member", "law",
	}
	return words[token%len(words)]
}
