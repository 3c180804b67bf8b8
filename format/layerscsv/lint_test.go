package layerscsv_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/profile"
)

// TestLintFixtures: the old tables hold CPU time and are refused, whether
// scaled or not; the others pass.
func TestLintFixtures(t *testing.T) {
	cat, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range fixtures(t) {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			p, _ := read(t, path)
			findings := profile.Lint(p, profile.LintOptions{})
			flat := 0
			for _, f := range findings {
				switch {
				case f.Rule == profile.RuleCPUTime && f.Severity == profile.SeverityError:
					flat = f.Count
					t.Log(f.Message, f.Examples)
				case f.Severity == profile.SeverityError:
					t.Errorf("%s: %s %v", f.Rule, f.Message, f.Examples)
				}
			}
			want := 0
			if strings.Contains(name, "old_cpu_time") || strings.Contains(name, "v0.1.0") {
				want = len(p.Points)
			}
			if flat != want {
				t.Errorf("%d points of CPU time, want %d", flat, want)
			}
			if !strings.Contains(name, "3090") || !strings.Contains(name, "Llama") || want > 0 {
				return
			}
			// With device and model known, no row is faster than the card.
			var opts profile.LintOptions
			if opts.Device, _, err = cat.Device("rtx-3090"); err != nil {
				t.Fatal(err)
			}
			if opts.Model, err = cat.Model("Llama-3.1-8B"); err != nil {
				t.Fatal(err)
			}
			for _, f := range profile.Lint(p, opts) {
				t.Logf("%s %s %d: %s %q", f.Severity, f.Rule, f.Count, f.Message, f.Examples)
				if f.Severity == profile.SeverityError {
					t.Errorf("%s", f.Rule)
				}
			}
		})
	}
}

// TestLintCPUTimeAgainstDevice: a prefill of 2048 tokens in the time of a
// launch is beyond any card.
func TestLintCPUTimeAgainstDevice(t *testing.T) {
	cat, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	device, _, err := cat.Device("rtx-3090")
	if err != nil {
		t.Fatal(err)
	}
	model, err := cat.Model("Llama-3.1-8B")
	if err != nil {
		t.Fatal(err)
	}
	p, _ := read(t, "testdata/RTX3090_old_cpu_time_raw_sample.csv.gz")
	count := map[profile.Rule]int{}
	for _, f := range profile.Lint(p, profile.LintOptions{Device: device, Model: model}) {
		if f.Severity == profile.SeverityError {
			count[f.Rule] += f.Count
		}
	}
	if count[profile.RuleComputePeak] == 0 || count[profile.RuleMemoryPeak] == 0 || count[profile.RuleCPUTime] != 240 {
		t.Errorf("errors %v", count)
	}
}

func TestLintSeedFile(t *testing.T) {
	p, _ := read(t, seedFile)
	start := time.Now()
	findings := profile.Lint(p, profile.LintOptions{})
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("lint of %d points took %v", len(p.Points), took)
	} else {
		t.Logf("lint of %d points took %v", len(p.Points), took)
	}
	found := false
	for _, f := range findings {
		if f.Rule == profile.RuleRepeated {
			found = f.Severity == profile.SeverityNote && f.Count == 30
		}
	}
	if !found {
		t.Errorf("the rows of (1,0) that stand twice are not noted: %+v", findings)
	}
}
