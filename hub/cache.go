package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// cacheSchema and cacheVersion stand in every cache entry.
const (
	cacheSchema  = "llmprof/hub-cache"
	cacheVersion = "1.0"
)

// entry is one file of a repository as the hub last sent it, or the fact that
// the repository does not have it.
type entry struct {
	Schema   string `json:"schema"`
	Version  string `json:"version"`
	Endpoint string `json:"endpoint"`
	ID       string `json:"id"`
	Revision string `json:"revision"`
	File     string `json:"file"`
	ETag     string `json:"etag"`
	Commit   string `json:"commit"`
	Absent   bool   `json:"absent,omitempty"`
	SHA256   string `json:"sha256"`
	Body     []byte `json:"body"`
}

// maxEntryBytes is the longest cache entry: a body in base64 and its head.
const maxEntryBytes = 2*MaxConfigBytes + 1<<16

func (c *Client) entryPath(repo repository, file string) string {
	key := sha256.Sum256([]byte(strings.Join([]string{c.shownEndpoint(), repo.id, repo.revision, file}, "\n")))
	return filepath.Join(c.CacheDir, "hub", hex.EncodeToString(key[:16])+".json")
}

// cached reads an entry. nil without an error means that there is none; a
// damaged one is an error.
func (c *Client) cached(repo repository, file string) (*entry, error) {
	if c.CacheDir == "" {
		return nil, nil
	}
	path := c.entryPath(repo, file)
	text, err := readText(path, maxEntryBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseEntry(path, text, repo, file)
}

// parseEntry reads the text of the entry at path, which must be that of the
// given file: a cache may hold anything that somebody put there.
func parseEntry(path string, text []byte, repo repository, file string) (*entry, error) {
	var e entry
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, &FileError{File: path, Problem: "the cache entry is damaged", Err: err}
	}
	if e.Schema != cacheSchema || !strings.HasPrefix(e.Version, "1.") {
		return nil, &FileError{File: path, Problem: fmt.Sprintf("is %s %s: want %s 1", shorten(e.Schema), shorten(e.Version), cacheSchema)}
	}
	if e.ID != repo.id || e.Revision != repo.revision || e.File != file || e.SHA256 != digest(e.Body) || len(e.Body) > MaxConfigBytes {
		return nil, &FileError{File: path, Problem: "the cache entry is damaged: its content does not match its checksum"}
	}
	if !validETag(e.ETag) || !validCommit(e.Commit) {
		return nil, &FileError{File: path, Problem: "the cache entry is damaged: its revision is none"}
	}
	return &e, nil
}

// validETag reports whether a tag can be sent back to the hub.
func validETag(tag string) bool {
	return len(tag) <= 256 && !strings.ContainsFunc(tag, func(r rune) bool { return r < ' ' || r > '~' })
}

// validCommit reports whether a text is a commit, or none.
func validCommit(commit string) bool {
	return len(commit) <= 64 && strings.Trim(commit, "0123456789abcdef") == ""
}

// store writes an entry so that a reader sees the old one or the new one and
// never a part. A body that is too long for the cache is not kept.
func (c *Client) store(e *entry) error {
	if c.CacheDir == "" || len(e.Body) > MaxConfigBytes {
		return nil
	}
	e.Schema, e.Version, e.Endpoint, e.SHA256 = cacheSchema, cacheVersion, c.shownEndpoint(), digest(e.Body)
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write cache entry of %s: %w", e.ID, err)
	}
	path := c.entryPath(repository{id: e.ID, revision: e.Revision}, e.File)
	if err := writeAtomically(path, text); err != nil {
		return fmt.Errorf("write cache entry of %s: %w", e.ID, err)
	}
	return nil
}

func writeAtomically(path string, text []byte) (err error) {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(folder, ".entry-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	_, written := file.Write(text)
	if closed := errors.Join(written, file.Close()); closed != nil {
		return closed
	}
	return os.Rename(file.Name(), path)
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
