package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/mock"
)

// TestMain lets the test binary stand for llmprof and for a client that fails.
func TestMain(m *testing.M) {
	if os.Getenv("COMPARE_TEST") == "" {
		os.Exit(m.Run())
	}
	if err := imitate(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
}

func imitate(args []string) error {
	switch {
	case slices.Contains(args, "--help"):
		return nil
	case args[0] == "mock":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		server, err := mock.New(mock.Options{Model: model})
		if err != nil {
			return err
		}
		if err := server.Start(ctx); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, server.URL())
		<-ctx.Done()
		return server.Close()
	case args[0] == "bench": // one request, whatever was asked for
		body := fmt.Sprintf(`{"model": %q, "prompt": "a", "max_tokens": %d, "ignore_eos": true, "stream": true}`, model, outputTokens)
		resp, err := http.Post(args[1]+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, `{"whole": {"ttft_ms": {"mean": 21.5, "p99": 22.25}, "completed": 1}}`)
		if slices.Contains(args, "4") {
			return nil
		}
		return errors.New("the machine is busy")
	}
	return errors.New("the library is missing")
}

func TestCompare(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are measured through Linux's /proc")
	}
	t.Setenv("COMPARE_TEST", "1")
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), []string{"-runs", "1", "-levels", "1:1,2:4", "llmprof=" + os.Args[0], "guidellm@1.2=" + os.Args[0], "vllm="}, &stdout, &stderr)
	if err == nil || !strings.Contains(err.Error(), "2 of the measurements failed") {
		t.Errorf("error %v\n%s", err, stderr.String())
	}
	for _, want := range []struct{ why, start, part string }{
		{"a client that leaves figures and fails", "| llmprof | 1 | 0.", "| 21.5 / 22.2 |"},
		{"and its complaint", "llmprof, c = 1: ", "the machine is busy"},
		{"too few requests", "llmprof, c = 2: ", "4 requests were asked for, 1 reported, 1 answered by the server"},
		{"a client that cannot start", "| guidellm 1.2 | 1 | FAILED", "the library is missing"},
		{"one that is not there", "| aiperf | NOT INSTALLED", ""},
		{"one that was looked for", "| vllm | NOT INSTALLED", ""},
	} {
		if !slices.ContainsFunc(strings.Split(stdout.String(), "\n"), func(line string) bool {
			return strings.HasPrefix(line, want.start) && strings.Contains(line, want.part)
		}) {
			t.Errorf("%s: no line %q with %q in\n%s", want.why, want.start, want.part, stdout.String())
		}
	}
}

func TestRunRefuses(t *testing.T) {
	for _, c := range []struct {
		why, want string
		args      []string
	}{
		{"without our own client there is no server", "llmprof=COMMAND is missing", []string{"vllm=/bin/true"}},
		{"a client that nobody knows", `"wrk=/bin/true"`, []string{"wrk=/bin/true"}},
		{"no command", `"aiperf"`, []string{"aiperf"}},
		{"fewer requests than clients", "32:31", []string{"-levels", "32:31"}},
		{"no number", `"x"`, []string{"-levels", "x"}},
	} {
		if err := run(t.Context(), c.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.why, err, c.want)
		}
	}
}

func TestNumber(t *testing.T) {
	var document any
	if err := json.Unmarshal([]byte(`{"a": [{"b": 1.5}, "x"], "c": null}`), &document); err != nil {
		t.Fatal(err)
	}
	if got, err := number(document, "a/0/b"); got != 1.5 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	for _, path := range []string{"a", "a/2", "a/b", "a/1", "a/1/b", "c", "d/e", ""} {
		if got, err := number(document, path); err == nil {
			t.Errorf("%q: %v where there is no number", path, got)
		}
	}
}

// Every client is told the address and the load.
func TestArguments(t *testing.T) {
	l := load{level: level{17, 1234}, url: "http://127.0.0.1:9", tokenizer: "/t", dir: "/d"}
	for _, c := range clients() {
		told := strings.Join(c.args(l), " ")
		if c.config != nil {
			told += c.config(l)
		}
		for _, want := range []string{l.url, "17", "1234", "32", "128"} {
			if !strings.Contains(told, want) {
				t.Errorf("%s is not told %s: %s", c.name, want, told)
			}
		}
	}
}

// A client that counts in seconds is read in milliseconds.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	text := `{"successes": {"count": 3, "latency": {"time_to_first_token": {"mean": 0.05, "p99": 0.25}}}}`
	if err := os.WriteFile(dir+"/summary_lifecycle_metrics.json", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range clients() {
		got, err := c.report.read(dir)
		if c.name != "inference-perf" {
			if !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s without a result: %+v, %v", c.name, got, err)
			}
			continue
		}
		if want := (ttft{50, 250, 3}); got != want || err != nil {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
}
