package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/campaign"
)

// PairKeys is a cell that two campaigns share.
type PairKeys struct {
	Hash string `json:"hash"`
	campaign.Cell
	// MatchedBy is hash where both cells measure the same, else sizes: model,
	// lengths and batch size are equal, and Differs names what is not.
	MatchedBy string   `json:"matched_by"`
	Differs   []string `json:"differs,omitempty"`
	StateA    string   `json:"state_a"`
	StateB    string   `json:"state_b"`
	// Latency and Memory are null where a side was not measured.
	Latency *ChangeKeys `json:"latency_ms"`
	Memory  *ChangeKeys `json:"total_memory_bytes"`

	a, b CampaignRow
}

// LoneKeys is a cell that only one campaign has.
type LoneKeys struct {
	Hash string `json:"hash"`
	campaign.Cell
	State string `json:"state"`
}

// ComparisonDocument is the JSON of two campaigns side by side.
type ComparisonDocument struct {
	Head
	A RunKeys `json:"a"`
	B RunKeys `json:"b"`
	// Level is the share of outcomes that the intervals cover, 0..1, and
	// EqualPct the change in percent up to which two figures are the same.
	Level    float64    `json:"level"`
	EqualPct float64    `json:"equal_pct"`
	Pairs    []PairKeys `json:"cells"`
	OnlyA    []LoneKeys `json:"only_a"`
	OnlyB    []LoneKeys `json:"only_b"`
	Warnings []string   `json:"warnings"`
}

// CompareCampaigns matches the cells of two campaigns, by hash and then by
// model and sizes, and compares their latency and memory in the light of the
// noise of each.
func CompareCampaigns(a, b CampaignDocument, tool string) ComparisonDocument {
	d := ComparisonDocument{
		Head: NewHead("campaign-comparison", tool), A: a.Run, B: b.Run, Level: confidence, EqualPct: equal,
		Pairs: []PairKeys{}, OnlyA: []LoneKeys{}, OnlyB: []LoneKeys{}, Warnings: append(append([]string{}, a.Warnings...), b.Warnings...),
	}
	partner := match(a.Rows, b.Rows)
	taken := map[int]bool{}
	for i, row := range a.Rows {
		j, found := partner[i]
		if !found {
			d.OnlyA = append(d.OnlyA, LoneKeys{row.Hash, row.Cell, row.State})
			continue
		}
		taken[j] = true
		d.Pairs = append(d.Pairs, pairOf(row, b.Rows[j]))
	}
	for j, row := range b.Rows {
		if !taken[j] {
			d.OnlyB = append(d.OnlyB, LoneKeys{row.Hash, row.Cell, row.State})
		}
	}
	return d
}

// match finds for cells of a the cell of b: the same one, or the only one of
// the same model and sizes; the formats and the sharding decide where there are
// several.
func match(a, b []CampaignRow) map[int]int {
	partner, taken := map[int]int{}, map[int]bool{}
	keys := []func(CampaignRow) string{
		func(r CampaignRow) string { return r.Hash },
		func(r CampaignRow) string {
			return fmt.Sprint(r.ModelID, sizesText(r), r.BlockSize, r.TensorParallel, r.DType, r.KVCacheDType, r.Quantization)
		},
		func(r CampaignRow) string { return r.ModelID + sizesText(r) },
	}
	for _, key := range keys {
		left, right := map[string][]int{}, map[string][]int{}
		for i, r := range a {
			if _, done := partner[i]; !done {
				left[key(r)] = append(left[key(r)], i)
			}
		}
		for j, r := range b {
			if !taken[j] {
				right[key(r)] = append(right[key(r)], j)
			}
		}
		for k, i := range left {
			if j := right[k]; len(i) == 1 && len(j) == 1 {
				partner[i[0]], taken[j[0]] = j[0], true
			}
		}
	}
	return partner
}

func pairOf(a, b CampaignRow) PairKeys {
	p := PairKeys{Hash: a.Hash, Cell: a.Cell, MatchedBy: "hash", StateA: a.State, StateB: b.State, Differs: differences(a, b), a: a, b: b}
	if a.Hash != b.Hash {
		p.MatchedBy = "sizes"
	}
	if a.Measured() && b.Measured() {
		p.Latency, p.Memory = latencyChange(a.Profile, b.Profile), memoryChange(a, b)
	}
	return p
}

// differences names the settings of two cells that are not equal, and the
// engine and device that they were measured on.
func differences(a, b CampaignRow) []string {
	left, right := asked(a), asked(b)
	if a.Measured() && b.Measured() {
		for _, s := range settings() {
			if s.name == "version" || s.name == "device" {
				left[s.name], right[s.name] = s.of(a), s.of(b)
			}
		}
	}
	keys := maps.Clone(left)
	maps.Copy(keys, right)
	var out []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if x, y := fmt.Sprint(left[k]), fmt.Sprint(right[k]); x != y {
			out = append(out, fmt.Sprintf("%s %s → %s", k, orNone(left[k]), orNone(right[k])))
		}
	}
	return out
}

// asked are the settings of a cell that decide its measurement, by their keys.
func asked(r CampaignRow) map[string]any {
	c := r.Cell
	c.ContainerName, c.Architecture = "", campaign.Architecture{}
	keys := map[string]any{}
	if text, err := json.Marshal(c); err == nil {
		_ = json.Unmarshal(text, &keys) // it was written a line above
	}
	return keys
}

// orNone prints a value, and the lack of one.
func orNone(v any) string {
	if v == nil || v == "" {
		return "none"
	}
	return fmt.Sprint(v)
}

// Regressions names the cells that are slower or larger by more than pct
// percent beyond their noise, and those that were measured in A and failed
// in B.
func (d ComparisonDocument) Regressions(pct float64) []string {
	var out []string
	for _, p := range d.Pairs {
		name := p.ModelID + ", " + sizesText(p.a)
		switch {
		case p.a.Measured() && !p.b.Measured() && p.StateB != "pending" && p.StateB != "running":
			out = append(out, fmt.Sprintf("%s: %s, and was measured before", name, p.StateB))
		case p.Latency != nil && p.Latency.Verdict == verdictSlower && p.Latency.ChangePct > pct:
			out = append(out, fmt.Sprintf("%s: slower by %.1f %%", name, p.Latency.ChangePct))
		case p.Memory != nil && p.Memory.Verdict == verdictLarger && p.Memory.ChangePct > pct:
			out = append(out, fmt.Sprintf("%s: larger by %.1f %%", name, p.Memory.ChangePct))
		}
	}
	return out
}

// ComparisonTables shows two campaigns side by side.
func ComparisonTables(d ComparisonDocument) []Table {
	head := pairTable("")
	head.pair("A", strings.TrimSpace(d.A.ID+"  "+d.A.Name))
	head.pair("B", strings.TrimSpace(d.B.ID+"  "+d.B.Name))
	head.pair("cells of both", fmt.Sprintf("%d, of A alone %d, of B alone %d", len(d.Pairs), len(d.OnlyA), len(d.OnlyB)))
	head.Notes = d.Warnings
	tables := []Table{head}
	for _, pairs := range groupPairs(d.Pairs) {
		tables = append(tables, pairsTable(pairs))
	}
	if len(d.Pairs) > 0 {
		last := &tables[len(tables)-1]
		last.Notes = append(last.Notes,
			fmt.Sprintf("± of a latency: %.0f %% interval of the mean of its runs; of memory: the step of the readings, and their 5th to 95th percentile during the timed runs where the profile has them", 100*d.Level),
			fmt.Sprintf("same: the whole interval of the change lies within ± %g %%; unclear: the noise leaves open whether there is a change; what another start of the engine would change is not in it", d.EqualPct))
	}
	for _, lone := range []struct {
		title string
		cells []LoneKeys
	}{{"Only in A", d.OnlyA}, {"Only in B", d.OnlyB}} {
		if len(lone.cells) > 0 {
			tables = append(tables, loneTable(lone.title, lone.cells))
		}
	}
	return tables
}

func groupPairs(pairs []PairKeys) [][]PairKeys {
	var groups [][]PairKeys
	for _, p := range pairs {
		i := slices.IndexFunc(groups, func(g []PairKeys) bool { return g[0].ModelID == p.ModelID })
		if i < 0 {
			i = len(groups)
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], p)
	}
	return groups
}

func pairsTable(pairs []PairKeys) Table {
	none := idle("–")
	t := Table{Title: pairs[0].ModelID, Columns: []Column{
		{Name: "batch", Key: "batch_size"},
		{Name: "input", Key: "input_len"},
		{Name: "output", Key: "output_len"},
		{Name: "block size", Key: "block_size", Idle: none},
		{Name: "A ms", Key: "a_latency_ms", Idle: none},
		{Name: "±", Key: "a_latency_noise_ms", Idle: none},
		{Name: "B ms", Key: "b_latency_ms", Idle: none},
		{Name: "±", Key: "b_latency_noise_ms", Idle: none},
		{Name: "%", Key: "latency_change_pct", Idle: none},
		{Name: "from", Key: "latency_low_pct", Idle: none},
		{Name: "to", Key: "latency_high_pct", Idle: none},
		{Name: "latency", Key: "latency_verdict", Left: true},
		{Name: "A GB", Key: "a_total_memory_gb", Idle: none},
		{Name: "±", Key: "a_memory_noise_gb", Idle: none},
		{Name: "B GB", Key: "b_total_memory_gb", Idle: none},
		{Name: "±", Key: "b_memory_noise_gb", Idle: none},
		{Name: "%", Key: "memory_change_pct", Idle: none},
		{Name: "memory", Key: "memory_verdict", Left: true},
		{Name: "differs", Left: true, Idle: idle("")},
	}}
	for _, p := range pairs {
		block := Missing()
		if p.BlockSize > 0 {
			block = Whole(p.BlockSize)
		}
		row := []Cell{Whole(p.BatchSize), Whole(p.InputLen), Whole(p.OutputLen), block}
		latency := changeCells(p.Latency, 1, 2)
		row = append(append(row, latency...), Say(p.verdict(p.Latency)))
		memory := changeCells(p.Memory, 1e9, 3)
		row = append(append(row, memory[:5]...), Say(p.verdict(p.Memory)), Say(strings.Join(p.Differs, "; ")))
		t.Rows = append(t.Rows, row)
	}
	return t
}

// verdict of a change, or the states where a side has none.
func (p PairKeys) verdict(c *ChangeKeys) string {
	switch {
	case c != nil:
		return c.Verdict
	case p.StateA == stateDone && p.StateB == stateDone:
		return "not measured"
	case p.StateA == p.StateB:
		return p.StateA
	default:
		return p.StateA + " → " + p.StateB
	}
}

// changeCells are both sides with their noise, the change and its interval. The
// values are divided by scale.
func changeCells(c *ChangeKeys, scale float64, decimals int) []Cell {
	if c == nil {
		return slices.Repeat([]Cell{Missing()}, 7)
	}
	scaled := func(v *float64) *float64 {
		if v == nil {
			return nil
		}
		out := *v / scale
		return &out
	}
	return []Cell{
		Fixed(c.A.Value/scale, decimals), known(decimals, scaled(c.A.Noise)), Fixed(c.B.Value/scale, decimals), known(decimals, scaled(c.B.Noise)),
		Shown(fmt.Sprintf("%+.1f", c.ChangePct), c.ChangePct), known(1, c.LowPct), known(1, c.HighPct),
	}
}

func loneTable(title string, cells []LoneKeys) Table {
	t := Table{Title: title, Columns: []Column{
		{Name: "model", Key: "model_id", Left: true},
		{Name: "batch", Key: "batch_size"},
		{Name: "input", Key: "input_len"},
		{Name: "output", Key: "output_len"},
		{Name: "block size", Key: "block_size", Idle: idle("0")},
		{Name: "state", Left: true},
		{Name: "hash", Left: true},
	}}
	for _, c := range cells {
		t.Rows = append(t.Rows, []Cell{Say(c.ModelID), Whole(c.BatchSize), Whole(c.InputLen), Whole(c.OutputLen), Whole(c.BlockSize), Say(c.State), Say(c.Hash)})
	}
	return t
}
