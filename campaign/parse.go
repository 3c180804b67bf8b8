package campaign

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/settings"
	"github.com/llmprof/llmprof/unit"
)

// Parse reads a file. Name stands in its faults and warnings. All faults come
// in one [*FileError].
//
// A value of null means the default. Anchors, aliases and merge keys mean what
// they do in YAML; a field of the top level whose name begins with x- holds
// anchors and nothing else. Tags, several documents, more than a mebibyte or
// 10,000 lines, and files that make more than 100,000 cells are refused.
func Parse(name string, text []byte) (*File, []Warning, error) {
	r := reader{file: name, ignored: map[string]*ignored{}, hidden: map[int]bool{}}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if err := settings.Check(text); err != nil {
		return nil, nil, &FileError{Faults: []*LineError{{File: name, Text: err.Error()}}}
	}
	r.lines = strings.Split(string(text), "\n")
	if body, at, fault := settings.Body(text); fault != "" {
		r.fault(at, fault, "")
	} else {
		r.document(body)
	}
	if len(r.faults) == 0 {
		r.repeats()
	}
	if len(r.faults) > 0 {
		for _, f := range r.faults {
			if r.hidden[f.Line] {
				f.Excerpt = ""
			}
		}
		slices.SortStableFunc(r.faults, func(a, b *LineError) int {
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
		})
		return nil, nil, &FileError{Faults: r.faults}
	}
	return &File{Name: name, Models: r.models}, r.allWarnings(), nil
}

// reader collects what is in one file.
type reader struct {
	file     string
	lines    []string
	models   []Model
	heads    []*token.Token // where each of models begins
	faults   []*LineError
	warnings []Warning
	ignored  map[string]*ignored
	hidden   map[int]bool // lines that hold a secret, and are not shown
}

// ignored counts a key that has no effect.
type ignored struct {
	first *token.Token
	count int
}

// maxFaults bounds the faults that are kept of one file.
const maxFaults = 1000

// fault notes a fault at a token; the same one is noted once.
func (r *reader) fault(at *token.Token, text, advice string) {
	if len(r.faults) >= maxFaults {
		return
	}
	f := &LineError{File: r.file, Text: text, Advice: advice}
	if at != nil && at.Position != nil {
		f.Line, f.Column = at.Position.Line, max(at.Position.Column, 1)
		f.Excerpt = excerpt(r.lines, f.Line, f.Column)
	}
	if slices.ContainsFunc(r.faults, func(o *LineError) bool { return o.Line == f.Line && o.Column == f.Column && o.Text == f.Text }) {
		return
	}
	r.faults = append(r.faults, f)
}

func (r *reader) warn(at *token.Token, text string) {
	w := Warning{File: r.file, Line: at.Position.Line, Column: at.Position.Column, Text: text}
	if !slices.Contains(r.warnings, w) {
		r.warnings = append(r.warnings, w)
	}
}

// document reads the top level.
func (r *reader) document(body ast.Node) {
	if body == nil || body.Type() == ast.NullType {
		r.fault(nil, "the file is empty: want a list under models", "")
		return
	}
	if body = r.resolve(body); len(r.faults) > 0 {
		return
	}
	top, ok := settings.Pairs(body)
	if !ok {
		r.fault(settings.Start(body), "want a mapping with models, got "+settings.Describe(body), "")
		return
	}
	known := map[string]ast.Node{}
	for _, f := range top {
		switch name := settings.KeyOf(f); {
		case strings.HasPrefix(name, "x-"):
		case name != "models" && name != "defaults":
			r.fault(f.Key.GetToken(), fmt.Sprintf("unknown field %q", settings.Clip(name)), "nearest known: "+catalog.Nearest(name, []string{"models", "defaults"}, 1)[0]+"; a file has models and, if need be, defaults")
		case known[name] != nil:
			r.fault(f.Key.GetToken(), name+" stands twice", "")
		default:
			known[name] = f.Value
		}
	}
	base := entry{model: Model{Cell: Defaults()}, given: map[string]ast.Node{}}
	if node := known["defaults"]; node != nil && node.Type() != ast.NullType {
		base, _ = r.entry(node, base, "defaults")
	}
	list, isList := known["models"].(*ast.SequenceNode)
	switch {
	case known["models"] == nil && len(r.faults) == 0:
		r.fault(settings.Start(body), "there is no field models", "")
	case known["models"] == nil:
	case !isList || len(list.Values) == 0:
		r.fault(settings.Start(known["models"]), "models: want a list of at least one model, got "+cmp.Or(emptyList(isList), settings.Describe(known["models"])), "")
	default:
		for i, node := range list.Values {
			r.model(i, node, base)
		}
	}
}

func emptyList(is bool) string {
	if is {
		return "an empty list"
	}
	return ""
}

// entry is a mapping with fields of a model, while it is read.
type entry struct {
	model Model
	// given are the values that stand in the file, those of defaults included.
	given map[string]ast.Node
	// meant are required fields that a misspelt one is likely to stand for.
	meant []string
	// old says that the entry is of the time before input and output lengths.
	old bool
}

// entry reads fields over base. ok is false where node has none.
func (r *reader) entry(node ast.Node, base entry, where string) (e entry, ok bool) {
	given, ok := settings.Pairs(node)
	if !ok {
		r.fault(settings.Start(node), fmt.Sprintf("%s: want a mapping, got %s", where, settings.Describe(node)), "")
		return base, false
	}
	e = entry{model: base.model, given: maps.Clone(base.given)}
	own := map[string]bool{}
	for _, f := range given {
		name, at := settings.KeyOf(f), f.Key.GetToken()
		if own[name] {
			r.fault(at, name+" stands twice", "")
			continue
		}
		own[name] = true
		r.field(&e, name, f, where)
	}
	for _, pair := range [][2]string{{"model_id", "hf_model_id"}, {"cuda_graphs", "enforce_eager"}} {
		if one, other := e.given[pair[0]], e.given[pair[1]]; own[pair[0]] && own[pair[1]] && one != nil && other != nil {
			r.fault(settings.Start(other), pair[0]+" and "+pair[1]+": give one of them", "")
		}
	}
	// A container of the entry's own wins over a shared place, and vice versa.
	switch {
	case own["container_name"] && !own["place"] && base.given["place"] != nil:
		e.model.Cell.Place = ""
	case own["place"] && !own["container_name"]:
		e.model.Cell.ContainerName = ""
	}
	e.model.Line = settings.Start(node).Position.Line
	return e, true
}

// field reads one field of an entry.
func (r *reader) field(e *entry, name string, f *ast.MappingValueNode, where string) {
	at := f.Key.GetToken()
	all := fields()
	i := slices.IndexFunc(all, func(known field) bool { return known.name == name })
	if _, known := passedOver()[name]; known {
		if r.ignored[name] == nil {
			r.ignored[name] = &ignored{first: at}
		}
		r.ignored[name].count++
		e.old = e.old || name == "prompts" || name == "max_tokens"
		return
	}
	switch {
	case i < 0:
		nearest := nearestField(name)
		if alike(name, nearest) {
			e.meant = append(e.meant, nearest)
		}
		r.fault(at, fmt.Sprintf("unknown field %q", settings.Clip(name)), "nearest known: "+nearest)
	case where == "defaults" && !shared(name):
		r.fault(at, name+": each model has its own", "")
	case f.Value.Type() == ast.NullType: // as if it were not there
	default:
		e.given[name] = f.Value
		for _, bad := range all[i].read(&e.model, f.Value) {
			r.fault(bad.at, name+": "+bad.text, bad.advice)
		}
	}
}

// nearestField is the known key that is most like a misspelt one; one that has
// no effect only where it differs by a letter or two.
func nearestField(name string) string {
	nearest := catalog.Nearest(name, fieldNames(), 1)[0]
	for _, known := range slices.Sorted(maps.Keys(passedOver())) {
		if fewEdits(name, known) && settings.EditDistance(name, known) < settings.EditDistance(name, nearest) {
			return known
		}
	}
	return nearest
}

// fewEdits reports whether two words differ by a letter or two.
func fewEdits(a, b string) bool {
	const short, edits = 64, 2
	return len(a) < short && settings.EditDistance(a, b) <= edits
}

// alike reports whether a misspelt field is likely to mean a known one.
func alike(name, known string) bool {
	const enough = 4
	name = strings.ToLower(name)
	return len(name) >= enough && strings.HasPrefix(known, name[:enough]) || fewEdits(name, known)
}

// model reads one entry of models.
func (r *reader) model(i int, node ast.Node, base entry) {
	where := fmt.Sprintf("models[%d]", i)
	e, ok := r.entry(node, base, where)
	if !ok {
		return
	}
	r.missing(&e, node, where)
	for _, name := range []string{"model_id", "hf_model_id", "container_name", "place", "dtype"} {
		given, ok := e.given[name]
		if !ok {
			continue
		}
		if text, bad := readText(given); bad == nil && strings.TrimSpace(text) == "" {
			r.fault(settings.Start(given), name+": it is empty", "")
		}
	}
	e.model.Cell.settle()
	for _, p := range e.model.problems() {
		at := e.at(p, node)
		r.fault(at, p.field+": "+p.text, p.advice)
		if p.secret && at != nil && at.Position != nil {
			r.hidden[at.Position.Line] = true
		}
	}
	for _, p := range e.model.doubts() {
		r.warn(e.at(p, node), p.field+": "+p.text)
	}
	r.models = append(r.models, e.model)
	r.heads = append(r.heads, settings.Start(node))
}

// missing reports the required fields that an entry does not have.
func (r *reader) missing(e *entry, node ast.Node, where string) {
	has := func(name string) bool { return e.given[name] != nil || slices.Contains(e.meant, name) }
	lack := func(name, advice string) {
		r.fault(settings.Start(node), fmt.Sprintf("%s: %s is missing", where, name), advice)
	}
	if !has("model_id") && !has("hf_model_id") {
		lack("model_id", "")
	}
	if !has("container_name") && !has("place") {
		lack("container_name", "name a running container, or write place: local")
	}
	if e.old && !has("input_lengths") && !has("output_lengths") {
		r.warn(settings.Start(node), where+": no input_lengths and no output_lengths: it is of the older form with prompts and max_tokens, and makes no cells")
	} else {
		for _, name := range []string{"input_lengths", "output_lengths"} {
			if !has(name) {
				lack(name, "")
			}
		}
	}
	if !has("batch_sizes") {
		lack("batch_sizes", "")
	}
}

// at is where a problem stands: the value, or the entry.
func (e *entry) at(p problem, node ast.Node) *token.Token {
	name := p.field
	if name == "model_id" && e.given[name] == nil {
		name = "hf_model_id"
	}
	value := e.given[name]
	if value == nil {
		return settings.Start(node)
	}
	if list, ok := value.(*ast.SequenceNode); ok && p.index >= 0 && p.index < len(list.Values) {
		return settings.Start(list.Values[p.index])
	}
	return settings.Start(value)
}

// repeats reports too many cells and cells that stand in the file twice.
func (r *reader) repeats() {
	total := 0
	for i, m := range r.models {
		if total += m.count(); total > maxCells {
			r.fault(r.heads[i], fmt.Sprintf("the lists make more than %d cells", maxCells), "cut the file in two")
			return
		}
	}
	first := map[string]int{}
	for i, m := range r.models {
		same, example, other := 0, Cell{}, 0
		for _, c := range m.cells() {
			hash := c.Hash()
			if old, seen := first[hash]; seen {
				if same == 0 {
					example, other = c, old
				}
				same++
				continue
			}
			first[hash] = i
		}
		if same > 0 {
			r.fault(r.heads[i], fmt.Sprintf("models[%d] repeats %s of models[%d] in line %d, the first with input %d, output %d, batch size %d",
				i, unit.Plural(same, "cell"), other, r.models[other].Line, example.InputLen, example.OutputLen, example.BatchSize), "each cell is measured once: take it out of one of the two")
		}
	}
}

// allWarnings adds one for each kind of key that has no effect.
func (r *reader) allWarnings() []Warning {
	for name, seen := range r.ignored {
		text := fmt.Sprintf("%s has no effect: %s", name, passedOver()[name])
		if seen.count > 1 {
			text += fmt.Sprintf(" (%d times in the file)", seen.count)
		}
		r.warn(seen.first, text)
	}
	slices.SortStableFunc(r.warnings, func(a, b Warning) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), strings.Compare(a.Text, b.Text))
	})
	return r.warnings
}
