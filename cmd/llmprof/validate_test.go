package main

import (
	"strings"
	"testing"
)

func TestParseRequestTimes(t *testing.T) {
	got, err := parseRequestTimes("x", strings.NewReader("latency_ms, input_len,output_len,note\n40,64,16,a\n42,64,16,b\n55.5,128,16,\n"))
	if err != nil || len(got) != 2 || len(got[0].total) != 2 || got[1].total[0] != 0.0555 || got[1].input != 128 || got[1].output != 16 {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                                       "EOF",
		"input_len,output_len\n1,2\n":            "column latency_ms is missing",
		"input_len,output_len,latency_ms\n":      "holds no requests",
		"input_len,output_len,latency_ms\n1,2\n": "wrong number of fields",
		"input_len,output_len,latency_ms\n1,2,NaN\n": "line 2",
		"input_len,output_len,latency_ms\n0,2,3\n":   "line 2",
		"input_len,output_len,latency_ms\n1,2,-3\n":  "line 2",
	} {
		if _, err := parseRequestTimes("x", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

func FuzzParseRequestTimes(f *testing.F) {
	f.Add("input_len,output_len,latency_ms\n64,16,40\n")
	f.Fuzz(func(t *testing.T, text string) {
		requests, err := parseRequestTimes("x", strings.NewReader(text))
		for _, r := range requests {
			if err == nil && (r.input < 1 || r.output < 1 || len(r.total) == 0 || !(r.total[0] > 0)) {
				t.Fatalf("%+v", r)
			}
		}
	})
}
