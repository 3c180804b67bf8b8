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

// sourceName is the name of an input for people.
func sourceName(name string) string {
	if name == "-" {
		return "stdin"
	}
	return name
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
// beside it, which then takes its place. A symbolic link is followed; a device
// or a pipe is written to as it is.
func writeFile(name string, write func(io.Writer) error) error {
	if name == "-" {
		return usage("", `"-" is not a file that can be written here`)
	}
	target := name
	if resolved, err := filepath.EvalSymlinks(name); err == nil {
		target = resolved
	}
	switch info, err := os.Stat(target); {
	case err != nil:
	case info.IsDir():
		return usage("", "write %s: it is a folder", name)
	case !info.Mode().IsRegular():
		return writeThrough(name, target, write)
	}
	temporary, err := os.CreateTemp(filepath.Dir(target), unfinished+strings.Replace(ownerName(), ":", "-", 1)+"-*")
	if err != nil {
		return fileError("write", name, err)
	}
	defer func() { _ = os.Remove(temporary.Name()) }() // gone after the rename
	out := bufio.NewWriter(temporary)
	err = errors.Join(write(out), out.Flush(), temporary.Chmod(0o644), temporary.Close())
	if err != nil {
		return fileError("write", name, err)
	}
	if err := os.Rename(temporary.Name(), target); err != nil {
		return fileError("write", name, err)
	}
	return nil
}

// unfinished begins the names of files that are being written; whose they are
// follows.
const unfinished = ".llmprof-"

// sweep removes from a folder what processes of this machine were writing when
// they were killed.
func sweep(folder string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return // those who write there will say why
	}
	for _, e := range entries {
		name, ours := strings.CutPrefix(e.Name(), unfinished)
		parts := strings.Split(name, "-")
		if last := len(parts) - 2; ours && last > 0 && ownerDied(strings.Join(parts[:last], "-")+":"+parts[last]) {
			_ = os.Remove(filepath.Join(folder, e.Name())) // what stays harms nobody
		}
	}
}

// writeThrough writes to a device or a pipe.
func writeThrough(name, target string, write func(io.Writer) error) error {
	file, err := os.OpenFile(target, os.O_WRONLY, 0)
	if err != nil {
		return fileError("write", name, err)
	}
	out := bufio.NewWriter(file)
	if err := errors.Join(write(out), out.Flush(), file.Close()); err != nil {
		return fileError("write", name, err)
	}
	return nil
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
