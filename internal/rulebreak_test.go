package internal

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestRulesRefuse shows the checker small files that each break one rule, or
// stay just inside it, so that TestRules cannot pass by seeing nothing.
func TestRulesRefuse(t *testing.T) {
	tests := []struct {
		why    string
		folder string // where the file is said to lie; cost if empty
		name   string // its name; file.go if empty
		text   string
		want   []string // each fault found starts so, after "file:"; none if empty
	}{
		{
			why:  "pure packages know no files",
			text: "package cost\n\nimport \"os\"\n\nvar _ = os.ErrExist\n",
			want: []string{"3: package cost imports os"},
		},
		{
			why:  "an alias does not hide the network",
			text: "package cost\n\nimport web \"net/http\"\n\nvar _ web.Handler\n",
			want: []string{"3: package cost imports net/http"},
		},
		{
			why:  "path/filepath globs and walks",
			text: "package cost\n\nimport \"path/filepath\"\n\nvar _ = filepath.SkipDir\n",
			want: []string{"3: package cost imports path/filepath"},
		},
		{why: "path only joins names", text: "package cost\n\nimport \"path\"\n\nfunc f() string { return path.Base(\"\") }\n"},
		{
			why: "a subpackage is as pure as its room", folder: "sim/replay",
			text: "package replay\n\nimport \"database/sql\"\n\nvar _ sql.DB\n",
			want: []string{"3: package sim/replay imports database/sql"},
		},
		{
			why: "formats know no network", folder: "format/vidur",
			text: "package vidur\n\nimport \"net/http\"\n\nvar _ http.Handler\n",
			want: []string{"3: package format/vidur imports net/http"},
		},
		{
			why: "the profile may open its file", folder: "profile",
			text: "package profile\n\nimport \"os\"\n\nvar _ = os.ErrExist\n",
		},
		{
			why: "the hub fetches", folder: "hub",
			text: "package hub\n\nimport (\n\t\"net/http\"\n\t\"os\"\n)\n\nvar (\n\t_ http.Handler\n\t_ = os.ErrExist\n)\n",
		},
		{why: "tests may read files", name: "file_test.go", text: "package cost\n\nimport \"os\"\n\nvar _ = os.ErrExist\n"},
		{why: "no cgo", folder: "hub", text: "package hub\n\nimport \"C\"\n", want: []string{"3: cgo"}},
		{why: "no dot import, in tests either", name: "file_test.go", text: "package cost\n\nimport . \"fmt\"\n", want: []string{"3: dot import"}},
		{why: "a package is named for a noun of the field", folder: "cost/util", text: "package util\n", want: []string{"1: package name util"}},
		{
			why:  "tables are functions",
			text: "package cost\n\nvar table = map[string]int{}\n\nvar (\n\tcount int\n\terrs = []error{}\n)\n",
			want: []string{"3: package variable table", "6: package variable count", "7: package variable errs"},
		},
		{
			why: "sentinels, assertions, embeds and regexps stay as they are",
			text: "package cost\n\nimport (\n\t_ \"embed\"\n\t\"errors\"\n\t\"fmt\"\n\tre \"regexp\"\n)\n\nvar errGone = errors.New(\"gone\")\n\n" +
				"var (\n\terrBoth = fmt.Errorf(\"both: %w\", errGone)\n\tword = re.MustCompile(`a`)\n\t_ fmt.Stringer = nil\n)\n\n//go:embed a.txt\nvar text string\n",
		},
		{why: "an error by another name is a variable", text: "package cost\n\nimport \"errors\"\n\nvar gone = errors.New(\"gone\")\n", want: []string{"5: package variable gone"}},
		{why: "no init", text: "package cost\n\nfunc init() {}\n", want: []string{"3: func init"}},
		{why: "a method may be called init", text: "package cost\n\ntype a struct{}\n\nfunc (a) init() {}\n"},
		{why: "libraries do not panic", text: "package cost\n\nfunc f() { panic(1) }\n", want: []string{"3: panic"}},
		{
			why: "libraries neither exit nor print", folder: "hub",
			text: "package hub\n\nimport (\n\t\"fmt\"\n\t\"log\"\n\t\"os\"\n)\n\nfunc f() {\n\tlog.Fatalf(\"\")\n\tos.Exit(1)\n\tfmt.Println()\n\tprintln()\n}\n",
			want: []string{"10: log.Fatalf", "11: os.Exit", "12: fmt.Println", "13: println"},
		},
		{why: "printing through a value counts too", text: "package cost\n\nimport \"fmt\"\n\nvar _ = fmt.Printf\n", want: []string{"5: fmt.Printf"}},
		{why: "formatting does not print", text: "package cost\n\nimport \"fmt\"\n\nfunc f() string { return fmt.Sprint() }\n"},
		{
			why: "main exits", folder: "cmd/llmprof",
			text: "package main\n\nimport \"os\"\n\nfunc main() { os.Exit(1) }\n",
		},
		{
			why: "a command does not exit", folder: "cmd/llmprof",
			text: "package main\n\nimport \"os\"\n\nfunc run() { os.Exit(1) }\n",
			want: []string{"5: os.Exit"},
		},
		{
			why: "time comes from the caller", folder: "report",
			text: "package report\n\nimport \"time\"\n\nfunc f() time.Time {\n\ttime.Sleep(time.Second)\n\treturn time.Now()\n}\n",
			want: []string{"6: time.Sleep", "7: time.Now"},
		},
		{why: "measuring needs a clock", folder: "measure", text: "package measure\n\nimport \"time\"\n\nvar _ = time.Now()\n"},
		{why: "a local name is no clock", text: "package cost\n\ntype clock struct{}\n\nfunc (clock) Now() {}\n\nfunc f(time clock) { time.Now() }\n"},
		{
			why:  "random numbers come from a seed",
			text: "package cost\n\nimport \"math/rand/v2\"\n\nfunc f() int { return rand.IntN(2) }\n",
			want: []string{"5: rand.IntN"},
		},
		{why: "a seeded stream is fine", text: "package cost\n\nimport \"math/rand/v2\"\n\nfunc f() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }\n"},
		{
			why: "a test repeats what it did", name: "file_test.go",
			text: "package cost\n\nimport \"math/rand\"\n\nfunc f() int { return rand.Int() }\n",
			want: []string{"5: rand.Int"},
		},
		{
			why:  "what others can name is explained",
			text: "package cost\n\nconst A = 1\n\ntype B struct{}\n\nfunc (*B) C() {}\n\nfunc D() {}\n\ntype E interface {\n\tF()\n\tG()\n}\n",
			want: []string{
				"3: exported A", "5: exported type B", "7: exported C", "9: exported D", "11: exported type E",
				"12: method F", "13: method G",
			},
		},
		{
			why:  "comments may stand on the group, the line or above",
			text: "package cost\n\n// Modes.\nconst (\n\tA = 1\n\tB = 2\n)\n\nconst C = 1 // the third\n\n// D is one.\ntype D struct{}\n\ntype e struct{}\n\nfunc (e) F() {}\n",
		},
		{
			why:  "a group comment does not explain a type",
			text: "package cost\n\n// Types.\ntype (\n\tA int\n)\n",
			want: []string{"5: exported type A"},
		},
		{
			why:  "a plain number names its unit",
			text: "package cost\n\n// A is a cost.\ntype A struct {\n\tTime float64\n\tAll []float64\n}\n",
			want: []string{"5: field A.Time", "6: field A.All"},
		},
		{
			why:  "in a comment, the key, the name or the struct's comment",
			text: "package cost\n\n// A is a cost.\ntype A struct {\n\tTime float64 // in seconds\n\tMean float64 `json:\"mean_s,omitempty\"`\n\tStepMs float64\n}\n\n// B holds seconds.\ntype B struct{ Time float64 }\n",
		},
		{
			why:  "a comment without a unit",
			text: "package cost\n\n// A is a cost of two tokens.\ntype A struct {\n\t// Time is how long it takes.\n\tTime float64\n\tMean float64 // of the samples\n}\n",
			want: []string{"6: field A.Time", "7: field A.Mean"},
		},
		{
			why:  "letters that are also endings",
			text: "package cost\n\n// A is a cost.\ntype A struct {\n\t// Time is the device's, not W.\n\tTime float64\n\tRate float64 // per s\n\tPower float64 // in W\n}\n",
			want: []string{"6: field A.Time"},
		},
		{
			why:  "the comment over a group of lines speaks of them, not of the next group",
			text: "package cost\n\n// A is a cost.\ntype A struct {\n\t// Bounds, in tokens.\n\tLow float64\n\tHigh float64\n\n\tMean float64\n}\n",
			want: []string{"9: field A.Mean"},
		},
		{
			why:  "a struct's comment that speaks of all its numbers",
			text: "package cost\n\n// A is a cost. All times\n// are in seconds.\ntype A struct {\n\tTime float64\n\t// Mean of the samples.\n\tMean float64\n}\n",
		},
		{
			why:  "errors are parts of sentences",
			text: "package cost\n\nimport (\n\t\"errors\"\n\t\"fmt\"\n)\n\nvar (\n\terrA = errors.New(\"Not found\")\n\terrB = fmt.Errorf(\"not found.\")\n\terrC = errors.New(\"KV cache is full\")\n)\n",
			want: []string{"9: error \"Not found\" starts", "10: error \"not found.\" ends"},
		},
		{
			why: "reasons, not tickets", name: "file_test.go",
			text: "package cost\n\n// See #12.\n\n// As issue 3 says.\n\n/* (#4) */\n\n// TODO: more\n",
			want: []string{"3: comment names a ticket (#12)", "5: comment names a ticket (issue 3)", "7: comment names a ticket ((#4)", "9: comment says TODO"},
		},
		{why: "foreign threads may be cited", text: "package cost\n\n// From vllm-project/vllm#12345 and issue trackers; colour #aabbcc.\n"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			folder, name := test.folder, test.name
			if folder == "" {
				folder = "cost"
			}
			if name == "" {
				name = "file.go"
			}
			src, err := parseSource(name, []byte(test.text))
			if err != nil {
				t.Fatal(err)
			}
			compareFaults(t, name, checkFile(folder, src), test.want)
		})
	}
}

// compareFaults expects one fault for each beginning in want, in any order.
func compareFaults(t *testing.T, name string, faults, want []string) {
	t.Helper()
	rest := slices.Clone(faults)
	for _, start := range want {
		i := slices.IndexFunc(rest, func(fault string) bool { return strings.HasPrefix(fault, name+":"+start) })
		if i < 0 {
			t.Errorf("no fault starts with %q", name+":"+start)
			continue
		}
		rest = slices.Delete(rest, i, i+1)
	}
	for _, fault := range rest {
		t.Errorf("unexpected fault: %s", fault)
	}
}

func TestPackageDocRefuse(t *testing.T) {
	tests := []struct {
		why   string
		texts []string
		want  string
	}{
		{why: "no comment at all", texts: []string{"package cost\n"}, want: "introduced in 0 lines"},
		{why: "a comment that says too little", texts: []string{"// Package cost costs.\npackage cost\n"}, want: "introduced in 1 lines"},
		{why: "two short comments are no long one", texts: []string{"// Package a\n// b.\npackage cost\n", "// Package a\n// c.\npackage cost\n"}, want: "introduced in 2 lines"},
		{why: "one file introduces the package", texts: []string{"package cost\n", "// Package cost\n// is\n// this.\npackage cost\n"}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			var sources []source
			for i, text := range test.texts {
				src, err := parseSource(fmt.Sprintf("file%d.go", i), []byte(text))
				if err != nil {
					t.Fatal(err)
				}
				sources = append(sources, src)
			}
			got := strings.Join(checkPackageDoc("cost", sources), "\n")
			if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want it to contain %q", got, test.want)
			}
		})
	}
}
