package main

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/unit"
)

// theoryScores scores the datasheet's times, with the default efficiencies,
// for the model, device and layout that the measurement names.
func theoryScores(cat *catalog.Catalog, p *profile.Profile, rows []fit.Row, f *scoreFlags) ([]fit.Score, error) {
	model, device := known(cat, p)
	if model == nil || device == nil {
		return nil, usage("llmprof import and lint show what the file says", "--model %s: the catalog has no model %q or no device %q, which the measurement names", rooflineModel, p.Header.Deploy.Model, p.Header.Device.Reported)
	}
	est, err := cost.New(model, device, deploy.Config{
		TensorParallel: p.Header.Deploy.TensorParallel, PipelineParallel: p.Header.Deploy.PipelineParallel,
	}, cost.Settings{})
	if err != nil {
		return nil, usage("", "%w", err)
	}
	// Steps that only their sums tell of have no datasheet time.
	rows = slices.DeleteFunc(slices.Clone(rows), func(r fit.Row) bool { return r.Mode == fit.Mixed && r.Pass == nil })
	var all []fit.Score
	for _, target := range f.targets {
		some, err := fit.ScoreTimes(rows, fit.Target(target), rooflineModel, "untrained", func(r fit.Row) (unit.Seconds, error) {
			if r.Mode == fit.Mixed {
				return est.Seconds(*r.Pass), nil
			}
			if r.Mode == fit.Decode {
				return est.Seconds(forward.Decode(r.BatchSize, int(math.Round(r.Context)))), nil
			}
			return est.Seconds(forward.Prefill(r.BatchSize, r.InputLen, 0)), nil
		})
		if err != nil {
			return nil, usage("", "%w", err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// parseSplit reads a condition such as "input_len>2048": rows that meet it
// are tested on, the others trained on.
func parseSplit(text string) (fit.Split, error) {
	bad := func() (fit.Split, error) {
		return fit.Split{}, usage("", "--hold-out is %q: want batch_size or input_len, one of > >= < <=, and a count", text)
	}
	compact := strings.ReplaceAll(strings.ReplaceAll(text, " ", ""), "-", "_")
	at := strings.IndexAny(compact, "<>")
	if at < 0 {
		return bad()
	}
	field, operator, count := compact[:at], compact[at:at+1], compact[at+1:]
	if rest, ok := strings.CutPrefix(count, "="); ok {
		operator, count = operator+"=", rest
	}
	limit, err := unit.ParseCount(count)
	if err != nil {
		return bad()
	}
	var value func(fit.Row) int
	switch field {
	case "batch_size", "bs":
		value = func(r fit.Row) int { return r.BatchSize }
	case "input_len":
		value = func(r fit.Row) int { return r.InputLen }
	default:
		return bad()
	}
	test := func(r fit.Row) bool {
		v := value(r)
		switch operator {
		case ">":
			return v > limit
		case ">=":
			return v >= limit
		case "<":
			return v < limit
		default:
			return v <= limit
		}
	}
	return fit.Split{
		Name:  field + operator + strconv.Itoa(limit),
		Test:  test,
		Train: func(r fit.Row) bool { return !test(r) },
	}, nil
}
