package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseConfig(t *testing.T) {
	got, err := parseConfig("config.yaml", []byte("gpu: [h100, a100]\ntp_size: 2\njson: true\neff-hbm: 0.75\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"gpu": "h100,a100", "tensor-parallel-size": "2", "json": "true", "eff-hbm": "0.75"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, bad := range []string{"gpu: {a: b}", "- gpu", "gpu: [h100", strings.Repeat("a: b\n", 20000)} {
		if _, err := parseConfig("config.yaml", []byte(bad)); err == nil || !strings.Contains(err.Error(), "config.yaml") {
			t.Errorf("%.20q: want an error that names the file, got %v", bad, err)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, s := range []string{"gpu: h100", "a: [1, 2]", "&a [*a]", "? x", "a: |\n  b", "\x00", "a: 0x1f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			t.Skip("the parser's time is not the subject")
		}
		if _, err := parseConfig("config.yaml", []byte(text)); err != nil && !strings.Contains(err.Error(), "config.yaml") {
			t.Errorf("error without the file: %v", err)
		}
	})
}

func FuzzParseSplit(f *testing.F) {
	for _, s := range []string{"batch_size>16", "input-len <= 4k", ">", "input_len>=", "<<", "bs<9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		split, err := parseSplit(text)
		if (err == nil) != (split.Test != nil) {
			t.Errorf("%q: error %v and a split %v", text, err, split)
		}
	})
}

func TestJoinValues(t *testing.T) {
	for _, c := range []struct {
		why      string
		in, want string
	}{
		{"the next word is the size", "--tp 4 --ep 8 --json", "--tp 4 --ep=8 --json"},
		{"no size", "--ep --json", "--ep --json"},
		{"a model's name is not a size", "--ep Qwen3-8B", "--ep Qwen3-8B"},
		{"only one size", "--ep 8 16", "--ep=8 16"},
		{"after -- nothing is a flag", "-- --ep 8", "-- --ep 8"},
		{"batch takes lists", "batch --input-len 256 512 1k --bs 1 --json", "batch --input-len=256,512,1k --bs=1 --json"},
		{"a list that begins in the flag", "batch --output_len=1 2,4 8 --tp 2", "batch --output_len=1,2,4,8 --tp 2"},
		{"a file ends a list", "batch --batch-size 1 8 models.yaml", "batch --batch-size=1,8 models.yaml"},
		{"nothing to join", "batch --input-len --json", "batch --input-len --json"},
		{"other commands take one word", "predict p.json --input-len 256 512", "predict p.json --input-len 256 512"},
	} {
		t.Run(c.why, func(t *testing.T) {
			got := strings.Join(joinValues(strings.Fields(c.in)), " ")
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
