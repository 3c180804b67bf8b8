package llmservingsim_test

import (
	"os"
	"testing"
	"time"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/profile"
)

// TestLintFixtures: nothing in the bundles is impossible.
func TestLintFixtures(t *testing.T) {
	cat, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for root, name := range map[string]string{"RTX4090": "rtx-4090", "RTXPRO6000": "rtx-pro-6000-server"} {
		t.Run(root, func(t *testing.T) {
			p := read(t, os.DirFS("testdata/"+root))
			var opts profile.LintOptions
			if opts.Device, _, err = cat.Device(name); err != nil {
				t.Fatal(err)
			}
			if opts.Model, err = cat.Model("Llama-3.1-8B"); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			findings := profile.Lint(p, opts)
			t.Logf("lint of %d points took %v", len(p.Points), time.Since(start))
			for _, f := range findings {
				t.Logf("%s %s %d: %s %q", f.Severity, f.Rule, f.Count, f.Message, f.Examples)
				if f.Severity == profile.SeverityError || f.Severity == profile.SeverityWarning {
					t.Errorf("%s %s", f.Severity, f.Rule)
				}
			}
		})
	}
}
