// Package store keeps runs, their cells, profiles and predictors in one SQLite
// file, so that work that took hours outlives the process that did it.
//
// # The file
//
// [DefaultPath] says where it lies; [Open] makes it, with its folder, and
// brings an older one up to date. A file of a newer llmprof is refused with a
// [*VersionError] and any other file with a [*NotStoreError]; neither is
// touched. Several processes may use one file at the same time. A change is on
// the disk when the call that made it returns, and a process that is killed
// leaves either all of a change or nothing of it.
//
// # Runs and cells
//
// A [Run] is a grid of [Cell] values; each is known by the content hash of
// what it measures. A cell goes from pending to running by [Store.Begin] and
// from there to an end by [Store.Finish]:
//
//	ctx, release, err := st.Hold(ctx, run.ID, owner, time.Minute) // nobody else works on it
//	defer release()
//	_, err = st.Recover(ctx, run.ID) // what a killed process left running
//	cells, err := st.Cells(ctx, run.ID)
//	for _, c := range cells {
//		if c.State == store.Pending {
//			c.Attempts, err = st.Begin(ctx, c.RunID, c.Hash, time.Now())
//			c.State, c.Result = store.Done, measure(c.Spec)
//			err = st.Finish(ctx, c)
//		}
//	}
//
// The context of [Store.Hold] ends when the lock is lost, and no change is made
// with it then. The number of the attempt decides who may finish a cell: a process whose
// cell was recovered and begun again by another one cannot overwrite the
// result. A cell that is done never goes back. A context that is cancelled
// leaves a change undone, so what must be kept on the way out is written with
// [context.WithoutCancel].
//
// # Profiles and predictors
//
// [Store.PutProfile] and [Store.PutPredictor] keep a text in the database, or
// the path of a file, under its content hash and a name. A name stands for the
// newest content that carries it; a hash, or a unique beginning of one, for
// exactly one content.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	_ "modernc.org/sqlite" // registers the driver
)

// Memory is the path of a store that is gone when it is closed.
const Memory = ":memory:"

// patience is how long a call waits for another process that writes.
const patience = 10 * time.Second

// Store is an open database. Its methods may be called by several goroutines.
type Store struct {
	db   *sql.DB
	path string
	now  func() time.Time

	mu     sync.Mutex
	leases map[*lease]struct{} // locks to give back on Close
}

// DefaultPath is where the store lies unless a path is given: $LLMPROF_STORE,
// or llmprof/llmprof.db in the folder that the system has for data of
// programs, which $XDG_DATA_HOME overrides.
func DefaultPath(getenv func(string) string) (string, error) {
	return defaultPath(runtime.GOOS, getenv)
}

func defaultPath(goos string, getenv func(string) string) (string, error) {
	if path := getenv("LLMPROF_STORE"); path != "" {
		return path, nil
	}
	base, rest := getenv("XDG_DATA_HOME"), []string(nil)
	if !filepath.IsAbs(base) { // the XDG rules: a relative path is ignored
		switch goos {
		case "windows":
			base = getenv("LOCALAPPDATA")
		case "darwin":
			base, rest = getenv("HOME"), []string{"Library", "Application Support"}
		default:
			base, rest = getenv("HOME"), []string{".local", "share"}
		}
	}
	if base == "" {
		return "", &advisedError{"find the store: the environment names no home folder", "set HOME, or name a file with LLMPROF_STORE"}
	}
	return filepath.Join(append(append([]string{base}, rest...), "llmprof", "llmprof.db")...), nil
}

// Open opens the store at path, a file name or [Memory]. Folder and file are
// made where they are missing.
func Open(ctx context.Context, path string) (*Store, error) {
	const doing = "open the store"
	source, err := locate(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	db, err := sql.Open("sqlite", source)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	// One connection: calls of this process queue here and not at the file's
	// lock, and a store in memory is one connection's.
	db.SetMaxOpenConns(1)
	s := &Store{db: db, path: path, now: time.Now, leases: map[*lease]struct{}{}}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(s.explain(doing, err), db.Close())
	}
	return s, nil
}

// smallest is the size of the smallest database in bytes: one page.
const smallest = 512

// locate turns a path into a data source, and makes the folder.
func locate(path string) (string, error) {
	settings := url.Values{
		"_pragma": {fmt.Sprintf("busy_timeout(%d)", patience.Milliseconds()), "synchronous(FULL)", "foreign_keys(1)"},
		"_txlock": {"immediate"}, // a transaction that reads first and then writes cannot be overtaken
	}.Encode()
	if path == Memory {
		return "file::memory:?" + settings, nil
	}
	if path == "" {
		return "", &NotStoreError{`""`, "is no path"}
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find the folder: %w", err)
	}
	switch info, err := os.Stat(abs); {
	case err == nil && info.IsDir():
		return "", &NotStoreError{path, "is a folder"}
	case err == nil && !info.Mode().IsRegular():
		return "", &NotStoreError{path, "is not a regular file"}
	case err == nil && info.Size() > 0 && info.Size() < smallest:
		return "", &NotStoreError{path, "is not a database"} // SQLite may take it for an empty one and write over it
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", folderError(path, err)
	}
	if err := os.MkdirAll(filepath.Dir(abs), 0o700); err != nil {
		return "", folderError(path, err)
	}
	name := filepath.ToSlash(abs)
	if name[0] != '/' {
		name = "/" + name // C:/Users becomes /C:/Users
	}
	return (&url.URL{Scheme: "file", Path: name, RawQuery: settings}).String(), nil
}

// Close gives back the locks that are held and closes the database.
func (s *Store) Close() error {
	s.mu.Lock()
	held := s.leases
	s.leases = map[*lease]struct{}{}
	s.mu.Unlock()
	var faults []error
	for l := range held {
		faults = append(faults, l.release())
	}
	faults = append(faults, s.db.Close())
	return s.explain("close the store", errors.Join(faults...))
}

// change does all of what fn does, or nothing.
func (s *Store) change(ctx context.Context, doing string, fn func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return s.explain(doing, err)
	}
	err = requireHeld(ctx, tx)
	if err == nil {
		err = fn(tx)
	}
	if err != nil {
		return errors.Join(s.explain(doing, err), rollBack(tx))
	}
	return s.explain(doing, tx.Commit())
}

// rollBack ends a transaction that failed; one that a cancelled context ended
// before is over.
func rollBack(tx *sql.Tx) error {
	if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("undo: %w", err)
	}
	return nil
}

// reader is the database or a transaction.
type reader interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// collect reads every row of an answer.
func collect[T any](ctx context.Context, from reader, scan func(func(...any) error) (T, error), query string, args ...any) ([]T, error) {
	rows, err := from.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		one, err := scan(rows.Scan)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}
