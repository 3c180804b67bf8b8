package load

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Facts is what a server says of itself before it is put under load.
type Facts struct {
	// Model is the first model that it serves, Models all of them.
	Model  string
	Models []string
	// Engine is its kind as far as it tells; [OpenAI] where it does not.
	Engine Engine
	// MaxModelLen is the longest sequence of the model in tokens; 0 where it
	// does not say.
	MaxModelLen int
}

// AboutError says that a server does not answer as one that can be loaded.
type AboutError struct {
	URL string
	Err error
}

// Error names the server and what it did.
func (e *AboutError) Error() string {
	return fmt.Sprintf("ask %s for its models: %v", e.URL, e.Err)
}

// Unwrap returns what went wrong.
func (e *AboutError) Unwrap() error { return e.Err }

// Hint says what to look at.
func (e *AboutError) Hint() string {
	return "is the server up, and is this its address? Without /v1/models, --model names the model"
}

// ExitCode is that of failures outside.
func (e *AboutError) ExitCode() int { return 4 }

// maxAbout bounds the list of models in bytes.
const maxAbout = 4 << 20

// About asks a server for its models and its kind, by /v1/models.
func About(ctx context.Context, t Target) (Facts, error) {
	place, err := t.place()
	if err != nil {
		return Facts{}, &AboutError{place.redacted(t.URL), err}
	}
	address := *place.URL
	address.Path, address.RawPath, address.RawQuery = "/v1/models", "", ""
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), http.NoBody)
	if err != nil {
		return Facts{}, &AboutError{place.redacted(t.URL), err}
	}
	client, header, err := t.HTTP()
	if err != nil {
		return Facts{}, &AboutError{place.redacted(t.URL), err}
	}
	request.Header = header
	defer client.CloseIdleConnections()
	answer, err := client.Do(request)
	if err != nil {
		return Facts{}, &AboutError{place.redacted(t.URL), err}
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAbout))
	if err != nil {
		return Facts{}, &AboutError{place.redacted(t.URL), err}
	}
	if answer.StatusCode != http.StatusOK {
		return Facts{}, &AboutError{place.redacted(t.URL), fmt.Errorf("status %d", answer.StatusCode)}
	}
	return factsOf(place.redacted(t.URL), text)
}

// factsOf reads the list of models.
func factsOf(server string, text []byte) (Facts, error) {
	var list struct {
		Data []struct {
			ID          string `json:"id"`
			OwnedBy     string `json:"owned_by"`
			MaxModelLen int    `json:"max_model_len"`
		} `json:"data"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return Facts{}, &AboutError{server, fmt.Errorf("its list of models: %w", err)}
	}
	f := Facts{Engine: OpenAI}
	for _, m := range list.Data {
		if m.ID == "" {
			continue
		}
		if f.Model == "" {
			f.Model, f.MaxModelLen = m.ID, m.MaxModelLen
			switch owner := strings.ToLower(m.OwnedBy); {
			case owner == "vllm", owner == "llmprof": // the mock speaks as vLLM does
				f.Engine = VLLM
			case owner == "sglang":
				f.Engine = SGLang
			case strings.HasPrefix(owner, "llamacpp"), strings.HasPrefix(owner, "llama.cpp"):
				f.Engine = LlamaCpp
			case owner == "library":
				f.Engine = Ollama
			}
		}
		f.Models = append(f.Models, m.ID)
	}
	if f.Model == "" {
		return f, &AboutError{server, fmt.Errorf("it names no model")}
	}
	return f, nil
}

// HTTP is a client for what else is asked of the server, with the target's
// certificates, and the headers that go with every request.
func (t Target) HTTP() (*http.Client, http.Header, error) {
	place, err := t.place()
	if err != nil {
		return nil, nil, err
	}
	header := http.Header{}
	for name, value := range t.Headers {
		header.Set(name, value)
	}
	if t.APIKey != "" {
		header.Set("Authorization", "Bearer "+t.APIKey)
	}
	var settings *tls.Config
	if place.Scheme == "https" {
		if settings, err = t.TLS.config(place.Hostname()); err != nil {
			return nil, nil, err
		}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: settings, IdleConnTimeout: time.Minute}}, header, nil
}
