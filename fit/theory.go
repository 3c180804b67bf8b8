package fit

import (
	"fmt"

	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// ScoreTimes scores times that come from elsewhere, such as a cost model that
// was never trained: at tells the time of a row. model and split are the
// names to report; the scores hold no intervals.
func ScoreTimes(rows []Row, target Target, model, split string, at func(Row) (unit.Seconds, error)) ([]Score, error) {
	if err := target.validate(); err != nil {
		return nil, err
	}
	var out []Score
	for _, m := range modes() {
		var t tally
		for _, r := range rowsOf(rows, m) {
			time, err := at(r)
			if err != nil {
				return nil, fmt.Errorf("score %s on %s: %w", model, r.Origin, err)
			}
			t.signed = append(t.signed, float64(time)/target.of(r)-1)
		}
		if len(t.signed) > 0 {
			out = append(out, t.score(model, m, split, target))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("score %s: no prefill or decode rows: %w", model, stat.ErrNoData)
	}
	return out, nil
}
