package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// TestFollow follows a log through what becomes of logs.
func TestFollow(t *testing.T) {
	name := filepath.Join(t.TempDir(), "server.log")
	write := func(flags int, text string) {
		t.Helper()
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|flags, 0o600)
		if err == nil {
			_, err = io.WriteString(file, text)
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(0, "what was before\n")
	log, err := follow(name)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	got := make(chan string)
	go func() {
		defer close(got)
		p := make([]byte, 4096)
		for {
			n, err := log.Read(p)
			if err != nil {
				return
			}
			got <- string(p[:n])
		}
	}()
	expect := func(want string) {
		t.Helper()
		said := ""
		for said != want {
			select {
			case text := <-got:
				said += text
			case <-time.After(5 * time.Minute):
				t.Fatalf("read %q, want %q", said, want)
			}
		}
	}
	write(os.O_APPEND, "first\n")
	expect("first\n")
	write(os.O_APPEND, "half a li")
	expect("half a li")
	write(os.O_TRUNC, "cut\n")
	expect("\ncut\n")
	if runtime.GOOS != "windows" { // where an open file cannot be moved
		if err := os.Rename(name, name+".1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * followInterval) // for a while there is none
		write(0, "the second file is longer than the first one was\n")
		expect("the second file is longer than the first one was\n")
	}
	write(os.O_APPEND, "more\n")
	expect("more\n")
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	if text, open := <-got; open {
		t.Errorf("read %q after the end", text)
	}
	if _, err := follow(name + ".none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
