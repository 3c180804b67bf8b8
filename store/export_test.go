package store

import (
	"context"
	"database/sql"
	"time"
)

// DefaultPathOn is DefaultPath on another system.
func DefaultPathOn(goos string, getenv func(string) string) (string, error) {
	return defaultPath(goos, getenv)
}

// SetClock replaces the store's clock.
func (s *Store) SetClock(now func() time.Time) { s.now = now }

// DB is the database behind the store.
func (s *Store) DB() *sql.DB { return s.db }

// MakeVersion makes a database as the llmprof of an older version did.
func MakeVersion(ctx context.Context, path string, version int) error {
	source, err := locate(path)
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite", source)
	if err != nil {
		return err
	}
	defer db.Close()
	steps, err := migrationTexts()
	if err != nil {
		return err
	}
	return (&Store{db: db, path: path}).migrate(ctx, steps[:version])
}

// Newest is the version that this llmprof writes.
func Newest() int {
	steps, err := migrationTexts()
	if err != nil {
		return -1
	}
	return len(steps)
}

// Plain is the reader of texts that may be gzip.
var Plain = plain
