// Package hub obtains the facts about a model that everything else is
// computed from.
//
// A model is named by a reference, which [Client.Model] resolves in this
// order:
//
//  1. something on this machine: a folder with config.json, a config.json, or
//     a .gguf file ("./Qwen3-8B", "/models/x/config.json", "q4.gguf");
//  2. an entry of the catalog ("Qwen3-14B", "Qwen/Qwen3-14B");
//  3. a repository of the Hugging Face hub ("org/name", "org/name@revision"):
//     first from the user's existing cache, then from llmprof's own, then
//     from the network.
//
// Only descriptions are read, never weights: config.json by [ParseConfig],
// hf_quant_config.json by [ParseQuantConfig], the index of a checkpoint by
// [ParseIndex], the headers of safetensors files by [ParseSafetensors] and of
// GGUF files by [ParseGGUF]. What a header or an index says about the size is
// held against the architecture; where they differ a warning names both. All of them treat
// their input as hostile: sizes are bounded, errors name the file and the
// place, and an architecture that is not known is refused by an
// [*UnsupportedError] rather than guessed.
//
// [ClientFromEnv] honours HF_TOKEN, HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE and
// HF_ENDPOINT as the hub's own tools do, and the token that "hf auth login"
// keeps. The token is sent to the endpoint and to nobody else, is never
// stored, and stands in no error. What goes wrong on
// the way to the hub is an [*AccessError] with a [Reason] and a hint.
package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/llmprof/llmprof/catalog"
)

// DefaultEndpoint is the address of the Hugging Face hub.
const DefaultEndpoint = "https://huggingface.co"

// DefaultTimeout is how long one request may take where [Client.Timeout] is
// 0.
const DefaultTimeout = 20 * time.Second

// ModelFinder finds a model by name; [*catalog.Catalog] is one. An unknown
// name gives an error.
type ModelFinder interface {
	Model(name string) (*catalog.Model, error)
}

// Client resolves model references. The zero value asks the public hub
// without a token and caches nothing. A Client may be used by several
// goroutines; its fields must not be changed meanwhile.
type Client struct {
	// Endpoint is the hub's address; "" means [DefaultEndpoint].
	Endpoint string
	// Token is the hub credential; "" for none.
	Token string
	// CacheDir is the folder of llmprof's own cache; "" for none.
	CacheDir string
	// HubCacheDir is the folder of the cache that the hub's own tools keep
	// ("~/.cache/huggingface/hub"); it is read, never written. "" for none.
	HubCacheDir string
	// Home replaces "~" in a path.
	Home string
	// Offline forbids the network.
	Offline bool
	// SkipCheckpoint leaves out the comparison with the size of a hub
	// repository's checkpoint, which costs one to three small requests.
	SkipCheckpoint bool
	// Timeout bounds one request; 0 means [DefaultTimeout].
	Timeout time.Duration
	// HTTP sends the requests; nil means a client of its own. Redirects are
	// followed by this package whatever the client's setting.
	HTTP *http.Client
	// Catalog is asked for names and ids before the hub; nil for none.
	Catalog ModelFinder
}

// Resolved is a model and where its facts come from.
type Resolved struct {
	Model *catalog.Model
	// Origin says where the facts come from: "catalog", "hub: org/name@main",
	// "folder /models/x", "file config.json", "gguf x.gguf".
	Origin string
	// Revision is the commit of the hub repository; "" where it is not known.
	Revision string
	// Facts are what the checkpoint's headers say; nil where none was read.
	Facts *Facts
	// Warnings say what was taken for granted or does not fit together.
	Warnings []string
}

// ClientFromEnv returns a client for the environment that getenv reads, of a
// user whose home folder is home: HF_TOKEN (older HUGGING_FACE_HUB_TOKEN),
// HF_HOME, HF_HUB_CACHE (older HUGGINGFACE_HUB_CACHE), HF_HUB_OFFLINE,
// HF_ENDPOINT, XDG_CACHE_HOME and, for llmprof's own cache, LLMPROF_CACHE_DIR.
// Where the environment has no token, the one that "hf auth login" stored is
// read from HF_TOKEN_PATH, else from the file "token" in HF_HOME.
// HF_HUB_DISABLE_IMPLICIT_TOKEN leaves that file alone. The catalog is left to
// the caller.
func ClientFromEnv(getenv func(string) string, home string) *Client {
	first := func(names ...string) string {
		for _, name := range names {
			if value := strings.TrimSpace(getenv(name)); value != "" {
				return value
			}
		}
		return ""
	}
	c := &Client{Endpoint: first("HF_ENDPOINT"), Token: first("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"), Home: home}
	isSet := func(name string) bool {
		return slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(first(name)))
	}
	c.Offline = isSet("HF_HUB_OFFLINE")
	expand := func(path string) string {
		if rest, ok := strings.CutPrefix(path, "~"); ok && home != "" && (rest == "" || rest[0] == '/') {
			return filepath.Join(home, rest)
		}
		return path
	}
	caches := expand(first("XDG_CACHE_HOME"))
	if caches == "" && home != "" {
		caches = filepath.Join(home, ".cache")
	}
	hubHome := expand(first("HF_HOME"))
	if caches != "" {
		c.CacheDir = filepath.Join(caches, "llmprof")
		if hubHome == "" {
			hubHome = filepath.Join(caches, "huggingface")
		}
	}
	tokenFile := expand(first("HF_TOKEN_PATH"))
	if hubHome != "" {
		c.HubCacheDir = filepath.Join(hubHome, "hub")
		if tokenFile == "" {
			tokenFile = filepath.Join(hubHome, "token")
		}
	}
	if dir := first("LLMPROF_CACHE_DIR"); dir != "" {
		c.CacheDir = expand(dir)
	}
	if dir := first("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"); dir != "" {
		c.HubCacheDir = expand(dir)
	}
	if c.Token == "" && tokenFile != "" && !isSet("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
		c.Token = storedToken(tokenFile)
	}
	return c
}

// storedToken reads the token that the hub's own tools store. A file that is
// not there, or holds something else than one word of visible ASCII, gives
// none: public repositories need no token.
func storedToken(path string) string {
	text, err := readText(path, 4<<10)
	if err != nil {
		return ""
	}
	token := strings.TrimSpace(string(text))
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	return token
}

// Model resolves a reference: a path, a catalog name or a hub id, in that
// order. Errors are *RefError, *FileError, *UnsupportedError, *AccessError,
// the catalog's own for a name without a slash, and those of ctx.
func (c *Client) Model(ctx context.Context, ref string) (*Resolved, error) {
	ref = strings.TrimSpace(ref)
	if ref == "" {
		return nil, &RefError{Ref: ref, Problem: "is empty"}
	}
	if strings.ContainsAny(ref, "\x00\r\n") {
		return nil, &RefError{Ref: ref, Problem: "has control characters"}
	}
	if resolved, found, err := c.local(ref); found {
		return resolved, err
	}
	id, revision, pinned := strings.Cut(ref, "@")
	if c.Catalog != nil && !pinned {
		m, err := c.Catalog.Model(ref)
		if err == nil {
			return &Resolved{Model: m.Clone(), Origin: "catalog"}, nil
		}
		if !strings.Contains(ref, "/") {
			return nil, err
		}
	}
	if !pinned {
		revision = "main"
	}
	if err := checkRepo(ref, id, revision); err != nil {
		return nil, err
	}
	repo := repository{id: id, revision: revision}
	for _, source := range []func(context.Context, repository) (*found, error){c.fromHubCache, c.fromHub} {
		files, err := source(ctx, repo)
		if err != nil {
			return nil, err
		}
		if files != nil {
			return files.resolve(repo)
		}
	}
	return nil, &AccessError{Reason: Offline, ID: id, Revision: revision, File: configFile, Endpoint: c.shownEndpoint(), Detail: c.searched()}
}

// repository names one revision of a hub repository.
type repository struct{ id, revision string }

const (
	configFile  = "config.json"
	quantFile   = "hf_quant_config.json"
	indexFile   = "model.safetensors.index.json"
	weightsFile = "model.safetensors"
)

// found are the files of a repository that describe the model.
type found struct {
	config []byte
	quant  []byte // nil where there is none
	// index is the index of a checkpoint in several files, header the header
	// of one in a single file; nil where there is none or it was not read.
	index, header []byte
	// commit is the revision's commit; "" where it is not known.
	commit   string
	origin   string
	warnings []string
	// stale says that the hub could not be asked whether the cache is current.
	stale bool
}

// resolve turns the files into a model.
func (f *found) resolve(repo repository) (*Resolved, error) {
	m, warnings, err := ParseConfig(repo.id+"@"+repo.revision+"/"+configFile, f.config)
	if err != nil {
		return nil, err
	}
	warnings = append(f.warnings, warnings...)
	if m.Quantization == "" && f.quant != nil {
		format, more, err := ParseQuantConfig(repo.id+"@"+repo.revision+"/"+quantFile, f.quant)
		if err != nil {
			return nil, err
		}
		m.Quantization = format
		warnings = append(warnings, more...)
	}
	m.HubID = repo.id
	_, m.Name, _ = strings.Cut(repo.id, "/")
	m.Source = f.origin
	facts, more := f.compare(repo, m)
	return &Resolved{Model: m, Origin: f.origin, Revision: f.commit, Facts: facts, Warnings: append(warnings, more...)}, nil
}

// checkRepo refuses what cannot be a hub id before it becomes part of a path
// or an address.
func checkRepo(ref, id, revision string) error {
	name := regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,95}$`)
	org, repo, slash := strings.Cut(id, "/")
	switch {
	case !slash:
		return &RefError{Ref: ref, Problem: "is no path that exists, no catalog name and no hub id"}
	case !name.MatchString(org) || !name.MatchString(repo) || strings.Contains(id, "..") || strings.Contains(id, "--"):
		return &RefError{Ref: ref, Problem: "is no path that exists and no valid hub id (org/name)"}
	case !regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._/-]{0,127}$`).MatchString(revision) || strings.Contains(revision, "..") || strings.Contains(revision, "//"):
		return &RefError{Ref: ref, Problem: fmt.Sprintf("the revision %q is not valid", shorten(revision))}
	}
	return nil
}

// searched says where the files were looked for.
func (c *Client) searched() string {
	var places []string
	for _, dir := range []string{c.HubCacheDir, c.CacheDir} {
		if dir != "" {
			places = append(places, dir)
		}
	}
	if len(places) == 0 {
		return ""
	}
	return "searched " + strings.Join(places, ", ")
}

// fromHubCache reads the cache that the hub's own tools keep:
// models--org--name/refs/<revision> names the commit, whose files lie in
// snapshots/<commit>. nil where the model is not there.
func (c *Client) fromHubCache(_ context.Context, repo repository) (*found, error) {
	if c.HubCacheDir == "" {
		return nil, nil
	}
	base := filepath.Join(c.HubCacheDir, "models--"+strings.ReplaceAll(repo.id, "/", "--"))
	commit := repo.revision
	if text, err := readText(filepath.Join(base, "refs", filepath.FromSlash(repo.revision)), 1<<10); err == nil {
		commit = strings.TrimSpace(string(text))
	}
	if !regexp.MustCompile(`^[0-9a-f]{7,64}$`).MatchString(commit) {
		return nil, nil
	}
	snapshot := filepath.Join(base, "snapshots", commit)
	config, err := readText(filepath.Join(snapshot, configFile), MaxConfigBytes)
	if err != nil {
		if _, broken := errors.AsType[*FileError](err); broken {
			return nil, err
		}
		return nil, nil // a snapshot without the config: only other files were fetched
	}
	files := &found{config: config, commit: commit, origin: fmt.Sprintf("hub: %s@%s (Hugging Face cache)", repo.id, repo.revision)}
	if quant, err := readText(filepath.Join(snapshot, quantFile), MaxConfigBytes); err == nil {
		files.quant = quant
	}
	if index, err := readText(filepath.Join(snapshot, indexFile), maxIndexBytes); err == nil && !c.SkipCheckpoint {
		files.index = index
	}
	return files, nil
}
