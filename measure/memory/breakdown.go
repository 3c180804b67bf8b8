package memory

import (
	"fmt"
	"math"

	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/unit"
)

// Breakdown is what the memory above the baseline is made of, over all devices.
type Breakdown struct {
	// Parts have bytes where they are known. They sum to the net increase,
	// what is unexplained included.
	Parts []memprofile.Part
	// KV is the cache that was set aside and what was in use of it.
	KV memprofile.KVCache
	// Notes are remarks on single figures.
	Notes []string
}

// stated collects what an engine says of its memory, over all ranks.
type stated struct {
	points  []profile.Point
	devices int
}

// figure is what an engine states of one part.
type figure struct {
	bytes            int64
	resolution       int64
	tokens, blocks   int64
	blockSize        int
	source, note     string
	workers, devices int
}

// find adds up what the ranks state of a part. A single statement stands for
// all ranks, which are alike.
func (s stated) find(part string) (figure, bool) {
	best := map[string]profile.Point{}
	var order []string
	for _, p := range s.points {
		if p.Memory == nil || p.Memory.Part != part || p.Memory.Phase != "" {
			continue
		}
		worker := p.Memory.Worker
		was, known := best[worker]
		if !known {
			order = append(order, worker)
		}
		if !known || better(p.Memory, was.Memory) {
			best[worker] = p
		}
	}
	if len(order) == 0 {
		return figure{}, false
	}
	f := figure{workers: len(order), devices: s.devices}
	for _, worker := range order {
		m := best[worker].Memory
		f.bytes += m.Bytes
		f.resolution = max(f.resolution, m.Resolution)
		// Every rank has the same blocks; the fewest decide.
		if f.tokens == 0 || m.Tokens > 0 && m.Tokens < f.tokens {
			f.tokens = m.Tokens
		}
		if f.blocks == 0 || m.Blocks > 0 && m.Blocks < f.blocks {
			f.blocks = m.Blocks
		}
		f.blockSize = max(f.blockSize, m.BlockSize)
		f.source = best[worker].Origin
	}
	if f.source == "" {
		f.source = "engine"
	}
	if s.devices > 1 && len(order) == 1 {
		f.bytes *= int64(s.devices)
		f.note = fmt.Sprintf("stated by one rank and taken for all %d", s.devices)
	}
	return f, true
}

// better reports whether a tells more than b.
func better(a, b *profile.Memory) bool {
	if (a.Bytes > 0) != (b.Bytes > 0) {
		return a.Bytes > 0
	}
	return a.Resolution < b.Resolution
}

// Breakdown splits the peak. What the engine states has high confidence, what
// the architecture implies medium; a framework overhead that nobody states is
// what was in use before loading, or else the remainder, with low confidence.
func (o *Observation) Breakdown(expected Expected) Breakdown {
	devices := max(o.Facts.Deploy.WithDefaults().Devices(), 1)
	said := stated{append(append([]profile.Point(nil), o.Facts.Memory...), o.Result.Memory...), devices}
	var b Breakdown
	weights := b.part(memprofile.PartWeights, said, profile.MemoryWeights, expected.Weights, expected)
	b.kv(said, expected)
	b.part(memprofile.PartActivations, said, profile.MemoryActivation, expected.Activations, expected)
	b.graphs(said)
	b.overhead(o, said, weights)
	b.loading(o, weights)
	if expected.Note != "" {
		b.Notes = append(b.Notes, expected.Note)
	}
	return b
}

// net is what the peak holds more than the baseline, over all devices; nil
// where it was not measured.
func (o *Observation) net() *int64 {
	if o.Peak == nil || o.Baseline == nil {
		return nil
	}
	n := o.Peak.Total() - o.Baseline.Total()
	return &n
}

// part adds a part from what the engine states, or else from the architecture.
func (b *Breakdown) part(name string, said stated, part string, expected *unit.Bytes, e Expected) *unit.Bytes {
	p := memprofile.Part{Name: name}
	switch f, ok := said.find(part); {
	case ok && f.bytes > 0:
		p.Bytes, p.Confidence, p.Source, p.Note = size(f.bytes), memprofile.High, memprofile.Text(f.source), memprofile.Text(f.note)
	case expected != nil:
		p.Bytes, p.Confidence, p.Source = expected, memprofile.Medium, memprofile.Text(e.Source)
		p.Note = "computed: the engine does not say"
	default:
		p.Note = "the engine does not say, and the architecture is not known"
	}
	b.Parts = append(b.Parts, p)
	return p.Bytes
}

// kv adds the KV cache.
func (b *Breakdown) kv(said stated, e Expected) {
	p := memprofile.Part{Name: memprofile.PartKVCache}
	f, ok := said.find(profile.MemoryKVCache)
	if ok {
		b.KV.Source = memprofile.Text(f.source)
		b.KV.Blocks, b.KV.BlockSize, b.KV.Tokens = count(f.blocks), count(int64(f.blockSize)), count(f.tokens)
	}
	switch {
	case ok && f.bytes > 0:
		p.Bytes, p.Confidence, p.Source, p.Note = size(f.bytes), memprofile.High, memprofile.Text(f.source), memprofile.Text(f.note)
	case ok && f.tokens > 0 && e.KVPerToken != nil:
		p.Bytes, p.Confidence, p.Source = size(f.tokens*int64(*e.KVPerToken)), memprofile.Medium, memprofile.Text(f.source)
		p.Note = memprofile.Text(fmt.Sprintf("%d tokens as the engine says, of %d bytes each by the %s", f.tokens, *e.KVPerToken, e.Source))
	case e.KVBatch != nil:
		p.Bytes, p.Confidence, p.Source = e.KVBatch, memprofile.Medium, memprofile.Text(e.Source)
		p.Note = "computed for the batch: the engine does not say what it set aside"
	default:
		p.Note = "the engine does not say, and the architecture is not known"
	}
	b.KV.Bytes = p.Bytes
	b.used(said, e)
	b.Parts = append(b.Parts, p)
}

// used says what of the cache held tokens.
func (b *Breakdown) used(said stated, e Expected) {
	f, ok := said.find(profile.MemoryKVUsed)
	switch {
	case ok && f.tokens > 0:
		b.KV.UsedTokens = count(f.tokens)
		if b.KV.Bytes != nil && b.KV.Tokens != nil {
			b.KV.UsedBytes = size(int64(math.Round(float64(*b.KV.Bytes) / float64(*b.KV.Tokens) * float64(f.tokens))))
			b.Notes = append(b.Notes, "KV cache in use: the largest share that the engine's log tells, in tenths of a percent of the cache")
		}
	case e.KVBatch != nil && (b.KV.Bytes == nil || *e.KVBatch <= *b.KV.Bytes):
		b.KV.UsedBytes = e.KVBatch
		b.Notes = append(b.Notes, "KV cache in use: computed for the batch at its full length, not measured")
	}
}

// graphs adds the memory of captured graphs where the engine states it.
func (b *Breakdown) graphs(said stated) {
	p := memprofile.Part{Name: memprofile.PartCUDAGraphs, Note: "the engine does not say"}
	if f, ok := said.find(profile.MemoryGraphs); ok {
		p = memprofile.Part{
			Name: memprofile.PartCUDAGraphs, Bytes: size(f.bytes), Confidence: memprofile.High, Source: memprofile.Text(f.source), Note: memprofile.Text(f.note),
		}
	}
	b.Parts = append(b.Parts, p)
}

// loading holds what was measured while the weights were loaded against what is
// said of them.
func (b *Breakdown) loading(o *Observation, weights *unit.Bytes) {
	if o.Started == nil || o.Loaded == nil || weights == nil {
		return
	}
	grown := o.Loaded.Total() - o.Started.Total()
	b.Notes = append(b.Notes, fmt.Sprintf("weights: memory grew by %s while they were loaded", unit.Bytes(grown)))
}

// overhead adds what the framework takes beside: as the engine states it, or
// as it was measured before loading, or else what remains.
func (b *Breakdown) overhead(o *Observation, said stated, weights *unit.Bytes) {
	p := memprofile.Part{Name: memprofile.PartOverhead}
	net := o.net()
	other, hasOther := said.find(profile.MemoryNonTorch)
	consumed, hasConsumed := said.find(profile.MemoryConsumed)
	switch {
	case hasOther:
		p.Bytes, p.Confidence, p.Source, p.Note = size(other.bytes), memprofile.High, memprofile.Text(other.source), "memory outside the engine's allocator"
	case hasConsumed && weights != nil && consumed.bytes >= int64(*weights):
		p.Bytes, p.Confidence, p.Source = size(consumed.bytes-int64(*weights)), memprofile.High, memprofile.Text(consumed.source)
		p.Note = "what the engine had consumed after loading, without the weights"
	case o.Started != nil && o.Baseline != nil && o.Started.Total() > o.Baseline.Total():
		p.Bytes, p.Confidence, p.Source = size(o.Started.Total()-o.Baseline.Total()), memprofile.Medium, memprofile.Text(o.Started.Marker)
		p.Note = "measured before the weights were loaded"
	case net == nil:
		p.Note = "the engine does not say, and memory was not measured"
	default:
		rest := *net
		for _, known := range b.Parts {
			if known.Bytes != nil {
				rest -= int64(*known.Bytes)
			}
		}
		if rest < 0 {
			p.Note = "the engine does not say, and nothing remains"
			break
		}
		p.Bytes, p.Confidence, p.Source, p.Note = size(rest), memprofile.Low, "remainder", "what the other parts leave of the increase"
	}
	b.Parts = append(b.Parts, p)
}

func size(n int64) *unit.Bytes {
	b := unit.Bytes(n)
	return &b
}

// count is nil for what is not known.
func count(n int64) *int {
	if n <= 0 {
		return nil
	}
	v := int(n)
	return &v
}
