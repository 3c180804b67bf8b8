package store

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// maxText bounds an artefact's text in bytes; SQLite takes values up to
// 1,000,000,000 bytes.
const maxText = 512 << 20

// Artefact is a text with a name, and what it was made from.
type Artefact struct {
	// Hash is the SHA-256 of the text, without gzip, in hexadecimal digits. The
	// store fills it in.
	Hash string
	// Name may be shared: it stands for the newest artefact that carries it.
	Name string
	// Model, Device and Engine are what was measured; empty where not stated.
	Model, Device, Engine string
	// Created is when it was made; the zero time stands for now.
	Created time.Time
	// Text is the content, plain or gzip; lists leave it out. Path is a file
	// that has it instead. One of the two is given.
	Text []byte
	Path string
}

// Profile is a measured profile.
type Profile Artefact

// Predictor is a fitted predictor.
type Predictor Artefact

// Filter picks artefacts: those with all the values that it names.
type Filter struct{ Name, Model, Device, Engine string }

// The values of the column kind.
const (
	kindProfile   = "profile"
	kindPredictor = "predictor"
)

// PutProfile keeps a profile and returns its hash. A content that the store
// has takes the new name and description.
func (s *Store) PutProfile(ctx context.Context, p Profile) (hash string, err error) {
	return s.put(ctx, kindProfile, Artefact(p))
}

// Profiles lists the profiles that the filter picks, newest first, without
// their texts.
func (s *Store) Profiles(ctx context.Context, filter Filter) ([]Profile, error) {
	return list[Profile](ctx, s, kindProfile, filter)
}

// Profile finds a profile by its hash, its name, or a beginning that only its
// hash has, and reads its text. A file that no longer has the content that was
// put is an error.
func (s *Store) Profile(ctx context.Context, hashOrName string) (Profile, error) {
	a, err := s.get(ctx, kindProfile, hashOrName)
	return Profile(a), err
}

// DeleteProfile takes a profile out of the store; it is named as for
// [Store.Profile]. A file that holds it stays.
func (s *Store) DeleteProfile(ctx context.Context, hashOrName string) error {
	return s.remove(ctx, kindProfile, hashOrName)
}

// PutPredictor keeps a predictor, as [Store.PutProfile] does a profile.
func (s *Store) PutPredictor(ctx context.Context, p Predictor) (hash string, err error) {
	return s.put(ctx, kindPredictor, Artefact(p))
}

// Predictors lists predictors, as [Store.Profiles] does profiles.
func (s *Store) Predictors(ctx context.Context, filter Filter) ([]Predictor, error) {
	return list[Predictor](ctx, s, kindPredictor, filter)
}

// Predictor finds a predictor, as [Store.Profile] does a profile.
func (s *Store) Predictor(ctx context.Context, hashOrName string) (Predictor, error) {
	a, err := s.get(ctx, kindPredictor, hashOrName)
	return Predictor(a), err
}

// DeletePredictor takes a predictor out, as [Store.DeleteProfile] does a profile.
func (s *Store) DeletePredictor(ctx context.Context, hashOrName string) error {
	return s.remove(ctx, kindPredictor, hashOrName)
}

// put adds an artefact or renews what describes it.
func (s *Store) put(ctx context.Context, kind string, a Artefact) (hash string, err error) {
	doing := fmt.Sprintf("put %s %q", kind, a.Name)
	if err := errors.Join(checkName("name", a.Name), a.checkSource()); err != nil {
		return "", fmt.Errorf("%s: %w", doing, err)
	}
	text, err := a.read()
	if err != nil {
		return "", fmt.Errorf("%s: %w", doing, err)
	}
	var content []byte
	if a.Path == "" {
		if content, err = compress(text); err != nil {
			return "", fmt.Errorf("%s: %w", doing, err)
		}
	} else if a.Path, err = filepath.Abs(a.Path); err != nil {
		return "", fmt.Errorf("%s: %w", doing, err)
	}
	if a.Created.IsZero() {
		a.Created = s.now()
	}
	hash = hashOf(text)
	err = s.change(ctx, doing, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO artefacts (kind, hash, name, model, device, engine, created, path, content) VALUES (?,?,?,?,?,?,?,?,?)",
			kind, hash, a.Name, a.Model, a.Device, a.Engine, moment(a.Created), a.Path, content)
		return err
	})
	if err != nil {
		return "", err
	}
	return hash, nil
}

const artefactColumns = "hash, name, model, device, engine, created, path"

// scanArtefact reads artefactColumns, and into further what follows them.
func scanArtefact(scan func(...any) error, further ...any) (Artefact, error) {
	var a Artefact
	err := scan(append([]any{&a.Hash, &a.Name, &a.Model, &a.Device, &a.Engine, (*moment)(&a.Created), &a.Path}, further...)...)
	return a, err
}

// list reads what the artefacts of one kind are, newest first.
func list[T Artefact | Profile | Predictor](ctx context.Context, s *Store, kind string, f Filter) ([]T, error) {
	all, err := collect(ctx, s.db, func(scan func(...any) error) (T, error) {
		a, err := scanArtefact(scan)
		return T(a), err
	}, "SELECT "+artefactColumns+` FROM artefacts
		WHERE kind = ?1 AND ?2 IN ('', name) AND ?3 IN ('', model) AND ?4 IN ('', device) AND ?5 IN ('', engine)
		ORDER BY created DESC, rowid DESC`, kind, f.Name, f.Model, f.Device, f.Engine)
	return all, s.explain(fmt.Sprintf("list each %s", kind), err)
}

// get finds an artefact and reads its text.
func (s *Store) get(ctx context.Context, kind, hashOrName string) (Artefact, error) {
	doing := fmt.Sprintf("find %s %q", kind, hashOrName)
	known, err := list[Artefact](ctx, s, kind, Filter{})
	if err != nil {
		return Artefact{}, err
	}
	hash, err := findHash(kind, hashOrName, known)
	if err != nil {
		return Artefact{}, err
	}
	var content []byte
	a, err := scanArtefact(s.db.QueryRowContext(ctx, "SELECT "+artefactColumns+", content FROM artefacts WHERE kind = ? AND hash = ?", kind, hash).Scan, &content)
	if err != nil {
		return Artefact{}, s.explain(doing, err)
	}
	stored := a
	stored.Text = content
	if a.Text, err = stored.read(); err != nil {
		return Artefact{}, fmt.Errorf("%s: %w", doing, err)
	}
	if hashOf(a.Text) != a.Hash {
		return Artefact{}, fmt.Errorf("%s: %w", doing, &advisedError{"the content has changed since it was stored: " + cmp.Or(a.Path, s.path), "store it again"})
	}
	return a, nil
}

// remove deletes an artefact.
func (s *Store) remove(ctx context.Context, kind, hashOrName string) error {
	known, err := list[Artefact](ctx, s, kind, Filter{})
	if err != nil {
		return err
	}
	hash, err := findHash(kind, hashOrName, known)
	if err != nil {
		return err
	}
	return s.change(ctx, fmt.Sprintf("delete %s %q", kind, hashOrName), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM artefacts WHERE kind = ? AND hash = ?", kind, hash)
		return err
	})
}

// findHash prefers a whole hash to a name, and a name to the beginning of a
// hash; known are newest first.
func findHash(kind, hashOrName string, known []Artefact) (string, error) {
	var hashes, names []string
	named := ""
	for _, a := range known {
		if a.Hash == hashOrName {
			return a.Hash, nil
		}
		if a.Name == hashOrName && named == "" {
			named = a.Hash
		}
		hashes, names = append(hashes, a.Hash), append(names, a.Name)
	}
	if named != "" {
		return named, nil
	}
	hash, err := resolve(kind, hashOrName, hashes)
	if _, missing := errors.AsType[*NotFoundError](err); missing {
		return "", notFound(kind, hashOrName, names)
	}
	return hash, err
}

// checkSource asks for a text or a path.
func (a Artefact) checkSource() error {
	if (len(a.Text) == 0) == (a.Path == "") {
		return errors.New("want either a text or the path of a file")
	}
	return nil
}

// read returns the plain text, from the file if there is one.
func (a Artefact) read() ([]byte, error) {
	if a.Path == "" {
		return plain(bytes.NewReader(a.Text), maxText)
	}
	file, err := os.Open(a.Path)
	if err != nil {
		return nil, &FileError{a.Path, "cannot be read", "put the file back, or store the text itself", err}
	}
	defer file.Close()
	text, err := plain(file, maxText)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", a.Path, err)
	}
	return text, nil
}

// plain reads a text that may be gzip, of at most limit bytes without it.
func plain(from io.Reader, limit int64) ([]byte, error) {
	head := make([]byte, len(gzipMagic))
	n, err := io.ReadFull(from, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	from = io.MultiReader(bytes.NewReader(head[:n]), from)
	if string(head[:n]) == gzipMagic {
		if from, err = gzip.NewReader(from); err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
	}
	text, err := io.ReadAll(io.LimitReader(from, limit+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > limit:
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	case len(text) == 0:
		return nil, errors.New("it is empty")
	}
	return text, nil
}

const gzipMagic = "\x1f\x8b"

func compress(text []byte) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(text)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	return b.Bytes(), nil
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
