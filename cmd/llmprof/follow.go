package main

import (
	"io"
	"os"
	"sync"
	"time"
)

// followed is a file that another program writes: a read at its end waits for
// more, until it is closed.
type followed struct {
	file *os.File
	done chan struct{}
	once sync.Once
}

// followInterval is how often the end of the file is looked at.
const followInterval = 20 * time.Millisecond

// follow opens a file at its end.
func follow(name string) (*followed, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fileError("read", name, err)
	}
	if _, err := file.Seek(0, io.SeekEnd); err != nil {
		_ = file.Close() // nothing was read
		return nil, fileError("read", name, err)
	}
	return &followed{file: file, done: make(chan struct{})}, nil
}

// Read returns what was written since, or waits for it.
func (f *followed) Read(p []byte) (int, error) {
	for {
		n, err := f.file.Read(p)
		if n > 0 || err != io.EOF {
			return n, err
		}
		select {
		case <-f.done:
			return 0, io.EOF
		case <-time.After(followInterval):
		}
	}
}

// Close ends waiting reads.
func (f *followed) Close() error {
	f.once.Do(func() { close(f.done) })
	return f.file.Close()
}
