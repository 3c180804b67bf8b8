package guidellm

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// detectCSV knows the file by the first cells of its three header rows.
func detectCSV(text []byte) bool {
	first, rest, _ := bytes.Cut(text, []byte{'\n'})
	return bytes.HasPrefix(first, []byte("Run Info,")) && bytes.HasPrefix(rest, []byte("Run ID,"))
}

// headerRows is the number of rows that name the columns: group, figure and
// unit, statistic.
const headerRows = 3

// readCSV reads the CSV, which holds a row for each benchmark and no requests.
func readCSV(name string, text []byte, limits format.Limits) (*profile.Profile, []error, error) {
	lines := csv.NewReader(bytes.NewReader(text))
	rows, err := lines.ReadAll()
	if err != nil {
		return nil, nil, &format.Error{File: name, Err: err}
	}
	if len(rows) <= headerRows {
		return nil, nil, &format.Error{File: name, Err: fmt.Errorf("holds %d rows: want %d of column names and one a benchmark", len(rows), headerRows)}
	}
	if len(rows)*len(rows[0]) > limits.WithDefaults().Values {
		return nil, nil, &format.Error{File: name, Err: errors.New("too many cells")}
	}
	f := &file{name: name}
	for i, row := range rows[headerRows:] {
		f.runs = append(f.runs, f.row(rows[:headerRows], row, i+1))
	}
	for _, s := range f.runs {
		f.warnings = append(f.warnings, s.Check(nil)...)
	}
	if w := f.runs[0].UnmappedWarning(); w != nil {
		f.warnings = append(f.warnings, w)
	}
	return f.profile()
}

// cells are one row by the names of its columns.
type cells struct {
	file  string
	place string
	byKey map[string]string
}

// node is a cell as a value; absent where it is empty or no JSON.
func (c *cells) node(group, figure, statistic string) format.Node {
	cell := strings.TrimSpace(c.byKey[key(group, figure, statistic)])
	if cell == "" {
		return format.Node{}
	}
	nodes, err := format.ParseJSON(c.file, []byte(cell), format.Limits{})
	if err != nil || len(nodes) != 1 {
		return format.Node{}
	}
	return nodes[0].At(c.place + ", " + group + ", " + figure + ", " + statistic)
}

func key(group, figure, statistic string) string {
	return strings.ToLower(group + "\x00" + figure + "\x00" + statistic)
}

// row reads one benchmark.
func (f *file) row(header [][]string, row []string, number int) format.Serving {
	c := &cells{file: f.name, place: fmt.Sprintf("row %d", number), byKey: map[string]string{}}
	known := map[string]bool{}
	for i, cell := range row {
		c.byKey[key(header[0][i], header[1][i], header[2][i])] = cell
	}
	figures := &f.figures
	s := format.Serving{Origin: f.name + ": " + c.place, Load: c.byKey[key("Benchmark", "Strategy", "")]}
	s.Tool = "guidellm " + figures.Text(c.node("Runtime Info", "Metadata", "").Get("guidellm_version"))
	backend := c.node("Run Info", "Backend", "")
	s.Model, s.Backend = figures.Text(backend.Get("model")), figures.Text(backend.Get("kind"))
	s.Duration = figures.Number(c.node("Timings", "Duration", "Sec"), 1)
	s.Completed = figures.Count(c.node("Request Counts", "Successful", ""))
	s.Failed = figures.Count(c.node("Request Counts", "Errored", ""))
	s.Cancelled = figures.Count(c.node("Request Counts", "Incomplete", ""))
	s.Requests = figures.Count(c.node("Request Counts", "Total", ""))
	if s.Completed != nil && *s.Completed == 0 {
		return s // without successes its means are zeros
	}
	for _, d := range []struct {
		into         **format.Distribution
		group, units string
		scale        float64 // of the file's unit, in milliseconds
		over         format.Over
	}{
		{&s.TTFT, "Time to First Token", "Successful ms", 1, format.OverRequests},
		{&s.TPOT, "Inter Token Latency", "Successful ms", 1, format.OverTokens},
		{&s.NTPOT, "Time per Output Token", "Successful ms", 1, format.OverTokens},
		{&s.E2EL, "Request Latency", "Successful Sec", 1e3, format.OverRequests},
	} {
		*d.into = f.distribution(c, d.group, d.units, d.scale, d.over)
		known[d.group] = true
	}
	mean := func(group, figure string) *float64 {
		known[group] = true
		return figures.Number(c.node(group, figure, "Mean"), 1)
	}
	s.RequestThroughput = mean("Server Throughput", "Successful Requests/Sec")
	s.Concurrency = mean("Server Throughput", "Successful Concurrency")
	s.Goodput = mean("Server Throughput", "Successful Goodput/Sec")
	s.GoodShare = figures.Number(c.node("Server Throughput", "SLO Attainment", ""), 1)
	s.OutputThroughput = mean("Token Throughput", "Successful Output Tokens/Sec")
	s.TotalThroughput = mean("Token Throughput", "Successful Total Tokens/Sec")
	for figure, into := range map[string]**int{"Successful Input Tokens": &s.InputTokens, "Successful Output Tokens": &s.OutputTokens} {
		if v := mean("Token Metrics", figure); v != nil && s.Completed != nil && *v < 1<<30 {
			*into = new(int(*v*float64(*s.Completed) + 0.5))
		}
	}
	for i, group := range header[0] {
		if strings.HasPrefix(header[1][i], "Successful ") && header[2][i] != "" && !known[group] {
			known[group] = true
			s.Unmapped = append(s.Unmapped, group)
		}
	}
	return s
}

// distribution reads the four columns of a latency.
func (f *file) distribution(c *cells, group, units string, scale float64, over format.Over) *format.Distribution {
	d := &format.Distribution{Over: over, Origin: c.place + ": " + group}
	d.Mean = f.figures.Number(c.node(group, units, "Mean"), scale)
	d.Std = f.figures.Number(c.node(group, units, "Std Dev"), scale)
	if d.Mean == nil {
		return nil
	}
	for i, n := range c.node(group, units, "Percentiles").Elements() {
		percents := [...]float64{0.1, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9}
		if v := f.figures.Number(n, scale); v != nil && i < len(percents) {
			d.SetPercentile(percents[i], *v)
		}
	}
	if v := f.figures.Number(c.node(group, units, "Median"), scale); v != nil {
		d.P50 = v
	}
	return d
}
