package main

import (
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/format/vllmbench"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/report"
)

// benchExport is a file of another tool's format that a run is written to.
type benchExport struct{ format, file string }

// exports are the files of --export.
func (f *benchFlags) exports() ([]benchExport, error) {
	known := []string{formatVLLMServe}
	var all []benchExport
	for _, text := range f.export {
		format, file, found := strings.Cut(text, "=")
		switch {
		case !slices.Contains(known, format):
			return nil, usage("did you mean "+catalog.Nearest(format, known, 1)[0]+"=FILE?", "--export %s: unknown format %q: want FORMAT=FILE with one of %s", text, format, strings.Join(known, ", "))
		case !found || file == "" || file == "-":
			return nil, usage("for example --export vllm-serve=serve.json", "--export %s: want FORMAT=FILE", text)
		case slices.ContainsFunc(all, func(e benchExport) bool { return e.file == file }):
			return nil, usage("", "--export: %s is to be written twice", file)
		}
		all = append(all, benchExport{format, file})
	}
	return all, nil
}

// checkExports finds out before a run whether its files can be written after
// it.
func checkExports(all []benchExport) error {
	for _, e := range all {
		if _, err := os.Stat(filepath.Dir(e.file)); err != nil {
			return fileError("write", e.file, err)
		}
		if info, err := os.Stat(e.file); err == nil && info.IsDir() {
			return usage("", "--export %s: %s is a folder", e.format, e.file)
		}
	}
	return nil
}

// exportBench writes a run in other tools' formats.
func exportBench(f *benchFlags, all []benchExport, r *load.Result, d *report.BenchDocument) error {
	for _, e := range all {
		run := report.VLLMServe(r, d)
		f.asked(run)
		if err := writeFile(e.file, func(w io.Writer) error { return vllmbench.WriteServe(w, run) }); err != nil {
			return err
		}
		d.Files = append(d.Files, e.file)
	}
	return nil
}

// asked notes the load that was asked for, in vLLM's keys; a recorded one has
// no rate.
func (f *benchFlags) asked(s *vllmbench.Serve) {
	data, err := f.data()
	if f.schedule != "" || err != nil || data.timed {
		return
	}
	if f.concurrency > 0 {
		s.MaxConcurrency = new(int64(f.concurrency))
	}
	s.Burstiness = &f.burstiness
	if f.ramped() {
		s.Extra = map[string]json.RawMessage{}
		for key, value := range map[string]any{"strategy": f.ramp().Shape, "start_rps": f.rampFrom, "end_rps": f.rampTo} {
			if text, err := json.Marshal(value); err == nil {
				s.Extra["ramp_up_"+key] = text
			}
		}
		return
	}
	rate, err := parseRate(f.rate)
	if s.Unlimited = math.IsInf(rate, 1); err == nil && !s.Unlimited {
		s.RequestRate = &rate
	}
}
