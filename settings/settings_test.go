package settings_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/settings"
)

// read reads a file with one field of each kind.
func read(text string) (f *settings.File, seen string) {
	f = settings.Open("x.yaml", []byte(text))
	top := f.Top()
	if !top.Present() {
		return f, ""
	}
	fields := top.Fields("text", "number", "whole", "truth", "list", "inner")
	if v := fields.Get("text"); v.Present() {
		seen += "text " + v.Text() + ";"
	}
	if v := fields.Get("number"); v.Present() {
		seen += fmt.Sprint("number ", v.Number(), ";")
	}
	if v := fields.Get("whole"); v.Present() {
		seen += fmt.Sprint("whole ", v.Whole(1, 9), ";")
	}
	if v := fields.Get("truth"); v.Present() {
		seen += fmt.Sprint("truth ", v.Truth(), ";")
	}
	if v := fields.Get("list"); v.Present() {
		for _, one := range v.List() {
			seen += fmt.Sprint("item ", one.Number(), ";")
		}
	}
	if v := fields.Get("inner"); v.Present() {
		seen += "inner " + v.Fields("name").Get("name").Text() + ";"
	}
	return f, seen
}

func TestRead(t *testing.T) {
	for _, test := range []struct{ why, text, want string }{
		{"one of each", "text: a\nnumber: 1.5\nwhole: 3\ntruth: true\nlist: [1, 2]\ninner: {name: b}\n", "text a;number 1.5;whole 3;truth true;item 1;item 2;inner b;"},
		{"numbers in quotes", "number: '2'\nlist:\n- \"3\"\n", "number 2;item 3;"},
		{"null is nothing", "text: null\nnumber: ~\ntruth:\n", ""},
		{"a text of several lines", "text: |\n  a\n  b\n", "text a\nb;"},
		{"a byte order mark", "\ufefftext: a\n", "text a;"},
	} {
		if f, seen := read(test.text); seen != test.want || f.Err() != nil {
			t.Errorf("%s: %q, %v, want %q", test.why, seen, f.Err(), test.want)
		}
	}
}

func TestFaults(t *testing.T) {
	for _, test := range []struct{ why, text, want, hint string }{
		{"an unknown key", "text: a\ntxet: b\n", "x.yaml:2:1: unknown field \"txet\"\n    2 | txet: b\n        ^", "nearest known: text"},
		{"a key that stands twice", "text: a\ntext: b\n", `x.yaml:2:1: "text" stands twice`, ""},
		{"a number for a text", "text: 5\n", "x.yaml:1:7: text: want a text, got the number 5", "put it in quotes"},
		{"a text for a number", "number: many\n", `number: want a number, got the text "many"`, ""},
		{"no number", "number: .nan\n", "number: want a number, got the number .nan", ""},
		{"no end", "number: .inf\n", "number: want a number, got the number .inf", ""},
		{"a fraction", "whole: 1.5\n", "whole: want a whole number from 1 to 9", ""},
		{"out of range", "whole: 10\n", "whole: want a whole number from 1 to 9", ""},
		{"a word for a truth", "truth: ja\n", "truth: want true or false", ""},
		{"a scalar for a list", "list: 5\n", "list: want a list, got the number 5", ""},
		{"an empty list", "list: []\n", "list: the list is empty", ""},
		{"a list for a mapping", "inner: [a]\n", "inner: want a mapping, got a list", ""},
		{"a field that is missing", "inner: {}\n", "name: want a text, got nothing", ""},
		{"a list at the top", "- a\n", "want a mapping, got a list", ""},
		{"an alias", "text: &a b\nnumber: *a\n", "want a text, got something else", ""},
		{"an empty file", "# nothing\n", "x.yaml: the file is empty", ""},
		{"two documents", "text: a\n---\ntext: b\n", "a second document: want one", ""},
		{"no YAML", "text: [a\n", "not valid YAML", ""},
		{"no text", "text: \x00\n", "not UTF-8 text", ""},
		{"deep nesting", "list: " + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "\n", "nested deeper", ""},
		{"too long", strings.Repeat("#", settings.MaxBytes+1), "want at most", ""},
	} {
		f, _ := read(test.text)
		all, ok := errors.AsType[*settings.FileError](f.Err())
		if !ok || !strings.Contains(all.Error(), test.want) || all.Hint() != test.hint {
			t.Errorf("%s: error %v, hint %q; want %q, hint %q", test.why, f.Err(), all.Hint(), test.want, test.hint)
		}
	}
	f, _ := read("whole: x\nnumber: y\ntext: 1\n")
	if all, ok := errors.AsType[*settings.FileError](f.Err()); !ok || len(all.Faults) != 3 || all.Faults[0].Line != 1 || all.Faults[2].Line != 3 {
		t.Errorf("faults together, in their order: %v", f.Err())
	}
}

func TestNearest(t *testing.T) {
	for word, want := range map[string]string{"txet": "text", "list ": "list", "": "text", "turth": "truth"} {
		if got := settings.Nearest(word, []string{"text", "list", "truth"}); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add("text: a\nnumber: 1.5\nwhole: 3\ntruth: true\nlist: [1, 2]\ninner: {name: b}\n")
	f.Add("text: |\n  a\n? b\n: *c\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		file, seen := read(text)
		if err := file.Err(); err != nil && err.Error() == "" {
			t.Errorf("an error without a text after %q", seen)
		}
	})
}

func ExampleOpen() {
	f := settings.Open("load.yaml", []byte("seed: seven\nrat: 4\n"))
	top := f.Top().Fields("seed", "rate")
	_ = top.Get("seed").Number()
	fmt.Println(f.Err())
	// Output:
	// load.yaml:1:7: seed: want a number, got the text "seven"
	//     1 | seed: seven
	//               ^
	// load.yaml:2:1: unknown field "rat"
	//     2 | rat: 4
	//         ^
}

func TestEditDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"h1000", "h100", 1}, {"flaw", "lawn", 2}} {
		if got := settings.EditDistance(test.a, test.b); got != test.want {
			t.Errorf("%q to %q: %d edits, want %d", test.a, test.b, got, test.want)
		}
	}
}
