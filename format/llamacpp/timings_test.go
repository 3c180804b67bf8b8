package llamacpp_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llmprof/llmprof/format/llamacpp"
)

func TestParseTimings(t *testing.T) {
	reply := fixture(t, "llama-server-completion.synthetic.json")
	quoted, err := json.Marshal(string(reply))
	if err != nil {
		t.Fatal(err)
	}
	none := 0
	want := llamacpp.Timings{PromptTokens: 513, PromptTime: 0.16, OutputTokens: 64, OutputTime: 0.064, CachedTokens: &none}
	old := want
	old.CachedTokens = nil
	drafted := want
	drafted.CachedTokens = nil
	drafted.Extra = map[string]json.RawMessage{"draft_n": json.RawMessage("7")}
	const object = `{"prompt_n":513,"prompt_ms":160,"predicted_n":64,"predicted_ms":64}`
	for _, c := range []struct {
		why, body string
		want      llamacpp.Timings
	}{
		{"a reply", string(reply), want},
		{"a reply as one JSON string", string(quoted), want},
		{"an older server does not speak of its cache", `{"timings":` + object + `}`, old},
		{"the object alone", object, old},
		{"with counts of speculative decoding", strings.Replace(object, "{", `{"draft_n":7,`, 1), drafted},
		{"a stream, whose last event has them", "data: {\"content\":\"a\"}\r\n\r\n: ping\ndata: {\"content\":\"\",\"timings\":" + object + "}\n\ndata: [DONE]\n", old},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, warnings, err := llamacpp.ParseTimings("reply", []byte(c.body))
			if err != nil || len(warnings) > 0 {
				t.Fatal(err, warnings)
			}
			if d := cmp.Diff(c.want, got, cmpopts.EquateApprox(0, 1e-12)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestParseTimingsFaults(t *testing.T) {
	for _, c := range []struct{ why, body, want string }{
		{"nothing", "", "reply: holds no timings"},
		{"a reply without them", `{"content":"x"}`, "reply: holds no timings"},
		{"no JSON", `{`, "reply: "},
		{"a page", "<html>", "reply: holds no timings"},
		{"a time without a count", `{"prompt_ms":1}`, "prompt_n: missing"},
		{"a negative time", `{"prompt_n":1,"prompt_ms":-1,"predicted_n":1,"predicted_ms":1}`, "prompt_ms: want a number"},
		{"no number at all", `{"prompt_n":1,"prompt_ms":NaN,"predicted_n":1,"predicted_ms":1}`, "prompt_ms: want a number"},
		{"a count that is none", `{"prompt_n":"x","prompt_ms":1}`, "prompt_n: "},
	} {
		if _, _, err := llamacpp.ParseTimings("reply", []byte(c.body)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.why, err, c.want)
		}
	}
	_, warnings, err := llamacpp.ParseTimings("reply", []byte(`{"prompt_n":10,"prompt_ms":10,"prompt_per_token_ms":2,"predicted_n":1,"predicted_ms":1}`))
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].Error(), "is 2 ms, but 10 tokens in 10 ms are 1 ms") {
		t.Errorf("%v, warnings %q", err, warnings)
	}
}

func FuzzParseTimings(f *testing.F) {
	f.Add([]byte(`{"timings":{"prompt_n":1,"prompt_ms":1,"predicted_n":1,"predicted_ms":1,"x":NaN}}`))
	f.Add([]byte("data: {\"prompt_n\":1,\"prompt_ms\":1e300}\n"))
	f.Add([]byte(`"{\"prompt_ms\":null}"`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, _, err := llamacpp.ParseTimings("x", b)
		if err != nil && !strings.HasPrefix(err.Error(), "x: ") {
			t.Errorf("error does not name the file: %v", err)
		}
		if err == nil && !(got.PromptTime >= 0 && got.OutputTime >= 0 && got.PromptTokens >= 0 && got.OutputTokens >= 0) {
			t.Errorf("%+v", got)
		}
	})
}
