package place

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"
)

// CopyIn writes a file, whole or not at all, and checks that every byte
// arrived.
func (r *Remote) CopyIn(ctx context.Context, path string, content io.Reader, mode uint32) error {
	what := fmt.Sprintf("copy to %s on %s", path, r)
	if err := checkPath(path); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	s, err := r.run(ctx, func(mark string) string { return copyInScript(mark, path, mode) })
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer s.drop()
	stop := context.AfterFunc(ctx, s.link.drop)
	defer stop()
	sent, err := io.Copy(s.link.stdin(), contextReader{ctx, content})
	if err == nil {
		err = s.link.stdin().Close()
	}
	if err == nil {
		err = s.answer()
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", what, ctx.Err())
	case err != nil:
		_ = s.link.stdin().Close()
		_, _, _ = s.link.wait()
		if text := s.last.String(); text != "" {
			err = errors.New(text)
		}
		return fmt.Errorf("%s: %w", what, err)
	case strings.TrimSpace(s.rest) != strconv.FormatInt(sent, 10):
		return fmt.Errorf("%s: %d bytes were sent and %s arrived", what, sent, s.rest)
	}
	return nil
}

// CopyOut reads a file; one that ends too early is an error of the reader.
func (r *Remote) CopyOut(ctx context.Context, path string) (io.ReadCloser, error) {
	what := fmt.Sprintf("copy %s from %s", path, r)
	if err := checkPath(path); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	s, err := r.run(ctx, func(mark string) string { return copyOutScript(mark, path) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	size, err := strconv.ParseInt(strings.TrimSpace(s.rest), 10, 64)
	if s.word == "file" && err == nil {
		f := &remoteFile{session: s, what: what, left: size, from: s.out}
		f.stop = context.AfterFunc(ctx, s.link.drop)
		return f, nil
	}
	s.drop()
	switch s.word {
	case "none":
		return nil, fmt.Errorf("%s: %w", what, fs.ErrNotExist)
	case "denied":
		return nil, fmt.Errorf("%s: %w", what, fs.ErrPermission)
	case "folder":
		return nil, fmt.Errorf("%s: it is a folder", what)
	}
	return nil, fmt.Errorf("%s: the shell answered %q", what, s.word+" "+s.rest)
}

// remoteFile is a file that is being read.
type remoteFile struct {
	*session
	what string
	left int64 // what has to come at least, in bytes
	from *bufio.Reader
	stop func() bool
}

// Read fails where less comes than the file held.
func (f *remoteFile) Read(b []byte) (int, error) {
	n, err := f.from.Read(b)
	f.left -= int64(n)
	if errors.Is(err, io.EOF) && f.left > 0 {
		err = fmt.Errorf("%s: %w, %d bytes are missing", f.what, io.ErrUnexpectedEOF, f.left)
	}
	return n, err
}

// Close ends the transfer.
func (f *remoteFile) Close() error {
	f.stop()
	f.drop()
	return nil
}

// removePatience is how long the removal of a folder may take.
const removePatience = 30 * time.Second

// TempDir makes a folder that only the user at the place can read.
func (r *Remote) TempDir(ctx context.Context) (string, func() error, error) {
	s, err := r.run(ctx, tempDirScript)
	if err != nil {
		return "", nil, fmt.Errorf("make a folder on %s: %w", r, err)
	}
	dir := s.rest
	s.close(time.Second)
	if s.word != "folder" || !strings.HasPrefix(dir, "/") {
		return "", nil, fmt.Errorf("make a folder on %s: the shell answered %q", r, s.word+" "+dir)
	}
	remove := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removePatience)
		defer cancel()
		s, err := r.run(ctx, func(mark string) string {
			return "rm -rf " + quote(dir) + " && echo " + mark + " removed\n"
		})
		if err != nil {
			return fmt.Errorf("remove %s on %s: %w", dir, r, err)
		}
		s.close(time.Second)
		return nil
	}
	return dir, remove, nil
}

// checkPath refuses what no file is called.
func checkPath(path string) error {
	if path == "" || strings.Contains(path, "\x00") {
		return fmt.Errorf("path %q: %w", path, fs.ErrInvalid)
	}
	return nil
}
