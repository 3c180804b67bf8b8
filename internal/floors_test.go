package internal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// reach says what a room may do besides computing.
type reach int

const (
	// pure: values in, values out. No file, process, network or clock, and
	// the same on every floor.
	pure reach = iota
	// offline: may read and write files, but knows no network and no clock.
	offline
	// outside: may touch files, processes, clocks and the network.
	outside
)

// room is one row of the floor table in docs/architecture.md. A package may
// import packages of lower floors only; a subpackage stands on its room's
// floor and may import the package above it as well.
type room struct {
	path  string // relative to the module
	floor int
	reach reach
}

// topFloor is the floor of the command: it may import every room.
const topFloor = 14

// rooms is the floor table, including rooms that are not built yet.
func rooms() []room {
	return []room{
		{"unit", 0, pure},
		{"stat", 0, pure},
		{"settings", 0, pure},
		{"catalog", 1, pure},
		{"workload", 1, pure},
		{"deploy", 2, pure},
		{"forward", 2, pure},
		{"cost", 3, pure},
		{"hub", 3, outside},
		{"profile", 3, offline},
		{"gpu", 4, outside},
		{"format", 4, offline},
		{"engine", 5, outside},
		{"load", 6, outside},
		{"fit", 6, pure},
		{"measure", 7, outside},
		{"sim", 7, pure},
		{"mock", 8, outside},
		{"diagnose", 8, pure},
		{"plan", 9, pure},
		{"store", 9, outside},
		{"campaign", 10, outside},
		{"report", 11, offline},
		{"chart", 12, offline},
		{"tui", 13, offline},
		{"web", 13, outside},
		{"cmd/llmprof", topFloor, outside},
	}
}

// roomOf finds the room of a package, or of the package that it is below.
func roomOf(pkg string) (room, bool) {
	for _, r := range rooms() {
		if pkg == r.path || strings.HasPrefix(pkg, r.path+"/") {
			return r, true
		}
	}
	return room{}, false
}

// helper reports whether pkg serves tests only.
func helper(pkg string) bool { return pkg == "internal" || strings.HasPrefix(pkg, "internal/") }

// checkPlaced says what is wrong with where a package lies, if anything.
func checkPlaced(pkg string) error {
	if _, ok := roomOf(pkg); ok || helper(pkg) {
		return nil
	}
	return fmt.Errorf("package %s has no floor: put its content into a room of the floor table, or add the room to "+
		"rooms() in internal/floors_test.go and to docs/architecture.md, above everything that it imports", pkg)
}

// checkImport says why package from, in a file that is no test, may not
// import own package to; nil where it may. Packages without a floor are left
// to checkPlaced.
func checkImport(from, to string) error {
	if from == to || helper(from) {
		return nil
	}
	if helper(to) {
		return fmt.Errorf("%s imports %s: packages below internal serve tests only", from, to)
	}
	lower, ok := roomOf(to)
	if !ok {
		return nil
	}
	upper, ok := roomOf(from)
	if !ok || lower.floor < upper.floor {
		return nil
	}
	if strings.HasPrefix(from, to+"/") {
		return nil // a subpackage may use the package above it
	}
	return fmt.Errorf("%s (floor %d) imports %s (floor %d): a package imports from lower floors only, a subpackage also its parent; "+
		"move the shared part down, or declare an interface where it is used", from, upper.floor, to, lower.floor)
}

// ownPackage cuts the module's path off an import; ok is false for packages
// of others.
func ownPackage(importPath string) (pkg string, ok bool) {
	return strings.CutPrefix(importPath, modulePath+"/")
}

// TestFloors holds every import written in the module to the floor table,
// for all build constraints at once.
func TestFloors(t *testing.T) {
	sources := loadTree(t)
	for _, folder := range sources.folders() {
		if err := checkPlaced(folder); err != nil {
			t.Errorf("%s: %v", sources[folder][0].name, err)
		}
		for _, src := range sources[folder] {
			if src.test() {
				continue
			}
			for imported, pos := range src.imports() {
				if pkg, ok := ownPackage(imported); ok {
					if err := checkImport(folder, pkg); err != nil {
						t.Errorf("%s: %v", src.at(pos), err)
					}
				}
			}
		}
	}
}

// TestFloorsTransitive asks the go command for everything that each package
// is built from: no chain of imports may lead up, however long it is.
func TestFloorsTransitive(t *testing.T) {
	list := exec.Command("go", "list", "-e", "-json=ImportPath,Deps", "./...")
	list.Dir = repoRoot
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	seen := 0
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var listed struct {
			ImportPath string
			Deps       []string
		}
		if err := dec.Decode(&listed); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("read the answer of go list: %v", err)
		}
		from, ok := ownPackage(listed.ImportPath)
		if !ok {
			continue
		}
		seen++
		for _, dep := range listed.Deps {
			if to, ok := ownPackage(dep); ok {
				if err := checkImport(from, to); err != nil {
					t.Errorf("transitively, %v", err)
				}
			}
		}
	}
	if seen == 0 {
		t.Error("go list named no package of the module")
	}
}

func TestFloorsRefuse(t *testing.T) {
	tests := []struct {
		why      string
		from, to string
		ok       bool
	}{
		{why: "a lower floor is what imports are for", from: "cost", to: "catalog", ok: true},
		{why: "the command may use every room", from: "cmd/llmprof", to: "web", ok: true},
		{why: "a subpackage may use its parent", from: "format/vidur", to: "format", ok: true},
		{why: "a subpackage may use what its parent may", from: "cost/llmprofiler", to: "deploy", ok: true},
		{why: "a room on a higher floor may use a subpackage", from: "fit", to: "cost/llmprofiler", ok: true},
		{why: "a helper of tests may use any room", from: "internal/golden", to: "plan", ok: true},
		{why: "the import leads up", from: "catalog", to: "cost"},
		{why: "two rooms on one floor do not know each other", from: "cost", to: "hub"},
		{why: "nor do the subpackages of one room", from: "format/vidur", to: "format/vllm"},
		{why: "a parent does not know its subpackages", from: "cost", to: "cost/llmprofiler"},
		{why: "a subpackage stands on its room's floor", from: "cost/llmprofiler", to: "profile"},
		{why: "sharing the first letters does not make a subpackage", from: "cost", to: "cos"},
		{why: "helpers of tests stay out of the program", from: "sim", to: "internal/golden"},
		{why: "no room may use the command", from: "web", to: "cmd/llmprof"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			err := errors.Join(checkImport(test.from, test.to), checkPlaced(test.to))
			if (err == nil) != test.ok {
				t.Errorf("%s imports %s: got %v, want allowed %v", test.from, test.to, err, test.ok)
			}
		})
	}
	if err := checkPlaced("helpers"); err == nil || !strings.Contains(err.Error(), "add the room to") {
		t.Errorf("a package without a floor: got %v, want the advice to add a room", err)
	}
}
