package campaign

import (
	"cmp"
	"slices"
)

// Group is a set of cells that one loaded engine serves, in the order in which
// they run.
type Group struct {
	// Key is the cells' common [Cell.LoadKey].
	Key string
	// Cells are never empty; the fewest tokens come first.
	Cells []Cell
	// MaxBatch, MaxInput and MaxOutput bound what the engine must admit:
	// sequences, and tokens of each.
	MaxBatch, MaxInput, MaxOutput int
}

// Order groups cells so that each engine is loaded once. Groups stand in the
// order in which they first occur, those of one place together. Inside a group
// cells with few tokens come first: they are cheap, and if one of them has too
// little memory the larger ones need not be tried.
func Order(cells []Cell) []Group {
	var groups []Group
	place, at := map[string]int{}, map[string]int{}
	for _, c := range cells {
		if _, known := place[c.Place]; !known {
			place[c.Place] = len(place)
		}
		key := c.LoadKey()
		i, known := at[key]
		if !known {
			i = len(groups)
			at[key] = i
			groups = append(groups, Group{Key: key})
		}
		g := &groups[i]
		g.Cells = append(g.Cells, c)
		g.MaxBatch, g.MaxInput, g.MaxOutput = max(g.MaxBatch, c.BatchSize), max(g.MaxInput, c.InputLen), max(g.MaxOutput, c.OutputLen)
	}
	for _, g := range groups {
		slices.SortStableFunc(g.Cells, func(a, b Cell) int { return cmp.Compare(a.Tokens(), b.Tokens()) })
	}
	slices.SortStableFunc(groups, func(a, b Group) int { return cmp.Compare(place[a.Cells[0].Place], place[b.Cells[0].Place]) })
	return groups
}

// covers reports whether a is at least as large as b in every dimension.
func covers(a, b Cell) bool {
	return a.InputLen >= b.InputLen && a.OutputLen >= b.OutputLen && a.BatchSize >= b.BatchSize
}
