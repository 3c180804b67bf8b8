package cost

import (
	"math"

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
	// KVBudget is what weights, activations and reserve leave of Usable;
	// negative if they do not fit.
	KVBudget unit.Bytes
	// MaxBatch is the number of sequences of full length that fit.
	MaxBatch int
	// MaxTokens is the number of cached tokens that fit, in whole blocks.
	MaxTokens int64
}

// Total is everything that the batch needs on the device.
func (m Memory) Total() unit.Bytes { return m.Weights + m.KVCache + m.Activations + m.Reserve }

// Fits reports whether the batch fits into what the engine may take.
func (m Memory) Fits() bool { return m.Total() <= m.Usable }

// Memory computes the memory of a batch of sequences of length tokens each,
// of which at most stepTokens are computed in one pass. The figures are those
// of the pipeline stage that leaves least room.
func (e *Estimator) Memory(batch, length, stepTokens int) Memory {
	var worst Memory
	first := 0
	for stage, layers := range e.stages {
		m := e.stageMemory(stage, first, first+layers, batch, length, stepTokens)
		first += layers
		if stage == 0 {
			worst = m
			continue
		}
		maxBatch, maxTokens := min(worst.MaxBatch, m.MaxBatch), min(worst.MaxTokens, m.MaxTokens)
		if m.Total() > worst.Total() {
			worst = m
		}
		worst.MaxBatch, worst.MaxTokens = maxBatch, maxTokens
	}
	return worst
}

func (e *Estimator) stageMemory(stage, first, last, batch, length, stepTokens int) Memory {
	m := Memory{
		Device:      e.device.MemoryBytes(),
		Usable:      unit.Bytes(math.Floor(e.device.Memory.Value * e.config.GPUMemoryUtilization)),
		Weights:     e.stageWeights(stage, first, last),
		Activations: e.activations(stepTokens, batch),
		Reserve:     e.settings.Reserve,
	}
	kinds := e.model.Layers(first, last)
	m.KVPerToken = unit.Bytes(math.Round(e.kvTokens(kinds, 1, 1)))
	m.KVPerSequence = unit.Bytes(math.Round(e.kvTokens(kinds, length, e.config.BlockSize)))
	m.KVCache = unit.Bytes(batch) * m.KVPerSequence
	m.KVBudget = m.Usable - m.Weights - m.Activations - m.Reserve
	if m.KVBudget <= 0 || m.KVPerSequence <= 0 {
		return m
	}
	m.MaxBatch = int(m.KVBudget / m.KVPerSequence)
	// With windows a token of a long sequence costs less than KVPerToken: the
	// capacity is that of sequences of the asked length.
	block := e.config.BlockSize
	blocks := (length + block - 1) / block
	perBlock := float64(m.KVPerSequence) / float64(blocks)
	m.MaxTokens = int64(math.Floor(float64(m.KVBudget)/perBlock)) * int64(block)
	return m
}

// stageWeights sums the storage of the rank's shards of layers first to last.
func (e *Estimator) stageWeights(stage, first, last int) unit.Bytes {
	var sum float64
	for _, kind := range e.model.Layers(first, last) {
		for i := range e.layers {
			l := &e.layers[i]
			if l.attention == kind.Attention && l.moe == kind.MoE {
				sum += float64(kind.Count) * e.layerWeights(l)
			}
		}
	}
	isFirst, isLast := stage == 0, stage == e.pp-1
	if isFirst || (isLast && e.embed.tied) {
		sum += e.embed.tableBytes
	}
	if isLast {
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

// kvTokens is the cache of one sequence of n tokens on one rank, in bytes,
// rounded up to whole blocks.
func (e *Estimator) kvTokens(kinds []catalog.Layer, n, block int) float64 {
	var sum float64
	for _, kind := range kinds {
		for i := range e.layers {
			l := &e.layers[i]
			if l.attention != kind.Attention || l.moe != kind.MoE {
				continue
			}
			held := n
			switch l.attention {
			case catalog.LinearAttn:
				if block > 1 {
					sum += float64(kind.Count) * (l.state + l.convState)
				}
				continue
			case catalog.SlidingAttention, catalog.ChunkedAttention:
				held = min(n, l.window)
			}
			held = (held + block - 1) / block * block
			row := 2 * l.kvHeads * l.headDim * e.kv
			if l.mla {
				row = l.latent * e.kv
			}
			sum += float64(kind.Count) * float64(held) * row
		}
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
