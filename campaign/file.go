package campaign

import (
	"cmp"
	"fmt"
	"slices"
)

// File is a campaign as it was asked for.
type File struct {
	// Name is the name of the file, or of what else it came from.
	Name string
	// Models are the entries in their order.
	Models []Model
}

// Model is one entry of a file: settings, and the lists to multiply out.
type Model struct {
	// Cell holds the settings; its sizes are open, and the format where nothing
	// states it.
	Cell Cell
	// InputLengths and OutputLengths are in tokens, BatchSizes in sequences.
	InputLengths, OutputLengths, BatchSizes []int
	// BlockSizes are tokens of one KV block; empty leaves it to the engine.
	BlockSizes []int
	// Line is the line of the file at which the entry begins; 0 without one.
	Line int
}

// count is the number of cells of the entry.
func (m Model) count() int {
	return len(m.InputLengths) * len(m.OutputLengths) * len(m.BatchSizes) * max(len(m.BlockSizes), 1)
}

// cells multiplies the lists out.
func (m Model) cells() []Cell {
	blocks := m.BlockSizes
	if len(blocks) == 0 {
		blocks = []int{0}
	}
	m.Cell.DType = cmp.Or(m.Cell.DType, usualDType(m.Cell.Engine))
	cells := make([]Cell, 0, m.count())
	for _, block := range blocks {
		for _, in := range m.InputLengths {
			for _, out := range m.OutputLengths {
				for _, batch := range m.BatchSizes {
					c := m.Cell
					c.BlockSize, c.InputLen, c.OutputLen, c.BatchSize = block, in, out, batch
					cells = append(cells, c)
				}
			}
		}
	}
	return cells
}

// Cells lists every cell, model by model; within one the block size changes
// slowest, then input, output and batch.
func (f *File) Cells() []Cell {
	var cells []Cell
	for _, m := range f.Models {
		cells = append(cells, m.cells()...)
	}
	return cells
}

// Flags is a campaign of one model as flags give it. A value starts with
// Cell: [Defaults](), over which the flags write.
type Flags struct {
	// Cell holds the settings, Place or ContainerName among them.
	Cell Cell
	// InputLengths and OutputLengths are in tokens, BatchSizes in sequences.
	// Defaults: 256, 256 and 1.
	InputLengths, OutputLengths, BatchSizes []int
	// BlockSizes are tokens of one KV block; empty leaves it to the engine.
	BlockSizes []int
}

// FromFlags checks flags, or an entry of a file with flags laid over it, by the
// rules of a file, and settles spellings as there, so that equal cells have equal
// hashes. The faults name the flags.
func FromFlags(f Flags) (*File, error) {
	lengths := func(given []int, usual int) []int {
		if len(given) == 0 {
			return []int{usual}
		}
		return slices.Clone(given)
	}
	m := Model{
		Cell: f.Cell, InputLengths: lengths(f.InputLengths, 256), OutputLengths: lengths(f.OutputLengths, 256),
		BatchSizes: lengths(f.BatchSizes, 1), BlockSizes: slices.Clone(f.BlockSizes),
	}
	m.Cell.settle()
	var faults []*LineError
	if m.Cell.ModelID == "" {
		faults = append(faults, &LineError{Text: "--model is missing"})
	}
	if m.Cell.Place == "" {
		faults = append(faults, &LineError{Text: "--container is missing", Advice: "name a running container, or give --place"})
	}
	for _, p := range m.problems() {
		faults = append(faults, &LineError{Text: flagName(p.field) + ": " + p.text, Advice: p.advice})
	}
	if n := m.count(); n > maxCells {
		faults = append(faults, &LineError{Text: fmt.Sprintf("the lists make %d cells: want at most %d", n, maxCells)})
	}
	if len(faults) > 0 {
		return nil, &FileError{Faults: faults}
	}
	return &File{Name: "flags", Models: []Model{m}}, nil
}
