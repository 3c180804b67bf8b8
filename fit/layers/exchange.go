package layers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// The collectives that a step of a tensor-parallel model needs.
const (
	allReduce = "all_reduce"
	allGather = "all_gather"
)

// Messages are the sizes of what the ranks of a model exchange.
type Messages struct {
	// Token is the hidden state of one token, Row the part of a row of logits
	// that one rank computes, both in bytes.
	Token, Row int64
}

// Exchange is what ranks exchange in a step of a model of numLayers blocks, by
// the measured times of collectives: hidden states are summed after the
// embedding and twice in every block, and logits are gathered. A table without
// these times gives a [fit.NotMeasuredError]; one rank exchanges nothing.
func (t *Table) Exchange(numLayers, tp int, m Messages) (Exchange, error) {
	tp = cmp.Or(tp, t.options.TensorParallel)
	if numLayers < 1 || numLayers > maxLayers || m.Token < 1 || m.Row < 1 || max(m.Token, m.Row) > maxSize {
		return Exchange{}, fmt.Errorf("exchange of %d blocks with %d bytes a token and %d a row of logits: want all above 0", numLayers, m.Token, m.Row)
	}
	if tp == 1 {
		return Exchange{}, nil
	}
	sum, gather := t.messages[tp][allReduce], t.messages[tp][allGather]
	if sum == nil || gather == nil {
		return Exchange{}, notMeasured(fmt.Sprintf("communication between %d tensor-parallel ranks", tp), "the profile has no times of "+allReduce+" and "+allGather+" by bytes")
	}
	times := float64(2*numLayers + 1)
	return Exchange{
		Tokens: func(n int) unit.Seconds { return unit.Seconds(times * sum.at(float64(n)*float64(m.Token))) },
		Rows:   func(n int) unit.Seconds { return unit.Seconds(gather.at(float64(n) * float64(m.Row))) },
	}, nil
}

// addMessage keeps the time of a collective by ranks, name and bytes.
func addMessage(sent map[int]map[string]map[int64][]float64, tp int, l *profile.Layer, seconds float64) {
	if sent[tp] == nil {
		sent[tp] = map[string]map[int64][]float64{}
	}
	if sent[tp][l.Name] == nil {
		sent[tp][l.Name] = map[int64][]float64{}
	}
	sent[tp][l.Name][l.MessageBytes] = append(sent[tp][l.Name][l.MessageBytes], seconds)
}

// fitMessages fits the times of collectives along their bytes: a straight line
// between points, and beyond them the one through the last two, which is the
// bandwidth of the link.
func fitMessages(sent map[int]map[string]map[int64][]float64) map[int]map[string]*curve {
	out := map[int]map[string]*curve{}
	for tp, names := range sent {
		out[tp] = map[string]*curve{}
		for name, sizes := range names {
			var in []sample
			for _, bytes := range slices.Sorted(maps.Keys(sizes)) {
				in = append(in, sample{float64(bytes), stat.Median(sizes[bytes])})
			}
			c := &curve{points: smoothed(in), tile: 1, sum: true}
			end := c.points[len(c.points)-1]
			if n := len(c.points); n > 1 {
				c.rate = (end.t - c.points[n-2].t) / (end.x - c.points[n-2].x)
			}
			c.flat = end.t - c.rate*end.x
			out[tp][name] = c
		}
	}
	return out
}
