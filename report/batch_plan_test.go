package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/campaign"
)

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		why  string
		argv []string
		want string
	}{
		{"nothing", nil, ""},
		{"plain words", []string{"vllm", "serve", "owner/model", "--port=8000"}, "vllm serve owner/model --port=8000"},
		{"a space", []string{"--name", "two words"}, "--name 'two words'"},
		{"an empty word", []string{"--name", ""}, "--name ''"},
		{"what a shell would take for its own", []string{"a;b", "$HOME", "*", `{"x":"y"}`, "~"}, `'a;b' '$HOME' '*' '{"x":"y"}' '~'`},
		{"a quote", []string{"it's"}, `'it'\''s'`},
	} {
		if got := CommandLine(c.argv); got != c.want {
			t.Errorf("%s: got %s, want %s", c.why, got, c.want)
		}
	}
}

// planOf is a plan of three cells, two of which share a command.
func planOf(t *testing.T) campaign.Plan {
	t.Helper()
	file, err := campaign.FromFlags(campaign.Flags{
		Cell:         campaign.Cell{ModelID: "owner/model", Place: "local", Engine: "vllm", DType: "float16", TensorParallel: 1, GPUMemoryUtilization: 0.9, NumIters: 1},
		InputLengths: []int{64}, OutputLengths: []int{4}, BatchSizes: []int{1, 2, 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	return campaign.NewPlan(file.Cells(), campaign.PlanOptions{Command: func(c campaign.Cell) []string {
		if c.BatchSize == 4 {
			return []string{"serve", "--max-num-seqs", "4"}
		}
		return []string{"serve"}
	}})
}

// TestPlanTime says for which cells the time holds.
func TestPlanTime(t *testing.T) {
	seconds := 60.0
	for _, c := range []struct {
		why     string
		seconds *float64
		idle    int
		want    string
	}{
		{"all run", &seconds, 0, "60.00 s of iterations, theoretical, without the starts of the engines"},
		{"one of three runs", &seconds, 2, "60.00 s of iterations, theoretical, without the starts of the engines, for the 1 cell that can run"},
		{"nothing is known of one", nil, 1, "not known for every cell"},
		{"none runs", nil, 3, "none: no cell can run"},
	} {
		if got := planTime(campaign.Plan{Count: 3, PredictedSeconds: c.seconds}, c.idle); got != c.want {
			t.Errorf("%s: %s, want %s", c.why, got, c.want)
		}
	}
}

func TestPlanTables(t *testing.T) {
	p := planOf(t)
	yes, no := true, false
	p.Cells[0].Fits = &yes
	p.Cells[1].Fits, p.Cells[1].Reason = &no, "28 GiB of 24 GiB"
	tables := PlanTables(p)
	var fits, commands [][]string
	for _, row := range tables[2].Rows {
		fits = append(fits, []string{row[5].Text, row[13].Text, row[14].Text})
	}
	for _, row := range tables[3].Rows {
		commands = append(commands, []string{row[0].Text, row[1].Text})
	}
	wantFits := [][]string{{"1", "yes", "the architecture of owner/model is not known"}, {"2", "NO", "28 GiB of 24 GiB"}, {"4", "not known", "the architecture of owner/model is not known"}}
	if diff := cmp.Diff(wantFits, fits); diff != "" {
		t.Errorf("cells (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([][]string{{"2", "serve"}, {"1", "serve --max-num-seqs 4"}}, commands); diff != "" {
		t.Errorf("commands (-want +got)\n%s", diff)
	}
	p.Cells[2].Refused = "too many sequences"
	if got := PlanTables(p)[2].Rows[2]; got[13].Text != "refused" || got[14].Text != "too many sequences" {
		t.Errorf("a refused cell: %s, %s", got[13].Text, got[14].Text)
	}
	p.Cells[2].Refused = ""
	var out bytes.Buffer
	if err := Text(&out, tables...); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cannot fit     1\n", "fit not known  1\n", "time           not known for every cell\n", "engine loads   1\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestPlanOfNothing shows no empty tables.
func TestPlanOfNothing(t *testing.T) {
	p := campaign.NewPlan(nil, campaign.PlanOptions{})
	p.Warnings = []string{"an older form"}
	tables := PlanTables(p)
	if len(tables) != 1 || len(tables[0].Rows) != 1 || !cmp.Equal(tables[0].Notes, p.Warnings) {
		t.Errorf("got %+v", tables)
	}
}
