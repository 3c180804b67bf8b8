package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPublicArgs(t *testing.T) {
	for _, c := range []struct {
		why       string
		args, env []string
		want      []string
	}{
		{"nothing", nil, nil, []string{}},
		{"nothing to hide", []string{"--served-model-name", "a b", "--max-num-batched-tokens", "8192", "--tokenizer", "x/y"}, nil, []string{"--served-model-name", "a b", "--max-num-batched-tokens", "8192", "--tokenizer", "x/y"}},
		{"the next word", []string{"--hf-token", "mysecretvalue123", "--x"}, nil, []string{"--hf-token", "[redacted]", "--x"}},
		{"underscores, and short", []string{"--hf_token", "abc"}, nil, []string{"--hf_token", "[redacted]"}},
		{"the same word", []string{"--api-key=mysecretvalue123"}, nil, []string{"--api-key=[redacted]"}},
		{"an option without a value", []string{"--hf-token", "--x", "y"}, nil, []string{"--hf-token", "--x", "y"}},
		{"a secret of the environment", []string{"--note", "it is s3cr3tvalue"}, []string{"HF_TOKEN=s3cr3tvalue"}, []string{"--note", "it is [redacted]"}},
		{"across words", []string{"--header", "Authorization:", "Bearer", "abcdefghijkl"}, nil, []string{"--header", "Authorization:", "Bearer", "[redacted]"}},
		{"by its looks", []string{"x", "hf_abcdefghijklmnopqrstuvwx"}, nil, []string{"x", "[redacted]"}},
		{"two ways at once", []string{"--api-key", "one-secret", "Bearer", "two-secret"}, nil, []string{"--api-key", "-", "Bearer", "[redacted]"}},
	} {
		given := slices.Clone(c.args)
		if diff := cmp.Diff(c.want, publicArgs(c.args, c.env)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.why, diff)
		}
		if !slices.Equal(given, c.args) {
			t.Errorf("%s: the arguments themselves were changed to %q", c.why, c.args)
		}
		if again := publicArgs(publicArgs(c.args, c.env), c.env); strings.Contains(strings.Join(again, " "), "secret") {
			t.Errorf("%s: %q", c.why, again)
		}
	}
}
