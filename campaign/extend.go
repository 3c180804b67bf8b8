package campaign

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/llmprof/llmprof/store"
	"github.com/llmprof/llmprof/unit"
)

// pair is a cell of the run that is not asked for any more, with the one that
// is asked for in its place: the same model at the same sizes.
type pair struct {
	row   store.Cell
	asked Cell
	// differences are the settings in which they differ.
	differences []string
}

// extension is what [Options.Extend] means for a run.
type extension struct {
	// changed are cells of the run with other settings now, described those
	// whose model is described in another way, added those that the run lacks,
	// left the open ones that nobody asks for.
	changed, described []pair
	added              []Cell
	left               int
}

// size is what a cell measures, as its lists give it; all else are settings.
type size struct {
	model                       string
	input, output, batch, block int
}

func sizeOf(c Cell) size { return size{c.ModelID, c.InputLen, c.OutputLen, c.BatchSize, c.BlockSize} }

// extension compares what is asked for with the cells that the run has.
func (r *run) extension(ctx context.Context) (e extension, err error) {
	if len(r.Extend) == 0 {
		return e, nil
	}
	rows, err := r.Store.Outline(ctx, r.RunID)
	if err != nil {
		return e, err
	}
	asked := map[string]Cell{}
	for _, c := range r.Extend {
		asked[c.Hash()] = c
	}
	held, gone := map[string]bool{}, map[size][]pair{}
	for _, row := range rows {
		c, err := Decode(row)
		if err != nil {
			return e, err
		}
		hash := c.Hash()
		held[hash] = true
		now, wanted := asked[hash]
		switch {
		case !wanted:
			gone[sizeOf(c)] = append(gone[sizeOf(c)], pair{row: row, asked: c})
		case now.Architecture != c.Architecture && row.State == store.Pending:
			e.described = append(e.described, pair{row: row, asked: now})
		}
	}
	for _, c := range r.Extend {
		if held[c.Hash()] {
			continue
		}
		best, left, err := closest(c, gone[sizeOf(c)])
		switch {
		case err != nil:
			return e, err
		case best == nil:
			e.added = append(e.added, c)
		default:
			gone[sizeOf(c)] = left
			e.changed = append(e.changed, *best)
		}
	}
	for _, others := range gone {
		for _, p := range others {
			if !p.row.State.Ended() {
				e.left++
			}
		}
	}
	return e, nil
}

// closest takes the cell with the fewest differences out of those that the run
// has; nil where there is none.
func closest(c Cell, held []pair) (best *pair, left []pair, err error) {
	at := -1
	for i, p := range held {
		found, err := differences(settingsText(p.asked), settingsText(c))
		if err != nil {
			return nil, nil, err
		}
		if best == nil || len(found) < len(best.differences) {
			best, at = &pair{p.row, c, found}, i
		}
	}
	if best == nil {
		return nil, held, nil
	}
	return best, slices.Delete(slices.Clone(held), at, at+1), nil
}

// settingsText is what of a cell decides its measurement, as JSON.
func settingsText(c Cell) json.RawMessage {
	c.ContainerName, c.Architecture = "", Architecture{}
	text, err := json.Marshal(c)
	if err != nil { // a number that JSON does not have: no file gives one
		return json.RawMessage("{}")
	}
	return text
}

// otherCells are the settings in which cells that are asked for differ from those
// of the run, each with the number of its cells.
func (r *run) otherCells(ctx context.Context) ([]string, error) {
	e, err := r.extension(ctx)
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	var found []string
	for _, p := range e.changed {
		for _, text := range p.differences {
			if count[text] == 0 {
				found = append(found, text)
			}
			count[text]++
		}
	}
	for i, text := range found {
		found[i] = fmt.Sprintf("%s in %s", text, unit.Plural(count[text], "cell"))
	}
	return found, nil
}

// extend gives the run the cells that it lacks. Those with other settings take
// the place of what has no result yet, as far as it is chosen, and are chosen
// too; what is done stays as it is.
func (r *run) extend(ctx context.Context) error {
	e, err := r.extension(ctx)
	if err != nil {
		return err
	}
	for _, p := range e.changed {
		if p.row.State == store.Done || !r.Only.Match(p.asked, p.row.State) {
			continue
		}
		if err := r.replace(ctx, p); err != nil {
			return err
		}
		r.changed[p.asked.Hash()] = true
		r.outcome.Changed++
	}
	for _, p := range e.described {
		if err := r.replace(ctx, p); err != nil {
			return err
		}
	}
	r.outcome.Left = e.left
	r.outcome.Added, err = Extend(ctx, r.Store, r.RunID, e.added)
	return err
}

func (r *run) replace(ctx context.Context, p pair) error {
	rows, err := storedCells(r.RunID, []Cell{p.asked})
	if err != nil {
		return err
	}
	return r.Store.Replace(ctx, r.RunID, p.row.Hash, rows[0])
}
