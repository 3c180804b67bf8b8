package cost

import (
	"math"
	"sort"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/unit"
)

// Memory is what one device holds: the fullest rank of the deployment.
type Memory struct {
	// Device is the device's memory; Usable is the share that the engine may
	// take of it.
	Device, Usable unit.Bytes
	// Weights is the storage of the rank's shards.
	Weights unit.Bytes
	// KVCache is what the batch occupies at its full length, in whole blocks.
	KVCache unit.Bytes
	// Activations is the peak of intermediate results.
	Activations unit.Bytes
	// Reserve is context, communicator and graphs.
	Reserve unit.Bytes
	// KVPerToken is the growth of the cache for one token below every window.
	KVPerToken unit.Bytes
	// KVPerSequence is one sequence at its full length, in whole blocks.
	KVPerSequence unit.Bytes
}

// Total is everything that the batch needs on the device.
func (m Memory) Total() unit.Bytes { return m.Weights + m.KVCache + m.Activations + m.Reserve }

// Fits reports whether the batch fits into what the engine may take.
func (m Memory) Fits() bool { return m.Total() <= m.Usable }

// KVBudget is what weights, activations and reserve leave of Usable for the
// cache; negative if they do not fit.
func (m Memory) KVBudget() unit.Bytes { return m.Usable - m.Weights - m.Activations - m.Reserve }

// Memory computes the memory of a batch of sequences of length tokens each,
// of which at most stepTokens are computed in one pass. The figures are those
// of the fullest pipeline stage.
func (e *Estimator) Memory(batch, length, stepTokens int) Memory {
	var fullest Memory
	for i := range e.stages {
		if m := e.stageMemory(&e.stages[i], batch, length, stepTokens); i == 0 || m.Total() > fullest.Total() {
			fullest = m
		}
	}
	return fullest
}

// maxCapacity bounds the batch that [Estimator.Capacity] looks for.
const maxCapacity = 1 << 24

// Capacity is the largest batch of sequences of length tokens each that fits,
// and the number of tokens, in whole blocks, that the cache holds beside it.
// stepTokens tells how many tokens of a batch are computed in one pass. The
// batch is 0 where not even one sequence fits; tokens are then those that fit
// beside the activations of one.
func (e *Estimator) Capacity(length int, stepTokens func(batch int) int) (batch int, tokens int64) {
	// The memory grows with the batch: the first that does not fit bounds it.
	batch = sort.Search(maxCapacity, func(i int) bool {
		return !e.Memory(i+1, length, stepTokens(i+1)).Fits()
	})
	at := max(batch, 1)
	tokens = math.MaxInt64
	for i := range e.stages {
		m := e.stageMemory(&e.stages[i], at, length, stepTokens(at))
		if m.KVPerSequence == 0 {
			continue
		}
		// With windows a token of a long sequence costs less than KVPerToken:
		// the capacity is that of sequences of the asked length.
		block := e.config.BlockSize
		perBlock := float64(m.KVPerSequence) / float64((length+block-1)/block)
		room := max(float64(m.KVBudget()), 0)
		tokens = min(tokens, int64(room/perBlock)*int64(block))
	}
	return batch, tokens
}

func (e *Estimator) stageMemory(stage *part, batch, length, stepTokens int) Memory {
	m := Memory{
		Device:        e.device.MemoryBytes(),
		Usable:        unit.Bytes(math.Floor(e.device.Memory.Value * e.config.GPUMemoryUtilization)),
		Weights:       e.stageWeights(stage),
		Activations:   e.activations(stepTokens, batch),
		Reserve:       e.settings.Reserve,
		KVPerToken:    unit.Bytes(math.Round(e.cacheGrowth(stage))),
		KVPerSequence: unit.Bytes(math.Round(e.sequenceCache(stage, length))),
	}
	m.KVCache = unit.Bytes(batch) * m.KVPerSequence
	if share := e.config.MemFractionStatic; share > 0 {
		static := unit.Bytes(math.Floor(e.device.Memory.Value * share))
		m.Usable = min(m.Device, static+m.Activations+m.Reserve)
	}
	return m
}

// stageWeights sums the storage of the rank's shards of a stage.
func (e *Estimator) stageWeights(stage *part) unit.Bytes {
	var sum float64
	for i := range e.layers {
		sum += float64(stage.counts[i]) * e.layerWeights(&e.layers[i])
	}
	if stage.first || (stage.last && e.embed.tied) {
		sum += e.embed.tableBytes
	}
	if stage.last {
		sum += e.embed.normBytes
		if !e.embed.tied {
			sum += e.embed.head.weights
		}
	}
	return unit.Bytes(math.Round(sum))
}

// layerWeights is the storage of one layer on one rank.
func (e *Estimator) layerWeights(l *layer) float64 {
	sum := l.smallWeights + l.out.weights + l.gateUp.weights + l.down.weights +
		l.qkv.weights + l.queryA.weights + l.queryB.weights + l.kvA.weights + l.kvB.weights +
		l.linearIn.weights
	if l.moe {
		held := float64(e.model.MoE.NumExperts) / float64(e.ep)
		sum += l.router.weights + held*(l.expertGateUp.weights+l.expertDown.weights)
	}
	return sum
}

// cacheRow is the cache of one token in one layer on one rank, in bytes.
func (e *Estimator) cacheRow(l *layer) float64 {
	switch {
	case l.linearAttn:
		return 0
	case l.mla:
		return l.latent * e.kv
	default:
		return 2 * l.kvHeads * l.headDim * e.kv
	}
}

// cacheGrowth is what one more token adds to the cache of a rank, in bytes.
func (e *Estimator) cacheGrowth(stage *part) float64 {
	var sum float64
	for i := range e.layers {
		sum += float64(stage.counts[i]) * e.cacheRow(&e.layers[i])
	}
	return sum
}

// sequenceCache is the cache of one sequence of n tokens on one rank in
// bytes: whole blocks of what each layer can see, and the states of layers
// without a cache.
func (e *Estimator) sequenceCache(stage *part, n int) float64 {
	block := e.config.BlockSize
	var sum float64
	for i := range e.layers {
		l := &e.layers[i]
		held := n
		if l.attention == catalog.SlidingAttention || l.attention == catalog.ChunkedAttention {
			held = min(n, l.window)
		}
		held = (held + block - 1) / block * block
		sum += float64(stage.counts[i]) * (float64(held)*e.cacheRow(l) + l.state + l.convState)
	}
	return sum
}

// activations is the peak of intermediate results in a pass of tokens with
// rows of logits: residual stream and its copy, and the widest operator.
func (e *Estimator) activations(tokens, rows int) unit.Bytes {
	t := float64(tokens)
	h := float64(e.model.HiddenSize)
	var widest float64
	for i := range e.layers {
		l := &e.layers[i]
		attention := (2*l.heads + 2*l.kvHeads) * l.headDim
		switch {
		case l.mla:
			attention = 2*l.heads*(l.nope+l.rope) + l.heads*(l.nope+l.value) + l.latent
		case l.linearAttn:
			attention = l.linearIn.out + l.out.in
		}
		ffn := 3 * l.ffnWidth
		if l.moe {
			// Tokens spread over the ranks of a tensor-parallel group before
			// they are sent to whole experts.
			routed := float64(e.model.MoE.ExpertsPerToken)
			if e.ep > 1 {
				routed /= float64(e.tp)
			}
			ffn = max(ffn, routed*(2*h+3*l.expertWidth))
		}
		widest = max(widest, e.act*t*attention, e.act*t*ffn)
	}
	logits := float64(rows) * e.embed.vocab * (e.act + 4)
	return unit.Bytes(math.Round(2*e.act*t*h + max(widest, logits)))
}

// AnyDevice stands for a device of which only the sizes on it are asked: they do
// not depend on what it is. It knows all formats, has no limits and can be
// joined; times on it mean nothing.
func AnyDevice() *catalog.Device {
	one := catalog.Quantity{Value: 1}
	d := &catalog.Device{
		Name: "any device", Memory: catalog.Quantity{Value: 1e15}, Bandwidth: one, PCIe: one, InterNode: one,
		Peaks: map[catalog.DType]catalog.Quantity{},
	}
	for _, t := range catalog.DTypes() {
		d.Peaks[t] = one
	}
	return d
}
