package main

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// followed is a file that another program writes: a read at its end waits for
// more, until it is closed. A file that was cut, or replaced by another of its
// name as log rotation does, is followed from its new beginning.
type followed struct {
	name string
	done chan struct{}
	once sync.Once

	mu     sync.Mutex
	file   *os.File
	offset int64
	// open says that the last line that was read has no end yet.
	open bool
}

// followInterval is how often the end of the file is looked at.
const followInterval = 20 * time.Millisecond

// follow opens a file at its end.
func follow(name string) (*followed, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fileError("read", name, err)
	}
	offset, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		_ = file.Close() // nothing was read
		return nil, fileError("read", name, err)
	}
	return &followed{name: name, file: file, offset: offset, done: make(chan struct{})}, nil
}

// Read returns what was written since, or waits for it.
func (f *followed) Read(p []byte) (int, error) {
	for len(p) > 0 {
		n, err := f.more(p)
		if n > 0 || err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
		select {
		case <-f.done:
			return 0, io.EOF
		case <-time.After(followInterval):
		}
	}
	return 0, nil
}

// more reads what is there, of the file's successor where it has one.
func (f *followed) more(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.done:
		return 0, io.EOF
	default:
	}
	n, err := f.read(p)
	if n > 0 || !errors.Is(err, io.EOF) || !f.moved() {
		return n, err
	}
	// The last words may have come after the read, before the file was moved.
	if n, err := f.read(p); n > 0 || !errors.Is(err, io.EOF) {
		return n, err
	}
	if err := f.begin(); err != nil {
		return 0, io.EOF // it is tried again
	}
	if f.open { // what was cut off is no part of the new beginning
		f.open = false
		p[0] = '\n'
		return 1, nil
	}
	return f.read(p)
}

// read reads on in the file that is open.
func (f *followed) read(p []byte) (int, error) {
	n, err := f.file.Read(p)
	f.offset += int64(n)
	if n > 0 {
		f.open = p[n-1] != '\n'
	}
	return n, err
}

// moved reports whether the file was cut or replaced.
func (f *followed) moved() bool {
	now, err := os.Stat(f.name)
	if err != nil || !now.Mode().IsRegular() {
		return false // between two files of a rotation there is none
	}
	held, err := f.file.Stat()
	return err == nil && (!os.SameFile(now, held) || now.Size() < f.offset)
}

// begin opens the file anew, at its beginning.
func (f *followed) begin() error {
	file, err := os.Open(f.name)
	if err != nil {
		return err
	}
	_ = f.file.Close() // it was only read
	f.file, f.offset = file, 0
	return nil
}

// Close ends waiting reads.
func (f *followed) Close() error {
	f.once.Do(func() { close(f.done) })
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Close()
}
