package mock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 16 << 20

// request is what a client asks for.
type request struct {
	chat      bool
	tokens    []int64
	maxTokens int
	priority  int
	minTokens int
	endless   bool // ignore_eos
	stream    bool
	usageLast bool
	usageEach bool
	ignored   []string // fields of the body
}

// promptTokens is the length of the prompt, which is never empty.
func (r *request) promptTokens() int { return len(r.tokens) }

// body is the JSON of a request.
type body struct {
	Model               *string         `json:"model"`
	Prompt              json.RawMessage `json:"prompt"`
	Messages            []message       `json:"messages"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	MinTokens           int             `json:"min_tokens"`
	IgnoreEOS           bool            `json:"ignore_eos"`
	Priority            int32           `json:"priority"`
	N                   *int            `json:"n"`
	BestOf              *int            `json:"best_of"`
	Stream              bool            `json:"stream"`
	StreamOptions       *struct {
		IncludeUsage         bool `json:"include_usage"`
		ContinuousUsageStats bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`

	Stop           json.RawMessage `json:"stop"`
	StopTokenIDs   json.RawMessage `json:"stop_token_ids"`
	Logprobs       json.RawMessage `json:"logprobs"`
	Echo           json.RawMessage `json:"echo"`
	Tools          json.RawMessage `json:"tools"`
	ResponseFormat json.RawMessage `json:"response_format"`
}

// message is one of a chat. Its content is a text or a list of parts.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// requestError is a fault of the client, with the status to answer.
type requestError struct {
	status  int
	message string
	param   string // the parameter that is wrong, where it is told
}

func (e *requestError) Error() string { return e.message }

func refuse(format string, args ...any) error {
	return &requestError{status: 400, message: fmt.Sprintf(format, args...)}
}

// parseRequest reads the body of a completion or a chat.
func (o Options) parseRequest(text []byte, chat bool) (*request, error) {
	var b body
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, refuse("the body is no request: %v", err)
	}
	if b.Model != nil && *b.Model != o.Model {
		return nil, &requestError{status: 404, message: fmt.Sprintf("the model %.100q does not exist: this server has %q", *b.Model, o.Model)}
	}
	if b.N != nil && *b.N != 1 || b.BestOf != nil && *b.BestOf != 1 {
		return nil, refuse("n and best_of must be 1: the mock gives one answer")
	}
	r := &request{chat: chat, minTokens: b.MinTokens, endless: b.IgnoreEOS, priority: int(b.Priority), stream: b.Stream}
	if b.StreamOptions != nil {
		if !b.Stream {
			return nil, refuse("stream_options are for streams")
		}
		r.usageLast, r.usageEach = b.StreamOptions.IncludeUsage, b.StreamOptions.ContinuousUsageStats
	}
	var err error
	if chat {
		r.tokens, err = o.Rule.chatTokens(b.Messages)
	} else {
		r.tokens, err = o.Rule.promptTokens(b.Prompt)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case chat && b.MaxCompletionTokens != nil:
		r.maxTokens = *b.MaxCompletionTokens
	case b.MaxTokens != nil:
		r.maxTokens = *b.MaxTokens
	default:
		r.maxTokens = max(1, min(o.DefaultTokens, o.MaxModelLen-len(r.tokens)))
	}
	r.ignored = b.ignored()
	return r, o.checkLengths(r)
}

// checkLengths refuses what the model cannot hold.
func (o Options) checkLengths(r *request) error {
	switch {
	case len(r.tokens) == 0:
		return refuse("the prompt is empty")
	case r.maxTokens < 1:
		return refuse("max_tokens is %d: want at least 1", r.maxTokens)
	case r.minTokens < 0 || r.minTokens > r.maxTokens:
		return refuse("min_tokens is %d: want 0 to max_tokens, which is %d", r.minTokens, r.maxTokens)
	case r.maxTokens > o.MaxModelLen-len(r.tokens) && o.Simulation != nil:
		return o.tooLong(r)
	case r.maxTokens > o.MaxModelLen-len(r.tokens):
		return refuse("the longest sequence is %d tokens: the prompt has %d and max_tokens is %d", o.MaxModelLen, len(r.tokens), r.maxTokens)
	}
	return nil
}

// tooLong refuses a request as vLLM does from 0.30 on. It cuts a prompt one
// token after what fits beside max_tokens, and so tells a lower bound.
func (o Options) tooLong(r *request) error {
	const text = "This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains at least %d input tokens, " +
		"for a total of at least %d tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=%d)"
	least := max(0, min(len(r.tokens), o.MaxModelLen-r.maxTokens+1))
	return &requestError{
		status: 400, param: "input_tokens",
		message: fmt.Sprintf(text, o.MaxModelLen, r.maxTokens, least, least+r.maxTokens, least),
	}
}

// answer is the length of the answer in tokens and why it ends there.
func (o Options) answer(r *request) (tokens int, reason string) {
	if natural := max(o.NaturalTokens, r.minTokens, 1); o.NaturalTokens != Unlimited && !r.endless && natural < r.maxTokens {
		return natural, "stop"
	}
	return r.maxTokens, "length"
}

// ignored names the fields that ask for what the mock does not do.
func (b *body) ignored() []string {
	var names []string
	for _, field := range []struct {
		name  string
		value json.RawMessage
	}{
		{"stop", b.Stop},
		{"stop_token_ids", b.StopTokenIDs},
		{"logprobs", b.Logprobs},
		{"echo", b.Echo},
		{"tools", b.Tools},
		{"response_format", b.ResponseFormat},
	} {
		if !slices.Contains([]string{"", "null", "false", "[]", "0"}, string(bytes.TrimSpace(field.value))) {
			names = append(names, field.name)
		}
	}
	return names
}

// promptTokens reads a prompt: a text, token ids, or a list of one of them.
func (r TokenRule) promptTokens(prompt json.RawMessage) ([]int64, error) {
	var text string
	if json.Unmarshal(prompt, &text) == nil {
		return r.tokens(text), nil
	}
	var ids []int64
	if json.Unmarshal(prompt, &ids) == nil {
		return checkIDs(ids)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(prompt, &list); err != nil || len(list) != 1 {
		return nil, refuse("prompt must be one text or one list of token ids")
	}
	if json.Unmarshal(list[0], &text) == nil {
		return r.tokens(text), nil
	}
	if json.Unmarshal(list[0], &ids) == nil {
		return checkIDs(ids)
	}
	return nil, refuse("prompt must be one text or one list of token ids")
}

func checkIDs(ids []int64) ([]int64, error) {
	for _, id := range ids {
		if id < 0 || id >= 1<<31 {
			return nil, refuse("token id %d: want 0 to %d", id, int64(1<<31-1))
		}
	}
	return ids, nil
}

// chatTokens are the tokens of a chat: of each message its role, a line break,
// its text and a line break.
func (r TokenRule) chatTokens(messages []message) ([]int64, error) {
	var b strings.Builder
	for i, m := range messages {
		text, err := m.text()
		if err != nil {
			return nil, refuse("message %d: %v", i+1, err)
		}
		b.WriteString(m.Role + "\n" + text + "\n")
	}
	return r.tokens(b.String()), nil
}

// text is what a message says.
func (m message) text() (string, error) {
	var text string
	if len(m.Content) == 0 || json.Unmarshal(m.Content, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(m.Content, &parts); err != nil {
		return "", errors.New("content must be a text or a list of parts")
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Type != "text" {
			return "", fmt.Errorf("a part of type %.40q: the mock reads text only", p.Type)
		}
		b.WriteString(p.Text)
	}
	return b.String(), nil
}
