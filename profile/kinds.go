package profile

import (
	"errors"
	"fmt"
	"math"
)

// Layer is one call of one layer, or operator, of the model on one rank. Which
// sizes matter depends on the layer; those that do not are 0.
type Layer struct {
	// Name is the layer as the measured program names it: "q_proj", "attn",
	// "qkv_proj", "attention".
	Name string `json:"name"`
	// Tokens is the number of tokens computed, in attention those of the
	// prompt chunk.
	Tokens int `json:"tokens,omitempty"`
	// Context is the number of tokens that the chunk's sequence already has in
	// the KV cache.
	Context int `json:"context,omitempty"`
	// Sequences is the number of decoding sequences in attention, and of rows
	// of logits in layers that work once a sequence (lm_head, sampler).
	Sequences int `json:"sequences,omitempty"`
	// SequenceContext is the number of cached tokens of each decoding
	// sequence.
	SequenceContext int `json:"sequence_context,omitempty"`
	// LongSequences of the Sequences have LongContext cached tokens instead of
	// SequenceContext.
	LongSequences int `json:"long_sequences,omitempty"`
	LongContext   int `json:"long_context,omitempty"`
	// ActivatedExperts is the number of experts that got a token.
	ActivatedExperts int `json:"activated_experts,omitempty"`
	// MessageBytes is what every rank puts into a collective between the ranks
	// ("all_reduce", "all_gather"), in bytes: the whole tensor that is summed, the
	// own part of what is gathered. Such a call has no other sizes.
	MessageBytes int64 `json:"message_bytes,omitempty"`
	// TensorParallel is the number of ranks that share the layer; 0 where the
	// profile's deployment says it.
	TensorParallel int `json:"tensor_parallel_size,omitempty"`
}

// The parts of device memory that a [Memory] point may be about.
const (
	// MemoryTotal is the device's memory, MemoryFree what was free before the
	// engine started, MemoryBudget what the engine may take.
	MemoryTotal  = "total"
	MemoryFree   = "free"
	MemoryBudget = "budget"
	// MemoryWeights, MemoryActivation (peak), MemoryNonTorch and MemoryGraphs
	// are what the engine takes beside the KV cache.
	MemoryWeights    = "weights"
	MemoryActivation = "activation"
	MemoryNonTorch   = "non-torch"
	MemoryGraphs     = "graphs"
	// MemoryConsumed is weights and everything else that loading took, where
	// an engine does not tell them apart.
	MemoryConsumed = "consumed"
	// MemoryKVCache is the KV cache.
	MemoryKVCache = "kv-cache"
	// MemoryKVUsed is the part of the KV cache that held tokens, where it was
	// fullest.
	MemoryKVUsed = "kv-cache-used"
	// MemoryProcess is the resident memory of the engine's processes.
	MemoryProcess = "process"
	// MemoryUsed is the memory in use on a device, by whomever.
	MemoryUsed = "used"
)

// The moments of a run of which a [Memory] point may be.
const (
	// PhaseBaseline: before the engine was started.
	PhaseBaseline = "baseline"
	// PhasePostWarmup: when the engine said that it is warm.
	PhasePostWarmup = "post-warmup"
	// PhasePeak: the fullest moment of the run.
	PhasePeak = "peak"
)

// Memory is one figure of memory: what an engine said, or a reading.
type Memory struct {
	// Part is what the memory holds, one of the Memory constants.
	Part string `json:"part"`
	// Bytes is its size; 0 where only tokens or blocks are known, or where a
	// reading found nothing in use.
	Bytes int64 `json:"bytes,omitempty"`
	// Resolution is the step of the figure in bytes, for figures that were
	// printed rounded; 0 where it is exact.
	Resolution int64 `json:"resolution_bytes,omitempty"`
	// Tokens and Blocks are the capacity of a KV cache, BlockSize the tokens
	// of one block; 0 where not known.
	Tokens    int64 `json:"tokens,omitempty"`
	Blocks    int64 `json:"blocks,omitempty"`
	BlockSize int   `json:"block_size,omitempty"`
	// Phase is the moment of a reading, one of the Phase constants, At its time
	// in seconds from the start of the recording, Device the driver's number of
	// the device; all are left out where an engine states what it holds.
	Phase  string  `json:"phase,omitempty"`
	At     float64 `json:"at_s,omitempty"`
	Device *int    `json:"device,omitempty"`
	// Worker names the rank or process that said it; empty where there is one.
	Worker string `json:"worker,omitempty"`
}

// Request is what a client saw of one request. Times are in seconds from the
// start of the run.
type Request struct {
	ID string `json:"id,omitempty"`
	// InputLen and OutputLen are tokens, CachedLen those of the prompt that
	// came from a prefix cache.
	InputLen  int `json:"input_len"`
	OutputLen int `json:"output_len"`
	CachedLen int `json:"cached_len,omitempty"`
	// Scheduled is when it was due, Sent when it was sent.
	Scheduled float64 `json:"scheduled_s"`
	Sent      float64 `json:"sent_s"`
	// First and Last are when the first and the last token arrived.
	First float64 `json:"first_s"`
	Last  float64 `json:"last_s"`
}

func (l *Layer) validate() error {
	if l.Name == "" {
		return errors.New("name is missing")
	}
	for _, size := range []struct {
		key   string
		value int
		most  int64
	}{
		{"tokens", l.Tokens, maxTokens},
		{"context", l.Context, maxTokens},
		{"sequences", l.Sequences, maxSequences},
		{"sequence_context", l.SequenceContext, maxTokens},
		{"long_sequences", l.LongSequences, int64(l.Sequences)},
		{"long_context", l.LongContext, maxTokens},
		{"activated_experts", l.ActivatedExperts, maxSequences},
		{"tensor_parallel_size", l.TensorParallel, maxSequences},
	} {
		if size.value < 0 || int64(size.value) > size.most {
			return fmt.Errorf("%s %d: want 0 to %d", size.key, size.value, size.most)
		}
	}
	if l.MessageBytes < 0 || l.MessageBytes > maxMessage {
		return fmt.Errorf("message_bytes %d: want 0 to %d", l.MessageBytes, int64(maxMessage))
	}
	return nil
}

// maxMessage bounds a message in bytes.
const maxMessage = 1 << 50

func (m *Memory) validate() error {
	if m.Part == "" {
		return errors.New("part is missing")
	}
	if m.Bytes < 0 || m.Resolution < 0 || m.Tokens < 0 || m.Blocks < 0 || m.BlockSize < 0 {
		return fmt.Errorf("bytes %d, resolution_bytes %d, tokens %d, blocks %d, block_size %d: want none negative", m.Bytes, m.Resolution, m.Tokens, m.Blocks, m.BlockSize)
	}
	if math.IsNaN(m.At) || math.IsInf(m.At, 0) {
		return errors.New("at_s is not finite")
	}
	if m.Bytes == 0 && m.Tokens == 0 && m.Blocks == 0 && m.Phase == "" {
		return errors.New("says neither bytes nor tokens nor blocks")
	}
	return nil
}

func (r *Request) validate() error {
	if r.InputLen < 0 || int64(r.InputLen) > maxTokens || r.OutputLen < 0 || int64(r.OutputLen) > maxTokens || r.CachedLen < 0 || r.CachedLen > r.InputLen {
		return fmt.Errorf("input_len %d, output_len %d, cached_len %d: out of range", r.InputLen, r.OutputLen, r.CachedLen)
	}
	for _, t := range []float64{r.Scheduled, r.Sent, r.First, r.Last} {
		if math.IsNaN(t) || math.IsInf(t, 0) {
			return errors.New("a time is not finite")
		}
	}
	if r.First < r.Sent || r.Last < r.First {
		return fmt.Errorf("sent_s %g, first_s %g, last_s %g: want them in this order", r.Sent, r.First, r.Last)
	}
	return nil
}
