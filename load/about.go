package load

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/llmprof/llmprof/deploy"
)

// Facts is what a server says of itself before it is put under load.
type Facts struct {
	// Model is the first model that it serves, Models all of them.
	Model  string
	Models []string
	// Engine is its kind, as the target says it or else as far as it tells;
	// [OpenAI] where neither does.
	Engine Engine
	// Version is the engine's release; empty where it does not say.
	Version string
	// Settings are what the server says of its deployment, KVTokens the size of
	// its KV cache in tokens: of SGLang alone, 0 where it does not say.
	Settings deploy.Config
	KVTokens int
	// MaxModelLen is the longest sequence of the model in tokens; 0 where it
	// does not say.
	MaxModelLen int
}

// TargetError says that a target is described so that nobody can be asked.
type TargetError struct {
	URL string
	Err error
}

// Error names the target and its fault.
func (e *TargetError) Error() string { return fmt.Sprintf("target %s: %v", e.URL, e.Err) }

// Unwrap returns the fault.
func (e *TargetError) Unwrap() error { return e.Err }

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
	return "is the server up, and is this its address? OPENAI_API_KEY and --header open a guarded one; without /v1/models, --model names the model"
}

// ExitCode is that of failures outside.
func (e *AboutError) ExitCode() int { return 4 }

// maxAbout bounds the list of models in bytes.
const maxAbout = 4 << 20

// About asks a server for its models and its kind, by /v1/models, and then for
// its release.
func About(ctx context.Context, t Target) (Facts, error) {
	place, err := t.place()
	if err == nil {
		_, err = t.requestHead(place)
	}
	if err != nil {
		return Facts{}, &TargetError{place.redacted(t.URL), err}
	}
	server := place.Scheme + "://" + place.Host
	client, header, err := t.HTTP()
	if err != nil {
		return Facts{}, &TargetError{server, err}
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	ask := func(path string) ([]byte, error) {
		address := *place.URL
		address.Path, address.RawPath, address.RawQuery = path, "", ""
		return get(ctx, client, header, address.String())
	}
	text, err := ask("/v1/models")
	if err != nil {
		return Facts{}, &AboutError{server, err}
	}
	f, err := factsOf(server, text)
	if err != nil {
		return f, err
	}
	if t.Engine != "" {
		f.Engine = t.Engine
	}
	paths, key := versionAt(f.Engine)
	for _, path := range paths {
		text, err := ask(path)
		if err != nil {
			continue
		}
		f.Version = versionIn(text, key)
		if f.Engine == SGLang {
			f.sglang(text)
		}
		break
	}
	return f, nil
}

// get asks for a document.
func get(ctx context.Context, client *http.Client, header http.Header, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header = header
	answer, err := client.Do(request)
	if err != nil {
		if told, ok := errors.AsType[*url.Error](err); ok {
			err = told.Err // who calls says what was asked
		}
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAbout))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", answer.StatusCode)
	}
	return text, nil
}

// versionAt is where an engine tells its release, newest spelling first, and
// under which key; no paths for one that does not. SGLang's /server_info was
// /get_server_info until 2026 (sgl-project/sglang#21463).
func versionAt(e Engine) (paths []string, key string) {
	switch e {
	case VLLM:
		return []string{"/version"}, "version"
	case SGLang:
		return []string{"/server_info", "/get_server_info"}, "version"
	case LlamaCpp:
		return []string{"/props"}, "build_info"
	case Ollama:
		return []string{"/api/version"}, "version"
	}
	return nil, ""
}

// versionIn is the text under a key; empty where there is none, or none that can
// be a release.
func versionIn(text []byte, key string) string {
	var said map[string]json.RawMessage
	var version string
	if json.Unmarshal(text, &said) != nil || json.Unmarshal(said[key], &version) != nil || len(version) > maxVersion {
		return ""
	}
	return version
}

// sglang takes what /server_info says: the flags that SGLang was started with,
// defaults filled in, and what it found out at its start. The names are those of
// the answer printed in SGLang's manual, native_api, of March 2026.
func (f *Facts) sglang(text []byte) {
	var said struct {
		Page      int     `json:"page_size"`
		Seats     int     `json:"max_running_requests"`
		Chunk     *int    `json:"chunked_prefill_size"`
		NoRadix   *bool   `json:"disable_radix_cache"`
		Pool      int     `json:"max_total_num_tokens"`
		Share     float64 `json:"mem_fraction_static"`
		Ranks     int     `json:"tp_size"`
		Policy    string  `json:"schedule_policy"`
		InContext int     `json:"context_length"`
	}
	if json.Unmarshal(text, &said) != nil {
		return
	}
	known := func(n int) int { return min(max(n, 0), 1<<40) }
	f.KVTokens = known(said.Pool)
	f.Settings = deploy.Config{
		BlockSize: known(said.Page), MaxNumSeqs: known(said.Seats), MaxModelLen: known(said.InContext), TensorParallel: known(said.Ranks), SchedulingPolicy: said.Policy,
	}
	if said.Share > 0 && said.Share <= 1 {
		f.Settings.MemFractionStatic = said.Share
	}
	if said.Chunk != nil { // -1 computes each prompt in one step
		f.Settings.ChunkedPrefill = new(*said.Chunk > 0)
	}
	if said.NoRadix != nil {
		f.Settings.PrefixCaching = new(!*said.NoRadix)
	}
}

// maxVersion bounds the name of a release in bytes.
const maxVersion = 200

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
	if t.APIKey != "" {
		header.Set("Authorization", "Bearer "+t.APIKey)
	}
	for name, value := range t.Headers { // those take the key's place, as under load
		header.Set(name, value)
	}
	var settings *tls.Config
	if place.Scheme == "https" {
		if settings, err = t.TLS.config(place.Hostname()); err != nil {
			return nil, nil, err
		}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: settings, IdleConnTimeout: time.Minute}}, header, nil
}
