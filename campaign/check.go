package campaign

import (
	"errors"
	"fmt"
)

// Check judges a cell that was changed after its file was read, by flags for
// example. It returns the cell with its spellings settled as those of a file's
// cells are, so that equal cells have equal hashes, and reports whatever a file
// would be refused for in one [*FileError] that names the cell's fields.
func (c Cell) Check() (Cell, error) {
	c.settle()
	var faults []*LineError
	if c.ModelID == "" {
		faults = append(faults, &LineError{Text: "model_id is missing"})
	}
	if c.Place == "" {
		faults = append(faults, &LineError{Text: "place is missing"})
	}
	problems := append(c.problems(), c.tooLong(c.InputLen, c.OutputLen)...)
	problems = append(problems, within("input_len", c.InputLen, 1, maxLength)...)
	problems = append(problems, within("output_len", c.OutputLen, 1, maxLength)...)
	problems = append(problems, within("batch_size", c.BatchSize, 1, maxBatch)...)
	problems = append(problems, within("block_size", c.BlockSize, 0, maxBlock)...)
	for _, p := range problems {
		faults = append(faults, &LineError{Text: p.field + ": " + p.text, Advice: p.advice})
	}
	if len(faults) > 0 {
		return c, &FileError{Faults: faults}
	}
	return c, nil
}

// CheckAll checks cells as [Cell.Check] does, and that no two of them have
// become the same. A fault that several cells share is told once.
func CheckAll(cells []Cell) ([]Cell, error) {
	settled := make([]Cell, len(cells))
	var faults []*LineError
	shared, known := map[string]int{}, map[string]*LineError{}
	fault := func(c Cell, text, advice string) {
		shared[text]++
		if shared[text] == 1 {
			known[text] = &LineError{Text: c.Name() + ": " + text, Advice: advice}
			faults = append(faults, known[text])
		}
	}
	first := map[string]bool{}
	for i, c := range cells {
		checked, err := c.Check()
		settled[i] = checked
		if bad, ok := errors.AsType[*FileError](err); ok {
			for _, f := range bad.Faults {
				fault(checked, f.Text, f.Advice)
			}
			continue
		}
		hash := checked.Hash()
		if first[hash] {
			fault(checked, fmt.Sprintf("two cells of %s are the same here", checked.ModelID), "each cell is measured once: take it out of the file, or leave out the flag that makes them equal")
			continue
		}
		first[hash] = true
	}
	for text, f := range known {
		if n := shared[text]; n > 1 {
			f.Text += fmt.Sprintf(" (and so for %d more cells)", n-1)
		}
	}
	if len(faults) > 0 {
		return nil, &FileError{Faults: faults}
	}
	return settled, nil
}
