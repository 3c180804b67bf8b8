package ollama_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/format/ollama"
)

func TestParseTimings(t *testing.T) {
	for _, c := range []struct {
		file, want string
		reloaded   bool
	}{
		{"generate.synthetic.json", "tiny length 0.1215 0.021 257 0.0675 64 0.033 cached not said", false},
		{"chat-stream.synthetic.ndjson", "tiny length 0.025 0.009 65 0.0129 4 0.0023 cached 32", false},
	} {
		file, err := os.Open("testdata/" + c.file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ollama.ParseTimings(c.file, file)
		if err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		cached := "not said"
		if got.CachedTokens != nil {
			cached = fmt.Sprint(*got.CachedTokens)
		}
		text := fmt.Sprintf("%s %s %g %g %d %g %d %g cached %s", got.Model, got.DoneReason, float64(*got.Total), float64(*got.Load),
			*got.PromptTokens, float64(*got.Prompt), *got.OutputTokens, float64(*got.Output), cached)
		if text != c.want || got.Reloaded() != c.reloaded {
			t.Errorf("%s: got %s, want %s", c.file, text, c.want)
		}
	}
	slow, err := ollama.ParseTimings("x", strings.NewReader(`{"done":true,"load_duration":300000000,"new":1}`))
	if err != nil || !slow.Reloaded() || slow.Total != nil {
		t.Errorf("%+v, %v", slow, err)
	}
}

func TestBroken(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "empty"},
		{`{"done":false}`, "ended early"},
		{`[1]`, "want a response"},
		{`{"done":true,"eval_count":-1}`, "eval_count"},
		{`{"done":true,"eval_duration":"soon"}`, "eval_duration"},
		{`{"done":true,"total_duration":1.5}`, "total_duration"},
	} {
		if _, err := ollama.ParseTimings("x", strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.text, err, c.want)
		}
	}
}

func FuzzParseTimings(f *testing.F) {
	f.Add(`{"done":true,"eval_count":64,"eval_duration":33000000}`)
	f.Fuzz(func(_ *testing.T, text string) { _, _ = ollama.ParseTimings("x", strings.NewReader(text)) })
}

func ExampleParseTimings() {
	t, err := ollama.ParseTimings("reply", strings.NewReader(`{"done":true,"eval_count":64,"eval_duration":33000000}`))
	fmt.Println(*t.OutputTokens, t.Output.Milliseconds(), err)
	// Output: 64 33 <nil>
}
