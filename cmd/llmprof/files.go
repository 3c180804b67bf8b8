package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/format/stepbench"
	"github.com/llmprof/llmprof/profile"
)

// openInput opens a file for reading; "-" is stdin.
func (a *app) openInput(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(a.stdin), nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, fileError("read", name, err)
	}
	if info.IsDir() {
		return nil, usage("", "read %s: it is a folder", name)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, fileError("read", name, err)
	}
	return file, nil
}

// fileError says why a file could not be used: a wrong name is wrong usage,
// all else is the outside's fault.
func fileError(verb, name string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	code := codeOutside
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		code = codeUsage
	}
	return &codedError{code, fmt.Errorf("%s %s: %w", verb, name, err), ""}
}

// writeFile writes a file as a whole or not at all: to a temporary name
// beside it, which then takes its place.
func writeFile(name string, write func(io.Writer) error) error {
	if name == "-" {
		return usage("", `"-" is not a file that can be written here`)
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return usage("", "write %s: it is a folder", name)
	}
	temporary, err := os.CreateTemp(filepath.Dir(name), ".llmprof-*")
	if err != nil {
		return fileError("write", name, err)
	}
	defer func() { _ = os.Remove(temporary.Name()) }() // gone after the rename
	out := bufio.NewWriter(temporary)
	err = errors.Join(write(out), out.Flush(), temporary.Chmod(0o644), temporary.Close())
	if err != nil {
		return fileError("write", name, err)
	}
	if err := os.Rename(temporary.Name(), name); err != nil {
		return fileError("write", name, err)
	}
	return nil
}

// readMeasurements reads files of any known kind, told apart by content, into
// one profile.
func (a *app) readMeasurements(cat *catalog.Catalog, names []string) (*profile.Profile, error) {
	var parts []*profile.Profile
	for _, name := range names {
		part, err := a.readMeasurement(cat, name)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return profile.Merge(parts...)
}

func (a *app) readMeasurement(cat *catalog.Catalog, name string) (*profile.Profile, error) {
	file, err := a.openInput(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // read only
	in := bufio.NewReaderSize(file, stepbench.HeadSize)
	head, err := in.Peek(stepbench.HeadSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fileError("read", name, err)
	}
	var p *profile.Profile
	var warnings []error
	switch stepbench.Detect(head) {
	case stepbench.Native:
		p, warnings, err = profile.Read(name, in)
	case stepbench.Benchmark, stepbench.Rows:
		p, warnings, err = stepbench.Read(name, in, stepbench.Options{Device: deviceNamer(cat)})
	default:
		// The reader says what is wrong with the text.
		p, warnings, err = stepbench.Read(name, in, stepbench.Options{Device: deviceNamer(cat)})
		if err != nil {
			err = usage("read here are llmprof profiles and benchmark files of the forward-time predictor", "%w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	a.log().Debug("read measurements", "file", name, "points", len(p.Points), "model", p.Header.Deploy.Model, "device", p.Header.Device.Reported)
	for _, w := range warnings {
		a.warn(w.Error())
	}
	return p, nil
}

// deviceNamer finds canonical device names for the readers of foreign files.
func deviceNamer(cat *catalog.Catalog) func(string) (string, bool) {
	return func(reported string) (string, bool) {
		device, _, err := cat.Device(reported)
		if err != nil {
			return "", false
		}
		return device.Name, true
	}
}

// known resolves the model and device that a profile names; each is nil where
// the catalog does not have it.
func known(cat *catalog.Catalog, p *profile.Profile) (*catalog.Model, *catalog.Device) {
	model, err := cat.Model(p.Header.Deploy.Model)
	if err != nil {
		model = nil
	}
	for _, name := range []string{p.Header.Device.Name, p.Header.Device.Reported, p.Header.Deploy.Device} {
		if strings.TrimSpace(name) == "" {
			continue
		}
		if device, _, err := cat.Device(name); err == nil {
			return model, device
		}
	}
	return model, nil
}
