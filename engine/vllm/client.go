package vllm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/llmprof/llmprof/engine"
)

// maxBody is the largest answer in bytes that is read.
const maxBody = 64 << 20

// client speaks to a server.
type client struct {
	base string
	http *http.Client
	// header goes with every request.
	header http.Header
	// redactor takes secrets out of what the server says.
	redactor *engine.Redactor
}

// atPlace is a client of a port at the loopback address of a place.
func atPlace(place engine.Place, port int) *client {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return place.Dial(ctx, port)
		},
		IdleConnTimeout: time.Minute,
	}
	return &client{base: "http://127.0.0.1:" + strconv.Itoa(port), http: &http.Client{Transport: transport}}
}

// atURL is a client of a server by its address.
func atURL(url string) *client {
	return &client{base: strings.TrimSuffix(strings.TrimSuffix(strings.TrimRight(url, "/"), "/v1"), "/"), http: &http.Client{Transport: &http.Transport{IdleConnTimeout: time.Minute}}}
}

// statusError is an answer that is no success.
type statusError struct {
	method, path string
	status       int
	body         string
}

// Error names request, status and what the server said.
func (e *statusError) Error() string {
	return fmt.Sprintf("%s %s: status %d: %s", e.method, e.path, e.status, e.body)
}

// status is the status of an error; 0 where there was no answer.
func status(err error) int {
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.status
	}
	return 0
}

// call sends a request and returns the body of a successful answer.
func (c *client) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	for name, values := range c.header {
		r.Header[name] = values
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	if answer.StatusCode/100 != 2 {
		return nil, &statusError{method, path, answer.StatusCode, message(text, c.redactor)}
	}
	return text, nil
}

// message is what an error's body says, without secrets, shortened.
func message(body []byte, redactor *engine.Redactor) string {
	var said struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
		Detail any `json:"detail"`
	}
	text := strings.TrimSpace(string(body))
	if json.Unmarshal(body, &said) == nil {
		switch {
		case said.Error.Message != "":
			text = said.Error.Message
		case said.Detail != nil:
			text = fmt.Sprint(said.Detail)
		}
	}
	if redactor != nil {
		text = redactor.Redact(text)
	}
	text = engine.Shorten(text, 500)
	if text == "" {
		text = "no message"
	}
	return text
}

// get reads a JSON answer.
func (c *client) get(ctx context.Context, path string, into any) error {
	text, err := c.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}

// healthy asks the server whether it is well, within a few seconds.
func (c *client) healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := c.call(ctx, http.MethodGet, "/health", nil)
	return err
}

// complete asks for output tokens after each prompt and holds the server to
// have made them.
func (c *client) complete(ctx context.Context, model string, prompts [][]int, output int) error {
	text, err := c.call(ctx, http.MethodPost, "/v1/completions", completion(model, prompts, output))
	if err != nil {
		return err
	}
	var answer struct {
		Usage struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("POST /v1/completions: %w", err)
	}
	want := 0
	for _, p := range prompts {
		want += len(p)
	}
	if answer.Usage.Prompt != want || answer.Usage.Completion != output*len(prompts) {
		return fmt.Errorf("POST /v1/completions: the server counts %d prompt and %d output tokens, asked for were %d and %d",
			answer.Usage.Prompt, answer.Usage.Completion, want, output*len(prompts))
	}
	return nil
}

// completion is the body of a request. Prompts are token ids, so that no
// tokenizer changes their length.
func completion(model string, prompts [][]int, output int) []byte {
	var b bytes.Buffer
	name, _ := json.Marshal(model) // a string always has a JSON form
	fmt.Fprintf(&b, `{"model":%s,"max_tokens":%d,"temperature":0,"ignore_eos":true,"stream":false,"prompt":[`, name, output)
	var digits []byte
	for i, p := range prompts {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('[')
		for j, id := range p {
			if j > 0 {
				b.WriteByte(',')
			}
			digits = strconv.AppendInt(digits[:0], int64(id), 10)
			b.Write(digits)
		}
		b.WriteByte(']')
	}
	b.WriteString("]}")
	return b.Bytes()
}

// served is what a server says of itself.
type served struct {
	version, model string
	// root is the folder or the hub id of the model.
	root        string
	maxModelLen int
	cache       map[string]string
}

var (
	cacheInfo = regexp.MustCompile(`(?m)^vllm:cache_config_info\{(.*)\} `)
	label     = regexp.MustCompile(`([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"`)
)

// ask reads version, model and cache of a server. model picks one of several;
// empty takes the first.
func (c *client) ask(ctx context.Context, model string) (served, error) {
	var s served
	var version struct {
		Version string `json:"version"`
	}
	if err := c.get(ctx, "/version", &version); err != nil && status(err) != http.StatusNotFound {
		return s, err
	}
	s.version = version.Version
	var models struct {
		Data []struct {
			ID          string `json:"id"`
			Root        string `json:"root"`
			MaxModelLen int    `json:"max_model_len"`
		} `json:"data"`
	}
	if err := c.get(ctx, "/v1/models", &models); err != nil {
		return s, err
	}
	var names []string
	for _, m := range models.Data {
		names = append(names, m.ID)
		if s.model == "" && (model == "" || m.ID == model || m.Root == model) {
			s.model, s.root, s.maxModelLen = m.ID, m.Root, m.MaxModelLen
		}
	}
	if s.model == "" && len(models.Data) == 1 {
		// A server of one model may call it anything.
		m := models.Data[0]
		s.model, s.root, s.maxModelLen = m.ID, m.Root, m.MaxModelLen
	}
	if s.model == "" {
		return s, fmt.Errorf("the server has no model %q: it serves %s", model, strings.Join(names, ", "))
	}
	text, err := c.call(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return s, nil //nolint:nilerr // servers may run without metrics; the log tells the same
	}
	if found := cacheInfo.FindSubmatch(text); found != nil {
		s.cache = map[string]string{}
		for _, l := range label.FindAllSubmatch(found[1], 200) {
			s.cache[string(l[1])] = string(l[2])
		}
	}
	return s, nil
}

// share is a figure of the cache's settings from 0 to 1; 0 where there is none.
func (s served) share(key string) float64 {
	v, err := strconv.ParseFloat(s.cache[key], 64)
	if err != nil || !(v > 0 && v <= 1) {
		return 0
	}
	return v
}

// number is a whole number of the cache's settings; 0 where there is none.
func (s served) number(key string) int64 {
	v, err := strconv.ParseInt(s.cache[key], 10, 64)
	if err != nil || v < 0 {
		return 0
	}
	return v
}
