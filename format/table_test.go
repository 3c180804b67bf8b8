package format_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/format"
)

// table reads all rows of a text.
func table(text string, limits format.Limits) (rows [][]string, warnings []error, err error) {
	t, err := format.OpenTable("x.csv", []byte(text), limits)
	if err != nil {
		return nil, nil, err
	}
	for row, err := range t.Rows() {
		if err != nil {
			return rows, t.Warnings(), err
		}
		rows = append(rows, slices.Clone(row))
	}
	return rows, t.Warnings(), nil
}

func TestTable(t *testing.T) {
	const good = "1,2"
	row := []string{"1", "2"}
	for _, c := range []struct {
		why, text string
		limits    format.Limits
		rows      [][]string
		warnings  []string
		err       string
	}{
		{why: "rows", text: "a,b\n1,2\n1,2\n", rows: [][]string{row, row}},
		{why: "no rows", text: "a,b\n"},
		{why: "no line end below the columns", text: "a,b"},
		{why: "line ends of Windows, blank lines", text: "a,b\r\n\r\n1,2\r\n\r\n", rows: [][]string{row}},
		{why: "quotes, a line end within", text: "a,b\n\"1\n,\",\"\"\"2\"\n", rows: [][]string{{"1\n,", `"2`}}},
		{why: "blanks stay", text: " a,b\n 1,2\n", rows: [][]string{{" 1", "2"}}},
		{why: "the columns once more", text: "a,b\n1,2\na,b\n1,2\n", rows: [][]string{row, row}, warnings: []string{"x.csv: line 3: the column names once more: left out"}},
		{why: "the columns at the very end", text: "a,b\n1,2\na,b", rows: [][]string{row}, warnings: []string{"x.csv: line 3: the column names once more: left out"}},
		{why: "a cut last row", text: "a,b\n1,2\n1", rows: [][]string{row}, warnings: []string{"x.csv: line 3: the file ends in the middle of this line: left out"}},
		{why: "no line end", text: "a,b\n1,2", rows: [][]string{row}, warnings: []string{"x.csv: line 2: the last line has no line end: its last number may be cut off"}},
		{why: "a short row", text: "a,b\n1\n1,2\n", err: "x.csv: line 2: want 2 cells, got 1"},
		{why: "a long row", text: "a,b\n1,2\n1,2,3", rows: [][]string{row}, err: "x.csv: line 3: want 2 cells, got 3"},
		{why: "an open quote", text: "a,b\n\"1,2\n", err: "x.csv: line 2, column 6: extraneous or missing \" in quoted-field"},
		{why: "an open quote in the columns", text: "\"a,b\n", err: "x.csv: line 1, column 6: extraneous"},
		{why: "a stray quote", text: "a,b\n1,2\n1\"x,2\n", rows: [][]string{row}, err: "x.csv: line 3, column 2: bare \""},
		{why: "a column twice", text: "a,b, a\n", err: `x.csv: line 1: column "a" stands twice`},
		{why: "the columns below blank lines", text: "\n\na,a\n", err: `x.csv: line 3: column "a" stands twice`},
		{why: "nothing", text: "\n\n", err: "x.csv: has no line of column names"},
		{why: "cells up to the limit", text: "a,b\n" + good + "\n" + good + "\n", limits: format.Limits{Values: 4}, rows: [][]string{row, row}},
		{why: "too many cells", text: "a,b\n" + good + "\n" + good + "\n", limits: format.Limits{Values: 3}, rows: [][]string{row}, err: "x.csv: line 3: more than 3 cells"},
		{why: "too many columns", text: "a,b\n", limits: format.Limits{Values: 1}, err: "x.csv: line 1: more than 1 cells"},
	} {
		t.Run(c.why, func(t *testing.T) {
			rows, warnings, err := table(c.text, c.limits)
			if diff := cmp.Diff(c.rows, rows); diff != "" {
				t.Error(diff)
			}
			var said []string
			for _, w := range warnings {
				if _, ok := errors.AsType[*format.Error](w); !ok {
					t.Errorf("a warning without a place: %v", w)
				}
				said = append(said, w.Error())
			}
			if diff := cmp.Diff(c.warnings, said); diff != "" {
				t.Error(diff)
			}
			_, placed := errors.AsType[*format.Error](err)
			if (err == nil) != (c.err == "") || err != nil && (!placed || !strings.HasPrefix(err.Error(), c.err)) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
}

// TestTableTruncated: a text that ends in the middle of a row says so in the
// way of the JSON reader.
func TestTableTruncated(t *testing.T) {
	_, warnings, err := table("a,b\n1", format.Limits{})
	if err != nil || len(warnings) != 1 {
		t.Fatal(warnings, err)
	}
	if bad, ok := errors.AsType[*format.Error](warnings[0]); !ok || !bad.Truncated {
		t.Errorf("%v is not marked as truncated", warnings[0])
	}
}

func TestTableColumns(t *testing.T) {
	for _, c := range []struct{ text, newline string }{
		{"a, b \r\n1,2\n", "\r\n"},
		{"a, b \n1,2\r\n", "\n"},
		{"a, b ", "\n"},
	} {
		tab, err := format.OpenTable("x.csv", []byte(c.text), format.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a", " b "}, tab.Columns()); diff != "" {
			t.Error(diff)
		}
		if a, b, none := tab.Column("a"), tab.Column("b"), tab.Column(" b "); a != 0 || b != 1 || none != -1 {
			t.Errorf("columns at %d, %d, %d", a, b, none)
		}
		if tab.Newline() != c.newline {
			t.Errorf("line end %q, want %q", tab.Newline(), c.newline)
		}
		tab.Columns()[0] = "z"
		if tab.Column("a") != 0 {
			t.Error("the columns can be changed from outside")
		}
	}
}

// TestTablePlaces: Errorf names the line on which the last row began, also
// before, between and after the rows, and after an error.
func TestTablePlaces(t *testing.T) {
	tab, err := format.OpenTable("x.csv", []byte("\na,b\n\n\"1\n\",2\n3,4\n\"5"), format.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	places := []string{tab.Errorf("", "bad").Error()}
	for row, err := range tab.Rows() {
		if err != nil {
			break
		}
		places = append(places, tab.Errorf("b", "bad %s", row[1]).Error())
	}
	places = append(places, tab.Errorf("", "bad").Error())
	want := []string{"x.csv: line 2: bad", "x.csv: line 4, b: bad 2", "x.csv: line 6, b: bad 4", "x.csv: line 6: bad"}
	if diff := cmp.Diff(want, places); diff != "" {
		t.Error(diff)
	}
}

func ExampleTable() {
	text := []byte("layer,tokens,time_us\r\nq_proj,1,45.895\r\nq_proj,many,50\r\n")
	table, err := format.OpenTable("dense.csv", text, format.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	tokens, time := table.Column("tokens"), table.Column("time_us")
	for row, err := range table.Rows() {
		if err != nil {
			fmt.Println(err)
			return
		}
		n, err := format.ParseSize(row[tokens], 1)
		if err != nil {
			fmt.Println(table.Errorf("tokens", "%w", err))
			return
		}
		t, err := format.ParseTime(row[time], format.Microseconds)
		fmt.Println(n, t, err)
	}
	// Output:
	// 1 45.90 µs <nil>
	// dense.csv: line 3, tokens: want a whole number from 1 to 1073741824, got "many"
}

// FuzzTable compares the reader with encoding/csv: all rows come that it
// finds, but for those that a warning names; and what it refuses is refused.
func FuzzTable(f *testing.F) {
	for _, s := range []string{
		"a,b\n1,2\n", "a,b\r\n1,2\r\n\r\na,b\r\n3,4", "a,b\n1,2\n3", "a\n\"1\n2\"\n", "a,b\n\"1,2\n", "a,a\n", "a\n\n", "\n", "a,b\n1,2,3\n", "a\n\"", "\"a\r\n\"\n1\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := csv.NewReader(bytes.NewReader(text))
		lines.FieldsPerRecord = -1
		want, fault := lines.ReadAll()
		rows, warnings, err := table(string(text), format.Limits{})
		for _, e := range append(slices.Clone(warnings), err) {
			if bad, ok := errors.AsType[*format.Error](e); e != nil && (!ok || bad.File != "x.csv") {
				t.Fatalf("no place: %v", e)
			}
		}
		if err != nil {
			return
		}
		if fault != nil || len(want) == 0 {
			t.Fatalf("taken, but %v", fault)
		}
		columns, want := want[0], want[1:]
		want = slices.DeleteFunc(want, func(row []string) bool { return slices.Equal(row, columns) })
		if n := len(want); n > 0 && len(want[n-1]) < len(columns) && !bytes.HasSuffix(text, []byte{'\n'}) {
			want = want[:n-1]
		}
		if len(rows) != len(want) || !slices.EqualFunc(rows, want, slices.Equal[[]string]) {
			t.Fatalf("rows %q, want %q", rows, want)
		}
		for _, row := range rows {
			if len(row) != len(columns) {
				t.Fatalf("row of %d cells under %d columns", len(row), len(columns))
			}
		}
	})
}

func TestTableWriter(t *testing.T) {
	for _, text := range []string{
		"a,b\n1,2\n",
		"a,b\r\n1,2\r\n",
		"a,b\r\n\"x\r\ny\",2\r\n",
		"a,\"b\r\"\r\n\"x\ry\",2\r\n",
		"a,\"b\r\"\n\"x\ry\",\"\n\"\n",
	} {
		tab, err := format.OpenTable("x.csv", []byte(text), format.Limits{})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		var b bytes.Buffer
		w := format.NewTableWriter(&b, tab.Newline())
		if err := w.Write(tab.Columns()); err != nil {
			t.Fatal(err)
		}
		for row, err := range tab.Rows() {
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if err := w.Write(row); err != nil {
				t.Fatal(err)
			}
		}
		if w.Flush(); w.Error() != nil || b.String() != text {
			t.Errorf("%q became %q (%v)", text, b.String(), w.Error())
		}
	}
}
