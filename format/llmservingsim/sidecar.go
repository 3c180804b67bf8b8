package llmservingsim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"path"
	"slices"

	"github.com/llmprof/llmprof/profile"
)

// digest identifies the text of a file, whether it is kept plain or gzip.
func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return spelled(sum[:])
}

// spelled is a digest as the profile holds it.
func spelled(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }

// sidecar reads the profile beside the files; nil where there is none, or
// where it is not of these files.
func (r *reader) sidecar() *profile.Profile {
	f, err := r.fsys.Open(sidecarFile)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	leftOut := func(text string, args ...any) *profile.Profile {
		r.warn(sidecarFile, "left out: "+text, args...)
		return nil
	}
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return leftOut("it is no file")
	}
	p, warnings, err := profile.Read(path.Join(r.name, sidecarFile), f)
	if err != nil {
		return leftOut("%w", err)
	}
	var want map[string]string
	if err := json.Unmarshal(p.Header.Metadata[digestKey], &want); err != nil {
		return leftOut("it does not say which files it belongs to")
	}
	names := slices.Collect(maps.Keys(want))
	for name := range r.texts {
		if _, ok := want[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		text, there := r.texts[name]
		switch _, listed := want[name]; {
		case !there:
			return leftOut("%s is no longer there", name)
		case !listed:
			return leftOut("%s was added after it was written", name)
		case digest(text) != want[name]:
			return leftOut("%s was changed after it was written", name)
		}
	}
	if len(warnings) > 0 {
		return leftOut("%w", warnings[0])
	}
	p.Header.Metadata = withoutDigests(p.Header.Metadata)
	return p
}

// withoutDigests is metadata as it was before a profile was put beside a
// bundle.
func withoutDigests(metadata map[string]json.RawMessage) map[string]json.RawMessage {
	metadata = maps.Clone(metadata)
	delete(metadata, digestKey)
	if len(metadata) == 0 {
		return nil
	}
	return metadata
}
