package report_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/report"
)

func sample() report.Table {
	return report.Table{
		Title:   "Steps",
		Columns: []report.Column{{Name: "mode", Left: true}, {Name: "time ms", Key: "time_ms"}, {Name: "note", Left: true}},
		Rows: [][]report.Cell{
			{report.Say("prefill"), report.Fixed(11.4416, 2), report.Say("cold | first")},
			{report.Say("decode"), report.Missing(), report.Say("µs, ü")},
		},
		Notes: []string{"two rows"},
	}
}

func TestRenderings(t *testing.T) {
	for _, c := range []struct {
		why    string
		render func(*strings.Builder) error
		want   string
	}{
		{"text aligns by characters, not bytes, and has no blanks at line ends", func(b *strings.Builder) error { return report.Text(b, sample()) }, `Steps
mode     time ms  note
prefill    11.44  cold | first
decode         –  µs, ü
two rows
`},
		{"CSV keeps numbers exact and leaves out what is missing", func(b *strings.Builder) error { return report.CSV(b, sample()) }, `mode,time_ms,note
prefill,11.4416,cold | first
decode,,"µs, ü"
`},
		{"Markdown escapes the column separator", func(b *strings.Builder) error { return report.Markdown(b, sample()) }, `### Steps

| mode | time ms | note |
|:---|---:|:---|
| prefill | 11.44 | cold \| first |
| decode | – | µs, ü |

two rows
`},
	} {
		t.Run(c.why, func(t *testing.T) {
			var b strings.Builder
			if err := c.render(&b); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, b.String()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// What is written as CSV reads back equal, whatever the cells hold.
func TestCSVReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := report.Table{Columns: []report.Column{{Name: "a"}, {Name: "b"}}}
		want := [][]string{{"a", "b"}}
		for range rapid.IntRange(0, 5).Draw(t, "rows") {
			row := []string{rapid.StringMatching(`[a-z ",|\n]{1,8}`).Draw(t, "x"), rapid.StringMatching(`[a-z;"]{0,8}`).Draw(t, "y")}
			want = append(want, row)
			table.Rows = append(table.Rows, []report.Cell{report.Say(row[0]), report.Say(row[1])})
		}
		var b strings.Builder
		if err := report.CSV(&b, table); err != nil {
			t.Fatal(err)
		}
		got, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

// YAML and JSON hold the same document.
func TestYAMLIsTheJSONDocument(t *testing.T) {
	document := map[string]any{"schema": "llmprof/x", "value_ms": 1.25, "list": []any{"a", "b: c"}, "none": nil, "yes": true}
	var j, y strings.Builder
	if err := report.JSON(&j, document); err != nil {
		t.Fatal(err)
	}
	if err := report.YAML(&y, document); err != nil {
		t.Fatal(err)
	}
	var a, b map[string]any
	if err := json.Unmarshal([]byte(j.String()), &a); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(y.String()), &b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("JSON against YAML:\n%s", diff)
	}
}

func ExampleText() {
	table := report.Table{
		Columns: []report.Column{{Name: "mode", Left: true}, {Name: "ms"}},
		Rows:    [][]report.Cell{{report.Say("prefill"), report.Fixed(74.264, 2)}, {report.Say("decode"), report.Fixed(8.184, 2)}},
	}
	if err := report.Text(os.Stdout, table); err != nil {
		fmt.Println(err)
	}
	// Output:
	// mode        ms
	// prefill  74.26
	// decode    8.18
}
