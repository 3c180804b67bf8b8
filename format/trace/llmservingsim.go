package trace

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"math"
	"slices"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// LLMServingSim is JSON Lines with input_toks and output_toks: the workloads of
// LLMServingSim, with arrival_time_ns, and the requests of its bench on a real
// engine, with arrival_time and queued_ts in seconds. Those are due when the
// client sent them: [format.OneClock] brings the two clocks together. Where
// input_tok_ids are there, prompts that begin with equal ids share them, in
// blocks of idBlock tokens. Sessions (sub_requests) are refused.
const LLMServingSim Kind = "llmservingsim"

// idBlock is the tokens of a block in which equal beginnings are told: vLLM's
// usual block, below which nothing is found again.
const idBlock = 16

// readLLMServingSim reads the rows of a workload or of a bench.
func (c *collector) readLLMServingSim(rows []format.Node) error {
	var requests []workload.Request
	var sent, queued []float64
	for _, row := range rows {
		if row.Kind() != format.Object {
			return row.Errorf("want an object, got %s", row.Got())
		}
		if row.Has("sub_requests") {
			return row.Errorf("a session of sub_requests: only single requests are read")
		}
		var q workload.Request
		var err error
		if q.InputLen, q.OutputLen, err = lengths(row.Get("input_toks"), row.Get("output_toks")); err != nil {
			return err
		}
		if q.Prefix, err = idSpans(row.Get("input_tok_ids"), q.InputLen); err != nil {
			return err
		}
		at, taken, err := c.moments(row)
		if err != nil {
			return err
		}
		requests, sent, queued = append(requests, q), append(sent, at), append(queued, taken)
	}
	due := format.OneClock(sent, queued)
	zero := 0.0
	if !rows[0].Has("arrival_time_ns") {
		zero = slices.Min(due)
	}
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	// LLMServingSim takes the rows in any order.
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(due[a], due[b]) })
	for _, i := range order {
		q := requests[i]
		q.At = unit.Seconds(due[i] - zero)
		if err := checkTime(q.At); err != nil {
			return rows[i].Errorf("%w", err)
		}
		if err := c.add(q, q.At, rows[i].Errorf); err != nil {
			return err
		}
	}
	return nil
}

// moments are when a request was sent and when the engine took it in, in
// seconds, each on its own clock.
func (c *collector) moments(row format.Node) (sent, taken float64, err error) {
	if node := row.Get("arrival_time_ns"); node.Present() {
		at, err := seconds(node, 1e9)
		return float64(at), float64(at), err
	}
	for _, t := range []struct {
		key string
		to  *float64
	}{{"queued_ts", &taken}, {"arrival_time", &sent}} {
		node := row.Get(t.key)
		if *t.to, err = node.Float(); err != nil {
			return 0, 0, err
		}
		if math.IsNaN(*t.to) || math.Abs(*t.to) > 1e12 {
			return 0, 0, node.Errorf("%s: want a time in seconds", node.Got())
		}
	}
	return sent, taken, nil
}

// idSpans are the blocks of a prompt whose ids are known, each named by all ids
// up to its end.
func idSpans(ids format.Node, length int) ([]workload.Span, error) {
	if !ids.Present() {
		return nil, nil
	}
	if ids.Kind() != format.Array || ids.Len() != length {
		return nil, ids.Errorf("want a list of %d token ids, got %s", length, ids.Got())
	}
	var spans []workload.Span
	h := fnv.New64a()
	var word [8]byte
	for i, id := range ids.Elements() {
		n, err := id.Int(0, math.MaxInt32)
		if err != nil {
			return nil, err
		}
		binary.LittleEndian.PutUint64(word[:], uint64(n))
		h.Write(word[:])
		if (i+1)%idBlock == 0 {
			spans = append(spans, workload.Span{Seed: h.Sum64() >> 11, Len: idBlock})
		}
	}
	return spans, nil
}
