package memprofile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/unit"
)

// rounding is what two decimals of a GiB hide, for each figure of a sum of
// which the rounding is not known.
const rounding = unit.Bytes(11e6)

// Faults lists what cannot be true: figures that contradict each other, parts
// that exceed the total, sizes that are zero or negative.
func (d *Document) Faults() []string {
	var faults []string
	report := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	m := &d.MemoryMeasurements
	m.Baseline.faults("baseline", report)
	m.PostWarmup.faults("post_warmup", report)
	m.Peak.faults("peak", report)
	baseline, warm, peak := m.Baseline.total(), m.PostWarmup.total(), m.Peak.total()
	if peak != nil && *peak == 0 {
		report("total is zero: the peak shows no memory in use")
	}
	if below(peak, baseline) {
		report("baseline of %s exceeds the peak of %s", inGB(*baseline), inGB(*peak))
	}
	if below(peak, warm) {
		report("post_warmup of %s exceeds the peak of %s", inGB(*warm), inGB(*peak))
	}
	parts, cache := d.MemoryBreakdown.Parts, d.MemoryBreakdown.bytes(PartKVCache)
	if d.onCPU() { // what is set aside in the host's memory and not touched is not in use
		parts, cache = without(parts, PartKVCache), nil
	}
	faultsOf(parts, peak, difference(peak, baseline), report)
	d.KVCache.faults(cache, report)
	if d.MemoryTimeline != nil {
		d.MemoryTimeline.faults(report)
	}
	return faults
}

// reporter takes one fault.
type reporter func(format string, args ...any)

func (p *MemoryPoint) faults(name string, report reporter) {
	total := p.total()
	if total == nil {
		return
	}
	if *total < 0 {
		report("%s is negative: %s", name, inGB(*total))
	}
	for i, g := range p.PerGPU {
		if g.UsedBytes != nil && *g.UsedBytes < 0 {
			report("%s of device %d is negative: %s", name, i, inGB(*g.UsedBytes))
		}
		if below(g.TotalBytes, g.UsedBytes) {
			report("%s of device %d is %s, more than the %s that it has", name, i, inGB(*g.UsedBytes), inGB(*g.TotalBytes))
		}
	}
	if sum := p.sum(); sum != nil {
		if off := *sum - *total; max(off, -off) > rounding*unit.Bytes(len(p.PerGPU)+1) {
			report("%s is %s, but its devices add up to %s", name, inGB(*total), inGB(*sum))
		}
	}
}

// without is the list of parts but for one.
func without(parts []Part, name string) []Part {
	return slices.DeleteFunc(slices.Clone(parts), func(p Part) bool { return p.Name == name })
}

func faultsOf(parts []Part, total, net *unit.Bytes, report reporter) {
	var terms []string
	seen := map[string]bool{}
	for _, p := range parts {
		if seen[p.Name] {
			report("part %s stands twice", p.Name)
		}
		seen[p.Name] = true
		if p.Bytes == nil {
			continue
		}
		terms = append(terms, p.Name+" "+inGB(*p.Bytes))
		if *p.Bytes < 0 {
			report("%s is negative: %s", p.Name, inGB(*p.Bytes))
		}
	}
	sum, known := Sum(parts)
	slack := Slack(parts)
	switch {
	case known == 0:
	case total != nil && sum > *total+slack:
		report("parts exceed total: %s make %s of %s", strings.Join(terms, ", "), inGB(sum), inGB(*total))
	case net != nil && sum > *net+slack:
		report("parts exceed increase: %s make %s of the %s above the baseline", strings.Join(terms, ", "), inGB(sum), inGB(*net))
	}
}

func (kv *KVCache) faults(part *unit.Bytes, report reporter) {
	for _, c := range []struct {
		name  string
		bytes *unit.Bytes
	}{{"kv_cache.bytes", kv.Bytes}, {"kv_cache.used_bytes", kv.UsedBytes}} {
		if c.bytes != nil && *c.bytes < 0 {
			report("%s is negative: %s", c.name, inGB(*c.bytes))
		}
	}
	if below(kv.Bytes, kv.UsedBytes) {
		report("KV cache in use, %s, exceeds the one set aside, %s", inGB(*kv.UsedBytes), inGB(*kv.Bytes))
	}
	if kv.Tokens != nil && kv.UsedTokens != nil && *kv.UsedTokens > *kv.Tokens {
		report("KV cache holds %d tokens, more than the %d for which there is room", *kv.UsedTokens, *kv.Tokens)
	}
	if off := difference(kv.Bytes, part); off != nil && max(*off, -*off) > rounding {
		report("kv_cache.bytes is %s, but the part kv_cache %s", inGB(*kv.Bytes), inGB(*part))
	}
}

func (t *Timeline) faults(report reporter) {
	for i, d := range t.Devices {
		if !slices.IsSorted(d.At) {
			report("timeline of device %d goes back in time", i)
		}
		for _, c := range []struct {
			name string
			n    int
		}{
			{"used_bytes", len(d.UsedBytes)},
			{"process_bytes", len(d.ProcessBytes)},
			{"power_w", len(d.PowerW)},
			{"utilization", len(d.Utilization)},
		} {
			if c.n != 0 && c.n != len(d.At) {
				report("timeline of device %d has %d times, but %d of %s", i, len(d.At), c.n, c.name)
			}
		}
	}
}

// below reports whether a is less than b and both are known.
func below(a, b *unit.Bytes) bool { return a != nil && b != nil && *a < *b }

// inGB prints a size as the keys of the file have it.
func inGB(b unit.Bytes) string { return fmt.Sprintf("%.2f GB", float64(b)/1e9) }
