package store_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/store"
)

func zip(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func put(t *testing.T, st *store.Store, p store.Profile) string {
	t.Helper()
	hash, err := st.PutProfile(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func TestProfiles(t *testing.T) {
	st := open(t, store.Memory)
	const text = "{\"schema\":\"llmprof/profile\"}\n"
	first := store.Profile{Name: "h100", Model: "qwen", Device: "h100-sxm-80gb", Engine: "vllm", Created: noon(), Text: []byte(text)}
	sum := sha256.Sum256([]byte(text))
	first.Hash = hex.EncodeToString(sum[:])
	if hash := put(t, st, first); hash != first.Hash {
		t.Errorf("hash %s: want the SHA-256 of the text, %s", hash, first.Hash)
	}
	zipped := first
	zipped.Text = zip(t, text)
	if hash := put(t, st, zipped); hash != first.Hash {
		t.Errorf("hash of the same text as gzip is %s: want %s", hash, first.Hash)
	}
	for _, name := range []string{"h100", first.Hash, first.Hash[:7]} {
		got, err := st.Profile(t.Context(), name)
		if diff := cmp.Diff(first, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-put +got):\n%s", name, err, diff)
		}
	}
	// The name goes to the newer content, the older stays under its hash.
	second := store.Profile{Name: "h100", Model: "llama", Created: noon().Add(time.Hour), Text: []byte("new")}
	second.Hash = put(t, st, second)
	if got, err := st.Profile(t.Context(), "h100"); err != nil || string(got.Text) != "new" {
		t.Errorf("h100 is %q, %v: want the newer text", got.Text, err)
	}
	if got, err := st.Profile(t.Context(), first.Hash); err != nil || string(got.Text) != text {
		t.Errorf("the older one is %q, %v: want it under its hash", got.Text, err)
	}
	// The same content again, under another name.
	first.Name, first.Device = "renamed", "h100"
	put(t, st, first)
	all, err := st.Profiles(t.Context(), store.Filter{})
	first.Text, second.Text = nil, nil
	if diff := cmp.Diff([]store.Profile{second, first}, all); err != nil || diff != "" {
		t.Errorf("list: %v (-want +got):\n%s", err, diff)
	}
	if predictors, err := st.Predictors(t.Context(), store.Filter{}); err != nil || len(predictors) != 0 {
		t.Errorf("predictors %v, %v: want none", predictors, err)
	}
}

func TestPredictors(t *testing.T) {
	st := open(t, store.Memory)
	// The same text may be a profile and a predictor.
	hash := put(t, st, store.Profile{Name: "p", Text: []byte("text")})
	again, err := st.PutPredictor(t.Context(), store.Predictor{Name: "q", Engine: "sglang", Text: []byte("text")})
	if err != nil || again != hash {
		t.Fatalf("put: %s, %v: want %s", again, err, hash)
	}
	got, err := st.Predictor(t.Context(), "q")
	if err != nil || got.Engine != "sglang" || string(got.Text) != "text" || got.Created.IsZero() {
		t.Errorf("got %+v, %v", got, err)
	}
	_, err = st.Predictor(t.Context(), "p")
	wantError(t, err, `predictor "p": not in the store`, "nearest known: q")
}

// TestDelete takes out what is named, and nothing else.
func TestDelete(t *testing.T) {
	st := open(t, store.Memory)
	older := put(t, st, store.Profile{Name: "p", Created: noon(), Text: []byte("older")})
	put(t, st, store.Profile{Name: "p", Created: noon().Add(time.Hour), Text: []byte("newer")})
	if _, err := st.PutPredictor(t.Context(), store.Predictor{Name: "p", Text: []byte("newer")}); err != nil {
		t.Fatal(err)
	}
	if err := st.DeleteProfile(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	if left, err := st.Profile(t.Context(), "p"); err != nil || string(left.Text) != "older" {
		t.Errorf("left is %q, %v: want the older profile", left.Text, err)
	}
	if err := st.DeleteProfile(t.Context(), older[:8]); err != nil {
		t.Fatal(err)
	}
	wantError(t, st.DeleteProfile(t.Context(), "p"), `profile "p": not in the store`, "has no profile yet")
	if err := st.DeletePredictor(t.Context(), "p"); err != nil {
		t.Errorf("the predictor of the same text: %v", err)
	}
	wantError(t, st.DeletePredictor(t.Context(), "p"), "not in the store", "")
}

func TestFilter(t *testing.T) {
	st := open(t, store.Memory)
	for i, p := range []store.Profile{
		{Name: "a", Model: "m1", Device: "d1", Engine: "vllm"},
		{Name: "b", Model: "m1", Device: "d2", Engine: "vllm"},
		{Name: "b", Model: "m2", Device: "d2", Engine: "sglang"},
	} {
		p.Text, p.Created = []byte{byte('0' + i)}, noon().Add(time.Duration(i)*time.Minute)
		put(t, st, p)
	}
	tests := []struct {
		why    string
		filter store.Filter
		want   string
	}{
		{"nothing asked picks all", store.Filter{}, "m2/d2 m1/d2 m1/d1"},
		{"by name", store.Filter{Name: "b"}, "m2/d2 m1/d2"},
		{"by model", store.Filter{Model: "m1"}, "m1/d2 m1/d1"},
		{"by device", store.Filter{Device: "d1"}, "m1/d1"},
		{"by engine", store.Filter{Engine: "sglang"}, "m2/d2"},
		{"all that is asked must hold", store.Filter{Model: "m1", Device: "d2"}, "m1/d2"},
		{"patterns are not asked", store.Filter{Model: "m%"}, ""},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			found, err := st.Profiles(t.Context(), test.filter)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range found {
				got = append(got, p.Model+"/"+p.Device)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("%+v picks %v: want %q", test.filter, got, test.want)
			}
		})
	}
}

func TestProfileFiles(t *testing.T) {
	st := open(t, store.Memory)
	t.Chdir(t.TempDir())
	const name = "p.jsonl.gz"
	write := func(text string) {
		if err := os.WriteFile(name, zip(t, text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("content")
	hash := put(t, st, store.Profile{Name: "file", Path: name})
	got, err := st.Profile(t.Context(), "file")
	if err != nil || string(got.Text) != "content" || !filepath.IsAbs(got.Path) {
		t.Errorf("got %+v, %v: want the content and the whole path", got, err)
	}
	write("other")
	_, err = st.Profile(t.Context(), "file")
	wantError(t, err, "has changed since it was stored", "store it again")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	_, err = st.Profile(t.Context(), "file")
	wantError(t, err, "cannot be read", "put the file back")
	if !errors.Is(err, os.ErrNotExist) || codeOf(err) != 4 {
		t.Errorf("%v, exit code %d: want the system's reason and 4", err, codeOf(err))
	}
	// The text itself takes the place of the path.
	if again := put(t, st, store.Profile{Name: "file", Text: []byte("content")}); again != hash {
		t.Errorf("hash %s: want %s as before", again, hash)
	}
	if got, err := st.Profile(t.Context(), "file"); err != nil || got.Path != "" || string(got.Text) != "content" {
		t.Errorf("got %+v, %v: want the text", got, err)
	}
}

func TestPutRefuses(t *testing.T) {
	st := open(t, store.Memory)
	tests := []struct {
		why  string
		p    store.Profile
		want string
	}{
		{"it is asked for by name", store.Profile{Text: []byte("x")}, "the name is empty"},
		{"there must be a content", store.Profile{Name: "n"}, "either a text or the path"},
		{"and one only", store.Profile{Name: "n", Text: []byte("x"), Path: "y"}, "either a text or the path"},
		{"gzip of nothing is nothing", store.Profile{Name: "n", Text: zip(t, "")}, "it is empty"},
		{"a cut-off gzip is not stored", store.Profile{Name: "n", Text: zip(t, "some text")[:20]}, "unexpected EOF"},
		{"nor is what only begins like one", store.Profile{Name: "n", Text: []byte("\x1f\x8bnot gzip")}, "unpack"},
		{"the file must be there", store.Profile{Name: "n", Path: filepath.Join(t.TempDir(), "none")}, "cannot be read"},
		{"a folder is no file", store.Profile{Name: "n", Path: t.TempDir()}, "is a directory"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			_, err := st.PutProfile(t.Context(), test.p)
			wantError(t, err, test.want, "")
		})
	}
	if all, err := st.Profiles(t.Context(), store.Filter{}); err != nil || len(all) != 0 {
		t.Errorf("after the refusals: %v, %v: want an empty store", all, err)
	}
}

func TestPlainHasALimit(t *testing.T) {
	for _, text := range [][]byte{zip(t, strings.Repeat("0", 1000)), []byte(strings.Repeat("0", 1000))} {
		if got, err := store.Plain(bytes.NewReader(text), 1000); err != nil || len(got) != 1000 {
			t.Errorf("%d bytes, %v: want what is just allowed", len(got), err)
		}
		_, err := store.Plain(bytes.NewReader(text), 999)
		wantError(t, err, "more than 999 bytes", "")
	}
}

func FuzzPlain(f *testing.F) {
	f.Add([]byte("text"))
	f.Add([]byte("\x1f"))
	f.Add(zip(f, "text"))
	f.Add(zip(f, strings.Repeat("text", 1000)))
	f.Add(zip(f, "text")[:15])
	f.Fuzz(func(t *testing.T, data []byte) {
		const limit = 1000
		text, err := store.Plain(bytes.NewReader(data), limit)
		if err == nil && (len(text) == 0 || len(text) > limit) {
			t.Errorf("%d bytes: want 1 to %d or an error", len(text), limit)
		}
	})
}
