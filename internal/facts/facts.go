// Package facts reads texts that state rules one by one: each in words, with
// the arithmetic, the smallest load that shows it, and what must come of it.
// Nobody needs to write Go to add one.
//
//	standard block_size=4 max_num_batched_tokens=16
//
//	fact a decode comes first, an admission gets what it leaves
//	# A takes 1 of 16 tokens, so 15 are left for the 20 of B.
//	config threshold=0
//	req A arrival=1 prompt=4 output=4
//	req B arrival=2 prompt=20 output=1
//	----
//	step 2 sched=A:1,B:15
//	no step 9
//
// The standard line holds the settings of all facts of a text; the config line
// of a fact, which may be absent, changes or adds some. A line "same" stands for
// the load of the fact before. The other lines above "----" are the load and
// are handed on as they are.
//
// Below "----" stands what is wanted of the output. A line begins with the name
// of an output line (its first word, for steps its first two), and each
// name=value after that must stand in that line just so; fields that are not
// named may be anything. "no NAME" wants that there is no such line, and
// "refused TEXT" that the load or the settings are refused in words that hold
// TEXT.
package facts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// Fact is one rule with a load that shows it.
type Fact struct {
	// Title is the rule in words.
	Title string
	// File and Line are where it stands; lines count from 1.
	File string
	Line int
	// Config is the settings as name=value words: those of the text, then the
	// changed ones in their place and the added ones.
	Config []string
	// Load is the other lines above "----".
	Load []string
	// Want is the lines below it, in words.
	Want [][]string

	reasons int
}

// ReadFolder reads the facts of all texts of a folder, NAME.txt, in order of
// their names. Every title stands in one of them only.
func ReadFolder(folder fs.FS) ([]Fact, error) {
	names, err := fs.Glob(folder, "*.txt")
	if err != nil {
		return nil, fmt.Errorf("list facts: %w", err)
	}
	var all []Fact
	for _, name := range names {
		text, err := fs.ReadFile(folder, name)
		if err != nil {
			return nil, fmt.Errorf("read facts: %w", err)
		}
		read, err := Read(name, bytes.NewReader(text))
		if err != nil {
			return nil, err
		}
		for _, f := range read {
			at := slices.IndexFunc(all, func(o Fact) bool { return o.Title == f.Title })
			if at >= 0 {
				return nil, fmt.Errorf("%s:%d: fact %q stands in %s:%d too", name, f.Line, f.Title, all[at].File, all[at].Line)
			}
		}
		all = append(all, read...)
	}
	return all, nil
}

// Read reads the facts of a text; name stands for it in errors. Every fact has a title of its own, a comment
// with the arithmetic, a load, and something that is wanted.
func Read(name string, from io.Reader) ([]Fact, error) {
	text, err := io.ReadAll(from)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	r := reader{name: name}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if err := r.line(number, strings.TrimSpace(line)); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, number, err)
		}
	}
	if err := r.close(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(r.facts) == 0 {
		return nil, fmt.Errorf("%s: no facts", name)
	}
	return r.facts, nil
}

// reader is the state of [Read].
type reader struct {
	name     string
	standard []string
	facts    []Fact
	wanting  bool // below "----"
}

func (r *reader) line(number int, text string) error {
	word, rest, _ := strings.Cut(text, " ")
	switch {
	case text == "":
		return nil
	case word == "fact":
		return r.open(number, rest)
	case len(r.facts) == 0 && strings.HasPrefix(text, "#"):
		return nil
	case len(r.facts) == 0 && word == "standard" && r.standard == nil:
		r.standard = strings.Fields(rest)
		return nil
	case len(r.facts) == 0:
		return fmt.Errorf("%.40q: want a comment, one standard line or a fact", text)
	}
	f := &r.facts[len(r.facts)-1]
	switch {
	case strings.HasPrefix(text, "#"):
		f.reasons++
	case text == "----" && !r.wanting:
		r.wanting = true
	case r.wanting:
		return f.want(text)
	case word == "config":
		f.Config = changed(f.Config, strings.Fields(rest))
	case text == "same":
		if len(r.facts) < 2 || len(f.Load) > 0 {
			return errors.New("same: want a fact before, and no other load")
		}
		f.Load = slices.Clone(r.facts[len(r.facts)-2].Load)
	default:
		f.Load = append(f.Load, text)
	}
	return nil
}

// open begins a fact.
func (r *reader) open(number int, title string) error {
	if err := r.close(); err != nil {
		return err
	}
	if title == "" || slices.ContainsFunc(r.facts, func(f Fact) bool { return f.Title == title }) {
		return fmt.Errorf("fact %q: want a title that no other has", title)
	}
	r.facts = append(r.facts, Fact{Title: title, File: r.name, Line: number, Config: slices.Clone(r.standard)})
	r.wanting = false
	return nil
}

// close looks at the last fact as a whole.
func (r *reader) close() error {
	if len(r.facts) == 0 {
		return nil
	}
	f := r.facts[len(r.facts)-1]
	switch {
	case f.reasons == 0:
		return fmt.Errorf("fact %q: no comment says how its numbers come about", f.Title)
	case len(f.Load) == 0:
		return fmt.Errorf("fact %q: no load", f.Title)
	case len(f.Want) == 0:
		return fmt.Errorf("fact %q: nothing is wanted", f.Title)
	}
	return nil
}

// want takes a line below "----".
func (f *Fact) want(text string) error {
	words := strings.Fields(text)
	name, rest := nameOf(words)
	switch words[0] {
	case "no":
		if name, rest = nameOf(words[1:]); name == "" || len(rest) > 0 {
			return fmt.Errorf("%q: want no and the name of a line", text)
		}
	case "refused":
		if len(words) == 1 {
			return fmt.Errorf("%q: want the words of the error", text)
		}
	default:
		loose := slices.IndexFunc(rest, func(w string) bool { return !strings.Contains(w, "=") })
		if name == "" || len(rest) == 0 || loose >= 0 {
			return fmt.Errorf("%q: want the name of a line and name=value", text)
		}
	}
	f.Want = append(f.Want, words)
	return nil
}

// nameOf splits a line into its name and the words after that.
func nameOf(words []string) (name string, rest []string) {
	parts := 1
	if len(words) > 0 && words[0] == "step" {
		parts = 2
	}
	if len(words) < parts {
		return "", nil
	}
	return strings.Join(words[:parts], " "), words[parts:]
}

// changed puts settings in place of those of the same name.
func changed(settings, changes []string) []string {
	for _, word := range changes {
		key, _, _ := strings.Cut(word, "=")
		at := slices.IndexFunc(settings, func(w string) bool { return strings.HasPrefix(w, key+"=") })
		if at < 0 {
			settings = append(settings, word)
		} else {
			settings[at] = word
		}
	}
	return settings
}

// Scenario is the settings and the load as a scenario's text.
func (f *Fact) Scenario() string {
	return "config " + strings.Join(f.Config, " ") + "\n" + strings.Join(f.Load, "\n") + "\n"
}

// Check says what of an output is not as the fact wants it. A refusal is the
// error in place of an output.
func (f *Fact) Check(output string, refusal error) []string {
	lines := map[string][]string{}
	for line := range strings.Lines(output) {
		name, rest := nameOf(strings.Fields(line))
		lines[name] = rest
	}
	var faults []string
	refusalWanted := false
	for _, want := range f.Want {
		text := strings.Join(want[1:], " ")
		name, fields := nameOf(want)
		switch want[0] {
		case "refused":
			refusalWanted = true
			if refusal == nil || !strings.Contains(refusal.Error(), text) {
				faults = append(faults, fmt.Sprintf("want it refused with %q, got %v", text, refusal))
			}
		case "no":
			if _, ok := lines[text]; ok {
				faults = append(faults, "there is a "+text)
			}
		default:
			got, ok := lines[name]
			if !ok {
				faults = append(faults, "there is no "+name)
			}
			for _, field := range fields {
				if ok && !slices.Contains(got, field) {
					faults = append(faults, fmt.Sprintf("%s: want %s", name, field))
				}
			}
		}
	}
	if refusal != nil && !refusalWanted {
		faults = append(faults, refusal.Error())
	}
	return faults
}
