package deploy_test

import (
	"testing"

	"github.com/llmprof/llmprof/deploy"
)

func TestReleaseOrder(t *testing.T) {
	for _, c := range []struct {
		why, older, newer string
	}{
		{"minor numbers are no digits", "0.9.2", "0.10.0"},
		{"a patch", "0.27.0", "0.27.1"},
		{"a major release", "0.99.9", "1.0.0"},
	} {
		a, ok := deploy.ParseRelease(c.older)
		b, also := deploy.ParseRelease(c.newer)
		if !ok || !also || !a.Before(b) || b.Before(a) || a.Before(a) || a.String() != c.older {
			t.Errorf("%s: %s and %s", c.why, a, b)
		}
	}
	r, err := deploy.VLLMRelease("")
	if err != nil || r.String() != deploy.NewestVLLM || !r.From(33, 0) || r.From(33, 1) {
		t.Errorf("the newest is %s, %v", r, err)
	}
}

func FuzzParseRelease(f *testing.F) {
	for _, s := range []string{"0.32.0", "v0.9.2", "0.27.1.post1", "0.27.1+cpu", "1", "0..1", "99999.0.0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, ok := deploy.ParseRelease(text)
		if !ok {
			return
		}
		if again, ok := deploy.ParseRelease(r.String()); !ok || again != r {
			t.Errorf("%q is %s, which reads as %s, %v", text, r, again, ok)
		}
	})
}
