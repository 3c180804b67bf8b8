package memory

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/unit"
)

// Expectations are a user's own figures, from a CSV file. They are a
// [Calculator].
type Expectations struct {
	name    string
	catalog *catalog.Catalog
	rows    []expectation
}

// expectation is one row: what it expects of which runs.
type expectation struct {
	runs  runs
	sizes Prediction
}

// runs are the runs that a row is about. The last three are conditions only
// where they are set.
type runs struct {
	model                string // key
	batch, input, output int
	dtype                catalog.DType
	gpus                 int
	gpu                  string // key
}

// conditions counts those of the last three that are set.
func (r runs) conditions() int {
	n := 0
	for _, set := range []bool{r.dtype != "", r.gpus > 0, r.gpu != ""} {
		if set {
			n++
		}
	}
	return n
}

// HeaderError says that the columns are not those of an expectations file.
type HeaderError struct {
	// File is the name of the file, Column the column in question.
	File, Column string
	// Missing says that the column is required and not there; otherwise it is
	// there and not known.
	Missing bool
	// Nearest are names that are close.
	Nearest []string
}

// Error names file and column.
func (e *HeaderError) Error() string {
	if e.Missing {
		return fmt.Sprintf("%s: line 1: column %s is missing", e.File, e.Column)
	}
	return fmt.Sprintf("%s: line 1: column %q is not known", e.File, e.Column)
}

// Hint names the columns that are nearest, or all of them.
func (e *HeaderError) Hint() string {
	if len(e.Nearest) > 0 {
		return "nearest: " + strings.Join(e.Nearest, ", ")
	}
	required, optional := columns()
	return "columns: " + strings.Join(required, ", ") + "; optional: " + strings.Join(optional, ", ")
}

// columns lists the columns of an expectations file.
func columns() (required, optional []string) {
	return []string{"model", "batch", "input_len", "output_len", "total_gb"},
		[]string{"dtype", "gpus", "gpu", "weights_gb", "kv_cache_gb", "activations_gb", "overhead_gb"}
}

// ParseExpectations reads a CSV file with the columns model, batch, input_len,
// output_len and total_gb, and optionally dtype, gpus, gpu, weights_gb,
// kv_cache_gb, activations_gb and overhead_gb, in any order. Sizes are in GB
// of 1e9 bytes, summed over the GPUs. An empty dtype, gpus or gpu holds for
// every run, an empty part is not expected to be anything. Any other column is
// a [*HeaderError]. The catalog, which may be nil, tells which ids are one
// model.
func ParseExpectations(name string, r io.Reader, limits format.Limits, c *catalog.Catalog) (*Expectations, []error, error) {
	text, err := format.ReadText(name, r, limits)
	if err != nil {
		return nil, nil, err
	}
	table, err := format.OpenTable(name, text, limits)
	if err != nil {
		return nil, nil, err
	}
	if err := checkHeader(name, table); err != nil {
		return nil, nil, err
	}
	e := &Expectations{name: name, catalog: c}
	seen := map[runs]bool{}
	for cells, err := range table.Rows() {
		if err != nil {
			return nil, nil, err
		}
		row, err := e.row(table, cells)
		if err != nil {
			return nil, nil, err
		}
		if seen[row.runs] {
			return nil, nil, table.Errorf("", "the same run stands in a line above")
		}
		seen[row.runs] = true
		e.rows = append(e.rows, row)
	}
	if len(e.rows) == 0 {
		return nil, nil, &format.Error{File: name, Err: errors.New("holds no rows")}
	}
	return e, table.Warnings(), nil
}

// checkHeader refuses columns that are missing or not known.
func checkHeader(name string, table *format.Table) error {
	required, optional := columns()
	all := slices.Concat(required, optional)
	for _, column := range table.Columns() {
		if column = strings.TrimSpace(column); !slices.Contains(all, column) {
			return &HeaderError{File: name, Column: column, Nearest: catalog.Nearest(column, all, 2)}
		}
	}
	for _, column := range required {
		if table.Column(column) < 0 {
			return &HeaderError{File: name, Column: column, Missing: true}
		}
	}
	return nil
}

// row reads one row.
func (e *Expectations) row(table *format.Table, cells []string) (expectation, error) {
	var faults []error
	cell := func(column string) string {
		if i := table.Column(column); i >= 0 {
			return strings.TrimSpace(cells[i])
		}
		return ""
	}
	fault := func(column string, err error) { faults = append(faults, table.Errorf(column, "%w", err)) }
	count := func(column string, least int) int {
		n, err := format.ParseSize(cell(column), least)
		if err != nil {
			fault(column, err)
		}
		return n
	}
	size := func(column string) *unit.Bytes {
		if cell(column) == "" {
			return nil
		}
		gb, err := strconv.ParseFloat(cell(column), 64)
		b, outside := bytesOf(gb)
		if err != nil || outside != nil {
			fault(column, fmt.Errorf("want a size in GB, got %q", cell(column)))
		}
		return b
	}
	var row expectation
	row.runs = runs{
		model: e.modelKey(cell("model")), batch: count("batch", 1), input: count("input_len", 0), output: count("output_len", 0),
		gpu: e.deviceKey(cell("gpu")),
	}
	if row.runs.model == "" {
		fault("model", errors.New("missing"))
	}
	if cell("gpus") != "" {
		row.runs.gpus = count("gpus", 1)
	}
	if text := cell("dtype"); text != "" {
		t, err := catalog.ParseDType(text)
		if err != nil {
			fault("dtype", err)
		}
		row.runs.dtype = t
	}
	row.sizes = Prediction{
		Total: size("total_gb"), Weights: size("weights_gb"), KVCache: size("kv_cache_gb"),
		Activations: size("activations_gb"), Overhead: size("overhead_gb"),
	}
	if cell("total_gb") == "" {
		fault("total_gb", errors.New("missing"))
	}
	if len(faults) > 0 {
		return expectation{}, faults[0]
	}
	return row, nil
}

// modelKey is the catalog's name of a model, or the id itself without case.
func (e *Expectations) modelKey(id string) string {
	if e.catalog != nil {
		if m, err := e.catalog.Model(id); err == nil {
			return m.Name
		}
	}
	return strings.ToLower(id)
}

// deviceKey is the catalog's name of a device, or the name itself without
// case.
func (e *Expectations) deviceKey(name string) string {
	if e.catalog != nil {
		if d, _, err := e.catalog.Device(name); err == nil {
			return d.Name
		}
	}
	return strings.ToLower(name)
}

// Name is the name of the file.
func (e *Expectations) Name() string { return e.name }

// Calculate finds the row for a run; of several that fit, the one with the
// most conditions.
func (e *Expectations) Calculate(m Measured) (Prediction, error) {
	dtype := m.WeightDType
	if dtype == "" {
		dtype = m.ActivationDType
	}
	run := runs{e.modelKey(m.Model), m.Batch, m.Input, m.Output, dtype, m.gpus(), e.deviceKey(m.Device)}
	known := false
	var fitting []expectation
	for _, row := range e.rows {
		known = known || row.runs.model == run.model
		if !row.runs.include(run) {
			continue
		}
		if len(fitting) > 0 && row.runs.conditions() > fitting[0].runs.conditions() {
			fitting = nil
		}
		if len(fitting) == 0 || row.runs.conditions() == fitting[0].runs.conditions() {
			fitting = append(fitting, row)
		}
	}
	what := fmt.Sprintf("batch %d with %d + %d tokens on %d %s in %s", run.batch, run.input, run.output, run.gpus, cmp.Or(m.Device, "GPUs"), cmp.Or(string(dtype), "an unknown format"))
	switch {
	case len(fitting) == 1:
		return fitting[0].sizes, nil
	case len(fitting) > 1:
		return Prediction{}, fmt.Errorf("look up %s in %s: %d rows fit %s equally well", m.Model, e.name, len(fitting), what)
	case known:
		return Prediction{}, fmt.Errorf("look up %s in %s: no row for %s", m.Model, e.name, what)
	}
	return Prediction{}, &UnknownModelError{e.name, m.Model, "the file has no row with this id"}
}

// include reports whether a run is among r.
func (r runs) include(run runs) bool {
	return r.model == run.model && r.batch == run.batch && r.input == run.input && r.output == run.output &&
		(r.dtype == "" || r.dtype == run.dtype) && (r.gpus == 0 || r.gpus == run.gpus) && (r.gpu == "" || r.gpu == run.gpu)
}
