package campaign

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/llmprof/llmprof/store"
)

// Create writes a run with its cells to the store, all of them pending.
func Create(ctx context.Context, st *store.Store, run store.Run, cells []Cell) error {
	rows, err := storedCells(run.ID, cells)
	if err != nil {
		return err
	}
	return st.CreateRun(ctx, run, rows)
}

// Extend adds the cells that a run does not have yet and returns their
// number; what a changed file no longer has stays in the run. Of a run that another
// process may have, [Options.Extend] does it under the lock.
func Extend(ctx context.Context, st *store.Store, runID string, cells []Cell) (added int, err error) {
	rows, err := storedCells(runID, cells)
	if err != nil {
		return 0, err
	}
	return st.AddCells(ctx, runID, rows)
}

func storedCells(runID string, cells []Cell) ([]store.Cell, error) {
	rows := make([]store.Cell, len(cells))
	for i, c := range cells {
		spec, err := json.Marshal(c)
		if err != nil {
			return nil, fmt.Errorf("cell %d: %w", i, err)
		}
		rows[i] = store.Cell{RunID: runID, Hash: c.Hash(), Index: i, Spec: spec, State: store.Pending}
	}
	return rows, nil
}

// Decode reads the cell that a store's cell stands for.
func Decode(c store.Cell) (Cell, error) {
	var cell Cell
	if err := json.Unmarshal(c.Spec, &cell); err != nil {
		return Cell{}, fmt.Errorf("cell %s of run %s: read its settings: %w", c.Hash, c.RunID, err)
	}
	return cell, nil
}
