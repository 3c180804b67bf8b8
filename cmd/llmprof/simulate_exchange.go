package main

import (
	"errors"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/fit/layers"
	"github.com/llmprof/llmprof/unit"
)

// exchanging adds what tensor-parallel ranks exchange to a step of layers: by
// measured collectives, or by the datasheet of the link.
func (s *simulated) exchanging(table *layers.Table, timer *layers.Timer, model *catalog.Model, ranks int) (*layers.Timer, error) {
	if ranks == 1 {
		return timer, nil
	}
	bytes := s.deploy.DType.Bytes()
	e, err := table.Exchange(model.NumLayers, ranks, layers.Messages{
		Token: int64(bytes * float64(model.HiddenSize)), Row: int64(bytes * float64(model.VocabSize) / float64(ranks)),
	})
	missing, ok := errors.AsType[*fit.NotMeasuredError](err)
	if err == nil {
		return timer.With(e), nil
	}
	estimator, known := s.replica.Timer.(*cost.Estimator)
	if !ok || !known {
		return nil, usage("", "%w", err)
	}
	s.warnings = append(s.warnings, missing.Error()+": taken from the datasheet of the link, which links between cards without NVLink miss by far; import reads measured ones from a hardware.yaml of LLMServingSim")
	return timer.With(layers.Exchange{
		Tokens: func(n int) unit.Seconds { t, _ := estimator.Exchange(n, 0); return t },
		Rows:   func(n int) unit.Seconds { _, t := estimator.Exchange(0, n); return t },
	}), nil
}
