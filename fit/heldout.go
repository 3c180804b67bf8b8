package fit

import (
	"context"
	"fmt"

	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// Held is a row with what was predicted for it when it was held out.
type Held struct {
	Row
	stat.Estimate[unit.Seconds]
}

// HeldOut predicts every row by a model that was trained without its fold:
// the predictions behind [CrossValidate], in file order, prefill first and mixed
// steps last. When
// ctx ends the error is ctx's.
func HeldOut(ctx context.Context, rows []Row, k int, options Options) ([]Held, error) {
	splits, err := foldsOf(rows, k)
	if err != nil {
		return nil, fmt.Errorf("hold out %w", err)
	}
	var out []Held
	for _, m := range allModes() {
		own := rowsOf(rows, m)
		held := make([]Held, len(own))
		for _, split := range splits {
			train, test := split.parts(rows)
			if len(rowsOf(test, m)) == 0 {
				continue
			}
			p, err := trainOnly(ctx, m, train, options)
			if err != nil {
				return nil, err
			}
			for i, r := range own {
				if !split.Test(r) {
					continue
				}
				e, err := p.Predict(r.query())
				if err != nil {
					return nil, fmt.Errorf("hold out %s: %w", r.Origin, err)
				}
				held[i] = Held{r, e}
			}
		}
		out = append(out, held...)
	}
	return out, nil
}
