package hub

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmprof/llmprof/catalog"
)

const (
	token  = "hf_secretTokenOfTheTest"
	commit = "0123456789abcdef0123456789abcdef01234567"
)

// fakeHub answers like the hub and remembers what it was asked.
type fakeHub struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
}

func newFakeHub(t *testing.T, answer http.HandlerFunc) *fakeHub {
	t.Helper()
	hub := &fakeHub{}
	hub.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hub.mu.Lock()
		hub.requests = append(hub.requests, r.Clone(context.Background()))
		hub.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(hub.Close)
	return hub
}

// asked lists what was asked for, as "file" or "file etag".
func (h *fakeHub) asked() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var files []string
	for _, r := range h.requests {
		files = append(files, strings.TrimSpace(filepath.Base(r.URL.Path)+" "+r.Header.Get("If-None-Match")))
	}
	h.requests = nil
	return files
}

// serve answers with a config.json and an ETag, and no other file.
func serve(config []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Repo-Commit", commit)
		if !strings.HasSuffix(r.URL.Path, "/resolve/main/config.json") {
			w.Header().Set("X-Error-Code", "EntryNotFound")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", `"e1"`)
		if r.Header.Get("If-None-Match") == `"e1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(config)
	}
}

func client(t *testing.T, hub *fakeHub) *Client {
	t.Helper()
	return &Client{Endpoint: hub.URL, Token: token, CacheDir: t.TempDir(), Timeout: 5 * time.Minute}
}

func TestHubModel(t *testing.T) {
	hub := newFakeHub(t, serve(readConfig(t, "qwen3")))
	c := client(t, hub)
	for _, try := range []struct {
		why  string
		want []string
	}{
		{"first the files are fetched", []string{"config.json", "hf_quant_config.json", "model.safetensors.index.json", "model.safetensors"}},
		{"then the config is revalidated, and the commit tells that the others are still not there", []string{`config.json "e1"`}},
	} {
		resolved, err := c.Model(t.Context(), "Qwen/Qwen3-8B")
		if err != nil {
			t.Fatalf("%s: %v", try.why, err)
		}
		if got := hub.asked(); fmt.Sprint(got) != fmt.Sprint(try.want) {
			t.Errorf("%s: asked for %q", try.why, got)
		}
		m := resolved.Model
		if m.Name != "Qwen3-8B" || m.HubID != "Qwen/Qwen3-8B" || m.Params().Total != 8_190_735_360 {
			t.Errorf("%s: got %s, %s, %d", try.why, m.Name, m.HubID, m.Params().Total)
		}
		if resolved.Revision != commit || resolved.Origin != "hub: Qwen/Qwen3-8B@main" || len(resolved.Warnings) > 0 {
			t.Errorf("%s: got %+v", try.why, resolved)
		}
	}
	c.Offline = true
	if resolved, err := c.Model(t.Context(), "Qwen/Qwen3-8B"); err != nil || resolved.Model.NumLayers != 36 || len(hub.asked()) > 0 {
		t.Errorf("offline: %+v, %v", resolved, err)
	}
}

func TestHubQuantConfig(t *testing.T) {
	plain := serve(readConfig(t, "qwen3"))
	hub := newFakeHub(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, quantFile) {
			fmt.Fprint(w, `{"quantization": {"quant_algo": "FP8"}}`)
			return
		}
		plain(w, r)
	})
	resolved, err := client(t, hub).Model(t.Context(), "nvidia/Qwen3-8B-FP8")
	if err != nil || resolved.Model.Quantization != "fp8" {
		t.Errorf("got %+v, %v", resolved, err)
	}
}

func TestHubRevision(t *testing.T) {
	config := readConfig(t, "qwen3")
	hub := newFakeHub(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.EscapedPath() != "/Qwen/Qwen3-8B/resolve/refs%2Fpr%2F1/config.json" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(config)
	})
	c := client(t, hub)
	c.Catalog = finder{"Qwen/Qwen3-8B": &catalog.Model{Name: "other"}}
	resolved, err := c.Model(t.Context(), "Qwen/Qwen3-8B@refs/pr/1")
	if err != nil || resolved.Model.NumLayers != 36 || resolved.Origin != "hub: Qwen/Qwen3-8B@refs/pr/1" {
		t.Errorf("got %+v, %v", resolved, err)
	}
}

func TestHubRefusals(t *testing.T) {
	tests := []struct {
		why    string
		status int
		code   string
		token  string
		reason Reason
		hint   string
	}{
		{"a gated model without a token", 401, "GatedRepo", "", Gated, "set HF_TOKEN"},
		{"a gated model whose licence this account has not accepted", 403, "GatedRepo", token, Gated, "with the account of HF_TOKEN"},
		{"a repository that does not exist: the hub says 401 to strangers", 401, "RepoNotFound", "", MissingRepo, "spelling"},
		{"a repository that does not exist", 404, "RepoNotFound", token, MissingRepo, "spelling"},
		{"a branch that does not exist", 404, "RevisionNotFound", token, MissingRevision, "@main"},
		{"a repository of GGUF files", 404, "EntryNotFound", token, MissingFile, ".gguf"},
		{"a token that is not valid", 401, "", token, Unauthorized, "HF_TOKEN"},
		{"too many requests", 429, "", token, RateLimited, "wait"},
		{"a hub in trouble", 503, "", token, Unreachable, "HF_ENDPOINT"},
		{"something that is no hub", 418, "", token, BadAnswer, "HF_ENDPOINT"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			hub := newFakeHub(t, func(w http.ResponseWriter, _ *http.Request) {
				if test.code != "" {
					w.Header().Set("X-Error-Code", test.code)
				}
				w.WriteHeader(test.status)
				fmt.Fprint(w, "the token was ", token)
			})
			c := client(t, hub)
			c.Token = test.token
			_, err := c.Model(t.Context(), "org/name")
			refused, ok := errors.AsType[*AccessError](err)
			if !ok || refused.Reason != test.reason {
				t.Fatalf("got %v, want reason %q", err, test.reason)
			}
			if !strings.Contains(refused.Hint(), test.hint) {
				t.Errorf("hint %q does not say %q", refused.Hint(), test.hint)
			}
			if text := err.Error() + refused.Hint(); strings.Contains(text, token) || !strings.Contains(text, "org/name") {
				t.Errorf("error text %q", text)
			}
		})
	}
}

func TestHubBadAnswers(t *testing.T) {
	config := readConfig(t, "qwen3")
	tests := []struct {
		why    string
		answer http.HandlerFunc
		reason Reason
		text   string
	}{
		{"a body that is cut off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(config)))
			_, _ = w.Write(config[:200])
		}, Unreachable, "ended after 200 bytes"},
		{"a body without end", func(w http.ResponseWriter, _ *http.Request) {
			for chunk := make([]byte, 1<<16); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, BadAnswer, "longer than"},
		{"a compressed body that unpacks to much more", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			for range 64 {
				_, _ = z.Write(make([]byte, 1<<20))
			}
			_ = z.Close()
		}, BadAnswer, "longer than"},
		{"a login page", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "<html>log in</html>")
		}, BadAnswer, "config.json:1:1: not valid JSON"},
		{"redirects in a circle", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}, Unreachable, "redirected more than"},
		{"a redirect to a file of this machine", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		}, Unreachable, "neither http nor https"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			c := client(t, newFakeHub(t, test.answer))
			_, err := c.Model(t.Context(), "org/name")
			failed, ok := errors.AsType[*AccessError](err)
			if !ok || failed.Reason != test.reason || !strings.Contains(err.Error(), test.text) {
				t.Fatalf("got %v, want reason %q and %q", err, test.reason, test.text)
			}
			if stored, _ := filepath.Glob(filepath.Join(c.CacheDir, "hub", "*")); len(stored) > 0 {
				t.Errorf("the answer was cached: %q", stored)
			}
		})
	}
}

func TestHubRedirectKeepsTheToken(t *testing.T) {
	elsewhere := newFakeHub(t, serve(readConfig(t, "qwen3")))
	hub := newFakeHub(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Repo-Commit", commit)
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusFound)
	})
	resolved, err := client(t, hub).Model(t.Context(), "org/name")
	if err != nil || resolved.Revision != commit {
		t.Fatalf("got %+v, %v", resolved, err)
	}
	for _, r := range hub.requests {
		if r.Header.Get("Authorization") != "Bearer "+token {
			t.Errorf("the hub got %q", r.Header.Get("Authorization"))
		}
	}
	// The other server differs in its port alone, which net/http itself does
	// not tell apart.
	for _, r := range elsewhere.requests {
		if got := r.Header.Get("Authorization"); got != "" {
			t.Errorf("another host got %q", got)
		}
	}
	if len(elsewhere.requests) == 0 {
		t.Error("the redirect was not followed")
	}
}

func TestHubTokenIsNotStored(t *testing.T) {
	c := client(t, newFakeHub(t, serve(readConfig(t, "qwen3"))))
	if _, err := c.Model(t.Context(), "org/name"); err != nil {
		t.Fatal(err)
	}
	entries, err := filepath.Glob(filepath.Join(c.CacheDir, "hub", "*"))
	if err != nil || len(entries) != 4 {
		t.Fatalf("cache holds %q, %v", entries, err)
	}
	for _, file := range entries {
		text, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(text), token) {
			t.Errorf("%s holds the token (%v)", file, err)
		}
	}
}

func TestHubUnreachable(t *testing.T) {
	hub := newFakeHub(t, serve(readConfig(t, "qwen3")))
	c := client(t, hub)
	if _, err := c.Model(t.Context(), "org/name"); err != nil {
		t.Fatal(err)
	}
	hub.Close()
	resolved, err := c.Model(t.Context(), "org/name")
	if err != nil || resolved.Model.NumLayers != 36 || len(resolved.Warnings) == 0 || !strings.Contains(resolved.Warnings[0], "from the cache") {
		t.Errorf("a cached model: got %+v, %v", resolved, err)
	}
	_, err = c.Model(t.Context(), "org/other")
	failed, ok := errors.AsType[*AccessError](err)
	if !ok || failed.Reason != Unreachable || strings.Contains(err.Error(), token) {
		t.Errorf("a model that is not cached: got %v", err)
	}
}

func TestHubSlow(t *testing.T) {
	release := make(chan struct{})
	hub := newFakeHub(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	c := client(t, hub)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := c.Model(ctx, "org/name"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	c.Timeout = 50 * time.Millisecond
	_, err := c.Model(t.Context(), "org/name")
	if failed, ok := errors.AsType[*AccessError](err); !ok || failed.Reason != Unreachable || !strings.Contains(err.Error(), "in time") {
		t.Errorf("timed out: got %v", err)
	}
}

func TestHubDamagedCache(t *testing.T) {
	damages := map[string]func([]byte) []byte{
		"cut off":         func(b []byte) []byte { return b[:len(b)/2] },
		"another text":    func([]byte) []byte { return []byte("hello") },
		"another content": func(b []byte) []byte { return []byte(strings.Replace(string(b), `"sha256":"`, `"sha256":"0`, 1)) },
		"another schema":  func(b []byte) []byte { return []byte(strings.Replace(string(b), cacheSchema, "other", 1)) },
	}
	for why, damage := range damages {
		t.Run(why, func(t *testing.T) {
			hub := newFakeHub(t, serve(readConfig(t, "qwen3")))
			c := client(t, hub)
			if _, err := c.Model(t.Context(), "org/name"); err != nil {
				t.Fatal(err)
			}
			path := c.entryPath(repository{"org/name", "main"}, configFile)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, damage(text), 0o600); err != nil {
				t.Fatal(err)
			}
			c.Offline = true
			if _, err := c.Model(t.Context(), "org/name"); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("offline: got %v", err)
			}
			c.Offline = false
			resolved, err := c.Model(t.Context(), "org/name")
			if err != nil || len(resolved.Warnings) != 1 || !strings.Contains(resolved.Warnings[0], "fetched anew") {
				t.Errorf("got %+v, %v", resolved, err)
			}
			if resolved, err = c.Model(t.Context(), "org/name"); err != nil || len(resolved.Warnings) > 0 {
				t.Errorf("once more: got %+v, %v", resolved, err)
			}
		})
	}
}

func TestHubOffline(t *testing.T) {
	hub := newFakeHub(t, serve(nil))
	c := client(t, hub)
	c.Offline = true
	c.HubCacheDir = t.TempDir()
	_, err := c.Model(t.Context(), "org/name")
	failed, ok := errors.AsType[*AccessError](err)
	if !ok || failed.Reason != Offline || !strings.Contains(err.Error(), c.HubCacheDir) || !strings.Contains(failed.Hint(), "HF_HUB_OFFLINE") {
		t.Errorf("got %v", err)
	}
	if asked := hub.asked(); len(asked) > 0 {
		t.Errorf("asked for %q", asked)
	}
}

// userCache writes a model into a cache in the layout of the hub's own tools.
func userCache(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	base := filepath.Join(dir, "models--org--name")
	files[filepath.Join("refs", "main")] = []byte(commit)
	for name, text := range files {
		path := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestHubUserCache(t *testing.T) {
	snapshot := filepath.Join("snapshots", commit)
	hub := newFakeHub(t, serve(readConfig(t, "llama")))
	c := client(t, hub)
	c.HubCacheDir = userCache(t, map[string][]byte{
		filepath.Join(snapshot, configFile): readConfig(t, "qwen3"),
		filepath.Join(snapshot, quantFile):  []byte(`{"quantization": {"quant_algo": "NVFP4"}}`),
	})
	for _, ref := range []string{"org/name", "org/name@" + commit} {
		resolved, err := c.Model(t.Context(), ref)
		if err != nil || resolved.Model.Type != "qwen3" || resolved.Model.Quantization != "nvfp4" || resolved.Revision != commit {
			t.Errorf("%s: got %+v, %v", ref, resolved, err)
		}
	}
	if asked := hub.asked(); len(asked) > 0 {
		t.Errorf("asked for %q though the cache has the model", asked)
	}
	c.HubCacheDir = userCache(t, map[string][]byte{filepath.Join(snapshot, "tokenizer.json"): []byte("{}")})
	if resolved, err := c.Model(t.Context(), "org/name"); err != nil || resolved.Model.Type != "llama" {
		t.Errorf("a snapshot without config.json: got %+v, %v", resolved, err)
	}
}

// finder is a catalog of fixed names.
type finder map[string]*catalog.Model

func (f finder) Model(name string) (*catalog.Model, error) {
	if m, ok := f[name]; ok {
		return m, nil
	}
	return nil, &catalog.UnknownError{Kind: "model", Name: name, Nearest: []string{"Qwen3-8B"}}
}

func TestReferences(t *testing.T) {
	config := readConfig(t, "qwen3")
	gguf, err := os.ReadFile("testdata/gguf/tiny.gguf")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	t.Chdir(home)
	for path, text := range map[string][]byte{
		"Models/Qwen3-8B/config.json": config, "known/config.json": config, "tiny.gguf": gguf, "one/tiny.gguf": gguf,
		"two/a.gguf": gguf, "two/b.gguf": gguf, "empty/readme": nil, "original/params.json": []byte("{}"), "x.json": config, "notes.txt": []byte("hello"),
		"split/m-00001-of-00002.gguf": gguf, "split/m-00002-of-00002.gguf": gguf,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := &Client{Offline: true, Home: home, Catalog: finder{"known": {Name: "known"}, "Llama": {Name: "Llama"}, "empty": {Name: "empty"}, "org/listed": {Name: "listed"}}}
	tests := []struct {
		why, ref, origin, name, err string
	}{
		{why: "a folder", ref: "./Models/Qwen3-8B", origin: "folder ./Models/Qwen3-8B", name: "Qwen3-8B"},
		{why: "a folder that looks like a hub id", ref: "Models/Qwen3-8B", origin: "folder Models/Qwen3-8B", name: "Qwen3-8B"},
		{why: "a folder in the home folder", ref: "~/Models/Qwen3-8B", origin: "folder " + filepath.Join(home, "Models/Qwen3-8B"), name: "Qwen3-8B"},
		{why: "a config.json", ref: "Models/Qwen3-8B/config.json", origin: "file Models/Qwen3-8B/config.json", name: "Qwen3-8B"},
		{why: "another JSON file", ref: "x.json", origin: "file x.json", name: "x"},
		{why: "a GGUF file", ref: "tiny.gguf", origin: "gguf tiny.gguf", name: "tiny"},
		{why: "a folder with one GGUF file", ref: "one", origin: "gguf " + filepath.Join("one", "tiny.gguf"), name: "tiny"},
		{why: "a folder with the parts of one GGUF model", ref: "split", origin: "gguf " + filepath.Join("split", "m-00001-of-00002.gguf"), name: "m-00001-of-00002"},
		{why: "a folder with several", ref: "two", err: "a.gguf, b.gguf"},
		{why: "a folder of the catalog's name wins: it was put there", ref: "known", origin: "folder known", name: "known"},
		{why: "but not one that holds no model", ref: "empty", origin: "catalog", name: "empty"},
		{why: "a catalog name", ref: " Llama ", origin: "catalog", name: "Llama"},
		{why: "a hub id of the catalog", ref: "org/listed", origin: "catalog", name: "listed"},
		{why: "an unknown bare name", ref: "Qwen3-9B", err: `model "Qwen3-9B" is not in the catalog`},
		{why: "a folder without a model", ref: "./empty", err: "neither config.json nor a .gguf file"},
		{why: "a checkpoint in the original layout", ref: "./original", err: "params.json"},
		{why: "a path that does not exist", ref: "./nowhere", err: "no such file"},
		{why: "a GGUF file that does not exist", ref: "nowhere.gguf", err: "no such file"},
		{why: "a file of another kind", ref: "./notes.txt", err: "neither a folder nor"},
		{why: "nothing", ref: "  ", err: "is empty"},
		{why: "a hub id that nothing has", ref: "org/other", err: "offline"},
		{why: "too many slashes", ref: "a/b/c", err: "no valid hub id"},
		{why: "a way out of the cache", ref: "a/..", err: "no valid hub id"},
		{why: "a revision that leaves its place", ref: "a/b@../../x", err: "revision"},
		{why: "a line break", ref: "a/b\nc", err: "control characters"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			resolved, err := c.Model(t.Context(), test.ref)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("got %+v, %v, want an error with %q", resolved, err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if resolved.Origin != test.origin || resolved.Model.Name != test.name {
				t.Errorf("got %q called %q, want %q called %q", resolved.Origin, resolved.Model.Name, test.origin, test.name)
			}
		})
	}
	if _, err := c.Model(t.Context(), "Qwen3-9B"); err != nil {
		if unknown, ok := errors.AsType[*catalog.UnknownError](err); !ok || unknown.Hint() == "" {
			t.Errorf("an unknown name: got %T", err)
		}
	}
}

func TestClientFromEnv(t *testing.T) {
	home := filepath.FromSlash("/home/ann")
	in := func(path string) string { return filepath.Join(home, filepath.FromSlash(path)) }
	tests := []struct {
		why  string
		env  map[string]string
		want Client
	}{
		{"nothing is set", nil, Client{CacheDir: in(".cache/llmprof"), HubCacheDir: in(".cache/huggingface/hub")}},
		{"HF_TOKEN wins over the older name", map[string]string{"HF_TOKEN": " new ", "HUGGING_FACE_HUB_TOKEN": "old"}, Client{Token: "new", CacheDir: in(".cache/llmprof"), HubCacheDir: in(".cache/huggingface/hub")}},
		{"the older name still counts", map[string]string{"HUGGING_FACE_HUB_TOKEN": "old"}, Client{Token: "old", CacheDir: in(".cache/llmprof"), HubCacheDir: in(".cache/huggingface/hub")}},
		{"HF_HOME holds the hub's cache", map[string]string{"HF_HOME": "~/hf"}, Client{CacheDir: in(".cache/llmprof"), HubCacheDir: in("hf/hub")}},
		{"HF_HUB_CACHE is that cache itself", map[string]string{"HF_HOME": "~/hf", "HF_HUB_CACHE": "~/hc"}, Client{CacheDir: in(".cache/llmprof"), HubCacheDir: in("hc")}},
		{"the caches move with XDG_CACHE_HOME", map[string]string{"XDG_CACHE_HOME": "~/c"}, Client{CacheDir: in("c/llmprof"), HubCacheDir: in("c/huggingface/hub")}},
		{"offline, another hub, another cache", map[string]string{"HF_HUB_OFFLINE": "true", "HF_ENDPOINT": "https://hf-mirror.com/", "LLMPROF_CACHE_DIR": "~/l"}, Client{Endpoint: "https://hf-mirror.com/", Offline: true, CacheDir: in("l"), HubCacheDir: in(".cache/huggingface/hub")}},
		{"HF_HUB_OFFLINE=0 is not offline", map[string]string{"HF_HUB_OFFLINE": "0"}, Client{CacheDir: in(".cache/llmprof"), HubCacheDir: in(".cache/huggingface/hub")}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			test.want.Home = home
			if got := ClientFromEnv(func(key string) string { return test.env[key] }, home); *got != test.want {
				t.Errorf("got %+v, want %+v", *got, test.want)
			}
		})
	}
	if got := *ClientFromEnv(func(string) string { return "" }, ""); got != (Client{}) {
		t.Errorf("without a home folder: got %+v", got)
	}
}

func TestStoredToken(t *testing.T) {
	home := t.TempDir()
	for name, text := range map[string]string{
		".cache/huggingface/token": "stored\n", "hf/token": "\tmoved ", "elsewhere": "named", "xdg/huggingface/token": "xdg",
		"words/token": "two words", "binary/token": "\x00\xff", "long/token": strings.Repeat("x", 5<<10),
	} {
		path := filepath.Join(home, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		why  string
		env  map[string]string
		want string
	}{
		{"where hf auth login puts it", nil, "stored"},
		{"it moves with HF_HOME", map[string]string{"HF_HOME": "~/hf"}, "moved"},
		{"and with XDG_CACHE_HOME", map[string]string{"XDG_CACHE_HOME": "~/xdg"}, "xdg"},
		{"HF_TOKEN_PATH names it", map[string]string{"HF_HOME": "~/hf", "HF_TOKEN_PATH": "~/elsewhere"}, "named"},
		{"the environment's token wins", map[string]string{"HF_TOKEN": "env"}, "env"},
		{"the user may not want it to be sent", map[string]string{"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, ""},
		{"no file, no token", map[string]string{"HF_HOME": "~/nowhere"}, ""},
		{"a folder is no token", map[string]string{"HF_TOKEN_PATH": "~/hf"}, ""},
		{"nor are words", map[string]string{"HF_HOME": "~/words"}, ""},
		{"nor binary data", map[string]string{"HF_HOME": "~/binary"}, ""},
		{"nor a long file", map[string]string{"HF_HOME": "~/long"}, ""},
	}
	for _, test := range tests {
		if got := ClientFromEnv(func(key string) string { return test.env[key] }, home).Token; got != test.want {
			t.Errorf("%s: got %q, want %q", test.why, got, test.want)
		}
	}
}

func TestEndpointCredentialsAreNotShown(t *testing.T) {
	for _, endpoint := range []string{"https://ann:secret@127.0.0.1:1/x", "ann:secret@nowhere", "ftp://ann:secret@nowhere"} {
		c := &Client{Endpoint: endpoint, Timeout: time.Second}
		_, err := c.Model(t.Context(), "org/name")
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v", endpoint, err)
		}
	}
}
