package llamacpp

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/format"
)

// fromCSV turns the table of -o csv into JSON Lines with the same line numbers,
// so that there is one reader of records. Every value of the table is quoted;
// those that are numbers in JSON become numbers.
func fromCSV(name string, text []byte) ([]byte, error) {
	rows := csv.NewReader(bytes.NewReader(text))
	rows.ReuseRecord = true
	columns, err := rows.Read()
	if err != nil {
		return nil, tableError(name, err)
	}
	columns = slices.Clone(columns)
	if !slices.Contains(columns, keyAverage) || !slices.Contains(columns, keyPrompt) {
		return nil, &format.Error{File: name, Place: "line 1", Err: fmt.Errorf("is no table of llama-bench: it has no columns %s and %s", keyPrompt, keyAverage)}
	}
	for i, column := range columns {
		if slices.Contains(columns[:i], column) {
			return nil, &format.Error{File: name, Place: "line 1", Err: fmt.Errorf("column %q stands twice", column)}
		}
	}
	var out bytes.Buffer
	line := 1
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, tableError(name, err)
		}
		at, _ := rows.FieldPos(0)
		for ; line < at; line++ {
			out.WriteByte('\n')
		}
		for i, value := range row {
			sep := ","
			if i == 0 {
				sep = "{"
			}
			key, err := json.Marshal(columns[i])
			if err != nil {
				return nil, &format.Error{File: name, Place: fmt.Sprintf("line %d", at), Err: err}
			}
			fmt.Fprintf(&out, "%s%s:%s", sep, key, cell(columns[i], value))
		}
		out.WriteByte('}')
	}
	if out.Len() == 0 {
		return nil, &format.Error{File: name, Err: errors.New("is a table without rows")}
	}
	return out.Bytes(), nil
}

// cell is a value of the table as JSON.
func cell(column, value string) string {
	number := strings.HasPrefix(column, "n_") || strings.HasPrefix(column, "avg_") || strings.HasPrefix(column, "stddev_") ||
		slices.Contains([]string{"build_number", "model_size", "model_n_params", "main_gpu", "flash_attn", "poll"}, column)
	if number && json.Valid([]byte(value)) && strings.IndexAny(value, "-0123456789") == 0 {
		return value
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "null"
	}
	return string(text)
}

// tableError gives a fault of the table its place.
func tableError(name string, err error) error {
	if bad, ok := errors.AsType[*csv.ParseError](err); ok {
		return &format.Error{File: name, Place: fmt.Sprintf("line %d", bad.Line), Err: bad.Err}
	}
	return &format.Error{File: name, Err: err}
}
