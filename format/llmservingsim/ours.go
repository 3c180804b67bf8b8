package llmservingsim

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/llmprof/llmprof/profile"
)

// Ours reports whether a folder is a bundle that [Write] wrote from a profile
// and that nobody touched since: the profile beside the files can be read, all
// digests hold, and nothing else lies in the folder. Such a folder can be
// written again without a loss. An empty folder is not one, nor a bundle
// without the profile, as one that was written byte for byte.
func Ours(fsys fs.FS) (bool, error) {
	digests, err := digestsOf(fsys)
	if err != nil || digests == nil {
		return false, err
	}
	// The folders that hold the files.
	folders := map[string]bool{".": true}
	for name := range digests {
		if !belongs(name) {
			return false, nil
		}
		folders[path.Dir(name)] = true
	}
	ours, entries := true, 0
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		entries++
		if entries > maxEntries {
			ours = false
			return fs.SkipAll
		}
		want, listed := digests[name]
		switch {
		case d.IsDir() && folders[name], name == sidecarFile && d.Type().IsRegular():
			return nil
		case !listed || !d.Type().IsRegular():
			ours = false
			return fs.SkipAll
		}
		got, err := digestFile(fsys, name)
		if err != nil {
			return err
		}
		if got != want {
			ours = false
			return fs.SkipAll
		}
		delete(digests, name)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("look for a bundle of llmprof: %w", err)
	}
	return ours && len(digests) == 0, nil
}

// digestsOf reads the digests of the profile beside a bundle; nil where there
// is no such profile, or it is damaged.
func digestsOf(fsys fs.FS) (map[string]string, error) {
	f, err := fsys.Open(sidecarFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for a bundle of llmprof: %w", err)
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	// All of it is read: a profile that was cut off is none that can be
	// written again.
	p, warnings, err := profile.Read(sidecarFile, f)
	if err != nil || len(warnings) > 0 {
		return nil, nil
	}
	var digests map[string]string
	if err := json.Unmarshal(p.Header.Metadata[digestKey], &digests); err != nil {
		return nil, nil
	}
	return digests, nil
}

func digestFile(fsys fs.FS, name string) (string, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return spelled(sum.Sum(nil)), nil
}
