package engine_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/llmprof/llmprof/engine"
)

// elsewhere is a place whose only port leads to a listener of this machine.
type elsewhere struct {
	engine.Place
	address string
}

func (p elsewhere) String() string { return "elsewhere" }

func (p elsewhere) Dial(ctx context.Context, port int) (net.Conn, error) {
	if port != 8000 {
		return nil, errors.New("nothing listens there")
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", p.address)
}

func TestTunnel(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer server.Close()
	place := elsewhere{address: server.Listener.Addr().String()}
	get := func(address string) (string, error) {
		answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + address)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return string(text), err
	}
	address, end, err := engine.Tunnel(t.Context(), place, 8000)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if text, err := get(address); err != nil || text != "hello" {
			t.Fatalf("%q, %v", text, err)
		}
	}
	// A connection that stays open does not keep the tunnel.
	held, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := end(); err != nil {
		t.Error(err)
	}
	if _, err := get(address); err == nil {
		t.Error("the tunnel is still there")
	}
	address, end, err = engine.Tunnel(t.Context(), place, 9)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := get(address); err == nil {
		t.Error("a port where nothing listens answers")
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}
