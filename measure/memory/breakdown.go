package memory

import (
	"fmt"
	"math"
	"slices"
	"strings"

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
	bytes          int64
	resolution     int64
	tokens, blocks int64
	blockSize      int
	source, note   string
	estimate       bool // the engine expects it and has not measured it
	devices        int
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
	f := figure{devices: s.devices}
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
		f.estimate = f.estimate || best[worker].Extra["estimate"] != nil
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
// Activations of a larger step than this run's are what the other parts leave,
// and so is a reading of which the process gave some back.
// Of a KV cache in the host's memory only what was touched counts.
func (o *Observation) Breakdown(expected Expected) Breakdown {
	devices := max(o.Facts.Deploy.WithDefaults().Devices(), 1)
	said := stated{append(append([]profile.Point(nil), o.Facts.Memory...), o.Result.Memory...), devices}
	var b Breakdown
	weights := b.part(memprofile.PartWeights, said, profile.MemoryWeights, expected.Weights, expected)
	b.kv(said, expected)
	if o.ruler.byProcess && pooled(o.Facts.Engine) {
		b.touched()
	}
	b.part(memprofile.PartActivations, said, profile.MemoryActivation, expected.Activations, expected)
	b.graphs(said)
	b.overhead(o, said, weights)
	b.loading(o, weights)
	b.yield(o)
	b.giveBack(o)
	b.rounded(o.net())
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

// pooled tells the engines that set a KV cache aside beforehand, whether it is
// needed or not.
func pooled(engine string) bool {
	return strings.HasPrefix(engine, "vllm") || strings.HasPrefix(engine, "sglang")
}

// touched takes what a cache in the host's memory has in use for what is
// resident of it.
func (b *Breakdown) touched() {
	p := b.find(memprofile.PartKVCache)
	if p.Bytes == nil || p.Bytes == b.KV.UsedBytes {
		return
	}
	p.Note = memprofile.Text(fmt.Sprintf("%s are set aside in the host's memory, where only what is touched counts", *p.Bytes))
	p.Bytes, p.RoundingBytes = b.KV.UsedBytes, nil
	if p.Bytes == nil {
		p.Confidence = ""
		return
	}
	p.Note += ": the cache in use stands for it"
	if b.KV.UsedTokens == nil { // computed for the batch
		p.Confidence = memprofile.Medium
	}
}

// yield takes activations for what the other parts leave where all of them
// exceed the increase. vLLM states the peak of its largest step, and an
// architecture implies one; neither need be resident at this run's peak.
func (b *Breakdown) yield(o *Observation) {
	p := b.find(memprofile.PartActivations)
	net := o.net()
	if net == nil || p.Bytes == nil || p.Confidence == memprofile.High && !strings.HasPrefix(o.Facts.Engine, "vllm") {
		return
	}
	over := b.sum() - unit.Bytes(*net)
	if over <= memprofile.Slack(b.Parts) || over > *p.Bytes {
		return
	}
	who := "the architecture implies"
	if p.Confidence == memprofile.High {
		who = "the engine states"
	}
	p.Note = memprofile.Text(fmt.Sprintf("what the other parts leave of the increase; %s %s for the largest step, which this run did not take", who, *p.Bytes))
	rest := *p.Bytes - over
	p.Bytes, p.RoundingBytes, p.Confidence, p.Source = &rest, nil, memprofile.Medium, "remainder"
}

// giveBack takes a framework overhead that was read before the weights were
// loaded for what the other parts leave, where all of them exceed the increase
// and the engine itself states the weights: of what a process on a CPU held
// then, it gave some back before the peak.
func (b *Breakdown) giveBack(o *Observation) {
	p, net := b.find(memprofile.PartOverhead), o.net()
	if net == nil || p.Bytes == nil || o.Started == nil || p.Source != memprofile.Text(o.Started.Marker) ||
		!o.ruler.byProcess || b.find(memprofile.PartWeights).Confidence != memprofile.High {
		return
	}
	over, rounded := b.sum()-unit.Bytes(*net), unit.Bytes(0)
	for _, part := range b.Parts {
		if part.RoundingBytes != nil { // a reading of a process has none
			rounded += *part.RoundingBytes
		}
	}
	if over <= rounded || over > *p.Bytes {
		return
	}
	p.Note = memprofile.Text(fmt.Sprintf("what the other parts leave of the increase; of the %s that were read before the weights were loaded, some was given back", *p.Bytes))
	rest := *p.Bytes - over
	p.Bytes, p.RoundingBytes, p.Confidence, p.Source = &rest, nil, memprofile.Low, "remainder"
}

// rounded says so where the parts exceed the increase by no more than the digits
// that their figures leave out.
func (b *Breakdown) rounded(net *int64) {
	if net == nil {
		return
	}
	if over := b.sum() - unit.Bytes(*net); over > 0 && over <= memprofile.Slack(b.Parts) {
		b.Notes = append(b.Notes, fmt.Sprintf("the engine rounds its figures: the parts exceed the increase by %s", over))
	}
}

// sum adds up the parts that are known, in bytes.
func (b *Breakdown) sum() unit.Bytes {
	sum, _ := memprofile.Sum(b.Parts)
	return sum
}

// find is a part of those that are there.
func (b *Breakdown) find(name string) *memprofile.Part {
	return &b.Parts[slices.IndexFunc(b.Parts, func(p memprofile.Part) bool { return p.Name == name })]
}

// state fills a part in with what the engine says.
func (b *Breakdown) state(p *memprofile.Part, f figure) {
	p.Bytes, p.Confidence, p.Source, p.Note = size(f.bytes), memprofile.High, memprofile.Text(f.source), memprofile.Text(f.note)
	if f.estimate {
		p.Confidence, p.Note = memprofile.Medium, "estimated by the engine beforehand"
	}
	if f.resolution > 0 {
		p.RoundingBytes = size(f.resolution * int64(f.devices))
	}
}

// part adds a part from what the engine states, or else from the architecture.
func (b *Breakdown) part(name string, said stated, part string, expected *unit.Bytes, e Expected) *unit.Bytes {
	p := memprofile.Part{Name: name}
	switch f, ok := said.find(part); {
	case ok && f.bytes > 0:
		b.state(&p, f)
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
		b.state(&p, f)
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
		b.state(&p, f)
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
		b.state(&p, other)
		p.Note = "memory outside the engine's allocator"
	case hasConsumed && weights != nil && consumed.bytes >= int64(*weights):
		consumed.bytes -= int64(*weights)
		b.state(&p, consumed)
		p.Note = "what the engine had consumed after loading, without the weights"
	case o.Started != nil && o.Baseline != nil && o.Started.Total() > o.Baseline.Total():
		p.Bytes, p.Confidence, p.Source = size(o.Started.Total()-o.Baseline.Total()), memprofile.Medium, memprofile.Text(o.Started.Marker)
		p.Note = "measured before the weights were loaded"
	case net == nil:
		p.Note = "the engine does not say, and memory was not measured"
	default:
		rest := *net - int64(b.sum())
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
