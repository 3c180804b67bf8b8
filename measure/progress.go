package measure

import (
	"time"

	"gonum.org/v1/gonum/mat"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/stat"
)

// Progress says how far a run is.
type Progress struct {
	// Task is what has just ended; the zero Task before the first.
	Task engine.Task
	// Done of Total tasks have a result, Failed of them a failure; Repeated
	// are waiting to be measured again.
	Done, Failed, Repeated, Total int
	// Elapsed is the time since the first engine was asked to start, Left an
	// estimate of the time to come; 0 where there is no ground for one.
	Elapsed, Left time.Duration
	// Note says what else happened: the engine was started again.
	Note string
}

// pace learns from the tasks that are done how long the rest will take.
type pace struct {
	rows  [][]float64
	times []float64 // seconds
}

// features are what a task's time grows with: launches, tokens and pairs of
// tokens in attention.
func features(t engine.Task) []float64 {
	repeats := float64(t.Warmup + t.Runs)
	if s := t.Step; s != nil {
		b, i, steps := float64(s.BatchSize), float64(s.InputLen), float64(max(s.OutputLen-1, 0))
		return []float64{repeats, repeats * steps, repeats * b * i, repeats * b * i * i, repeats * steps * b, repeats * steps * b * i}
	}
	l := t.Layers
	q, c := float64(l.Tokens*max(l.Sequences, 1)), float64(l.Context)
	return []float64{repeats, 0, repeats * q, repeats * q * (float64(l.Tokens) + c), 0, 0}
}

func (p *pace) add(t engine.Task, took time.Duration) {
	if took > 0 {
		p.rows = append(p.rows, features(t))
		p.times = append(p.times, took.Seconds())
	}
}

// left estimates the time of tasks by non-negative least squares in relative
// error on what was measured; 0 with fewer than six tasks.
func (p *pace) left(tasks []engine.Task) time.Duration {
	if len(p.rows) < 6 {
		return 0
	}
	const width = 6
	a, b := mat.NewDense(len(p.rows), width, nil), make([]float64, len(p.rows))
	for i, row := range p.rows {
		for j, v := range row {
			a.Set(i, j, v/p.times[i])
		}
		b[i] = 1
	}
	coefficients, err := stat.NNLS(a, b)
	if err != nil {
		return 0
	}
	total := 0.0
	for _, t := range tasks {
		for j, v := range features(t) {
			total += coefficients[j] * v
		}
	}
	return time.Duration(total * float64(time.Second))
}
