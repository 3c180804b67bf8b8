package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/unit"
)

// PlanTables shows what a campaign is about to do: what is loaded, every cell,
// and the commands.
func PlanTables(p campaign.Plan) []Table {
	summary := pairTable("")
	summary.pair("cells", strconv.Itoa(p.Count))
	summary.Notes = p.Warnings
	if p.Count == 0 {
		return []Table{summary}
	}
	summary.pair("engine loads", strconv.Itoa(p.Loads))
	refused, unfit, unknown := 0, 0, 0
	for i := range p.Cells {
		switch c := &p.Cells[i]; {
		case c.Refused != "":
			refused++
		case c.Fits == nil:
			unknown++
		case !*c.Fits:
			unfit++
		}
	}
	summary.pair("time", planTime(p, refused+unfit))
	if refused > 0 {
		summary.pair("refused", strconv.Itoa(refused))
	}
	summary.pair("cannot fit", strconv.Itoa(unfit))
	if unknown > 0 {
		summary.pair("fit not known", strconv.Itoa(unknown))
	}
	return append([]Table{summary, loadsTable(p)}, planCells(p), planCommands(p))
}

// planTime is how long a campaign measures; idle cells are those that will not
// be measured.
func planTime(p campaign.Plan, idle int) string {
	switch {
	case idle == p.Count:
		return "none: no cell can run"
	case p.PredictedSeconds == nil:
		return "not known for every cell"
	}
	text := unit.Seconds(*p.PredictedSeconds).String() + " of iterations, theoretical, without the starts of the engines"
	if idle > 0 {
		text += fmt.Sprintf(", for the %s that can run", unit.Plural(p.Count-idle, "cell"))
	}
	return text
}

func loadsTable(p campaign.Plan) Table {
	t := Table{Title: "Loads, in this order", Columns: []Column{
		{Name: "model", Left: true},
		{Name: "place", Left: true},
		{Name: "engine", Left: true},
		{Name: "cells"},
		{Name: "largest batch", Key: "max_batch"},
		{Name: "longest input", Key: "max_input"},
		{Name: "longest output", Key: "max_output"},
	}}
	for _, g := range p.Groups {
		t.Rows = append(t.Rows, []Cell{
			Say(g.ModelID), Say(g.Place), Say(g.Engine), Whole(len(g.Cells)), Whole(g.MaxBatch), Whole(g.MaxInput), Whole(g.MaxOutput),
		})
	}
	return t
}

func planCells(p campaign.Plan) Table {
	t := Table{Title: "Cells, memory of one device", Columns: []Column{
		{Name: "#", Key: "index"},
		{Name: "hash", Left: true},
		{Name: "model", Left: true},
		{Name: "in", Key: "input_len"},
		{Name: "out", Key: "output_len"},
		{Name: "batch", Key: "batch_size"},
		{Name: "block", Key: "block_size", Idle: idle("–")},
		{Name: "TP", Key: "tensor_parallel_size", Idle: idle("1")},
		{Name: "weights GiB", Key: "weights_gib"},
		{Name: "KV GiB", Key: "kv_cache_gib"},
		{Name: "total GiB", Key: "total_gib"},
		{Name: "batch ms", Key: "latency_ms"},
		{Name: "basis", Left: true, Idle: idle("")},
		{Name: "fits", Left: true},
		{Name: "why", Key: "reason", Left: true, Idle: idle("")},
	}}
	gib := func(b *unit.Bytes) Cell {
		if b == nil {
			return Missing()
		}
		return Fixed(b.GiB(), 3)
	}
	for i := range p.Cells {
		c := &p.Cells[i]
		block := Missing()
		if c.BlockSize > 0 {
			block = Whole(c.BlockSize)
		}
		latency := Missing()
		if s := c.Predicted.LatencySeconds; s != nil {
			latency = Fixed(*s*1e3, 1)
		}
		fits, why := "not known", c.Reason
		switch {
		case c.Refused != "":
			fits, why = "refused", c.Refused
		case c.Fits != nil:
			fits = map[bool]string{true: "yes", false: "NO"}[*c.Fits]
		}
		t.Rows = append(t.Rows, []Cell{
			Whole(c.Index), Say(c.Hash), Say(c.ModelID), Whole(c.InputLen), Whole(c.OutputLen), Whole(c.BatchSize), block, Whole(c.TensorParallel),
			gib(c.Predicted.Weights), gib(c.Predicted.KVCache), gib(c.Predicted.Total), latency, Say(string(c.Predicted.Basis)), Say(fits), Say(why),
		})
	}
	t.Notes = planNotes(p)
	return t
}

// planNotes are the remarks on predictions, each once with the number of its
// cells.
func planNotes(p campaign.Plan) []string {
	count := map[string]int{}
	var order []string
	for i := range p.Cells {
		for _, n := range p.Cells[i].Predicted.Notes {
			if count[n] == 0 {
				order = append(order, n)
			}
			count[n]++
		}
	}
	for i, n := range order {
		order[i] = fmt.Sprintf("%s (%s)", n, unit.Plural(count[n], "cell"))
	}
	return order
}

// planCommands lists each command once: cells of one server share it.
func planCommands(p campaign.Plan) Table {
	t := Table{Title: "Commands", Columns: []Column{{Name: "cells", Key: "cells"}, {Name: "command", Left: true}}}
	count := map[string]int{}
	var lines []string
	for i := range p.Cells {
		line := CommandLine(p.Cells[i].Command)
		if line == "" {
			continue
		}
		if count[line] == 0 {
			lines = append(lines, line)
		}
		count[line]++
	}
	for _, line := range lines {
		t.Rows = append(t.Rows, []Cell{Whole(count[line]), Say(line)})
	}
	return t
}

// CommandLine is a command as a POSIX shell takes it.
func CommandLine(argv []string) string {
	words := make([]string, len(argv))
	for i, w := range argv {
		words[i] = w
		if w == "" || strings.ContainsAny(w, " \t\n\"'`$&|;<>()*?[]{}~#!\\") {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}
