package llmservingsim_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/llmprof/llmprof/format/llmservingsim"
	"github.com/llmprof/llmprof/profile"
)

func TestOurs(t *testing.T) {
	measured := &profile.Profile{Points: layers(llama)}
	for _, c := range []struct {
		why    string
		change func(folder)
		want   bool
	}{
		{"as it was written", func(folder) {}, true},
		{"an edited file", func(d folder) { d["tp1/dense.csv"].Data = append(d["tp1/dense.csv"].Data, "o_proj,2,9\r\n"...) }, false},
		{"edited meta", func(d folder) { d["meta.yaml"].Data[0]++ }, false},
		{"a file is gone", func(d folder) { delete(d, "tp1/attention.csv") }, false},
		{"a file was packed", func(d folder) { d["tp1/dense.csv.gz"] = d["tp1/dense.csv"]; delete(d, "tp1/dense.csv") }, false},
		{"a foreign file", func(d folder) { d["notes.txt"] = &fstest.MapFile{Data: []byte("x")} }, false},
		{"a foreign file beside the rows", func(d folder) { d["tp1/skew.csv"] = &fstest.MapFile{} }, false},
		{"a foreign folder", func(d folder) { d["tp3"] = &fstest.MapFile{Mode: fs.ModeDir | 0o755} }, false},
		{"a link in place of a file", func(d folder) { d["tp1/dense.csv"].Mode = fs.ModeSymlink }, false},
		{"no profile", func(d folder) { delete(d, "profile.llmprof.gz") }, false},
		{"a cut profile", func(d folder) {
			d["profile.llmprof.gz"].Data = d["profile.llmprof.gz"].Data[:len(d["profile.llmprof.gz"].Data)/2]
		}, false},
		{"a profile without digests", func(d folder) {
			f, err := d.create("profile.llmprof.gz")
			if err := errors.Join(err, measured.Write("x.gz", f), f.Close()); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"nothing", func(d folder) { clear(d) }, false},
	} {
		t.Run(c.why, func(t *testing.T) {
			d := write(t, measured, llmservingsim.WriteOptions{})
			c.change(d)
			if got, err := llmservingsim.Ours(fstest.MapFS(d)); err != nil || got != c.want {
				t.Errorf("%v, %v, want %v", got, err, c.want)
			}
		})
	}
	t.Run("a bundle of LLMServingSim", func(t *testing.T) {
		if got, err := llmservingsim.Ours(os.DirFS("testdata/RTX4090")); got || err != nil {
			t.Error(got, err)
		}
	})
	t.Run("on disk", func(t *testing.T) {
		dir := t.TempDir()
		for name, f := range write(t, measured, llmservingsim.WriteOptions{}) {
			name = filepath.Join(dir, filepath.FromSlash(name))
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, f.Data, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := llmservingsim.Ours(os.DirFS(dir)); !got || err != nil {
			t.Error(got, err)
		}
	})
}
