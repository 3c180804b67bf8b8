package report

import (
	"cmp"
	"io"
	"time"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/unit"
)

// RunKeys is a run of a campaign and how far it has come.
type RunKeys struct {
	ID     string `json:"run_id"`
	Kind   string `json:"kind,omitempty"`
	Name   string `json:"name,omitempty"`
	Source string `json:"source,omitempty"`
	// Created is when the run was made, Updated when a cell last changed.
	Created time.Time `json:"created,omitzero"`
	Updated time.Time `json:"updated,omitzero"`
	// Cells is the number of cells, Counts the same by state.
	Cells  int            `json:"cells"`
	Counts map[string]int `json:"counts"`
	// Seconds is the time of all cells together, in seconds.
	Seconds float64 `json:"duration_s"`
}

// CampaignEnd is what became of a cell.
type CampaignEnd struct {
	// State is done, or the state in which the cell has no result: pending,
	// running, failed, oom, refused, timeout, skipped or cancelled.
	State    string `json:"state"`
	Attempts int    `json:"attempts"`
	// Seconds is the time of the last attempt in seconds.
	Seconds float64 `json:"duration_s"`
	// Error is why there is no result, Hint what to do about it.
	Error       string `json:"error,omitempty"`
	Hint        string `json:"hint,omitempty"`
	ProfileFile string `json:"profile_file,omitempty"`
}

// CampaignRow is one cell of a campaign. In JSON what was asked for and what
// became of it stand beside each other.
type CampaignRow struct {
	Hash string `json:"hash"`
	campaign.Cell
	CampaignEnd
	// Spread is how far the readings of the memory lay apart during the timed runs;
	// nil where they are not known.
	Spread *unit.Bytes `json:"memory_spread_bytes,omitempty"`
	// Predicted is what the devices together were expected to need, for those
	// who predicted it to fill in; nil where nobody did.
	Predicted *unit.Bytes `json:"predicted_total_bytes,omitempty"`
	// Profile is what was measured, without the series of samples; nil where
	// nothing was.
	Profile *memprofile.Document `json:"profile"`
}

// CampaignDocument is the JSON of a campaign.
type CampaignDocument struct {
	Head
	// Generated is when a report was made of it.
	Generated time.Time     `json:"generated,omitzero"`
	Run       RunKeys       `json:"run"`
	Rows      []CampaignRow `json:"cells"`
	Warnings  []string      `json:"warnings"`
}

// stateDone is the state of a cell that was measured.
const stateDone = "done"

// CampaignRowOf builds the row of a cell; doc is nil where nothing was
// measured.
func CampaignRowOf(cell campaign.Cell, end CampaignEnd, doc *memprofile.Document) CampaignRow {
	row := CampaignRow{Hash: cell.Hash(), Cell: cell, CampaignEnd: end}
	if doc == nil {
		return row
	}
	measured := *doc
	measured.Fill()
	row.Spread = memorySpread(&measured)
	measured.MemoryTimeline = nil
	row.Profile = &measured
	return row
}

// Campaign builds the document of a run. It counts the cells itself.
func Campaign(run RunKeys, rows []CampaignRow, warnings []string, tool string) CampaignDocument {
	run.Cells, run.Counts, run.Seconds = len(rows), map[string]int{}, 0
	for _, r := range rows {
		run.Counts[r.State]++
		run.Seconds += r.Seconds
	}
	return CampaignDocument{
		Head: NewHead("campaign", tool), Run: run,
		Rows: append([]CampaignRow{}, rows...), Warnings: append([]string{}, warnings...),
	}
}

// Measured reports whether the cell has a result.
func (r CampaignRow) Measured() bool { return r.State == stateDone && r.Profile != nil }

// batch is the row in the columns of batch-bench-results.
func (r CampaignRow) batch() memprofile.BatchRow {
	container := cmp.Or(r.ContainerName, r.Place)
	b := memprofile.BatchRow{ContainerName: container, ProfileFile: r.ProfileFile, DurationSeconds: &r.Seconds, ErrorMessage: cmp.Or(r.reason(), r.State)}
	if r.Measured() {
		b = memprofile.BatchRowOf(r.Profile, container, r.ProfileFile, unit.Seconds(r.Seconds))
	}
	b.ModelID, b.InputLen, b.OutputLen, b.BatchSize = r.ModelID, &r.InputLen, &r.OutputLen, &r.BatchSize
	return b
}

// reason is why the cell has no result; empty where it has one, or where its
// state says all there is.
func (r CampaignRow) reason() string {
	switch {
	case r.Measured():
		return ""
	case r.Error == "" && r.State == stateDone:
		return "its result cannot be read"
	default:
		return r.Error
	}
}

// split parts the rows that were measured from those that were not.
func split(rows []CampaignRow) (measured, missing []CampaignRow) {
	for _, r := range rows {
		if r.Measured() {
			measured = append(measured, r)
		} else {
			missing = append(missing, r)
		}
	}
	return measured, missing
}

// grouped splits rows by a key; groups and rows keep their order.
func grouped[K comparable](rows []CampaignRow, key func(CampaignRow) K) [][]CampaignRow {
	at := map[K]int{}
	var groups [][]CampaignRow
	for _, r := range rows {
		k := key(r)
		i, known := at[k]
		if !known {
			i = len(groups)
			at[k] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], r)
	}
	return groups
}

func modelOf(r CampaignRow) string { return r.ModelID }

// CampaignCSV writes the cells in the 22 columns of batch-bench-results.
func CampaignCSV(w io.Writer, d CampaignDocument) error {
	rows := make([]memprofile.BatchRow, len(d.Rows))
	for i, r := range d.Rows {
		rows[i] = r.batch()
	}
	return memprofile.WriteBatch(w, rows)
}
