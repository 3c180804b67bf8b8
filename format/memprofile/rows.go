package memprofile

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/format"
)

// column is a field of a row with its tag: the name of the column, other
// names that readers take for it, and the decimals with which it is written;
// without them a number is written as Python does.
type column struct {
	names    []string
	decimals int
}

// columnsOf reads the tags of a struct of rows.
func columnsOf(row reflect.Type) []column {
	columns := make([]column, row.NumField())
	for i := range columns {
		names, decimals, fixed := strings.Cut(row.Field(i).Tag.Get("csv"), ",")
		columns[i] = column{names: strings.Split(names, "|"), decimals: -1}
		if n, err := strconv.Atoi(decimals); fixed && err == nil {
			columns[i].decimals = n
		}
	}
	return columns
}

// readRows reads a CSV file into structs. Columns that are missing leave their
// field empty, unless one of the names in need; others are passed over.
func readRows[T any](name string, r io.Reader, limits format.Limits, need ...string) ([]T, []string, error) {
	text, err := format.ReadText(name, r, limits)
	if err != nil {
		return nil, nil, err
	}
	table, err := format.OpenTable(name, text, limits)
	if err != nil {
		return nil, nil, err
	}
	columns := columnsOf(reflect.TypeFor[T]())
	at := make([]int, len(columns))
	for i, c := range columns {
		at[i] = -1
		for _, name := range c.names {
			if at[i] < 0 {
				at[i] = table.Column(name)
			}
		}
		if at[i] < 0 && slices.Contains(need, c.names[0]) {
			return nil, nil, table.Errorf("", "has no column %s", strings.Join(c.names, " or "))
		}
	}
	var rows []T
	for cells, err := range table.Rows() {
		if err != nil {
			return nil, nil, err
		}
		var row T
		for i, c := range columns {
			if at[i] < 0 {
				continue
			}
			if err := setCell(reflect.ValueOf(&row).Elem().Field(i), strings.TrimSpace(cells[at[i]])); err != nil {
				return nil, nil, table.Errorf(c.names[0], "%w", err)
			}
		}
		rows = append(rows, row)
	}
	var warnings []string
	for _, w := range table.Warnings() {
		warnings = append(warnings, w.Error())
	}
	return rows, warnings, nil
}

// setCell sets a field from a cell; an empty one leaves it as it is.
func setCell(field reflect.Value, cell string) error {
	if cell == "" {
		return nil
	}
	switch target := field.Addr().Interface().(type) {
	case *string:
		*target = strings.Clone(cell)
	case *bool:
		value, err := strconv.ParseBool(strings.ToLower(cell))
		if err != nil {
			return fmt.Errorf("want True or False, got %q", cell)
		}
		*target = value
	case **int:
		value, err := format.ParseSize(cell, 0)
		if err != nil {
			return err
		}
		*target = &value
	case **float64:
		value, err := strconv.ParseFloat(cell, 64)
		if err != nil || strings.ContainsAny(cell, "xXpP_") {
			return fmt.Errorf("want a number, got %q", cell)
		}
		*target = finite(value)
	}
	return nil
}

// writeRows writes structs as CSV. The first columns of them only, where
// there are to be fewer; a number of zero is an empty cell where zeros is
// false.
func writeRows[T any](w io.Writer, rows []T, width int, zeros bool) error {
	columns := columnsOf(reflect.TypeFor[T]())[:width]
	out := csv.NewWriter(w)
	cells := make([]string, width)
	for i, c := range columns {
		cells[i] = c.names[0]
	}
	if err := out.Write(cells); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	for _, row := range rows {
		for i, c := range columns {
			cells[i] = cellOf(reflect.ValueOf(row).Field(i).Interface(), c.decimals, zeros)
		}
		if err := out.Write(cells); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

func cellOf(value any, decimals int, zeros bool) string {
	switch v := value.(type) {
	case string:
		return v
	case bool:
		if v {
			return "True"
		}
		return "False"
	case *int:
		if v != nil {
			return strconv.Itoa(*v)
		}
	case *float64:
		switch {
		case v == nil, *v == 0 && !zeros:
		case decimals >= 0:
			return strconv.FormatFloat(*v, 'f', decimals, 64)
		default:
			return pythonFloat(*v)
		}
	}
	return ""
}

// pythonFloat writes a number as Python's repr does.
func pythonFloat(v float64) string {
	if size := math.Abs(v); size != 0 && (size < 1e-4 || size >= 1e16) {
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	text := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
