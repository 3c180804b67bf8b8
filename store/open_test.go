package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/store"
)

func TestDefaultPath(t *testing.T) {
	abs := t.TempDir()
	tests := []struct {
		why, goos string
		env       map[string]string
		want      string
	}{
		{"the store's own variable goes first", "linux", map[string]string{"LLMPROF_STORE": "x.db", "XDG_DATA_HOME": abs, "HOME": abs}, "x.db"},
		{"then the folder for data", "linux", map[string]string{"XDG_DATA_HOME": abs, "HOME": "/h"}, filepath.Join(abs, "llmprof", "llmprof.db")},
		{"which must be absolute", "linux", map[string]string{"XDG_DATA_HOME": "rel", "HOME": abs}, filepath.Join(abs, ".local", "share", "llmprof", "llmprof.db")},
		{"then the usual one", "linux", map[string]string{"HOME": abs}, filepath.Join(abs, ".local", "share", "llmprof", "llmprof.db")},
		{"macOS has another", "darwin", map[string]string{"HOME": abs}, filepath.Join(abs, "Library", "Application Support", "llmprof", "llmprof.db")},
		{"and so has Windows", "windows", map[string]string{"LOCALAPPDATA": abs}, filepath.Join(abs, "llmprof", "llmprof.db")},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			got, err := store.DefaultPathOn(test.goos, func(name string) string { return test.env[name] })
			if got != test.want || err != nil {
				t.Errorf("got %q, %v: want %q", got, err, test.want)
			}
		})
	}
	for _, goos := range []string{"linux", "darwin", "windows"} {
		_, err := store.DefaultPathOn(goos, func(string) string { return "" })
		wantError(t, err, "names no home folder", "LLMPROF_STORE")
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	database := func(name string, statements ...string) string {
		name = filepath.Join(dir, name)
		db, err := sql.Open("sqlite", name)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		for _, s := range statements {
			if _, err := db.ExecContext(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		return name
	}
	newer := filepath.Join(dir, "newer.db")
	if err := store.MakeVersion(t.Context(), newer, store.Newest()); err != nil {
		t.Fatal(err)
	}
	next := store.Newest() + 1
	database("newer.db", fmt.Sprintf("PRAGMA user_version = %d", next))
	tests := []struct {
		why, path  string
		code       int
		want, hint string
	}{
		{"a text is no database", file("text", "models:\n"), 2, "text is not a database", "nothing was changed"},
		{"nor is a long one", file("long", string(bytes.Repeat([]byte("text\n"), 5000))), 2, "is not a database", "nothing was changed"},
		{"nor one byte", file("byte", "x"), 2, "is not a database", "nothing was changed"},
		{"what begins like a database is damaged", file("cut", "SQLite format 3\x00"), 2, "is not a database", "nothing was changed"},
		{"a database of another program", database("other.db", "CREATE TABLE t (x)"), 2, "is a database of another program", "name another file"},
		{"one that says whose it is", database("marked.db", "PRAGMA application_id = 7"), 2, "is a database of another program", "name another file"},
		{"one that counts versions", database("counted.db", "PRAGMA user_version = 1"), 2, "is a database of another program", "name another file"},
		{"a newer llmprof's", newer, 3, fmt.Sprintf("newer.db has version %d, and this llmprof knows versions up to %d", next, next-1), "use a newer llmprof"},
		{"a folder", dir, 2, "is a folder", "name another file"},
		{"no path", "", 2, `"" is no path`, "name another file"},
		{"a device", os.DevNull, 2, "is not a regular file", "name another file"},
		{"a file in the place of a folder", filepath.Join(file("f", "x"), "s.db"), 4, "cannot be opened", "check the folder"},
		{"a file in the place of a folder, further up", filepath.Join(file("f", "x"), "a", "s.db"), 4, "cannot be opened", "check the folder"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			before, _ := os.ReadFile(test.path)
			st, err := store.Open(t.Context(), test.path)
			if err == nil {
				_ = st.Close()
			}
			wantError(t, err, test.want, test.hint)
			if codeOf(err) != test.code {
				t.Errorf("exit code %d of %v: want %d", codeOf(err), err, test.code)
			}
			if after, _ := os.ReadFile(test.path); !bytes.Equal(before, after) {
				t.Errorf("the file had %d bytes and has other %d now", len(before), len(after))
			}
			for _, suffix := range []string{"-wal", "-shm", "-journal"} {
				if _, err := os.Stat(test.path + suffix); err == nil {
					t.Errorf("%s%s was left behind", test.path, suffix)
				}
			}
		})
	}
	_, err := store.Open(t.Context(), newer)
	if v, ok := errors.AsType[*store.VersionError](err); !ok || v.Version != next {
		t.Errorf("got %+v of %v: want a VersionError", v, err)
	}
}

// TestMigration opens the databases of all versions: what they hold stays, and
// what is new can be used.
func TestMigration(t *testing.T) {
	for version := range store.Newest() + 1 {
		t.Run(fmt.Sprintf("version %d", version), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.db")
			prepare := store.MakeVersion
			if version == 0 {
				prepare = func(context.Context, string, int) error { return os.WriteFile(path, nil, 0o600) }
			}
			if err := prepare(t.Context(), path, version); err != nil {
				t.Fatal(err)
			}
			if version >= 1 {
				db, err := sql.Open("sqlite", path)
				if err != nil {
					t.Fatal(err)
				}
				_, err = db.ExecContext(t.Context(), `INSERT INTO runs VALUES ('old', '', '', '', '', '', NULL, '{}', '2026-03-01T12:00:00.123456789Z', '2026-03-01T12:00:00.123456789Z')`)
				if err := errors.Join(err, db.Close()); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				st := open(t, path)
				if version >= 1 {
					run, err := st.Run(t.Context(), "old")
					want := store.Run{ID: "old", Settings: json.RawMessage("{}"), Created: noon(), Updated: noon()}
					if diff := cmp.Diff(want, run); err != nil || diff != "" {
						t.Errorf("%v (-want +got):\n%s", err, diff)
					}
				}
				put(t, st, store.Profile{Name: "p", Text: []byte("x")})
				for pragma, want := range map[string]string{
					"user_version": fmt.Sprint(store.Newest()), "journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "integrity_check": "ok",
				} {
					var got string
					if err := st.DB().QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
						t.Errorf("%s is %q, %v: want %q", pragma, got, err, want)
					}
				}
			}
		})
	}
}

// TestMigrationIsWhole breaks off in the middle of the steps: the database
// stays as it was.
func TestMigrationIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	if err := store.MakeVersion(t.Context(), path, 1); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	// The name that the last statement of the second step wants.
	if _, err := db.ExecContext(t.Context(), "CREATE INDEX artefacts_by_name ON runs (name)"); err != nil {
		t.Fatal(err)
	}
	_, err = store.Open(t.Context(), path)
	wantError(t, err, "artefacts_by_name", "")
	var version, tables int
	err = db.QueryRowContext(t.Context(), "SELECT (SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_schema WHERE name = 'artefacts')").Scan(&version, &tables)
	if err != nil || version != 1 || tables != 0 {
		t.Errorf("version %d, %d tables of the second step, %v: want version 1 and none", version, tables, err)
	}
}

func TestDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	if err := store.MakeVersion(t.Context(), path, store.Newest()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(data); i++ { // the header is whole, nothing after it
		data[i] = 0xee
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	st := open(t, path)
	_, err = st.Runs(t.Context())
	wantError(t, err, "list the runs: "+path+" is damaged", "put back a copy")
	if codeOf(err) != 4 {
		t.Errorf("exit code %d: want 4", codeOf(err))
	}
}

// FuzzOpen opens files that begin with a sound database; whatever they hold,
// every call ends, with or without an error.
func FuzzOpen(f *testing.F) {
	path := filepath.Join(f.TempDir(), "s.db")
	if err := store.MakeVersion(f.Context(), path, store.Newest()); err != nil {
		f.Fatal(err)
	}
	sound, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("no database"), uint16(0))
	f.Add([]byte{}, uint16(0))
	f.Add([]byte{0, 0, 0, 9}, uint16(60))
	f.Add(bytes.Repeat([]byte{0xff}, 100), uint16(4096))
	f.Add([]byte{0x0d, 0, 1}, uint16(8192))
	f.Fuzz(func(t *testing.T, patch []byte, at uint16) {
		const largest = 1 << 20
		data := bytes.Clone(sound)
		copy(data[min(int(at), len(data)):], patch)
		if at == 0 {
			data = patch[:min(len(patch), largest)]
		}
		path := filepath.Join(t.TempDir(), "s.db")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		st, err := store.Open(t.Context(), path)
		if err != nil {
			return
		}
		_ = st.CreateRun(t.Context(), store.Run{ID: "r"}, cellsOf(2))
		_, _ = st.Begin(t.Context(), "r", "c0", noon())
		_, _ = st.Runs(t.Context())
		_, _ = st.Cells(t.Context(), "r")
		_, _ = st.Profile(t.Context(), "p")
		_ = st.Close()
	})
}
