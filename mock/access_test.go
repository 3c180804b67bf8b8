package mock_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/mock"
)

func TestTLS(t *testing.T) {
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	pool := certificate(t, cert, key)
	server := start(t, mock.Options{CertFile: cert, KeyFile: key, Timer: mock.Timing{Gap: time.Millisecond}})
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
	defer c.CloseIdleConnections()
	if !strings.HasPrefix(server.URL(), "https://") {
		t.Errorf("URL %s", server.URL())
	}
	if a := ask(t.Context(), c, server.URL()+"/v1/completions", stream, ""); a.err != nil || a.tokens() != 6 || !a.done {
		t.Errorf("got %+v", a)
	}
	if a := ask(t.Context(), c, server.URL()+"/v1/completions", stream, "cut:token=2"); a.err == nil || a.tokens() != 1 {
		t.Errorf("cut: got %+v", a)
	}
}

// certificate writes a self-signed certificate for this machine.
func certificate(t *testing.T, cert, key string) *x509.CertPool {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, text := range map[string][]byte{cert: public, key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(public)
	return pool
}

func TestPagesAndKey(t *testing.T) {
	server, c := start(t, mock.Options{APIKey: "secret", Model: "tiny"}), client(t)
	tests := []struct {
		method, path, key, body string
		status                  int
		holds                   string
	}{
		{"GET", "/health", "", "", 200, ""},
		{"GET", "/ping", "", "", 200, ""},
		{"POST", "/ping", "", "", 200, ""},
		{"GET", "/version", "", "", 200, "0.32.0"},
		{"GET", "/metrics", "", "", 200, "vllm:num_requests_running"},
		{"GET", "/truth", "", "", 200, "[]"},
		{"POST", "/tokenize", "", `{"prompt":"12345"}`, 200, `"count":2`},
		{"POST", "/tokenize", "", `{"messages":[{"role":"a","content":"b"}]}`, 200, `"count":1`},
		{"POST", "/tokenize", "", `{`, 400, "no request"},
		{"GET", "/v1/models", "", "", 401, "API key"},
		{"GET", "/v1/models", "wrong", "", 401, "API key"},
		{"GET", "/v1/models", "secret", "", 200, `"id":"tiny"`},
		{"POST", "/v1/completions", "", `{"prompt":"a"}`, 401, "API key"},
		{"POST", "/v1/completions", "secret", `{"prompt":"a"}`, 200, `"completion_tokens":16`},
		{"POST", "/v1/completions", "secret", `{"prompt":"` + strings.Repeat("a", 17<<20) + `"}`, 413, "longer than"},
		{"GET", "/v1/completions", "secret", "", 405, ""},
		{"GET", "/nowhere", "", "", 404, ""},
	}
	for _, test := range tests {
		r, err := http.NewRequestWithContext(t.Context(), test.method, server.URL()+test.path, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		if test.key != "" {
			r.Header.Set("Authorization", "Bearer "+test.key)
		}
		response, err := c.Do(r)
		if err != nil {
			t.Errorf("%s %s: %v", test.method, test.path, err)
			continue
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != test.status || !strings.Contains(string(text), test.holds) {
			t.Errorf("%s %s with key %q: %d %s; want %d and %s", test.method, test.path, test.key, response.StatusCode, text, test.status, test.holds)
		}
	}
}

func TestStartAndOptionsRefuse(t *testing.T) {
	server := start(t, mock.Options{})
	if err := server.Start(t.Context()); err == nil {
		t.Error("a server is started twice")
	}
	other, err := mock.New(mock.Options{Listen: server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(t.Context()); err == nil || !strings.Contains(err.Error(), server.Addr()) {
		t.Errorf("an address that is taken: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	if err := other.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	_, err = mock.New(mock.Options{TokensPerChunk: -1, Role: "loud", Rule: "bytes", CertFile: "x", Timer: mock.Timing{Gap: -1}, Model: `a"b`, KVBlocks: -1, Faults: []mock.Fault{{Kind: "odd"}}})
	for _, want := range []string{"tokens per chunk", "role chunk", "token rule", "key", "timing", "model name", "KV blocks", "odd"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not among the faults: %v", want, err)
		}
	}
	broken, err := mock.New(mock.Options{CertFile: "nowhere.pem", KeyFile: "nowhere.key"})
	if err != nil {
		t.Fatal(err)
	}
	if err := broken.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "nowhere.pem") {
		t.Errorf("a certificate that is not there: %v", err)
	}
	if err := broken.Close(); err != nil {
		t.Error(err)
	}
}

// TestOldClients asks with HTTP/1.0, which has no transfer chunks.
func TestOldClients(t *testing.T) {
	server := start(t, mock.Options{Timer: mock.Timing{Gap: time.Millisecond}})
	connection := dial(t, server)
	fmt.Fprintf(connection, "POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s", len(stream), stream)
	text, err := io.ReadAll(connection)
	_, body, _ := strings.Cut(string(text), "\r\n\r\n")
	if err != nil || !strings.HasPrefix(body, "data: {") || !strings.HasSuffix(body, "data: [DONE]\n\n") || strings.Count(body, "tok\"") != 6 {
		t.Errorf("got %q, %v", text, err)
	}
}

// TestSlowClients lets more be sent than the socket takes before the client
// reads.
func TestSlowClients(t *testing.T) {
	server := start(t, mock.Options{TokensPerChunk: 100})
	const tokens = 1_000_000
	body := fmt.Sprintf(`{"prompt":"a","max_tokens":%d,"stream":true}`, tokens)
	connection := dial(t, server)
	fmt.Fprintf(connection, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	for server.Summary().Completed == 0 {
		time.Sleep(time.Millisecond)
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || strings.Count(string(text), " tok") != tokens || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		t.Errorf("%d bytes, %d tokens, %v", len(text), strings.Count(string(text), " tok"), err)
	}
}

func dial(t *testing.T, server *mock.Server) net.Conn {
	t.Helper()
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection
}
