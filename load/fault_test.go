package load

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
)

// plainBody is an answer of a known length.
func plainBody(status, contentType, body string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", status, contentType, len(body), body)
}

// text answers with a fixed text and then closes or not.
func text(what string, keep bool) answer {
	return func(a *asked) bool { a.write(what); return keep }
}

// chat is a chunk of a chat answer.
func chat(delta string) string {
	return `data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}` + "\n\n"
}

func sse(events ...string) string {
	return streamHead + framed(strings.Join(events, "")) + lastFrame
}

// hang writes and then keeps the connection open without a word.
func hang(what string) answer {
	return func(a *asked) bool {
		a.write(what)
		_, _ = a.conn.Read(make([]byte, 1))
		return false
	}
}

// resets ends the connection with a reset.
func resets(what string) answer {
	return func(a *asked) bool {
		a.write(what)
		_ = a.conn.(*net.TCPConn).SetLinger(0)
		return false
	}
}

type fault struct {
	why    string
	answer answer
	kind   FailureKind // empty: a good answer
	says   string      // in the failure's message
	chunks int
	output int
	check  func(*Record) error
}

func faults() []fault {
	done := "data: [DONE]\n\n"
	good := event("a") + endOf(3, 1)
	return []fault{
		{why: "headers never come", answer: hang(""), kind: FailTimeout},
		{why: "headers come slowly and never end", answer: hang("HTTP/1.1 200 OK\r\nContent-Type: te"), kind: FailTimeout},
		{why: "the stream stalls after a token", answer: hang(streamHead + framed(event("a"))), kind: FailTimeout, chunks: 1, output: 1},
		{why: "the stream never ends", answer: func(a *asked) bool {
			a.write(streamHead)
			for {
				if _, err := a.conn.Write([]byte(framed(event("a")))); err != nil {
					return false
				}
				time.Sleep(10 * time.Millisecond)
			}
		}, kind: FailTimeout},
		{why: "closed before an answer", answer: text("", false), kind: FailClosed, says: "before an answer"},
		{why: "reset before an answer", answer: resets(""), kind: FailClosed},
		{why: "closed within the headers", answer: text("HTTP/1.1 200 OK\r\nConte", false), kind: FailCut, says: "within the headers"},
		{why: "closed after the headers", answer: text(streamHead, false), kind: FailCut},
		{why: "cut after a token", answer: text(streamHead+framed(event("a")), false), kind: FailCut, chunks: 1, output: 1},
		{why: "cut within a frame", answer: text(streamHead+framed(event("a"))[:40], false), kind: FailCut},
		{why: "cut within an event", answer: text(sse(event("a"), `data: {"choices":[{"te`), true), kind: FailCut, says: "within an event", chunks: 1, output: 1},
		{why: "reset after a token", answer: func(a *asked) bool {
			a.write(streamHead + framed(event("a")))
			time.Sleep(30 * time.Millisecond)
			return resets("")(a)
		}, kind: FailCut, chunks: 1, output: 1},
		{why: "a body shorter than its length", answer: text("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9999\r\n\r\n"+good, false), kind: FailCut, chunks: 1, output: 1},
		{why: "no [DONE] and no finish reason", answer: text(sse(event("a")), true), kind: FailCut, says: "without [DONE]", chunks: 1, output: 1},
		{why: "a finish reason without [DONE]", answer: text(sse(strings.Replace(event("a"), `finish_reason":null`, `finish_reason":"length"`, 1)), true), chunks: 1, output: 1},
		{why: "429 says when to come back", answer: text("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n", true), kind: FailStatus, says: "status 429, retry after 7"},
		{why: "500 with an error object", answer: text(plainBody("500 Oops", "application/json", `{"error":{"message":"out of blocks"}}`), true), kind: FailStatus, says: "status 500: out of blocks"},
		{why: "503 with a page", answer: text(plainBody("503 No", "text/html", "<h1>no</h1>\x1b[0m"), true), kind: FailStatus, says: "<h1>no</h1> [0m"},
		{why: "404", answer: text(plainBody("404 Not Found", "application/json", `{"detail":"Not Found"}`), true), kind: FailStatus, says: "Not Found"},
		{why: "204 has no body", answer: text("HTTP/1.1 204 No Content\r\n\r\n", true), kind: FailStatus, says: "204"},
		{why: "a redirect", answer: text("HTTP/1.1 307 Moved\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n", true), kind: FailRedirect, says: "elsewhere"},
		{why: "a wrong content type", answer: text(plainBody("200 OK", "text/html", "<html>"), true), kind: FailContent, says: "text/html"},
		{why: "no content type", answer: text("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", true), kind: FailContent},
		{why: "no HTTP", answer: text("SSH-2.0-OpenSSH\r\n", true), kind: FailHTTP, says: "SSH-2.0"},
		{why: "HTTP/2 as text", answer: text("HTTP/2 200\r\n\r\n", true), kind: FailHTTP},
		{why: "a status that is no number", answer: text("HTTP/1.1 abc OK\r\n\r\n", true), kind: FailHTTP},
		{why: "a header without a colon", answer: text("HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", true), kind: FailHTTP},
		{why: "giant headers", answer: text("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 100_000), true), kind: FailHTTP, says: "longer"},
		{why: "endless interim answers", answer: text(strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 50), true), kind: FailHTTP},
		{why: "an upgrade", answer: text("HTTP/1.1 101 Switching Protocols\r\n\r\n", true), kind: FailHTTP},
		{why: "a chunk size that is no number", answer: text(streamHead+"zz\r\n", true), kind: FailHTTP, says: "chunk size"},
		{why: "a negative chunk size", answer: text(streamHead+"-1\r\n", true), kind: FailHTTP},
		{why: "a chunk size beyond 64 bits", answer: text(streamHead+"ffffffffffffffffff\r\n", true), kind: FailHTTP},
		{why: "a huge chunk size with a cut", answer: text(streamHead+"7fffffffffffffff\r\n"+good, false), kind: FailCut, chunks: 1, output: 1},
		{why: "an endless chunk extension", answer: text(streamHead+"5;"+strings.Repeat("x", 10_000), true), kind: FailHTTP},
		{why: "bytes between chunks", answer: text(streamHead+"1\r\nabc", true), kind: FailHTTP},
		{why: "an endless trailer", answer: text(streamHead+"0\r\n"+strings.Repeat("A: b\r\n", 20_000), true), kind: FailHTTP},
		{why: "two lengths", answer: text("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", true), kind: FailHTTP},
		{why: "a negative length", answer: text("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", true), kind: FailHTTP},
		{why: "length and chunks", answer: text("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", true), kind: FailHTTP},
		{why: "a compressed answer", answer: text("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", true), kind: FailHTTP, says: "gzip"},
		{why: "garbage in the stream", answer: text(sse(event("a"), "data: <html>\n\n", done), true), kind: FailStream, chunks: 1, output: 1},
		{why: "a line that is no field", answer: text(sse("!!!\n\n", good), true), kind: FailStream, says: "!!!"},
		{why: "half an object", answer: text(sse("data: {\"choices\":[\n\n", done), true), kind: FailStream},
		{why: "an error object in the stream", answer: text(sse(event("a"), `data: {"error":{"message":"engine died"}}`+"\n\n", done), true), kind: FailServer, says: "engine died", chunks: 1, output: 1},
		{why: "an error event", answer: text(sse("event: error\ndata: {\"message\":\"boom\"}\n\n", done), true), kind: FailServer, says: "boom"},
		{why: "an error with status 200", answer: text(plainBody("200 OK", "application/json", `{"object":"error","message":"no such model"}`), true), kind: FailServer, says: "no such model"},
		{why: "an event after the end mark", answer: text(sse(good, event("b")), true), kind: FailStream, chunks: 1, output: 1},
		{why: "an empty stream", answer: text(streamHead+lastFrame, true), kind: FailEmpty},
		{why: "only the end mark", answer: text(sse(done), true), kind: FailEmpty},
		{why: "only chunks without text", answer: text(sse(event(""), done), true), kind: FailEmpty},
		{why: "an answer that is too large", answer: text(plainBody("200 OK", "application/json", strings.Repeat(" ", 3<<20)), true), kind: FailTooLarge},
		{why: "brackets without end", answer: text(sse("data: {\"a\":"+strings.Repeat("[", 100_000)+"\n\n"), true), kind: FailStream},

		{why: "data without a space, CRLF, comments, ids", answer: text(sse(": hi\r\n\r\nid: 1\r\nretry: 5\r\nevent: message\r\ndata:{\"choices\":[{\"text\":\"a\"}]}\r\n\r\ndata:[DONE]\r\n\r\n"), true), chunks: 1, output: 1},
		{why: "an event over two lines", answer: text(sse("data: {\"choices\":\ndata: [{\"text\":\"a\"}]}\n\n", done), true), chunks: 1, output: 1},
		{why: "several events in one read", answer: text(sse(event("a"), event("b"), event("c"), endOf(3, 3)), true), chunks: 3, output: 3, check: func(r *Record) error {
			if r.Chunks[0].Read != r.Chunks[2].Read {
				return fmt.Errorf("the chunks came in reads %d and %d", r.Chunks[0].Read, r.Chunks[2].Read)
			}
			return nil
		}},
		{why: "a line longer than the buffer", answer: text(sse(event(strings.Repeat("x", 300_000)), endOf(3, 1)), true), chunks: 1, output: 1},
		{why: "broken UTF-8", answer: text(sse("data: {\"choices\":[{\"text\":\"\xff\xfe\"}]}\n\n", done), true), chunks: 1, output: 1},
		{why: "a byte at a time", answer: func(a *asked) bool {
			for _, b := range []byte(sse(good)) {
				a.write(string(b))
			}
			return true
		}, chunks: 1, output: 1},
		{why: "HTTP/1.0 ends with the connection", answer: text("HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"+good, false), chunks: 1, output: 1},
		{why: "a long answer ends with the connection", answer: text("HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"+event(strings.Repeat("x", 300_000))+good, false), chunks: 2, output: 1},
		{why: "an interim answer first", answer: text("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"+sse(good), true), chunks: 1, output: 1},
		{why: "the connection is closed between requests", answer: text(sse(good), false), chunks: 1, output: 1},
		{why: "the server says that it will close", answer: text(strings.Replace(sse(good), "\r\n", "\r\nConnection: close\r\n", 1), false), chunks: 1, output: 1},
		{why: "no stream: no TTFT", answer: text(plainBody("200 OK", "application/json", `{"choices":[{"text":"a b","finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":1}}}`), true), output: 2, check: func(r *Record) error {
			if _, ok := r.TTFT(); ok || r.Finish != "stop" || r.Cached.Tokens != 1 {
				return fmt.Errorf("TTFT %v, finish %q, cached %v", ok, r.Finish, r.Cached)
			}
			return nil
		}},
		{why: "a role chunk is not the first token", answer: text(sse(chat(`{"role":"assistant","content":""}`), chat(`{"content":"a"}`), chat(`{"reasoning_content":"b"}`), done), true), chunks: 2, output: 2, check: func(r *Record) error {
			if r.Role == 0 {
				return fmt.Errorf("no time of the role chunk")
			}
			return nil
		}},
		{why: "more tokens than chunks are spread", answer: text(sse(event("a b"), event("c d"), event("e"), endOf(3, 5)), true), chunks: 3, output: 5, check: func(r *Record) error {
			if r.Spread != Spread || tokens(r.Chunks) != 5 {
				return fmt.Errorf("%d tokens, %s", tokens(r.Chunks), r.Spread)
			}
			return nil
		}},
		{why: "running usage counts chunks", answer: text(sse(`data: {"choices":[{"text":"a"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`+"\n\n", `data: {"choices":[{"text":"bcd"}],"usage":{"prompt_tokens":1,"completion_tokens":4}}`+"\n\n", done), true), chunks: 2, output: 4, check: func(r *Record) error {
			if r.Chunks[1].Tokens != 3 || r.Spread != FromRunningUsage {
				return fmt.Errorf("%+v, %s", r.Chunks, r.Spread)
			}
			return nil
		}},
		{why: "token ids count chunks", answer: text(sse(`data: {"choices":[{"text":"","token_ids":[1]}]}`+"\n\n", `data: {"choices":[{"text":"bc","token_ids":[2,3]}]}`+"\n\n", done), true), chunks: 1, output: 3, check: func(r *Record) error {
			if r.Spread != FromTokens {
				return fmt.Errorf("origin %s", r.Spread)
			}
			return nil
		}},
		{why: "the server's own times", answer: text(sse(event("a"), `data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1},"metrics":{"queue_time_ms":1.5,"time_to_first_token_ms":2.5}}`+"\n\n", done), true), chunks: 1, output: 1, check: func(r *Record) error {
			if r.Server == nil || *r.Server.QueueMS != 1.5 || *r.Server.PrefillMS != 2.5 || r.Server.GenerationMS != nil {
				return fmt.Errorf("server times %+v", r.Server)
			}
			return nil
		}},
	}
}

func TestFaults(t *testing.T) {
	for _, f := range faults() {
		t.Run(f.why, func(t *testing.T) {
			t.Parallel()
			s := serve(t, f.answer)
			patience := 5 * time.Minute // an answer that comes, however slowly
			if f.kind == FailTimeout {
				patience = 700 * time.Millisecond
			}
			result, err := Run(t.Context(), []Target{{URL: s.url(), Model: "m"}}, Options{
				Schedule: closedLoop(1, 2, 3, 8), Timeout: patience, MaxAnswer: 2 << 20,
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(result.Records) != 2 {
				t.Fatalf("%d records, want 2", len(result.Records))
			}
			for i := range result.Records {
				checkFault(t, f, &result.Records[i])
			}
		})
	}
}

func checkFault(t *testing.T, f fault, r *Record) {
	t.Helper()
	kind := FailureKind("")
	if r.Failure != nil {
		kind = r.Failure.Kind
	}
	if kind != f.kind {
		t.Errorf("request %d: %v, want %q", r.ID, r.Failure, f.kind)
		return
	}
	if r.Failure != nil && !strings.Contains(r.Failure.Message, f.says) {
		t.Errorf("request %d: %v does not say %q", r.ID, r.Failure, f.says)
	}
	if f.kind != FailTimeout && (len(r.Chunks) != f.chunks || r.Output.Tokens != f.output) {
		t.Errorf("request %d: %d chunks, %+v; want %d and %d", r.ID, len(r.Chunks), r.Output, f.chunks, f.output)
	}
	if f.check != nil {
		if err := f.check(r); err != nil {
			t.Errorf("request %d: %v", r.ID, err)
		}
	}
}

// TestPatience has clients that give up before the run would.
func TestPatience(t *testing.T) {
	s := serve(t, hang(streamHead+framed(event("a"))))
	load := constant(3, 100, 4)
	for i := range load.Requests {
		load.Requests[i].Timeout = 0.2
	}
	result, err := Run(t.Context(), []Target{{URL: s.url(), Model: "m"}}, Options{Schedule: load, Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range result.Records {
		if r.Failure == nil || r.Failure.Kind != FailTimeout || !strings.Contains(r.Failure.Message, "200ms") {
			t.Errorf("record %+v, failure %v", r, r.Failure)
		}
	}
}

func TestNoServer(t *testing.T) {
	target := []Target{{URL: "http://127.0.0.1:1", Model: "m"}} // a port that no program is given by chance
	result, err := Run(t.Context(), target, Options{Schedule: closedLoop(2, 4, 3, 1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range result.Records {
		if r.Failure == nil || r.Failure.Kind != FailConnect || r.Sent {
			t.Errorf("record %+v", r)
		}
	}
	whole, steady := result.Summaries(nil)
	if gate := Judge(result, whole, steady, DefaultLimits()); gate.Grade != Invalid || whole.Failed != 4 {
		t.Errorf("gate %+v, %d failed", gate, whole.Failed)
	}
	if _, err := Run(t.Context(), target, Options{Schedule: closedLoop(2, 4, 3, 1), Warmup: 2}); err == nil || !strings.Contains(err.Error(), "warm-up") {
		t.Errorf("with a warm-up: %v", err)
	}
}

// TestWarmupExitCode holds what a warm-up without an answer says of whose fault it
// is.
func TestWarmupExitCode(t *testing.T) {
	page := func(status string) answer { return text(plainBody(status, "text/plain", "no"), true) }
	for _, c := range []struct {
		why    string
		answer answer
		want   int
	}{
		{"another URL is needed", page("404 Not Found"), 2},
		{"another prompt is needed", page("400 Bad Request"), 2},
		{"a key is needed", page("401 Unauthorized"), 2},
		{"the server waited too long", page("408 Request Timeout"), 4},
		{"the server has enough to do", page("429 Too Many Requests"), 4},
		{"the server failed", page("500 Oops"), 4},
		{"the server starts yet", page("503 Service Unavailable"), 4},
		{"elsewhere", text("HTTP/1.1 307 Moved\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n", true), 2},
		{"a page of something else", page("200 OK"), 2},
		{"no answer", text("", false), 4},
	} {
		s := serve(t, c.answer)
		_, err := Run(t.Context(), []Target{{URL: s.url(), Model: "m"}}, Options{Schedule: closedLoop(1, 1, 3, 1), Warmup: 1})
		failed, ok := errors.AsType[*WarmupError](err)
		if !ok || failed.ExitCode() != c.want {
			t.Errorf("%s: %v, want exit code %d", c.why, err, c.want)
		}
	}
}

// TestNoLeaks runs good, failing and interrupted loads and counts goroutines
// and connections afterwards.
func TestNoLeaks(t *testing.T) {
	s := serve(t, func(a *asked) bool {
		switch a.number % 4 {
		case 0:
			return text("", false)(a)
		case 1:
			return hang(streamHead)(a)
		case 2:
			return text(plainBody("500 No", "text/plain", "no"), true)(a)
		}
		return text(sse(event("a"), endOf(1, 1)), true)(a)
	})
	before := runtime.NumGoroutine()
	for range 3 {
		if _, err := Run(t.Context(), []Target{{URL: s.url(), Model: "m"}}, Options{Schedule: closedLoop(8, 40, 3, 1), Timeout: 150 * time.Millisecond, Warmup: 4}); err != nil {
			if _, none := errors.AsType[*WarmupError](err); !none {
				t.Fatal(err)
			}
			t.Log(err) // a busy machine; it leaves nothing behind either
		}
	}
	deadline := time.Now().Add(5 * time.Minute)
	for s.open() > 0 || runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			buffer := make([]byte, 1<<16)
			t.Fatalf("%d connections open, %d goroutines more than before\n%s", s.open(), runtime.NumGoroutine()-before, buffer[:runtime.Stack(buffer, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
}
