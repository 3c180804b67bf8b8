package internal

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// A rule looks at one file of the package in folder and reports faults.
type rule func(folder string, src source, report func(pos token.Pos, text string))

// fileRules are the house rules that one file can break by itself.
func fileRules() []rule {
	return []rule{
		forbiddenImports, packageNames, packageVars, noInit, processCalls, clockAndChance,
		exportedDocs, floatUnits, errorTexts, commentTexts,
	}
}

// checkFile applies every file rule and returns the faults as "file:line: text".
func checkFile(folder string, src source) []string {
	var faults []string
	for _, r := range fileRules() {
		r(folder, src, func(pos token.Pos, text string) {
			faults = append(faults, src.at(pos)+": "+text)
		})
	}
	return faults
}

// TestRules holds every file of the module to the house rules.
func TestRules(t *testing.T) {
	sources := loadTree(t)
	for _, folder := range sources.folders() {
		for _, src := range sources[folder] {
			for _, fault := range checkFile(folder, src) {
				t.Error(fault)
			}
		}
		for _, fault := range checkPackageDoc(folder, sources[folder]) {
			t.Error(fault)
		}
	}
}

// reachOf is what the package in folder may do; helpers of tests may do
// anything, and so may a package without a floor, which TestFloors refuses.
func reachOf(folder string) reach {
	if r, ok := roomOf(folder); ok {
		return r.reach
	}
	return outside
}

// forbiddenImports keeps files, processes and the network out of the rooms
// that compute. Only direct imports count: fmt itself is built on os.
func forbiddenImports(folder string, src source, report func(token.Pos, string)) {
	if src.test() {
		return
	}
	for imported, pos := range src.imports() {
		first, _, _ := strings.Cut(imported, "/")
		network := first == "net" && imported != "net/url" && imported != "net/netip"
		process := imported == "os/exec" || imported == "os/signal" || imported == "syscall" || imported == "plugin"
		database := first == "database"
		// path/filepath looks at the disk (Glob, WalkDir, EvalSymlinks); path
		// joins names and knows no disk.
		files := imported == "os" || first == "os" || imported == "io/ioutil" || imported == "path/filepath"
		switch reachOf(folder) {
		case pure:
			if network || process || database || files {
				report(pos, fmt.Sprintf("package %s imports %s: it computes from values; let the caller pass in an fs.FS, a reader or a func", folder, imported))
			}
		case offline:
			if network || process || database {
				report(pos, fmt.Sprintf("package %s imports %s: it may read and write files but starts nothing and knows no network", folder, imported))
			}
		case outside:
		}
		if imported == "C" {
			report(pos, "cgo: the binary is static and cross-built without a C compiler")
		}
	}
}

// packageNames refuses names that say nothing, and dot imports, which hide
// where a name comes from.
func packageNames(_ string, src source, report func(token.Pos, string)) {
	name := strings.TrimSuffix(src.file.Name.Name, "_test")
	if slices.Contains([]string{"util", "utils", "common", "misc", "types", "manager", "helper", "helpers", "shared", "base"}, name) {
		report(src.file.Name.Pos(), fmt.Sprintf("package name %s: name the noun of the field that lives here", name))
	}
	for _, spec := range src.file.Imports {
		if spec.Name != nil && spec.Name.Name == "." {
			report(spec.Pos(), fmt.Sprintf("dot import of %s: qualify its names", spec.Path.Value))
		}
	}
}

// packageVars allows as package variables only what nobody changes: sentinel
// errors, interface assertions, embeds and compiled regular expressions.
func packageVars(_ string, src source, report func(token.Pos, string)) {
	if src.test() {
		return
	}
	for _, decl := range src.file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.VAR {
			continue
		}
		for _, spec := range gen.Specs {
			value := spec.(*ast.ValueSpec)
			if embedded(gen.Doc) || embedded(value.Doc) {
				continue
			}
			for i, name := range value.Names {
				if name.Name == "_" || (i < len(value.Values) && constantValue(src, name.Name, value.Values[i])) {
					continue
				}
				report(name.Pos(), fmt.Sprintf("package variable %s: keep state in values and tables in functions; allowed are sentinel errors, var _, embeds and compiled regexps", name.Name))
			}
		}
	}
}

// embedded reports whether a comment holds an embed directive.
func embedded(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(c.Text, "//go:embed ")
	})
}

// constantValue reports whether a package variable is a sentinel error or a
// compiled regular expression.
func constantValue(src source, name string, value ast.Expr) bool {
	call, ok := value.(*ast.CallExpr)
	if !ok {
		return false
	}
	pkg, fn := calledFunc(src, call)
	switch pkg {
	case "regexp":
		return fn == "MustCompile" || fn == "MustCompilePOSIX"
	case "errors", "fmt":
		return (fn == "New" || fn == "Errorf") && (strings.HasPrefix(name, "Err") || strings.HasPrefix(name, "err"))
	}
	return false
}

// calledFunc names the package and the function of a call of the form
// pkg.Func; both are empty for any other call.
func calledFunc(src source, call *ast.CallExpr) (pkg, fn string) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	return selected(src, selector)
}

// selected names the imported package and the name of a selector pkg.Name;
// both are empty where the left side is no import.
func selected(src source, selector *ast.SelectorExpr) (pkg, name string) {
	left, ok := selector.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	for _, spec := range src.file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		local := path.Base(imported)
		if version := strings.TrimLeft(local, "v"); len(version) < len(local) && strings.Trim(version, "0123456789") == "" && path.Dir(imported) != "." {
			local = path.Base(path.Dir(imported)) // math/rand/v2 is called rand
		}
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == left.Name {
			return imported, selector.Sel.Name
		}
	}
	return "", ""
}

// noInit refuses init functions: what must be set up is set up by a call.
func noInit(_ string, src source, report func(token.Pos, string)) {
	for _, decl := range src.file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			report(fn.Pos(), "func init: set things up in a function that is called")
		}
	}
}

// processCalls keeps the process in the hands of main: only there may the
// program end or print without being told where to.
func processCalls(_ string, src source, report func(token.Pos, string)) {
	if src.test() {
		return
	}
	for _, decl := range src.file.Decls {
		fn, isFunc := decl.(*ast.FuncDecl)
		inMain := isFunc && src.file.Name.Name == "main" && fn.Recv == nil && fn.Name.Name == "main"
		ast.Inspect(decl, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.CallExpr:
				if name, ok := node.Fun.(*ast.Ident); ok && (name.Name == "panic" || name.Name == "print" || name.Name == "println") {
					report(node.Pos(), name.Name+": return an error that names what was tried")
				}
			case *ast.SelectorExpr:
				pkg, name := selected(src, node)
				switch {
				case pkg == "log" && (strings.HasPrefix(name, "Fatal") || strings.HasPrefix(name, "Panic")):
					report(node.Pos(), "log."+name+": return an error; only main ends the program")
				case pkg == "os" && name == "Exit" && !inMain:
					report(node.Pos(), "os.Exit: only func main of a command ends the program; return an error")
				case pkg == "fmt" && strings.HasPrefix(name, "Print") && !inMain:
					report(node.Pos(), "fmt."+name+": write to a writer that the caller passes in")
				}
			}
			return true
		})
	}
}

// clockAndChance keeps results reproducible: outside the rooms that deal with
// the world, the time and every random number come from the caller.
func clockAndChance(folder string, src source, report func(token.Pos, string)) {
	clockAllowed := src.test() || reachOf(folder) == outside
	ast.Inspect(src.file, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		switch pkg, name := selected(src, selector); pkg {
		case "time":
			if !clockAllowed && slices.Contains([]string{"Now", "Sleep", "Since", "Until", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}, name) {
				report(selector.Pos(), "time."+name+": take the time or a clock as a parameter")
			}
		case "math/rand", "math/rand/v2":
			seeded := []string{"New", "NewPCG", "NewChaCha8", "NewSource", "NewZipf", "Rand", "Source", "Source64", "PCG", "ChaCha8", "Zipf"}
			if !slices.Contains(seeded, name) && (src.test() || reachOf(folder) != outside) {
				report(selector.Pos(), "rand."+name+" draws from the global stream: take a *rand.Rand or a seed")
			}
		case "crypto/rand":
			if !clockAllowed {
				report(selector.Pos(), "crypto/rand."+name+": take a seed, so that a run can be repeated")
			}
		}
		return true
	})
}

// exportedDocs asks for a comment on everything that another package can
// name. Constants and variables may share the comment of their group, types
// may not.
func exportedDocs(_ string, src source, report func(token.Pos, string)) {
	if src.test() || src.file.Name.Name == "main" {
		return
	}
	for _, decl := range src.file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Name.IsExported() && exportedReceiver(decl.Recv) && blank(decl.Doc) {
				report(decl.Pos(), "exported "+decl.Name.Name+" has no doc comment")
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				undocumentedSpec(decl, spec, report)
			}
		}
	}
}

// undocumentedSpec reports the exported names of one spec without a comment.
func undocumentedSpec(decl *ast.GenDecl, spec ast.Spec, report func(token.Pos, string)) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		if spec.Name.IsExported() && blank(spec.Doc) && blank(spec.Comment) && (decl.Lparen.IsValid() || blank(decl.Doc)) {
			report(spec.Pos(), "exported type "+spec.Name.Name+" has no doc comment")
		}
		if methods, ok := spec.Type.(*ast.InterfaceType); ok && spec.Name.IsExported() && methods.Methods.NumFields() > 1 {
			for _, method := range methods.Methods.List {
				if len(method.Names) > 0 && method.Names[0].IsExported() && blank(method.Doc) && blank(method.Comment) {
					report(method.Pos(), "method "+method.Names[0].Name+" of interface "+spec.Name.Name+" has no doc comment")
				}
			}
		}
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			if name.IsExported() && blank(spec.Doc) && blank(spec.Comment) && blank(decl.Doc) {
				report(name.Pos(), "exported "+name.Name+" has no doc comment")
			}
		}
	}
}

// blank reports whether a comment is missing or says nothing.
func blank(doc *ast.CommentGroup) bool { return doc == nil || strings.TrimSpace(doc.Text()) == "" }

// exportedReceiver reports whether a method belongs to an exported type; a
// function without a receiver counts as well.
func exportedReceiver(recv *ast.FieldList) bool {
	if recv == nil || len(recv.List) == 0 {
		return true
	}
	expr := recv.List[0].Type
	for {
		switch typed := expr.(type) {
		case *ast.StarExpr:
			expr = typed.X
		case *ast.IndexExpr:
			expr = typed.X
		case *ast.IndexListExpr:
			expr = typed.X
		case *ast.ParenExpr:
			expr = typed.X
		case *ast.Ident:
			return typed.IsExported()
		default:
			return true
		}
	}
}

// floatUnits asks an exported field of a plain floating-point type to name
// its unit: in its own comment, in the suffix of its name or key, in the
// comment over its group of lines, or in a comment of the struct that speaks
// of all its numbers. Any other comment does not do.
func floatUnits(_ string, src source, report func(token.Pos, string)) {
	if src.test() || src.file.Name.Name == "main" {
		return
	}
	for _, decl := range src.file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.TYPE {
			continue
		}
		for _, spec := range gen.Specs {
			typed := spec.(*ast.TypeSpec)
			body, ok := typed.Type.(*ast.StructType)
			if !ok || !typed.Name.IsExported() || unitOfAll(gen.Doc.Text()+typed.Doc.Text()) {
				continue
			}
			group, last := "", 0 // the comment over the lines that end at last
			for _, field := range body.Fields.List {
				if !blank(field.Doc) || src.fset.Position(field.Pos()).Line != last+1 {
					group = field.Doc.Text()
				}
				last = src.fset.Position(field.End()).Line
				if !plainFloat(field.Type) || unitWord().MatchString(group+field.Comment.Text()) {
					continue
				}
				for _, name := range field.Names {
					if name.IsExported() && !unitSuffix(name.Name, field.Tag) {
						report(name.Pos(), fmt.Sprintf("field %s.%s is a plain number without a unit: give it a unit type or a comment that names the unit", typed.Name.Name, name.Name))
					}
				}
			}
		}
	}
}

// unitWord matches a text that names a unit, or says that there is none. The
// letters that are units and also words or endings count after "in", "per" or
// a slash only.
func unitWord() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(seconds?|milliseconds?|microseconds?|nanoseconds?|ms|µs|us|ns|hours?|` +
		`bytes?|bits?|[kmgt]i?b|gbit/s|flops?|flop/s|operations|tokens|sequences|requests|steps|watts?|joules?|kwh|hz|hertz|celsius|` +
		`percent|shares?|fractions?|probability|ratios?|factors?|multiples?|times (as|the)|counts?|numbers? of|dimensionless|without (a )?unit|` +
		`same unit|units? of|octaves?|log|ln|powers? of|dollars?|usd|euros?|0 to 1|0\.\.1)\b|µs\b|%|0 (<|≤) |` +
		`\b(in|per) (s|w|j|h)\b|/(s|h)\b`)
}

// unitOfAll reports whether the comment of a struct names one unit for all
// its numbers: "All times are in seconds", "Figures in bytes", "B holds
// seconds". A unit that only occurs in it says nothing about the fields.
func unitOfAll(text string) bool {
	general := regexp.MustCompile(`(?i)\b(all|every|each|times|durations|numbers|values|figures|sizes|rates|shares|holds)\b`)
	for sentence := range strings.SplitSeq(text, ". ") {
		sentence = strings.ReplaceAll(sentence, "\n", " ")
		if at := general.FindStringIndex(sentence); at != nil && unitWord().MatchString(sentence[at[0]:]) {
			return true
		}
	}
	return false
}

// unitSuffix reports whether a field's name or its key in a file ends in a
// unit, as in StepMs or "mean_s".
func unitSuffix(name string, tag *ast.BasicLit) bool {
	key := regexp.MustCompile(`_(s|ms|us|ns|bytes|w|j|tok_s|bytes_per_s|flops|percent)(,[a-z]+)?"`)
	return (tag != nil && key.MatchString(tag.Value)) ||
		regexp.MustCompile(`(Seconds|Ms|Us|Ns|Bytes|Watts|Joules|FLOPs|Percent|PerSecond)$`).MatchString(name)
}

// plainFloat reports whether a field is a floating-point number, or a slice
// of them, without a type that says what it counts.
func plainFloat(expr ast.Expr) bool {
	switch typed := expr.(type) {
	case *ast.Ident:
		return typed.Name == "float64" || typed.Name == "float32"
	case *ast.ArrayType:
		return plainFloat(typed.Elt)
	case *ast.StarExpr:
		return plainFloat(typed.X)
	}
	return false
}

// errorTexts asks errors to start in lower case and to end without a stop,
// since they stand inside longer sentences.
func errorTexts(_ string, src source, report func(token.Pos, string)) {
	if src.test() {
		return
	}
	ast.Inspect(src.file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		if pkg, fn := calledFunc(src, call); (pkg != "errors" || fn != "New") && (pkg != "fmt" || fn != "Errorf") {
			return true
		}
		literal, ok := call.Args[0].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			return true
		}
		if letters := []rune(text); len(letters) > 1 && unicode.IsUpper(letters[0]) && unicode.IsLower(letters[1]) {
			report(literal.Pos(), fmt.Sprintf("error %q starts with a capital", text))
		}
		if strings.HasSuffix(text, ".") || strings.HasSuffix(text, "!") || strings.HasSuffix(text, "\n") {
			report(literal.Pos(), fmt.Sprintf("error %q ends in a stop or a line break", text))
		}
		return true
	})
}

// commentTexts keeps ticket numbers and notes to self out of comments: the
// reason belongs there, the history is in git. A foreign project's thread may
// be cited as owner/name#1234 or by its address.
func commentTexts(_ string, src source, report func(token.Pos, string)) {
	ticket := regexp.MustCompile(`(?i)(^|[\s(\[])(#[0-9]{1,5}\b|(issue|ticket)s?[ \t]+(no\.? ?|#)?[0-9]+\b)`)
	note := regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)
	for _, group := range src.file.Comments {
		for _, comment := range group.List {
			text := strings.TrimLeft(comment.Text, "/*")
			if found := ticket.FindString(text); found != "" {
				report(comment.Pos(), fmt.Sprintf("comment names a ticket (%s): write the reason instead", strings.TrimSpace(found)))
			}
			if found := note.FindString(text); found != "" {
				report(comment.Pos(), "comment says "+found+": do it, or leave it to the tracker")
			}
		}
	}
}

// checkPackageDoc asks every package for a comment that introduces it in at
// least three lines, in one file.
func checkPackageDoc(folder string, sources []source) []string {
	lines := 0
	var first *source
	for i, src := range sources {
		if src.test() {
			continue
		}
		if first == nil {
			first = &sources[i]
		}
		if src.file.Doc != nil {
			lines = max(lines, strings.Count(strings.TrimSpace(src.file.Doc.Text()), "\n")+1)
		}
	}
	if first == nil || lines >= 3 {
		return nil
	}
	return []string{fmt.Sprintf("%s: package %s is introduced in %d lines: say in at least three what it is for and how to use it", first.at(first.file.Package), folder, lines)}
}
