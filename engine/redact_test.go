package engine_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/engine"
)

func TestRedact(t *testing.T) {
	r := engine.NewRedactor("HF_TOKEN=letmein", "PIN_SECRET=1234", "DB_PASSWORD=letmein-longer", "TLS_KEY=-----BEGIN KEY-----\nAAAABBBB\n-----END KEY-----", "HOME=/home/me")
	for _, test := range []struct{ why, text, want string }{
		{"a value of the environment", "login letmein failed", "login [redacted] failed"},
		{"the longer of two that begin alike", "pw letmein-longer.", "pw [redacted]."},
		{"a line of a key", "read AAAABBBB here", "read [redacted] here"},
		{"too short to be looked for", "1234 tokens", "1234 tokens"},
		{"no secret by name", "in /home/me", "in /home/me"},
		{"Hugging Face", "using hf_abcdefghijklmnopqrstuvwxyz now", "using [redacted] now"},
		{"a bearer token", "Authorization: Bearer abc.def-123", "Authorization: Bearer [redacted]"},
		{"OpenAI", "key sk-proj-abcdefghijklmnop end", "key [redacted] end"},
		{"an option", "vllm serve m --api-key abcdefgh --port 1", "vllm serve m --api-key [redacted] --port 1"},
		{"an option with an equal sign", "--hf-token=abcdefgh x", "--hf-token=[redacted] x"},
		{"a dictionary of Python", "args: {'api_key': ['abcdefgh'], 'port': 1}", "args: {'api_key': ['[redacted]'], 'port': 1}"},
		{"a password in an address", "get https://me:pass@host/x", "get https://me:[redacted]@host/x"},
		{"nothing given", "api_key=None, max_tokens: 100000", "api_key=None, max_tokens: 100000"},
		{"words with a dash", "per-token latency of multi-token prediction", "per-token latency of multi-token prediction"},
		{"an option and its value in a list", "['--api-key', 'abcdefgh', '-x']", "['--api-key', '[redacted]', '-x']"},
		{"an option in a list", "['--api-key=abcdefgh', '-x']", "['--api-key=[redacted]', '-x']"},
		{"ordinary words", "tokenizer loaded; desk-sized; key: value", "tokenizer loaded; desk-sized; key: value"},
		{"two that overlap", "Bearer letmein-longer", "Bearer [redacted]"},
		{"several lines", "letmein\nok\nletmein\n", "[redacted]\nok\n[redacted]\n"},
	} {
		if got := r.Redact(test.text); got != test.want {
			t.Errorf("%s: %q, want %q", test.why, got, test.want)
		}
	}
}

func TestSecretName(t *testing.T) {
	for name, want := range map[string]bool{
		"HF_TOKEN": true, "OPENAI_API_KEY": true, "AWS_SECRET_ACCESS_KEY": true, "WANDB_APIKEY": true, "db.password": true,
		"GOOGLE_APPLICATION_CREDENTIALS": true, "MYSECRET": true, "hf_token": true,
		"TOKENIZERS_PARALLELISM": false, "MAX_TOKENS": false, "PWD": false, "KEYBOARD": false, "PATH": false, "": false,
	} {
		if got := engine.SecretName(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

func TestRedactEnv(t *testing.T) {
	got := engine.NewRedactor().RedactEnv([]string{"HF_TOKEN=x", "EMPTY_KEY=", "URL=http://h/?k=longsecret", "OTHER_KEY=longsecret", "A=b=c", "odd"})
	want := []string{"HF_TOKEN=[redacted]", "EMPTY_KEY=", "URL=http://h/?k=[redacted]", "OTHER_KEY=[redacted]", "A=b=c", "odd"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Wherever a text is cut into writes, what comes out is the same.
func TestRedactWriter(t *testing.T) {
	r := engine.NewRedactor("HF_TOKEN=letmein", "LONG_KEY="+strings.Repeat("k3y", 300))
	piece := rapid.SampledFrom([]string{"letmein", "let", "\n", "\r", " ", "text ", " Bearer abcdefgh ", strings.Repeat("k3y", 300), " hf_aaaaaaaaaaaaaaaaaaaaaaaa", strings.Repeat("x", 30_000), strings.Repeat("y ", 9_000)})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces"), "")
		var out bytes.Buffer
		w := r.Writer(&out)
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, min(len(rest), 40_000)).Draw(t, "n")
			if _, err := io.WriteString(w, rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "letmein") || strings.Contains(out.String(), strings.Repeat("k3y", 300)) || strings.Contains(out.String(), "abcdefgh") {
			t.Fatalf("a secret came through")
		}
		if got, want := len(strings.ReplaceAll(out.String(), engine.Hidden, "")), len(strings.ReplaceAll(r.Redact(text), engine.Hidden, "")); got != want {
			t.Fatalf("%d bytes are left of the text, want %d", got, want)
		}
	})
}

func TestRedactWriterPassesLinesAtOnce(t *testing.T) {
	var out bytes.Buffer
	w := engine.NewRedactor().Writer(&out)
	for _, step := range []struct{ write, want string }{{"hal", ""}, {"f\nnext", "half\n"}, {" 10%\r", "half\nnext 10%\r"}} {
		if _, err := io.WriteString(w, step.write); err != nil {
			t.Fatal(err)
		}
		if out.String() != step.want {
			t.Errorf("after %q: %q, want %q", step.write, out.String(), step.want)
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("Bearer abcdefgh", "letmein")
	f.Add("://a:b@", "")
	f.Fuzz(func(t *testing.T, text, secret string) {
		r := engine.NewRedactor("A_KEY=" + secret)
		got := r.Redact(text)
		if line := strings.TrimSpace(secret); len([]rune(line)) >= 6 && !strings.ContainsAny(line, "\r\n") && !strings.Contains(engine.Hidden, line) &&
			!strings.Contains(line, "[") && !strings.Contains(line, "]") && strings.Contains(got, line) {
			t.Errorf("%q in %q gives %q", line, text, got)
		}
	})
}

func ExampleRedactor() {
	r := engine.NewRedactor("HF_TOKEN=hello-secret", "HOME=/root")
	fmt.Println(r.Redact("401 for token hello-secret"))
	fmt.Println(r.RedactEnv([]string{"HF_TOKEN=hello-secret", "CUDA_VISIBLE_DEVICES=0"}))
	// Output:
	// 401 for token [redacted]
	// [HF_TOKEN=[redacted] CUDA_VISIBLE_DEVICES=0]
}
