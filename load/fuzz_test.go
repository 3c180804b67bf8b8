package load

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// FuzzResponse feeds any bytes, in pieces of any size: the outcome must not
// depend on the pieces.
func FuzzResponse(f *testing.F) {
	f.Add([]byte(sse(event("a"), endOf(3, 1))), uint8(7))
	f.Add([]byte(plainBody("200 OK", "application/json", "{}")), uint8(1))
	f.Add([]byte("HTTP/1.0 200 OK\n\nx"), uint8(2))
	f.Add([]byte("HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 204 No\r\n\r\n"), uint8(3))
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		outcome := func(step int) (stage, string, bool, int) {
			var r response
			r.reset(1<<20, 4)
			rest, read := text, int32(0)
			for len(rest) > 0 && r.stage != complete {
				n := min(step, len(rest))
				read++
				used, err := r.feed(rest[:n], time.Duration(read), read)
				if err != nil {
					return r.stage, "", true, 0
				}
				rest = rest[used:]
			}
			if len(r.marks) > 0 && r.marks[len(r.marks)-1].end != len(r.body) {
				t.Fatalf("marks end at %d of %d", r.marks[len(r.marks)-1].end, len(r.body))
			}
			return r.stage, string(r.body), false, len(rest)
		}
		s1, b1, e1, l1 := outcome(len(text) + 1)
		s2, b2, e2, l2 := outcome(int(size) + 1)
		if e1 != e2 || !e1 && (s1 != s2 || b1 != b2 || l1 != l2) {
			t.Fatalf("in one piece: stage %d, %d bytes, error %v; in pieces of %d: %d, %d, %v", s1, len(b1), e1, int(size)+1, s2, len(b2), e2)
		}
	})
}

// FuzzStream decodes any body.
func FuzzStream(f *testing.F) {
	for _, text := range []string{
		event("a") + endOf(3, 1), "data:[DONE]", "data: {}\n\n", "\ufeffdata: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n",
		"data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[1,2]}],\"usage\":{\"completion_tokens\":99}}\n\n", ": c\r\nevent: error\r\ndata: x\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, media := range []string{"text/event-stream", "application/json"} {
			var rec Record
			var d decoder
			r := &response{status: 200, contentType: media, body: body}
			if len(body) > 0 {
				r.marks = []mark{{len(body)/2 + 1, 1, 1}, {len(body), 2, 2}}
			}
			d.decode(&rec, r)
			if rec.OK() && rec.Output.Tokens < 1 && len(rec.Chunks) == 0 {
				t.Fatal("a good answer without a token")
			}
			for _, c := range rec.Chunks {
				if c.Tokens < 0 || c.At < 1 || c.At > 2 {
					t.Fatalf("chunk %+v", c)
				}
			}
		}
	})
}

// FuzzWalk checks that the scanner takes every object that encoding/json takes.
func FuzzWalk(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"\"\\"}],"c":null , "d":-1.5e3}`))
	f.Add([]byte(`{"choices":[{"text":"x"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var object map[string]json.RawMessage
		if json.Unmarshal(text, &object) != nil || object == nil || strings.Count(string(text), "{")+strings.Count(string(text), "[") > maxDepth {
			_ = walkObject(text, nil)
			return
		}
		keys := 0
		if err := walkObject(text, func(_, value []byte) error {
			keys++
			if !json.Valid(value) {
				t.Fatalf("value %q", value)
			}
			return nil
		}); err != nil || keys < len(object) {
			t.Fatalf("%d keys of %d, %v", keys, len(object), err)
		}
	})
}

// FuzzRecords reads any text as records.
func FuzzRecords(f *testing.F) {
	f.Add(`{"schema":"llmprof/requests","version":"1.0"}` + "\n" + `{"id":1,"t_sched":0.5,"t_send":0.6,"t_chunk":[1],"n_chunk":[1],"read_id":[1],"output_tokens":{"tokens":1,"origin":"usage"}}`)
	f.Fuzz(func(_ *testing.T, text string) {
		_, records, err := ReadRecords("x", strings.NewReader(text))
		if err != nil {
			return
		}
		var all []Record
		for r, err := range records {
			if err == nil {
				all = append(all, r)
			}
		}
		(&Result{Records: all}).Samples(Whole, 0, 0)
	})
}

// FuzzAbout reads any answers to what a server is asked of itself: settings are in
// their bounds, and a server that is known names a model.
func FuzzAbout(f *testing.F) {
	f.Add([]byte(`{"data":[{"id":"m","owned_by":"vllm","max_model_len":99}],"version":"0.32.0"}`))
	f.Add([]byte(`{"page_size":16,"max_running_requests":null,"chunked_prefill_size":-1,"disable_radix_cache":true,"mem_fraction_static":0.9,"version":"0.5.10"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		facts, err := factsOf("http://s", text)
		if err == nil && (facts.Model == "" || len(facts.Models) == 0) {
			t.Fatalf("a server without a model: %+v", facts)
		}
		facts.sglang(text)
		if s := facts.Settings; s.BlockSize < 0 || s.MaxNumSeqs < 0 || s.MaxModelLen < 0 || s.TensorParallel < 0 || facts.KVTokens < 0 || !(s.MemFractionStatic >= 0 && s.MemFractionStatic <= 1) {
			t.Fatalf("settings %+v, %d tokens", s, facts.KVTokens)
		}
		if v := versionIn(text, "version"); len(v) > maxVersion {
			t.Fatalf("a release of %d bytes", len(v))
		}
	})
}
