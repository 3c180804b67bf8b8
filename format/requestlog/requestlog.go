// Package requestlog reads what a load client noted of its requests: JSON
// Lines, one row a request, times in seconds from the start of the run.
//
//	{"id":0,"at_s":0.2007,"input":591,"output":22,"sent_s":0.2018,"first_s":0.3058,"last_s":0.4113,"prompt_tokens":591,"output_tokens":22,"cached_tokens":512}
//
// "at_s" is when the request was due, "input" and "output" are the tokens that
// were asked for, and the "_tokens" are what the server counted: they win.
// What is missing of the three counts of the server, the due time or the id is
// taken as said: no cached tokens, the counts as asked for, sent when due, the
// number of the row. Further keys go to the point's Extra. A row that was not
// served, with an "error" or without its times, is left out with a warning.
package requestlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// maxTokens is the largest number of tokens of a request.
const maxTokens = 1 << 31

// maxWarnings bounds what is said one by one.
const maxWarnings = 100

// Read reads a record, plain or gzip, as points of kind request in the order
// of the file. The name stands in errors and origins; it is not opened.
// Warnings are rows left out. A record without any request served is an error.
func Read(name string, r io.Reader) ([]profile.Point, []error, error) {
	text, err := format.ReadText(name, r, format.Limits{})
	if err != nil {
		return nil, nil, err
	}
	rows, fault := format.ParseJSON(name, text, format.Limits{Values: 32 << 20})
	var warnings []error
	if fault != nil {
		cut, ok := errors.AsType[*format.Error](fault)
		if !ok || !cut.Truncated || len(rows) == 0 {
			return nil, nil, fault
		}
		warnings = append(warnings, fmt.Errorf("%w: the rows before it were read", fault))
	}
	// A client may also write one list.
	if len(rows) == 1 && rows[0].Kind() == format.Array {
		list := rows[0]
		rows = rows[:0]
		for _, row := range list.Elements() {
			rows = append(rows, row)
		}
	}
	points := make([]profile.Point, 0, len(rows))
	skipped := 0
	for i, row := range rows {
		row = row.At("line " + strconv.Itoa(row.Line()))
		point, err := request(row, i)
		if err != nil {
			skipped++
			if skipped <= maxWarnings {
				warnings = append(warnings, err)
			}
			continue
		}
		point.Origin = name + ": " + row.Path()
		points = append(points, point)
	}
	if skipped > maxWarnings {
		warnings = append(warnings, &format.Error{File: name, Err: fmt.Errorf("%d rows were left out, of which %d are named", skipped, maxWarnings)})
	}
	if len(points) == 0 {
		err := fmt.Errorf("no request that was served in %d rows", len(rows))
		if len(warnings) > 0 {
			err = fmt.Errorf("%w; the first: %w", err, warnings[0])
		}
		return nil, nil, &format.Error{File: name, Err: err}
	}
	return points, warnings, nil
}

// headSize is the number of bytes of text with which Detect decides.
const headSize = 64 << 10

// Detect reports whether a file, plain or gzip, that begins with head is such
// a record.
func Detect(head []byte) bool {
	expanded, err := profile.Expand(bytes.NewReader(head), profile.Bounds{})
	if err != nil {
		return false
	}
	part := make([]byte, headSize)
	n, _ := io.ReadFull(expanded, part) // the head may end anywhere
	keys, _ := format.TopKeys(bytes.TrimPrefix(part[:n], []byte("\ufeff")))
	return keys["sent_s"] && keys["first_s"] && keys["last_s"] && (keys["input"] || keys["prompt_tokens"])
}

// known reports whether a key has a place in a profile.Request.
func known(key string) bool {
	switch key {
	case "id", "at_s", "input", "output", "sent_s", "first_s", "last_s", "prompt_tokens", "output_tokens", "cached_tokens":
		return true
	}
	return false
}

// request reads one row.
func request(row format.Node, index int) (profile.Point, error) {
	if row.Kind() != format.Object {
		return profile.Point{}, row.Errorf("want an object for each request, got %s", row.Got())
	}
	if fault := row.Get("error"); fault.Present() && fault.Kind() != format.Null && !empty(fault) {
		return profile.Point{}, row.Errorf("the request failed: %s", fault.Got())
	}
	req := &profile.Request{ID: strconv.Itoa(index)}
	if id := row.Get("id"); id.Present() {
		req.ID = text(id)
	}
	extra := map[string]json.RawMessage{}
	tokens := func(field *int, keys ...string) error {
		given := false
		for _, key := range keys { // the server's count first
			node := row.Get(key)
			if !node.Present() {
				continue
			}
			n, err := node.Int(0, maxTokens)
			if err != nil {
				return err
			}
			if !given {
				*field, given = n, true
			} else if n != *field {
				extra[key] = json.RawMessage(strconv.Itoa(n))
			}
		}
		if !given && len(keys) > 1 {
			return row.Errorf("neither %s nor %s: want the tokens of the request", keys[0], keys[1])
		}
		return nil
	}
	if err := errors.Join(tokens(&req.InputLen, "prompt_tokens", "input"), tokens(&req.OutputLen, "output_tokens", "output"), tokens(&req.CachedLen, "cached_tokens")); err != nil {
		return profile.Point{}, err
	}
	for _, t := range []struct {
		key   string
		field *float64
	}{{"sent_s", &req.Sent}, {"first_s", &req.First}, {"last_s", &req.Last}} {
		node := row.Get(t.key)
		if !node.Present() {
			return profile.Point{}, row.Errorf("%s is missing: the request was not served to its end", t.key)
		}
		v, err := node.Float()
		if err != nil {
			return profile.Point{}, err
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return profile.Point{}, node.Errorf("want a number of seconds, got %s", node.Got())
		}
		*t.field = v
	}
	req.Scheduled = req.Sent
	if at := row.Get("at_s"); at.Present() {
		v, err := at.Float()
		if err != nil {
			return profile.Point{}, err
		}
		req.Scheduled = v
	}
	for key, value := range row.Members() {
		if known(key) {
			continue
		}
		if raw, ok := value.JSON(); ok {
			extra[key] = raw
		}
	}
	point := profile.Point{Kind: profile.KindRequest, Request: req}
	if len(extra) > 0 {
		point.Extra = extra
	}
	if err := point.Validate(); err != nil {
		return profile.Point{}, row.Errorf("%w", err)
	}
	return point, nil
}

// empty reports whether an error says that there was none.
func empty(n format.Node) bool {
	s, err := n.Text()
	return err == nil && s == ""
}

// text is an id as text, which clients write as a number or a string.
func text(n format.Node) string {
	if s, err := n.Text(); err == nil {
		return s
	}
	raw, ok := n.JSON()
	if !ok {
		return ""
	}
	return string(raw)
}
