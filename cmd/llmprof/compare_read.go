package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/stepbench"
	"github.com/llmprof/llmprof/report"
)

// benchFile is the document in a folder of a run of bench.
const benchFile = "run.json"

// readServed reads a served load: our own document, that of a folder, or what
// another load tool wrote. "FILE#2" is the second run of a file that holds
// several.
func (a *app) readServed(name string) (*report.ServedRun, error) {
	name, which, err := runOfFile(name)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		name = filepath.Join(name, benchFile)
	}
	file, err := a.openInput(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // read only
	shown := sourceName(name)
	in := bufio.NewReaderSize(file, stepbench.HeadSize)
	head, err := in.Peek(stepbench.HeadSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fileError("read", name, err)
	}
	if ofLoadTool(head) || stepbench.Detect(head) == stepbench.Native || format.AmbiguousITL(format.Head(head)) {
		return a.readReported(shown, in, which)
	}
	if which > 1 {
		return nil, usage("", "read %s: it holds one run, and #%d was asked for", shown, which)
	}
	run, warnings, err := report.ReadServed(shown, in)
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		a.warn(w.Error())
	}
	return run, nil
}

// runOfFile splits "FILE#2"; the run is 0 where none is named. A file of that
// very name comes first.
func runOfFile(name string) (file string, run int, err error) {
	at := strings.LastIndexByte(name, '#')
	if at < 1 {
		return name, 0, nil
	}
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		return name, 0, nil
	}
	run, err = strconv.Atoi(name[at+1:])
	if err != nil || run < 1 {
		return "", 0, usage("the runs of a file are counted from 1, as in sweep.json#2", "%s: %q is no run of a file", name, name[at+1:])
	}
	return name[:at], run, nil
}

// readReported reads a run that another load tool measured, or the requests of a
// profile. which counts from 1; 0 wants a file of one run.
func (a *app) readReported(shown string, in *bufio.Reader, which int) (*report.ServedRun, error) {
	p, warnings, kind, err := readOpened(shown, in, readOptions{})
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		a.warn(w.Error())
	}
	runs, err := format.KeptServings(&p.Header)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", shown, err)
	}
	if len(runs) == 0 {
		s := format.Summarize(p.Points)
		if s.Completed == nil {
			return nil, &report.NotServedError{File: shown, Err: errors.New("it is a " + kind + " without requests")}
		}
		s.Tool, s.Model = kind, p.Header.Deploy.Model
		runs = []format.Serving{s}
	}
	switch {
	case which > len(runs):
		return nil, usage(runsOf(shown, runs), "read %s: it holds %d runs, and #%d was asked for", shown, len(runs), which)
	case which > 0:
		return report.ReportedRun(fmt.Sprintf("%s#%d", shown, which), &runs[which-1]), nil
	case len(runs) > 1:
		return nil, usage(runsOf(shown, runs), "read %s: it holds %d runs, and one is compared", shown, len(runs))
	}
	return report.ReportedRun(shown, &runs[0]), nil
}

// runsOf lists the runs of a file, to choose from.
func runsOf(name string, runs []format.Serving) string {
	var names []string
	for i := range runs {
		text := fmt.Sprintf("%s#%d", name, i+1)
		if spec := report.ReportedRun("", &runs[i]).Workload.Spec; spec != "" {
			text += " (" + spec + ")"
		}
		names = append(names, text)
	}
	return "name one of them: " + strings.Join(names, ", ")
}
