package aiperf

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// readCSV reads the summary's CSV: a table of distributions and, after a blank
// line, one of single figures. Its numbers are rounded, and it names neither
// tool nor model.
func readCSV(name string, text []byte, limits format.Limits) (*profile.Profile, []error, error) {
	lines := csv.NewReader(bytes.NewReader(text))
	lines.FieldsPerRecord = -1
	rows, err := lines.ReadAll()
	if err != nil {
		return nil, nil, &format.Error{File: name, Err: err}
	}
	s := &summary{run: format.Serving{Tool: "aiperf", Origin: name}}
	var columns []string
	cells := 0
	for _, row := range rows {
		if cells += len(row); cells > limits.WithDefaults().Values {
			return nil, nil, &format.Error{File: name, Err: fmt.Errorf("more than %d cells", cells)}
		}
		if row[0] == "Metric" {
			columns = row
			continue
		}
		if len(row) != len(columns) {
			return nil, nil, &format.Error{File: name, Place: row[0], Err: fmt.Errorf("holds %d cells under %d columns", len(row), len(columns))}
		}
		m, err := rowMetric(name, columns, row)
		if err != nil {
			return nil, nil, err
		}
		s.take(m)
	}
	return s.profile(name)
}

// rowMetric is a row as the JSON has it.
func rowMetric(name string, columns, row []string) (metric, error) {
	title, unit := row[0], ""
	if at := strings.LastIndex(title, " ("); at > 0 && strings.HasSuffix(title, ")") {
		title, unit = title[:at], title[at+2:len(title)-1]
	}
	values := map[string]string{}
	for i, cell := range row[1:] {
		if cell = strings.ReplaceAll(strings.TrimSpace(cell), ",", ""); cell == "" || cell == "N/A" {
			continue
		}
		key := columns[i+1]
		if key == "Value" {
			key = "avg"
		}
		values[key] = cell
	}
	text, err := json.Marshal(values)
	if err != nil {
		return metric{}, &format.Error{File: name, Place: title, Err: err}
	}
	nodes, err := format.ParseJSON(name, text, format.Limits{})
	if err != nil {
		return metric{}, err
	}
	return metric{jsonName(title), unit, nodes[0].At(row[0])}, nil
}

// jsonName is the name in the JSON of a title in the CSV.
func jsonName(title string) string {
	switch title {
	case "Effective Latency (CO-aware)":
		return "effective_latency"
	case "Credit-to-Start Latency":
		return "credit_to_start_latency"
	case "Completed Requests":
		return "completed_request_count"
	case "Completed Requests (Success + Error)":
		return "completed_request_count"
	case "GoodRequestFraction":
		return "good_request_fraction"
	case "Total Input Sequence Length":
		return "total_isl"
	case "Total Output Sequence Length":
		return "total_osl"
	case "Total Usage Prompt Tokens":
		return "total_usage_prompt_tokens"
	}
	return strings.ReplaceAll(strings.ToLower(title), " ", "_")
}
