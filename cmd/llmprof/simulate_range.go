package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/forward"
)

// watchedPredictor is a predictor that counts what it is asked beyond the
// measured range: steps, and the prompts in them alone. Several threads may ask it.
type watchedPredictor struct {
	predictor *fit.Predictor
	asked     atomic.Int64
	beyond    atomic.Int64
	all, far  atomic.Int64 // ns
}

// StepTime is that of the predictor.
func (w *watchedPredictor) StepTime(pass forward.Pass) (time.Duration, error) {
	t, extrapolated, err := w.predictor.StepTimeRanged(pass)
	w.asked.Add(1)
	w.all.Add(int64(t))
	if extrapolated {
		w.beyond.Add(1)
		w.far.Add(int64(t))
	}
	return t, err
}

// warning says how much of a run lies outside what was measured; empty for
// nothing.
func (w *watchedPredictor) warning() string {
	n, all := w.beyond.Load(), w.asked.Load()
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d predictions (steps, and prompts in them alone), %.1f %% of their time, are extrapolated: the predictor was trained on smaller steps (llmprof predict tells the range)",
		n, all, 100*float64(w.far.Load())/float64(max(w.all.Load(), 1)))
}

// sameMachine refuses times of another model, another device or another number of
// ranks than what is simulated, and warns of times of which nothing says that they are of these. What
// says "profile" or "predictor".
func (s *simulated) sameMachine(cat *catalog.Catalog, what, name string, from fit.Origin) error {
	hint := "give the " + what + "'s own model and --gpu, or measure these"
	var open []string
	model, err := cat.Model(from.Model)
	switch {
	case from.Model == "":
		open = append(open, "no model")
	case err == nil && model.Name != s.model.Name:
		return usage(hint, "%s is a %s of %s, not of %s", name, what, model.Name, s.model.Name)
	case err != nil && filepath.Base(from.Model) != s.model.Name:
		open = append(open, fmt.Sprintf("the model %q, which the catalog does not know", from.Model))
	}
	device, _, err := cat.Device(from.Device)
	switch {
	case from.Device == "":
		open = append(open, "no device")
	case err == nil && device.Name != s.device.Name:
		return usage(hint, "%s was measured on %s, not on %s", name, device.Name, s.device.Name)
	case err != nil:
		open = append(open, fmt.Sprintf("the device %q, which the catalog does not know", from.Device))
	}
	if ranks := max(s.deploy.TensorParallel, 1); from.TensorParallel > 0 && from.TensorParallel != ranks {
		return usage(fmt.Sprintf("say --tensor-parallel-size %d, or measure with %d", from.TensorParallel, ranks),
			"%s was measured with a tensor parallel size of %d, not of %d", name, from.TensorParallel, ranks)
	}
	if len(open) > 0 {
		s.warnings = append(s.warnings, fmt.Sprintf("nothing says that the step times of %s are those of %s on %s: it names %s", name, s.model.Name, s.device.Name, strings.Join(open, " and ")))
	}
	return nil
}
