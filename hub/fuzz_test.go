package hub

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// seed adds the files that match the patterns.
func seed(f *testing.F, patterns ...string) {
	f.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
}

// FuzzConfig: whatever is accepted is a valid model, and a fault is one line
// that names the file.
func FuzzConfig(f *testing.F) {
	seed(f, "testdata/configs/*.json", "testdata/broken/*.json")
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, name := range []string{"config.json", "a.quant.json", "a.index.json"} {
			if err := parseAny(name, text); err != nil && !oneLineAbout(err, name) {
				t.Errorf("error %q", err)
			}
		}
		m, _, err := ParseConfig("config.json", text)
		if err != nil {
			return
		}
		if err := m.Validate(); err != nil {
			t.Errorf("accepted, but %v", err)
		}
		if p := m.Params(); p.Total <= 0 || p.Active <= 0 || p.Active > p.Total {
			t.Errorf("accepted with %d parameters, %d active", p.Total, p.Active)
		}
	})
}

func oneLineAbout(err error, name string) bool {
	text := err.Error()
	return strings.HasPrefix(text, name+":") && !strings.ContainsAny(text, "\n\r")
}

// FuzzSafetensorsHeader: what is accepted sums up to the file.
func FuzzSafetensorsHeader(f *testing.F) {
	seed(f, "testdata/broken/*.safetensors")
	f.Fuzz(func(t *testing.T, file []byte) {
		header, err := ParseSafetensors("m.safetensors", bytes.NewReader(file), int64(len(file)))
		if err != nil {
			if !oneLineAbout(err, "m.safetensors") {
				t.Errorf("error %q", err)
			}
			return
		}
		if header.Bytes < 0 || header.Bytes > int64(len(file)) {
			t.Errorf("%d bytes of tensors in a file of %d", header.Bytes, len(file))
		}
	})
}

// FuzzCacheEntry: whatever lies in the cache, what is accepted belongs to the
// file asked for, is as it was stored, and can be sent back to the hub; the
// rest is an error of one line that names the entry.
func FuzzCacheEntry(f *testing.F) {
	repo := repository{id: "org/name", revision: "main"}
	c := &Client{CacheDir: f.TempDir()}
	for _, e := range []*entry{
		{ETag: `"e1"`, Commit: "0123abcd", Body: []byte(`{"model_type": "llama"}`)},
		{Absent: true, Commit: "0123abcd"},
		{ETag: "a\r\nb"},
		{Commit: "../x"},
	} {
		e.ID, e.Revision, e.File = repo.id, repo.revision, configFile
		if err := c.store(e); err != nil {
			f.Fatal(err)
		}
		text, err := os.ReadFile(c.entryPath(repo, configFile))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add(text[:len(text)/2])
	}
	f.Add([]byte("null"))
	f.Add([]byte(`{"schema": "llmprof/hub-cache", "version": "2.0"}`))
	f.Add([]byte(`{"body": 7}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := parseEntry("e.json", text, repo, configFile)
		if err != nil {
			if !oneLineAbout(err, "e.json") {
				t.Errorf("error %q", err)
			}
			return
		}
		if e.ID != repo.id || e.Revision != repo.revision || e.File != configFile || e.SHA256 != digest(e.Body) || len(e.Body) > len(text) {
			t.Errorf("accepted %+v", e)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/"+e.Commit, http.NoBody)
		if err != nil || strings.ContainsAny(e.ETag, "\r\n\x00") || strings.Contains(request.URL.Path, "..") {
			t.Errorf("accepted the tag %q and the commit %q: %v", e.ETag, e.Commit, err)
		}
	})
}

// FuzzGGUF: what is accepted is a valid model.
func FuzzGGUF(f *testing.F) {
	seed(f, "testdata/broken/*.gguf", "testdata/gguf/*.gguf")
	f.Fuzz(func(t *testing.T, file []byte) {
		m, facts, _, err := ParseGGUF("m.gguf", bytes.NewReader(file))
		if err != nil {
			if !oneLineAbout(err, "m.gguf") {
				t.Errorf("error %q", err)
			}
			return
		}
		if err := m.Validate(); err != nil || facts.CheckpointBytes < 0 {
			t.Errorf("accepted with %+v, but %v", facts, err)
		}
	})
}
