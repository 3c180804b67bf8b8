package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// migrations are applied in the order of their names; the number of those
// that were is the version of a database.
//
//go:embed migrations/*.sql
var migrations embed.FS

// applicationID marks an SQLite file as a store: "llmp".
const applicationID = 0x6c6c6d70

// prepare refuses a database that is not ours or is newer, before anything
// is written, and brings all others up to date.
func (s *Store) prepare(ctx context.Context) error {
	steps, err := migrationTexts()
	if err != nil {
		return err
	}
	version := 0
	err = whileBusy(ctx, func() (err error) {
		version, err = s.versionOf(ctx, s.db, len(steps))
		return err
	})
	if err != nil {
		return err
	}
	// Readers and a writer do not wait for each other in this mode. It stays
	// in the file, and the change to it does not wait for other processes.
	err = whileBusy(ctx, func() error {
		var mode string
		if err := s.db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil || mode == "wal" {
			return err
		}
		return s.db.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
	})
	if err != nil || version == len(steps) {
		return err
	}
	return s.migrate(ctx, steps)
}

// migrate applies the steps that the database has not seen.
func (s *Store) migrate(ctx context.Context, steps []string) error {
	return s.change(ctx, "bring it up to date", func(tx *sql.Tx) error {
		// Another process may have done it since.
		version, err := s.versionOf(ctx, tx, len(steps))
		if err != nil {
			return err
		}
		for _, step := range steps[version:] {
			if _, err := tx.ExecContext(ctx, step); err != nil {
				return err
			}
		}
		_, err = tx.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, len(steps)))
		return err
	})
}

// versionOf reads the version of a database, 0 for an empty one. It refuses a
// database of another program, and one that is newer than known.
func (s *Store) versionOf(ctx context.Context, from reader, known int) (int, error) {
	var id, version, objects int
	err := from.QueryRowContext(ctx, "SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_schema)").
		Scan(&id, &version, &objects)
	switch {
	case err != nil:
		return 0, err
	case id == 0 && version == 0 && objects == 0:
		return 0, nil
	case id != applicationID || version < 1:
		return 0, &NotStoreError{s.path, "is a database of another program"}
	case version > known:
		return 0, &VersionError{s.path, version, known}
	}
	return version, nil
}

// migrationTexts reads the embedded steps in order.
func migrationTexts() ([]string, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("list the migrations: %w", err)
	}
	var steps []string
	for _, name := range names {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read a migration: %w", err)
		}
		steps = append(steps, string(text))
	}
	return steps, nil
}

// whileBusy tries again while another process holds the database in a way for
// which SQLite itself does not wait.
func whileBusy(ctx context.Context, try func() error) error {
	const pause = 10 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := try()
		if !isBusy(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}
