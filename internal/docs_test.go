package internal

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

var updateDocs = flag.Bool("update-docs", false, "replace outdated output in the documentation by what is printed")

// command is one "$ …" line of a page and what the page shows below it.
type command struct {
	line int      // of the "$", from 1
	text string   // without the "$ "
	want []string // the lines shown below
	from int      // index of the first shown line
}

// page is a document with commands: a Markdown file or a package comment.
type page struct {
	name     string   // slash path relative to the root
	lines    []string // its text
	commands []command
	files    []string // to be copied into the folder where it runs
}

// parsePage finds the commands in ```console blocks and the files named in
// <!-- files: a b --> comments.
func parsePage(name, text string) (page, error) {
	p := page{name: name, lines: strings.Split(text, "\n")}
	language, begin := "", -1 // of the open block, and its first line; -1 outside
	for i := 0; i < len(p.lines); i++ {
		line := p.lines[i]
		if fence, ok := strings.CutPrefix(strings.TrimSpace(line), "```"); ok {
			if begin < 0 {
				language, begin = strings.TrimSpace(fence), i
			} else {
				begin = -1
			}
			continue
		}
		if list, ok := strings.CutPrefix(strings.TrimSpace(line), "<!-- files:"); ok && begin < 0 {
			list, closed := strings.CutSuffix(list, "-->")
			if !closed {
				return page{}, fmt.Errorf("%s:%d: files comment does not end on its line", name, i+1)
			}
			p.files = append(p.files, strings.Fields(list)...)
		}
		if begin < 0 || language != "console" {
			continue
		}
		text, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			if len(p.commands) == 0 || p.commands[len(p.commands)-1].line <= begin {
				return page{}, fmt.Errorf("%s:%d: a console block starts with a line \"$ command\"", name, i+1)
			}
			last := &p.commands[len(p.commands)-1]
			last.want = append(last.want, line)
			continue
		}
		found := command{line: i + 1}
		for strings.HasSuffix(text, "\\") && i+1 < len(p.lines) {
			i++
			text = strings.TrimSuffix(text, "\\") + strings.TrimPrefix(p.lines[i], "> ")
		}
		found.text, found.from = text, i+1
		p.commands = append(p.commands, found)
	}
	if begin >= 0 {
		return page{}, fmt.Errorf("%s:%d: block does not end", name, begin+1)
	}
	return p, nil
}

// commentPage turns the code of a package comment into a page: an indented
// line "$ llmprof …" and the indented lines below it.
func commentPage(src source) page {
	p := page{name: src.name}
	if src.file.Doc == nil {
		return p
	}
	first := src.fset.Position(src.file.Doc.Pos()).Line
	for i, line := range strings.Split(src.file.Doc.Text(), "\n") {
		code, indented := strings.CutPrefix(line, "\t")
		text, isCommand := strings.CutPrefix(code, "$ ")
		switch {
		case indented && isCommand:
			p.commands = append(p.commands, command{line: first + i, text: text})
		case indented && len(p.commands) > 0:
			last := &p.commands[len(p.commands)-1]
			last.want = append(last.want, code)
		}
	}
	return p
}

// matches compares printed lines with shown ones. A shown line "…" or "..."
// stands for any number of lines; "…" inside a line for any text. Space at
// the end of lines, and empty lines at the end, do not count.
func matches(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if shown := strings.TrimSpace(want[0]); shown == "…" || shown == "..." {
		for skip := range len(got) + 1 {
			if matches(want[1:], got[skip:]) {
				return true
			}
		}
		return false
	}
	return len(got) > 0 && lineMatches(want[0], got[0]) && matches(want[1:], got[1:])
}

// lineMatches compares one line, with "…" for any text.
func lineMatches(want, got string) bool {
	want, got = strings.TrimRight(want, " \t\r"), strings.TrimRight(got, " \t\r")
	if want == got {
		return true
	}
	parts := strings.Split(want, "…")
	if len(parts) == 1 {
		return false
	}
	last := len(parts) - 1
	if len(got) < len(parts[0])+len(parts[last]) || !strings.HasPrefix(got, parts[0]) || !strings.HasSuffix(got, parts[last]) {
		return false
	}
	got = got[len(parts[0]) : len(got)-len(parts[last])]
	for _, part := range parts[1:last] {
		_, after, found := strings.Cut(got, part)
		if !found {
			return false
		}
		got = after
	}
	return true
}

// trimEmpty drops empty lines at the end.
func trimEmpty(lines []string) []string {
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// runner executes the commands of a page in a folder of its own.
type runner struct {
	binaries string          // folder of the built llmprof
	work     string          // the page's folder
	targets  map[string]bool // of the Makefile
}

// run executes one command as a shell would and returns what it prints on
// both streams; a status other than 0 is the last line "exit status N". ran
// is false for a command that is only checked to exist.
func (r runner) run(text string) (lines []string, ran bool, err error) {
	text = regexp.MustCompile(`\bgo run \./cmd/llmprof\b`).ReplaceAllString(text, "llmprof")
	words := strings.Fields(text)
	for len(words) > 0 && regexp.MustCompile(`^[A-Z_]+=`).MatchString(words[0]) {
		words = words[1:]
	}
	if len(words) == 0 {
		return nil, false, errors.New("no command")
	}
	switch words[0] {
	case "llmprof", "cat", "head", "tail", "ls", "echo", "printf", "sort", "gzip", "zcat", "mkdir":
	case "make":
		for _, target := range words[1:] {
			if !r.targets[target] {
				return nil, false, fmt.Errorf("the Makefile has no target %s", target)
			}
		}
		return nil, false, nil
	case "cd", "git", "go":
		return nil, false, nil
	default:
		return nil, false, fmt.Errorf("command %s is not one that the test runs", words[0])
	}
	shell := exec.Command("sh", "-c", text)
	shell.Dir = r.work
	shell.Env = r.environment()
	shell.WaitDelay = time.Minute
	var both bytes.Buffer
	shell.Stdout, shell.Stderr = &both, &both
	timer := time.AfterFunc(10*time.Minute, func() {
		if shell.Process != nil {
			_ = shell.Process.Kill() // the error of Wait says so
		}
	})
	defer timer.Stop()
	err = shell.Run()
	lines = trimEmpty(strings.Split(both.String(), "\n"))
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return append(lines, fmt.Sprintf("exit status %d", exit.ExitCode())), true, nil
	}
	return lines, true, err
}

// environment is a newcomer's: an empty home, no colour, no network.
func (r runner) environment() []string {
	home := filepath.Join(r.work, ".home")
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return strings.HasPrefix(name, "LLMPROF_") || strings.HasPrefix(name, "HF_") || strings.HasPrefix(name, "XDG_")
	})
	return append(env, "HOME="+home, "XDG_CONFIG_HOME="+filepath.Join(home, ".config"), "XDG_CACHE_HOME="+filepath.Join(home, ".cache"),
		"PATH="+r.binaries+string(os.PathListSeparator)+os.Getenv("PATH"),
		"NO_COLOR=1", "TERM=dumb", "LC_ALL=C", "HF_HUB_OFFLINE=1")
}

// check runs every command of a page and reports what differs from it. It
// returns the page's lines with outdated output replaced.
func (r runner) check(t *testing.T, p page) []string {
	t.Helper()
	for _, file := range p.files {
		text, err := os.ReadFile(filepath.Join(repoRoot, filepath.FromSlash(file)))
		if err == nil {
			err = os.WriteFile(filepath.Join(r.work, filepath.Base(file)), text, 0o600)
		}
		if err != nil {
			t.Errorf("%s: files comment: %v", p.name, err)
		}
	}
	fresh := slices.Clone(p.lines)
	grown := 0
	for _, c := range p.commands {
		got, ran, err := r.run(c.text)
		if err != nil {
			t.Errorf("%s:%d: $ %s: %v", p.name, c.line, c.text, err)
			continue
		}
		if !ran || matches(trimEmpty(c.want), got) {
			continue
		}
		report, update := t.Errorf, *updateDocs && p.lines != nil
		if update && newlyFails(c.want, got) {
			t.Errorf("%s:%d: $ %s: the command fails and the page does not say so: mend it, or write its exit status on the page first", p.name, c.line, c.text)
			update = false
		}
		if update {
			report = t.Logf
		}
		report("%s:%d: $ %s\nthe page shows:\n%s\nprinted is:\n%s", p.name, c.line, c.text, indent(c.want), indent(got))
		if update {
			from := c.from + grown
			fresh = slices.Replace(fresh, from, from+len(c.want), got...)
			grown += len(got) - len(c.want)
		}
	}
	return fresh
}

// newlyFails reports whether a command ends with a status that the page does
// not show: -update-docs must not turn a fault into documentation.
func newlyFails(want, got []string) bool {
	status := func(line string) bool { return strings.HasPrefix(line, "exit status ") }
	return len(got) > 0 && status(got[len(got)-1]) && !slices.ContainsFunc(want, status)
}

// indent sets lines off from the message around them.
func indent(lines []string) string { return "\t" + strings.Join(lines, "\n\t") }

// TestDocs runs the commands of every page of the documentation with a fresh
// binary and compares what they print with what the page shows. Run with
// -update-docs to rewrite the pages, but for commands that fail and did not.
func TestDocs(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the pages are written for a POSIX shell")
	}
	pages := documents(t)
	binaries := buildBinary(t)
	targets := makeTargets(t)
	for _, p := range pages {
		t.Run(p.name, func(t *testing.T) {
			fresh := runner{binaries: binaries, work: t.TempDir(), targets: targets}.check(t, p)
			if !*updateDocs || p.lines == nil || slices.Equal(fresh, p.lines) {
				return
			}
			file := filepath.Join(repoRoot, filepath.FromSlash(p.name))
			if err := os.WriteFile(file, []byte(strings.Join(fresh, "\n")), 0o644); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s is rewritten", p.name)
		})
	}
}

// documents returns all pages: README.md, CONTRIBUTING.md, docs/*.md and the
// package comments. The README must show the program at work. Looking through
// the tree for them also makes a cached result of the test depend on every
// source file, which a build in another process would not.
func documents(t *testing.T) []page {
	t.Helper()
	var pages []page
	shown := false
	for _, name := range append([]string{"README.md", "CONTRIBUTING.md"}, guides(t)...) {
		text, err := os.ReadFile(filepath.Join(repoRoot, filepath.FromSlash(name)))
		if err != nil {
			t.Fatalf("the documentation is incomplete: %v", err)
		}
		p, err := parsePage(name, string(text))
		if err != nil {
			t.Fatal(err)
		}
		if name == "README.md" {
			shown = slices.ContainsFunc(p.commands, func(c command) bool { return strings.Contains(c.text, "llmprof ") })
		}
		pages = append(pages, p)
	}
	if !shown {
		t.Error("README.md runs no llmprof command in a ```console block")
	}
	sources := loadTree(t)
	for _, folder := range sources.folders() {
		for _, src := range sources[folder] {
			if p := commentPage(src); len(p.commands) > 0 {
				pages = append(pages, p)
			}
		}
	}
	return pages
}

// guides lists the Markdown files below docs.
func guides(t *testing.T) []string {
	t.Helper()
	var names []string
	walkRepo(t, func(name string) {
		if strings.HasPrefix(name, "docs/") && strings.HasSuffix(name, ".md") {
			names = append(names, name)
		}
	})
	return names
}

// buildBinary builds the command and returns the folder it lies in.
func buildBinary(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(folder, "llmprof"), "./cmd/llmprof")
	build.Dir = repoRoot
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build llmprof: %v\n%s", err, out)
	}
	return folder
}

// makeTargets reads the names of the Makefile's targets.
func makeTargets(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repoRoot, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := make(map[string]bool)
	for _, found := range regexp.MustCompile(`(?m)^([a-z][a-z-]*):`).FindAllStringSubmatch(string(text), -1) {
		targets[found[1]] = true
	}
	return targets
}

// TestDocLinks follows the links between the pages.
func TestDocLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s#]+)(#[^)]*)?\)`)
	walkRepo(t, func(name string) {
		if !strings.HasSuffix(name, ".md") {
			return
		}
		text, err := os.ReadFile(filepath.Join(repoRoot, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(found[1], ":") {
				continue // an address outside
			}
			target := filepath.Join(repoRoot, filepath.Dir(filepath.FromSlash(name)), filepath.FromSlash(found[1]))
			if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s links to %s, which does not exist", name, found[1])
			}
		}
	})
}

func TestPageParsing(t *testing.T) {
	text := strings.Join([]string{
		"# Title", "<!-- files: a.json b/c.json -->", "```sh", "$ not run", "```",
		"```console", "$ llmprof a \\", "> --b", "one", "", "two", "$ llmprof c", "```", "",
	}, "\n")
	p, err := parsePage("x.md", text)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a.json", "b/c.json"}; !slices.Equal(p.files, want) {
		t.Errorf("files %q, want %q", p.files, want)
	}
	if len(p.commands) != 2 {
		t.Fatalf("%d commands, want the 2 of the console block: %+v", len(p.commands), p.commands)
	}
	first, second := p.commands[0], p.commands[1]
	if first.text != "llmprof a --b" || first.line != 7 || first.from != 8 || !slices.Equal(first.want, []string{"one", "", "two"}) {
		t.Errorf("first command is %+v", first)
	}
	if second.text != "llmprof c" || len(second.want) != 0 {
		t.Errorf("second command is %+v", second)
	}
	for _, broken := range []string{"```console\nno dollar\n```\n", "```console\n$ llmprof\n", "<!-- files: a\n-->\n"} {
		if _, err := parsePage("x.md", broken); err == nil {
			t.Errorf("%q: no fault found", broken)
		}
	}
}

func TestPageMatching(t *testing.T) {
	tests := []struct {
		why       string
		want, got string
		ok        bool
	}{
		{why: "equal text", want: "a\nb", got: "a\nb", ok: true},
		{why: "space at the end does not show", want: "a", got: "a  ", ok: true},
		{why: "an ellipsis line stands for many", want: "a\n…\nd", got: "a\nb\nc\nd", ok: true},
		{why: "or for none", want: "a\n...\nd", got: "a\nd", ok: true},
		{why: "an ellipsis ends a line", want: "took …", got: "took 3 ms", ok: true},
		{why: "or fills it", want: "took … ms, … MB", got: "took 3 ms, 4 MB", ok: true},
		{why: "a different figure", want: "a 1", got: "a 2"},
		{why: "a line too few", want: "a", got: "a\nb"},
		{why: "a line too many", want: "a\nb", got: "a"},
		{why: "what follows the ellipsis must come", want: "a\n…\nd", got: "a\nb\nc"},
		{why: "the rest of a filled line counts", want: "took … ms", got: "took 3 s"},
		{why: "the parts may not overlap", want: "aba…aba", got: "aba"},
		{why: "three dots inside a line are three dots", want: "a ...", got: "a b"},
		{why: "space at the start counts", want: " a", got: "a"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			if got := matches(strings.Split(test.want, "\n"), strings.Split(test.got, "\n")); got != test.ok {
				t.Errorf("%q against %q: %v, want %v", test.want, test.got, got, test.ok)
			}
		})
	}
}

func TestUpdateKeepsFaultsOut(t *testing.T) {
	tests := []struct {
		why       string
		want, got []string
		fails     bool
	}{
		{why: "other output", want: []string{"a"}, got: []string{"b"}},
		{why: "a failure that is new", want: []string{"a"}, got: []string{"error: b", "exit status 1"}, fails: true},
		{why: "a failure where nothing was shown", got: []string{"exit status 1"}, fails: true},
		{why: "a failure that the page shows", want: []string{"error: a", "exit status 2"}, got: []string{"error: b", "exit status 1"}},
		{why: "a failure that is mended", want: []string{"exit status 2"}, got: []string{"a"}},
		{why: "an output that only speaks of a status", got: []string{"exit status 0 means success", "ok"}},
		{why: "nothing at all"},
	}
	for _, test := range tests {
		if got := newlyFails(test.want, test.got); got != test.fails {
			t.Errorf("%s: %v, want %v", test.why, got, test.fails)
		}
	}
}

// TestRunner runs commands whose outcome is known, so that TestDocs
// cannot pass by running nothing.
func TestRunner(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the pages are written for a POSIX shell")
	}
	r := runner{binaries: t.TempDir(), work: t.TempDir(), targets: map[string]bool{"test": true}}
	script := "#!/bin/sh\necho \"$@\"\necho home $HOME >&2\nexit 3\n"
	if err := os.WriteFile(filepath.Join(r.binaries, "llmprof"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	got, ran, err := r.run("NO_COLOR=1 go run ./cmd/llmprof models 'a b'")
	want := []string{"models a b", "home " + filepath.Join(r.work, ".home"), "exit status 3"}
	if err != nil || !ran || !slices.Equal(got, want) {
		t.Errorf("got %q, ran %v, %v; want %q", got, ran, err, want)
	}
	if _, ran, err := r.run("make test"); ran || err != nil {
		t.Errorf("make test: ran %v, %v; want it to be known and not run", ran, err)
	}
	for _, text := range []string{"make nothing", "rm -rf x", "A=1"} {
		if _, _, err := r.run(text); err == nil {
			t.Errorf("%s: want it refused", text)
		}
	}
}
