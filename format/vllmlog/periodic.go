package vllmlog

import (
	"strconv"
	"strings"
)

// Periodic is a line in which the server sums up the last seconds. Shares are
// 0..1 and nil where the line does not tell them.
type Periodic struct {
	// Engine is the number of the engine, 0 where there is one.
	Engine int
	// PromptRate and GenerationRate are mean throughputs in tokens/s.
	PromptRate, GenerationRate float64
	// Running and Waiting are the numbers of requests at the moment of the
	// line; Swapped those that the older engine moved to host memory.
	Running, Waiting, Swapped int
	// KVUsage is the used share of the KV cache, HostKVUsage that of the older
	// engine's swap space.
	KVUsage, HostKVUsage *float64
	// PrefixHitRate is the share of prompt tokens found in the prefix cache,
	// ExternalHitRate in a cache outside the engine.
	PrefixHitRate, ExternalHitRate *float64
}

// ParsePeriodic reads the line of either engine generation, with or without
// the log's prefix:
//
//	Engine 000: Avg prompt throughput: 800.0 tokens/s, Avg generation throughput: 200.0 tokens/s,
//	Running: 12 reqs, Waiting: 3 reqs, GPU KV cache usage: 41.4%, Prefix cache hit rate: 20.0%
//
// on one line. Fields that it does not know are passed over. ok is false for
// any other line.
func ParsePeriodic(line string) (p Periodic, ok bool) {
	line = stripColours(line)
	const first = "Avg prompt throughput: "
	at := strings.Index(line, first)
	if at < 0 {
		return Periodic{}, false
	}
	if head := strings.TrimSuffix(strings.TrimRight(line[:at], " "), ":"); strings.Contains(head, engineMark) {
		p.Engine = engineNumber(head)
	}
	var prompt, generation, running bool
	for field := range strings.SplitSeq(strings.TrimRight(line[at:], "\r\n. "), ", ") {
		colon := strings.LastIndex(field, ": ")
		if colon < 0 {
			continue
		}
		value, unit, _ := strings.Cut(field[colon+2:], " ")
		switch key := field[:colon]; {
		case key == "Avg prompt throughput" && unit == "tokens/s":
			p.PromptRate, prompt = plainNumber(value)
		case key == "Avg generation throughput" && unit == "tokens/s":
			p.GenerationRate, generation = plainNumber(value)
		case key == "Running" && unit == "reqs":
			p.Running, running = count(value)
		case (key == "Waiting" || key == "Pending") && unit == "reqs":
			p.Waiting, _ = count(value)
		case key == "Swapped" && unit == "reqs":
			p.Swapped, _ = count(value)
		case key == "GPU KV cache usage":
			p.KVUsage = share(value)
		case key == "CPU KV cache usage":
			p.HostKVUsage = share(value)
		case key == "Prefix cache hit rate":
			p.PrefixHitRate = share(value)
		case key == "External prefix cache hit rate":
			p.ExternalHitRate = share(value)
		}
	}
	// On a CPU the newer engine calls its own cache so; the older one always
	// writes both.
	if p.KVUsage == nil {
		p.KVUsage, p.HostKVUsage = p.HostKVUsage, nil
	}
	return p, prompt && generation && running
}

// plainNumber reads a decimal number that is not negative.
func plainNumber(s string) (float64, bool) {
	scan := scanner[string]{rest: s}
	v := scan.decimal(1)
	return v, !scan.failed && scan.rest == ""
}

func count(s string) (int, bool) {
	n, err := strconv.ParseInt(s, 10, 32)
	return int(n), err == nil && n >= 0
}

// share reads a percentage.
func share(s string) *float64 {
	scan := scanner[string]{rest: s}
	v := scan.decimal(100)
	scan.literal("%")
	if scan.failed {
		return nil
	}
	return &v
}
