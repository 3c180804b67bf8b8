package store

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/llmprof/llmprof/catalog"
)

// ErrLockLost says that a lock was not renewed in time and is another's now,
// or nobody's.
var ErrLockLost = errors.New("the lock was lost: it was not renewed in time")

const otherFile = "name another file with LLMPROF_STORE"

// VersionError says that a database was written by a newer llmprof.
type VersionError struct {
	// Path is the file.
	Path string
	// Version is that of the database, Known the newest that is understood.
	Version, Known int
}

// Error names both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has version %d, and this llmprof knows versions up to %d", e.Path, e.Version, e.Known)
}

// Hint says what to do next.
func (e *VersionError) Hint() string { return "use a newer llmprof, or " + otherFile }

// ExitCode is that of unknown file versions.
func (e *VersionError) ExitCode() int { return 3 }

// NotStoreError says that a path names something that is not a store.
type NotStoreError struct {
	// Path is what was to be opened, Problem what it is instead: "is a folder".
	Path, Problem string
}

// Error says what is there instead.
func (e *NotStoreError) Error() string { return e.Path + " " + e.Problem }

// Hint says what to do next.
func (e *NotStoreError) Hint() string { return "nothing was changed; " + otherFile }

// ExitCode is that of wrong usage.
func (e *NotStoreError) ExitCode() int { return 2 }

// FileError says that the store's file or folder cannot be used as it should.
type FileError struct {
	// Path is the file, Problem what is wrong with it ("is damaged"), Remedy
	// what helps.
	Path, Problem, Remedy string
	// Err is what the system or SQLite said.
	Err error
}

// Error says what is wrong, in the words of the outside too.
func (e *FileError) Error() string { return e.Path + " " + e.Problem + ": " + e.Err.Error() }

// Unwrap returns what the outside said.
func (e *FileError) Unwrap() error { return e.Err }

// Hint is the remedy.
func (e *FileError) Hint() string { return e.Remedy }

// ExitCode is that of failures outside.
func (e *FileError) ExitCode() int { return 4 }

// NotFoundError says that the store has nothing of a name.
type NotFoundError struct {
	// Kind is what was looked for, Name how it was called.
	Kind, Name string
	// Nearest are names that the store has, best first.
	Nearest []string
}

// Error names what was looked for.
func (e *NotFoundError) Error() string { return fmt.Sprintf("%s %q: not in the store", e.Kind, e.Name) }

// Hint offers the nearest names.
func (e *NotFoundError) Hint() string {
	if len(e.Nearest) == 0 {
		return "the store has no " + e.Kind + " yet"
	}
	return "nearest known: " + strings.Join(e.Nearest, ", ")
}

// AmbiguousError says that a name is the beginning of several.
type AmbiguousError struct {
	Kind, Prefix string
	// Matches are all that begin with it.
	Matches []string
}

// Error lists the matches.
func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%s %q: the beginning of several: %s", e.Kind, e.Prefix, strings.Join(e.Matches, ", "))
}

// Hint says what to do next.
func (e *AmbiguousError) Hint() string { return "write more of it" }

// StateError says that a cell is not in a state that allows a change.
type StateError struct {
	RunID, Hash string
	// State and Attempts are what the store has.
	State    State
	Attempts int
	// Asked is the change that was refused.
	Asked string
}

// Error names the cell, its state and the change.
func (e *StateError) Error() string {
	return fmt.Sprintf("cell %s of run %s is %s after %d attempts: it cannot be %s", e.Hash, e.RunID, e.State, e.Attempts, e.Asked)
}

// LockedError says that another process works on a run.
type LockedError struct {
	RunID, Owner string
	// Until is when the lock ends unless its owner renews it.
	Until time.Time
}

// Error names the run and the owner.
func (e *LockedError) Error() string {
	return fmt.Sprintf("run %s is in use by %s", e.RunID, e.Owner)
}

// Hint says what to do next.
func (e *LockedError) Hint() string {
	return "wait for it or stop it; if it is dead, its lock ends at " + e.Until.Format(time.RFC3339)
}

// ExitCode is that of failures outside.
func (e *LockedError) ExitCode() int { return 4 }

// advisedError is an error with advice and nothing else that callers ask for.
type advisedError struct{ text, hint string }

// Error says what is wrong.
func (e *advisedError) Error() string { return e.text }

// Hint says what to do next.
func (e *advisedError) Hint() string { return e.hint }

// folderError is about the folder that holds the file.
func folderError(path string, err error) error {
	return &FileError{path, "cannot be opened", "check the folder and its permissions, or " + otherFile, err}
}

// explain says what was done when err came, and puts SQLite's codes in words.
func (s *Store) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	if bad, ok := errors.AsType[*sqlite.Error](err); ok {
		err = inWords(s.path, bad.Code(), err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// inWords explains a result code of SQLite.
func inWords(path string, code int, err error) error {
	switch code & primaryCode {
	case sqlite3.SQLITE_NOTADB:
		return &NotStoreError{path, "is not a database"}
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return &FileError{path, "is kept locked by another process", "try again when that process is done", err}
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return &FileError{path, "cannot be written", "check the permissions of the file and its folder, or " + otherFile, err}
	case sqlite3.SQLITE_CANTOPEN:
		return folderError(path, err)
	case sqlite3.SQLITE_FULL:
		return &FileError{path, "finds the disk full", "make room and repeat the command: what was finished is kept", err}
	case sqlite3.SQLITE_CORRUPT:
		return &FileError{path, "is damaged", "put back a copy of the file, or move it away and start anew", err}
	default:
		return &FileError{path, "cannot be used", "check the disk that it lies on, or " + otherFile, err}
	}
}

// primaryCode masks what is more than detail in a result code of SQLite.
const primaryCode = 0xff

// isBusy reports whether another process keeps the database.
func isBusy(err error) bool {
	bad, ok := errors.AsType[*sqlite.Error](err)
	return ok && bad.Code()&primaryCode == sqlite3.SQLITE_BUSY
}

// notFound offers the names that come nearest.
func notFound(kind, name string, known []string) error {
	const offered = 3
	return &NotFoundError{kind, name, catalog.Nearest(name, known, offered)}
}

// resolve finds what name stands for: one of known, or the only one that
// begins with it.
func resolve(kind, name string, known []string) (string, error) {
	var matches []string
	for _, candidate := range known {
		if candidate == name {
			return name, nil
		}
		if name != "" && strings.HasPrefix(candidate, name) {
			matches = append(matches, candidate)
		}
	}
	switch len(matches) {
	case 0:
		return "", notFound(kind, name, known)
	case 1:
		return matches[0], nil
	default:
		return "", &AmbiguousError{kind, name, matches}
	}
}
