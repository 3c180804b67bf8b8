package load

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
)

// Engine tells which extra fields of a request a server knows.
type Engine string

// The engines.
const (
	// OpenAI is any server that knows only the published interface.
	OpenAI Engine = "openai"
	// VLLM takes token ids, ignore_eos, min_tokens.
	VLLM Engine = "vllm"
	// SGLang takes token ids, ignore_eos, min_tokens.
	SGLang Engine = "sglang"
	// LlamaCpp is llama-server: token ids, ignore_eos; answers with timings.
	LlamaCpp Engine = "llamacpp"
	// Ollama takes text only.
	Ollama Engine = "ollama"
)

// Endpoint is the interface that is asked.
type Endpoint string

// The endpoints.
const (
	// Completions is /v1/completions.
	Completions Endpoint = "completions"
	// Chat is /v1/chat/completions.
	Chat Endpoint = "chat"
)

// Target is a server under load and how it is asked.
type Target struct {
	// URL is the server's address. Without a path, or with /v1 as path, the
	// endpoint's usual path is added; any other path is taken as it is.
	URL string
	// Model is the model's name in requests.
	Model string
	// Endpoint is what is asked; default [Completions].
	Endpoint Endpoint
	// Engine is the server's kind; default [OpenAI].
	Engine Engine
	// APIKey is sent as bearer token; empty for none.
	APIKey string
	// Headers are sent with every request.
	Headers map[string]string
	// Extra are fields added to every body; they replace ours.
	Extra map[string]any
	// Text sends prompts as words even where the engine takes token ids. A
	// word is about one token; the answer's usage says how many it was.
	Text bool
	// TokenLow and TokenHigh bound the random token ids, TokenHigh excluded;
	// default 100 and 10,000.
	TokenLow, TokenHigh int
	// Unary asks for one answer instead of a stream: there is no TTFT then.
	Unary bool
	// RunningUsage asks for token counts in every chunk, where chunks carry
	// several tokens. It costs the server some work.
	RunningUsage bool
	// TokenChunks asks vLLM for the ids of each chunk's tokens, and takes a chunk
	// with tokens and without text for one that brings them. Models with random
	// weights make tokens that are parts of letters, whose text comes late.
	TokenChunks bool
	// TLS is for https; the zero value trusts what the system trusts.
	TLS TLS
}

// TLS says whom an https connection trusts and as whom it comes.
type TLS struct {
	// CAFile holds further trusted certificates, PEM.
	CAFile string
	// Insecure trusts every certificate.
	Insecure bool
	// CertFile and KeyFile are the client's certificate, PEM.
	CertFile, KeyFile string
}

// endpoint is a target made ready: its address and the request's fixed bytes.
type endpoint struct {
	Target
	address string // host:port
	head    []byte // request line and headers up to the value of Content-Length
	tls     *tls.Config
}

// prepare checks a target and fills its defaults; all faults come together.
func (t Target) prepare() (*endpoint, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	t.Endpoint = cmp.Or(t.Endpoint, Completions)
	t.Engine = cmp.Or(t.Engine, OpenAI)
	if !slices.Contains([]Endpoint{Completions, Chat}, t.Endpoint) {
		fault("endpoint %q: want completions or chat", t.Endpoint)
	}
	if !slices.Contains([]Engine{OpenAI, VLLM, SGLang, LlamaCpp, Ollama}, t.Engine) {
		fault("engine %q: want openai, vllm, sglang, llamacpp or ollama", t.Engine)
	}
	if t.TokenLow == 0 && t.TokenHigh == 0 {
		t.TokenLow, t.TokenHigh = 100, 10_000
	}
	if t.TokenLow < 0 || t.TokenHigh <= t.TokenLow {
		fault("token ids %d to %d: want a rising range that is not negative", t.TokenLow, t.TokenHigh)
	}
	e := &endpoint{Target: t}
	place, err := t.place()
	if err != nil {
		faults = append(faults, err)
	} else {
		e.address = net.JoinHostPort(place.Hostname(), cmp.Or(place.Port(), map[bool]string{false: "80", true: "443"}[place.Scheme == "https"]))
		if place.Scheme == "https" {
			if e.tls, err = t.TLS.config(place.Hostname()); err != nil {
				faults = append(faults, err)
			}
		}
		if e.head, err = t.requestHead(place); err != nil {
			faults = append(faults, err)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("target %s: %w", place.redacted(t.URL), err)
	}
	return e, nil
}

// address is a parsed URL that may be absent.
type address struct{ *url.URL }

// redacted is the URL without a password, for messages.
func (a address) redacted(text string) string {
	if a.URL == nil {
		return fmt.Sprintf("%q", text)
	}
	return a.Redacted()
}

// place parses the URL and completes its path.
func (t Target) place() (address, error) {
	place, err := url.Parse(strings.TrimSpace(t.URL))
	if err != nil {
		return address{}, errors.New("the URL cannot be read") // err repeats it with a password
	}
	switch {
	case place.Scheme != "http" && place.Scheme != "https":
		return address{place}, errors.New("want a URL such as http://127.0.0.1:8000")
	case place.Hostname() == "":
		return address{place}, errors.New("the URL names no host")
	case place.User != nil:
		return address{place}, errors.New("the URL holds a user or password: give an API key or a header instead")
	}
	if path := strings.TrimSuffix(place.Path, "/"); path == "" || path == "/v1" {
		place.Path = "/v1/completions"
		if t.Endpoint == Chat {
			place.Path = "/v1/chat/completions"
		}
	}
	return address{place}, nil
}

// requestHead is the request's fixed part.
func (t Target) requestHead(place address) ([]byte, error) {
	headers := http.Header{}
	headers.Set("User-Agent", "llmprof")
	headers.Set("Accept", "text/event-stream, application/json")
	headers.Set("Content-Type", "application/json")
	if t.APIKey != "" {
		headers.Set("Authorization", "Bearer "+t.APIKey)
	}
	for name, value := range t.Headers {
		headers.Set(name, value)
	}
	head := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\n", place.RequestURI(), place.Host)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value := headers.Get(name)
		if !headerName(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return nil, fmt.Errorf("header %q: its name or value holds characters that a header cannot", name)
		}
		if name == "Content-Length" || name == "Transfer-Encoding" || name == "Connection" || name == "Host" {
			return nil, fmt.Errorf("header %s is set by the client itself", name)
		}
		head = fmt.Appendf(head, "%s: %s\r\n", name, value)
	}
	return append(head, "Content-Length: "...), nil
}

// headerName reports whether name may be a header's name.
func headerName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r)
	})
}

// config reads the certificates.
func (t TLS) config(host string) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.Insecure}
	if t.CAFile != "" {
		text, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read trusted certificates: %w", err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("trusted certificates in %s: no PEM certificate found", t.CAFile)
		}
		c.RootCAs = pool
	}
	if t.CertFile != "" || t.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read the client's certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
