package fit

import (
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
// the predictions behind [CrossValidate], in file order, prefill first.
func HeldOut(rows []Row, k int, options Options) ([]Held, error) {
	var out []Held
	for _, m := range modes() {
		own := rowsOf(rows, m)
		if len(own) == 0 {
			continue
		}
		if k < 2 || len(own) < k {
			return nil, fmt.Errorf("hold out %s: %d folds of %d rows: want at least 2 folds and as many rows", m, k, len(own))
		}
		folds := make([]*Predictor, k)
		for f := range folds {
			var train []Row
			for i, r := range own {
				if i%k != f {
					train = append(train, r)
				}
			}
			p, _, err := Train(train, options)
			if err != nil {
				return nil, err
			}
			folds[f] = p
		}
		for i, r := range own {
			e, err := folds[i%k].Predict(Query{Mode: m, BatchSize: r.BatchSize, InputLen: r.InputLen})
			if err != nil {
				return nil, fmt.Errorf("hold out %s: %w", r.Origin, err)
			}
			out = append(out, Held{r, e})
		}
	}
	return out, nil
}
