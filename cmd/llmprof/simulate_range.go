package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
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

// sameMachine refuses a profile that says that it is of another model or another
// device. What it does not say, or the catalog does not know, passes.
func sameMachine(name string, cat *catalog.Catalog, p *profile.Profile, out *simulated) error {
	model, device := known(cat, p)
	switch {
	case model != nil && model.Name != out.model.Name:
		return usage("give the profile's own model, or measure this one", "%s is a profile of %s, not of %s", name, model.Name, out.model.Name)
	case device != nil && device.Name != out.device.Name:
		return usage("give the profile's own --gpu, or measure this one", "%s was measured on %s, not on %s", name, device.Name, out.device.Name)
	}
	return nil
}
