package internal

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// modulePath is the module's own import path.
const modulePath = "github.com/llmprof/llmprof"

// repoRoot is the repository's folder, seen from this package.
const repoRoot = ".."

// source is one parsed Go file.
type source struct {
	name string // slash path relative to the repository root
	fset *token.FileSet
	file *ast.File
}

// test reports whether the file is compiled only into tests.
func (s source) test() bool { return strings.HasSuffix(s.name, "_test.go") }

// at is the position of a node as "file:line".
func (s source) at(pos token.Pos) string {
	return s.name + ":" + strconv.Itoa(s.fset.Position(pos).Line)
}

// imports maps every imported path to the position of its import.
func (s source) imports() map[string]token.Pos {
	found := make(map[string]token.Pos)
	for _, spec := range s.file.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			found[p] = spec.Pos()
		}
	}
	return found
}

// tree holds the Go files of the module by folder, a slash path relative to
// the root. Every file counts, whatever its build constraints say, so a rule
// also holds for the systems that the test does not run on.
type tree map[string][]source

// folders lists the folders in order.
func (t tree) folders() []string { return slices.Sorted(maps.Keys(t)) }

// loadTree parses every Go file of the module.
func loadTree(t *testing.T) tree {
	t.Helper()
	found := make(tree)
	walkRepo(t, func(name string) {
		if !strings.HasSuffix(name, ".go") {
			return
		}
		text, err := os.ReadFile(filepath.Join(repoRoot, filepath.FromSlash(name)))
		if err != nil {
			t.Fatalf("read a source file: %v", err)
		}
		src, err := parseSource(name, text)
		if err != nil {
			t.Errorf("parse a source file: %v", err)
			return
		}
		found[path.Dir(name)] = append(found[path.Dir(name)], src)
	})
	if len(found) == 0 {
		t.Fatalf("no Go file found below %s", repoRoot)
	}
	return found
}

// parseSource parses the text of one file under the name it is reported by.
func parseSource(name string, text []byte) (source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return source{}, fmt.Errorf("%s: %w", name, err)
	}
	return source{name: name, fset: fset, file: file}, nil
}

// walkRepo calls visit with the slash path of every file of the repository
// that belongs to it: hidden folders, testdata, vendored and built files stay
// out, as the go command would have it.
func walkRepo(t *testing.T, visit func(name string)) {
	t.Helper()
	err := filepath.WalkDir(repoRoot, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() {
			hidden := strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
			if file != repoRoot && (hidden || base == "testdata" || base == "vendor" || base == "dist") {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
			return nil
		}
		name, err := filepath.Rel(repoRoot, file)
		if err != nil {
			return err
		}
		visit(filepath.ToSlash(name))
		return nil
	})
	if err != nil {
		t.Fatalf("walk the repository: %v", err)
	}
}
