package format_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/format"
)

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		why, text string
		want      float64
		err       string
	}{
		{why: "a number", text: "-1.5e-3", want: -1.5e-3},
		{why: "a number in quotes", text: `" 32.0 "`, want: 32},
		{why: "a bare token", text: "-Infinity", want: math.Inf(-1)},
		{why: "infinity in quotes, as request_rate has it", text: `"inf"`, want: math.Inf(1)},
		{why: "beyond a float64", text: "1e999", err: "number 1e999 is too large"},
		{why: "beyond a float64, in quotes", text: `"-1e999"`, err: "is too large"},
		{why: "hexadecimal is no number of JSON", text: `"0x10"`, err: `want a number, got "0x10"`},
		{why: "words", text: `"many"`, err: `want a number, got "many"`},
		{why: "a list", text: "[1]", err: "want a number, got a list of 1"},
		{why: "null", text: "null", err: "want a number, got null"},
	} {
		t.Run(c.why, func(t *testing.T) {
			nodes, err := format.ParseJSON("x", []byte(c.text), format.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := nodes[0].At("a.b").Float()
			if c.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), "x: a.b: ") || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
			} else if err != nil || got != c.want {
				t.Errorf("got %g, %v, want %g", got, err, c.want)
			}
		})
	}
}

func TestWholeNumbers(t *testing.T) {
	for text, ok := range map[string]bool{"1": true, "16": true, "16.0": true, `"8"`: true, "0": false, "17": false, "1.5": false, "NaN": false, "1e300": false, "-1": false} {
		nodes, err := format.ParseJSON("x", []byte(text), format.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nodes[0].Int(1, 16); (err == nil) != ok {
			t.Errorf("%s from 1 to 16: %v", text, err)
		}
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		why, text string
		limits    format.Limits
		want      string
	}{
		{"too long a text", strings.Repeat(" ", 100), format.Limits{Bytes: 99}, "x: text is longer than 99 bytes"},
		{"too deep", "[[[0]]]", format.Limits{Depth: 2}, "x: line 1, column 4: values nest deeper than 2"},
		{"too many", "[0,0,0,0]", format.Limits{Values: 4}, "x: line 1, column 8: too many values"},
	} {
		t.Run(c.why, func(t *testing.T) {
			text, err := format.ReadText("x", strings.NewReader(c.text), c.limits)
			if err == nil {
				_, err = format.ParseJSON("x", text, c.limits)
			}
			if _, ok := errors.AsType[*format.Error](err); !ok || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
}

func TestTopKeys(t *testing.T) {
	for _, c := range []struct{ why, text, keys, schema string }{
		{"an object that breaks off", `{"metadata": {"a": 1}, "results": [{"b`, "metadata results", ""},
		{"the first of a list", ` [ {"b": 1}, {"c": 1}]`, "b", ""},
		{"a schema", `{"schema": "s/t", "v": 1}`, "schema v", "s/t"},
		{"a schema of another type", `{"schema": {"x": 1}}`, "schema", ""},
		{"no object", `"metadata"`, "", ""},
	} {
		t.Run(c.why, func(t *testing.T) {
			keys, schema := format.TopKeys([]byte(c.text))
			want := strings.Fields(c.keys)
			for _, k := range want {
				if !keys[k] {
					t.Errorf("no %s in %v", k, keys)
				}
			}
			if len(keys) != len(want) || schema != c.schema {
				t.Errorf("got %v, %q", keys, schema)
			}
		})
	}
}

func ExampleNode() {
	nodes, err := format.ParseJSON("x.json", []byte(`{"results": [{"n": 1}, {"n": "abc"}]}`), format.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, row := range nodes[0].Get("results").Elements() {
		n, err := row.Get("n").Int(1, 10)
		fmt.Println(n, err)
	}
	// Output:
	// 1 <nil>
	// 0 x.json: results[1].n: want a number, got "abc"
}

// FuzzParseJSON compares the parser with encoding/json: what that takes, this
// takes, but for its limits and doubled keys; and what this takes without
// bare tokens, that takes.
func FuzzParseJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e+3,"x\u00e9\n",true,null]}`, `[NaN,-Infinity]`, "{}\n{}", `{"a":1,"a":2}`, "01", "-", `"\q"`, "\ufeff1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		format.TopKeys(b)
		text, err := format.ReadText("x", bytes.NewReader(b), format.Limits{})
		if err != nil {
			return
		}
		nodes, err := format.ParseJSON("x", text, format.Limits{})
		if err != nil {
			if json.Valid(text) && !strings.Contains(err.Error(), "twice") && !strings.Contains(err.Error(), "deeper") {
				t.Errorf("valid JSON is refused: %v", err)
			}
			return
		}
		if len(nodes) != 1 || bytes.ContainsAny(text, "NIi") || bytes.Contains(text, []byte(`\u`)) {
			return
		}
		if _, ok := nodes[0].JSON(); ok != json.Valid(text) || !ok && !bytes.Contains(text, []byte("nan")) {
			t.Errorf("%q: taken here, valid JSON: %v", text, ok)
		}
	})
}
