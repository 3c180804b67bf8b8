package main

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/store"
)

// screen is what a narrow terminal shows after a text with the sequences that
// the live table uses.
func screen(t *testing.T, text string, width int) []string {
	t.Helper()
	lines, row, wrap := []string{""}, 0, true
	for text != "" {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			end := strings.IndexAny(rest, "AJlh")
			argument := rest[:end]
			switch rest[end] {
			case 'A':
				up, err := strconv.Atoi(argument)
				if err != nil || up > row {
					t.Fatalf("%d lines up from line %d: %v", up, row, err)
				}
				row -= up
			case 'J':
				lines = append(lines[:row], "")
			default:
				wrap = rest[end] == 'h'
			}
			text = rest[end+1:]
			continue
		}
		switch r := text[0]; {
		case r == '\n':
			lines, row = append(lines, ""), row+1
		case r == '\r':
		case len(lines[row]) < width:
			lines[row] += string(r)
		case wrap:
			lines, row = append(lines, string(r)), row+1
		}
		text = text[1:]
	}
	return lines
}

// playMeter tells a meter of a campaign of three cells.
func playMeter(m *batchMeter) {
	m.total, m.counts, m.began = 3, map[store.State]int{}, time.Now()
	m.stop, m.stopped = make(chan struct{}), make(chan struct{})
	go m.clock()
	hooks := m.hooks()
	c := campaign.Defaults()
	c.DType = "float16"
	c.ModelID, c.Place, c.InputLen, c.OutputLen, c.BatchSize = "owner/tiny", "local", 64, 4, 1
	hooks.GroupStarted(campaign.Group{Cells: []campaign.Cell{c, c, c}}, 1, 2)
	hooks.CellStarted(c, 1)
	hooks.Retrying(c.Name(), errors.New("it crashed in a way that takes many words to tell"), time.Second)
	hooks.CellStarted(c, 2)
	hooks.CellDone(c, store.Cell{State: store.Failed, Error: "it\ncrashed", Seconds: 1.25})
	hooks.CellStarted(c, 1)
	hooks.CellDone(c, store.Cell{State: store.Done, Seconds: 2})
	m.end()
}

// TestBatchMeter: a terminal shows one table that is written over, also where
// its lines are longer than the terminal is wide.
func TestBatchMeter(t *testing.T) {
	var out bytes.Buffer
	playMeter(&batchMeter{w: &out, live: true})
	got := screen(t, "run r\n"+out.String(), 60)
	got[5], _, _ = strings.Cut(got[5], "failed, ") // the time follows
	want := []string{
		"run r",
		"load 1 of 2: owner/tiny on local, vllm, 3 cells",
		"note: tiny_64in_4out_bs1: it crashed in a way that takes man",
		"[1/3] tiny_64in_4out_bs1: failed, it crashed (1.2 s)",
		"[2/3] tiny_64in_4out_bs1: done (2.0 s)",
		"2 of 3 cells, 1 done, 1 ",
		"",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestBatchMeterLines: elsewhere each event is a line, and with -q there is
// none.
func TestBatchMeterLines(t *testing.T) {
	var out bytes.Buffer
	playMeter(&batchMeter{w: &out})
	want := `load 1 of 2: owner/tiny on local, vllm, 3 cells
note: tiny_64in_4out_bs1: it crashed in a way that takes many words to tell; again in 1s
[1/3] tiny_64in_4out_bs1: failed, it crashed (1.2 s)
[2/3] tiny_64in_4out_bs1: done (2.0 s)
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	out.Reset()
	playMeter(&batchMeter{w: &out, quiet: true})
	if out.Len() > 0 {
		t.Errorf("it says %q", out.String())
	}
}
