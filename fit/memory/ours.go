package memory

import (
	"errors"
	"fmt"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/unit"
)

// ours is the cost model of this project.
type ours struct {
	catalog  *catalog.Catalog
	settings cost.Settings
}

// Ours is this project's own calculator: package cost with the model's
// architecture, the device from the catalog and the reserve of s.
func Ours(c *catalog.Catalog, s cost.Settings) Calculator { return ours{c, s} }

// Name is "llmprof".
func (o ours) Name() string { return "llmprof" }

// Calculate builds the deployment of the run and asks for its memory.
func (o ours) Calculate(m Measured) (Prediction, error) {
	if m.Architecture == nil {
		return Prediction{}, &UnknownModelError{o.Name(), m.Model, "the catalog does not know the id, and the profile holds no architecture"}
	}
	fail := func(err error) (Prediction, error) {
		return Prediction{}, fmt.Errorf("calculate %s with %s: %w", m.Model, o.Name(), err)
	}
	device, note, err := o.device(m)
	if err != nil {
		return fail(err)
	}
	config, err := m.deployment()
	if err != nil {
		return fail(err)
	}
	model, err := m.Stated.Over(m.Architecture)
	if err != nil {
		return fail(err)
	}
	est, err := cost.New(model, device, config, o.settings)
	if err != nil {
		return fail(err)
	}
	out, err := o.predict(m, est)
	if err != nil {
		return fail(err)
	}
	if note != "" {
		out.Notes = append(out.Notes, note)
	}
	out.Notes = append(out.Notes, est.Warnings()...)
	return out, nil
}

// device is that of the run, with the memory that it showed. What an engine on a
// CPU holds does not depend on the CPU.
func (o ours) device(m Measured) (device *catalog.Device, note string, err error) {
	if m.OnHost {
		return cost.AnyDevice(), "", nil
	}
	if o.catalog == nil {
		return nil, "", errors.New("no catalog of devices")
	}
	named, note, err := o.catalog.Device(m.Device)
	if err != nil {
		return nil, "", err
	}
	own := *named
	if m.DeviceMemory != nil {
		own.Memory = catalog.Quantity{Value: float64(*m.DeviceMemory), Source: "measured"}
	}
	return &own, note, nil
}

// deployment is the deployment of the run.
func (m Measured) deployment() (deploy.Config, error) {
	stages := max(m.PipelineStages, 1)
	if m.gpus()%stages != 0 {
		return deploy.Config{}, fmt.Errorf("%d pipeline stages do not divide %d GPUs", stages, m.gpus())
	}
	c := deploy.Config{
		TensorParallel: m.gpus() / stages, PipelineParallel: stages,
		DType: m.ActivationDType, Quantization: m.Quantization, KVCacheDType: m.KVDType,
		GPUMemoryUtilization: m.Utilization, BlockSize: m.BlockSize,
	}
	switch plain := m.WeightDType == "" || m.WeightDType.Bits() >= 16; {
	case plain && c.DType == "":
		c.DType = m.WeightDType
	case !plain && c.Quantization == "":
		c.Quantization = string(m.WeightDType)
	}
	return c, nil
}

// largestStep is for how many sequences and tokens the engine sizes its buffers:
// those of its largest step where that is known, and of the batch's own where it
// is not.
func (m Measured) largestStep() (rows, tokens int) {
	rows, tokens = m.Batch, m.Batch*max(m.Input, 1)
	if most := m.MaxBatchedTokens; most > 0 && (m.Preallocates || tokens > most) {
		tokens = most
	}
	if m.Preallocates && m.MaxSequences > 0 {
		rows = m.MaxSequences
	}
	return rows, tokens
}

// predict asks the estimator.
func (o ours) predict(m Measured, est *cost.Estimator) (Prediction, error) {
	rows, step := m.largestStep()
	rank := est.Memory(rows, m.tokens(), step)
	n := m.gpus()
	var out Prediction
	var err error
	for _, part := range []struct {
		into **unit.Bytes
		rank unit.Bytes
		n    int
	}{
		{&out.Weights, rank.Weights, n},
		{&out.KVCache, rank.KVPerSequence, n * m.Batch},
		{&out.Activations, rank.Activations, n},
		{&out.Overhead, rank.Reserve, n},
	} {
		if *part.into, err = times(part.rank, part.n); err != nil {
			return Prediction{}, err
		}
	}
	room := rank.KVBudget()
	if m.Stated.Parameters > 0 {
		all, err := m.Stated.Bytes(est.Config())
		if err != nil {
			return Prediction{}, err
		}
		if out.Weights, err = bytesOf(all / 1e9); err != nil {
			return Prediction{}, err
		}
		room += rank.Weights - *out.Weights/unit.Bytes(n)
	}
	if m.Stated != (deploy.Stated{}) {
		out.Notes = append(out.Notes, "the stated architecture, what it lacks as in "+m.Architecture.Name)
	}
	if m.OnHost {
		o.onHost(&out)
		return out, nil
	}
	out.sum()
	out.Notes = append(out.Notes, fmt.Sprintf("a reserve of %v on each GPU is assumed", rank.Reserve))
	if n > 1 {
		out.Notes = append(out.Notes, fmt.Sprintf("the fullest GPU times %d", n))
	}
	if !m.Preallocates {
		return out, nil
	}
	if m.Utilization == 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("the engine's share of the device is not known: %g is assumed", est.Config().GPUMemoryUtilization))
	}
	if room < 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("weights, activations and reserve exceed the usable memory by %v: no KV cache", -room))
		return out, nil
	}
	out.KVCapacity, err = times(room, n)
	return out, err
}

// onHost ends the prediction for an engine on a CPU. The usual reserve is that of
// a GPU; there it is the code and the heap of the engine's processes.
func (o ours) onHost(p *Prediction) {
	if o.settings.Reserve == 0 && !o.settings.NoReserve {
		p.Overhead = nil
		p.Notes = append(p.Notes, "what an engine's processes on a CPU take beside is not known, so there is no total: a reserve states it")
		return
	}
	p.sum()
}

// sum makes the total of parts that are all known.
func (p *Prediction) sum() {
	p.Total = new(*p.Weights + *p.KVCache + *p.Activations + *p.Overhead)
}
