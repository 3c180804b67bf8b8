package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/campaign"
)

// TestMissingTableKeepsRowsShort: a long reason is cut in the rows and stands in
// full below, once; machines get all of it.
func TestMissingTableKeepsRowsShort(t *testing.T) {
	long := "not tried: docker:c cannot be used: no docker socket answers; looked at" + strings.Repeat(" /var/run/docker.sock", 20)
	var rows []CampaignRow
	for i, reason := range []string{long, "short", long} {
		c := campaign.Cell{ModelID: "a/b", InputLen: 64, OutputLen: 4, BatchSize: i + 1}
		rows = append(rows, CampaignRowOf(c, CampaignEnd{State: "cancelled", Error: reason}, nil))
	}
	table := missingTable(rows, rows)
	if diff := cmp.Diff([]string{long}, table.Notes); diff != "" {
		t.Errorf("notes (-want +got)\n%s", diff)
	}
	for i, row := range table.Rows {
		reason := row[len(row)-2]
		if want := rows[i].Error; reason.Value != want {
			t.Errorf("row %d: for machines %v, want %s", i, reason.Value, want)
		}
		words, cut := strings.CutSuffix(reason.Text, " …")
		if len(reason.Text) > 130 || cut != (i != 1) || !strings.HasPrefix(rows[i].Error+" ", words+" ") {
			t.Errorf("row %d shows %s", i, reason.Text)
		}
	}
}
