package mock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// completion answers requests for completions or chats.
func (s *Server) completion(chat bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		arrival := s.clock.now()
		number := s.requests.Add(1)
		q, err := s.prepare(r, chat, number, arrival)
		if err != nil {
			s.refuse(w, err)
			return
		}
		if !s.before(w, r, q) {
			return
		}
		if len(q.request.ignored) > 0 {
			w.Header().Set("X-Llmprof-Mock-Ignored", strings.Join(q.request.ignored, ", "))
		}
		q.out = newStream(w, r)
		if q.request.stream {
			s.answerStream(w, r, q)
		} else {
			s.answerWhole(w, r, q)
		}
	}
}

// prepare reads a request.
func (s *Server) prepare(r *http.Request, chat bool, number uint64, arrival int64) (*sequence, error) {
	struck, err := s.options.chooseFaults(number, r)
	if err != nil {
		return nil, &requestError{status: http.StatusBadRequest, message: err.Error()}
	}
	text, err := readBody(r)
	if err != nil {
		return nil, err
	}
	request, err := s.options.parseRequest(text, chat)
	if err != nil {
		return nil, err
	}
	q := &sequence{request: request, arrival: arrival, strikes: struck, role: s.options.Role, id: requestID(r, chat, number)}
	q.limit, q.reason = s.options.answer(request)
	q.keys = blockKeys(s.options.cacheable(request, q.limit), s.options.BlockSize)
	q.texts = newTexts(s.options.Model, q.id, request, s.clock.wall(arrival))
	return q, s.engine.fits(q)
}

// cacheable are the tokens of a request that a prefix cache may keep: a
// simulated one also has those that are put out.
func (o Options) cacheable(r *request, output int) []int64 {
	if o.Simulation == nil {
		return r.tokens
	}
	all := make([]int64, 0, len(r.tokens)+output)
	return append(append(all, r.tokens...), slices.Repeat(o.Rule.tokens(tokenText), output)...)
}

// readBody reads a body of bounded length.
func readBody(r *http.Request) ([]byte, error) {
	tooLong := &requestError{status: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("the body is longer than %d bytes", maxBody)}
	if r.ContentLength > maxBody {
		return nil, tooLong
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, refuse("read the body: %v", err)
	}
	if len(text) > maxBody {
		return nil, tooLong
	}
	return text, nil
}

// requestID names an answer: after the client's own name for it, if it has one.
func requestID(r *http.Request, chat bool, number uint64) string {
	prefix := "cmpl-"
	if chat {
		prefix = "chatcmpl-"
	}
	name := r.Header.Get("X-Request-Id")
	plain := func(c rune) bool {
		return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.ContainsRune("-_.:", c)
	}
	if name == "" || len(name) > 128 || strings.ContainsFunc(name, func(c rune) bool { return !plain(c) }) {
		name = strconv.FormatUint(number, 10)
	}
	return prefix + name
}

// refuse answers a request that cannot be served.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	s.refused.Add(1)
	answerError(w, err)
}

// answerError answers with a fault of a request.
func answerError(w http.ResponseWriter, err error) {
	status, param := http.StatusBadRequest, ""
	if bad, ok := errors.AsType[*requestError](err); ok {
		status, param = bad.status, bad.param
	}
	writeError(w, status, param, err.Error())
}

// hold waits for the end of a stall of the server, and more. It is false if the
// client does not wait as long.
func (s *Server) hold(r *http.Request, more time.Duration) bool {
	since := time.Duration(s.clock.now() - s.clock.offset)
	wait := s.options.afterStalls(since) - since + more
	if wait == 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// before applies the faults that come before the answer. It is false where they
// leave none.
func (s *Server) before(w http.ResponseWriter, r *http.Request, q *sequence) bool {
	slow, late := q.strikes.find(SlowHeaders)
	if !s.hold(r, slow.For) {
		s.refused.Add(1)
		return false
	}
	if late {
		q.arrival = s.clock.now()
	}
	if _, ok := q.strikes.find(CutHeaders); ok {
		s.refused.Add(1)
		hangUp(w)
		return false
	}
	if f, ok := q.strikes.find(Status); ok {
		s.refused.Add(1)
		if f.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int((f.RetryAfter+time.Second-1)/time.Second)))
		}
		writeError(w, f.Code, "", "made to fail")
		return false
	}
	return true
}

// hangUp closes the connection of a request.
func hangUp(w http.ResponseWriter) {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = connection.Close() // it is to be lost
	}
}

// answerStream answers with a stream of events.
func (s *Server) answerStream(w http.ResponseWriter, r *http.Request, q *sequence) {
	header := w.Header()
	header.Set("Content-Type", "text/event-stream; charset=utf-8")
	header.Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	if q.request.chat && q.role == RoleAtOnce {
		now := s.clock.now()
		_, _ = w.Write(q.appendRole(nil, now, now)) // a client that is gone shows below
	}
	if err := http.NewResponseController(w).Flush(); err != nil {
		s.refused.Add(1)
		return
	}
	s.engine.submit(q)
	end, err := q.out.serve(r.Context())
	if err != nil {
		s.engine.abort(q)
		return
	}
	if end == cut {
		s.engine.abort(q)
		hangUp(w)
	}
}

// answerWhole answers with one document when all its tokens are there.
func (s *Server) answerWhole(w http.ResponseWriter, r *http.Request, q *sequence) {
	q.out.silent = true
	s.engine.submit(q)
	end, err := q.out.serve(r.Context())
	if err != nil {
		s.engine.abort(q)
		return
	}
	if end == failed {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, errorMessage) // a client that is gone wants none
		return
	}
	w.Header().Set("Content-Type", "application/json")
	text := q.document()
	if _, ok := q.strikes.find(Garbage); ok {
		text = append([]byte(garbageLine), text...)
	}
	if end == cut {
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		_, _ = w.Write(text[:len(text)/2])
		_ = http.NewResponseController(w).Flush()
		hangUp(w)
		return
	}
	_, _ = w.Write(text)
}

// tokenize counts the tokens of a prompt or a chat.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	text, err := readBody(r)
	var b body
	if err == nil {
		if fault := json.Unmarshal(text, &b); fault != nil {
			err = refuse("the body is no request: %v", fault)
		}
	}
	var tokens []int64
	if err == nil && b.Messages != nil {
		tokens, err = s.options.Rule.chatTokens(b.Messages)
	} else if err == nil {
		tokens, err = s.options.Rule.promptTokens(b.Prompt)
	}
	if err != nil {
		answerError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"count": len(tokens), "max_model_len": s.options.MaxModelLen, "tokens": tokens})
}
