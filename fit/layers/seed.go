package layers

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// RequestTime is the time of one request, alone on its device.
type RequestTime struct {
	// Prefill is the time of the prompt, which gives the first token.
	Prefill stat.Estimate[unit.Seconds]
	// TPOT is the mean time of every further token; nil for one token.
	TPOT *stat.Estimate[unit.Seconds]
	// EndToEnd is the time of the whole request.
	EndToEnd stat.Estimate[unit.Seconds]
}

// Layers that run once a step, by the names of all seed generations.
func once(name string) bool {
	switch name {
	case "embedding", "vocab_embedding", "position_embedding", "final_layernorm", "ln_f", "lm_head":
		return true
	}
	return false
}

func isHead(name string) bool { return name == "lm_head" }

// expertLayer reports whether a layer runs for every expert.
func expertLayer(name string) bool { return strings.HasPrefix(name, "expert.") }

// seedParts are the layers of a step of a seed table. Which layers a family
// must have is told by those that only it has.
func (t *Table) seedParts(numLayers int) ([]part, error) {
	rank := t.ranks[t.options.TensorParallel]
	if rank == nil {
		return nil, notMeasured("request", "the profile has "+t.measuredRanks())
	}
	need := []string{"embedding", "final_layernorm", "lm_head"}
	switch {
	case rank["expert.w1"] != nil:
		need = append(need, "input_layernorm", "q_proj", "k_proj", "v_proj", "rope", seedAttention, "o_proj", "post_layernorm", "gate", "expert.w2", "expert.w3", "act_fn")
	case rank["gate_proj"] != nil || rank["up_proj"] != nil:
		need = append(need, "input_layernorm", "q_proj", "k_proj", "v_proj", "rope", seedAttention, "o_proj", "post_layernorm", "gate_proj", "up_proj", "act_fn", "down_proj")
	case rank["fc1"] != nil || rank["fc2"] != nil:
		need = append(need, "q_proj", "k_proj", "v_proj", "qk_matmul", "softmax", "sv_matmul", "o_proj", "fc1", "act_fn", "fc2")
	case rank[seedAttention] != nil:
		// Another architecture that was measured whole: every layer counts.
		need = append(need, seedAttention)
	default:
		return nil, notMeasured("request", "the layers are of no known family: want those of Llama, OPT or Phi-MoE at batch size 1")
	}
	var missing []string
	for _, name := range need {
		if rank[name] == nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return nil, notMeasured("request", "the profile lacks "+strings.Join(missing, ", "))
	}
	moe := rank["expert.w1"] != nil
	if moe && t.options.Experts == 0 {
		return nil, notMeasured("request", "the times are of one expert, and the number of experts is not in the profile: set Options.Experts")
	}
	var parts []part
	for _, name := range sortedNames(rank) {
		times := float64(numLayers)
		switch {
		case once(name):
			times = 1
		case expertLayer(name), moe && name == "act_fn":
			times *= float64(t.options.Experts)
		}
		parts = append(parts, part{name, times})
	}
	return parts, nil
}

// maxTokens bounds the tokens of a request.
const maxTokens = 1 << 22

// Estimate is the time of one request that is alone on its device: a prompt of
// input tokens and output generated ones, on a model of numLayers blocks. Token
// j after the first is one step of one token on input+j cached ones. With a
// bundle of batches the steps are those of [Table.Iteration]; what follows is
// about seed tables.
//
// Measured points count as they are. Others are looked up, physically or, in
// compat, refused; compat counts lm_head twice in every step of a generated
// token, as the original does.
func (t *Table) Estimate(numLayers, input, output int, compat bool) (RequestTime, error) {
	if numLayers < 1 || numLayers > maxLayers || input < 1 || output < 1 || input > maxTokens || output > maxTokens {
		return RequestTime{}, fmt.Errorf("time of a request of %d and %d tokens on %d blocks: want at least 1 of each, at most %d tokens and %d blocks", input, output, numLayers, maxTokens, maxLayers)
	}
	if t.generation == V11 {
		return request(input, output, func(tokens, context int) (total, error) {
			var sum total
			pass := forward.Prefill(1, tokens, context)
			if context > 0 {
				pass = forward.Decode(1, context)
			}
			e, err := t.Iteration(pass, numLayers, t.options.TensorParallel, compat)
			if err != nil {
				return sum, err
			}
			sum.add(e, 1)
			return sum, nil
		})
	}
	parts, err := t.seedParts(numLayers)
	if err != nil {
		return RequestTime{}, fmt.Errorf("time of a request: %w", err)
	}
	if compat && t.generation == Seed {
		// What the original would not find, it skips; the last step tells.
		for _, p := range parts {
			if _, err := t.seedTime(p.name, 1, max(0, input+output-2), true); output > 1 && err != nil {
				return RequestTime{}, fmt.Errorf("time of a request: %w", err)
			}
		}
	}
	return request(input, output, func(tokens, context int) (total, error) {
		var sum total
		for _, p := range parts {
			e, err := t.seedTime(p.name, tokens, context, compat)
			if err != nil {
				return sum, fmt.Errorf("time of a request: %w", err)
			}
			times := p.times
			if compat && context > 0 && isHead(p.name) {
				times++
			}
			sum.add(e, times)
		}
		return sum, nil
	})
}

// request adds up the steps of a request: its prompt, then one token on a
// growing context.
func request(input, output int, step func(tokens, context int) (total, error)) (RequestTime, error) {
	prefill, err := step(input, 0)
	if err != nil {
		return RequestTime{}, err
	}
	out := RequestTime{Prefill: prefill.estimate()}
	if output == 1 {
		out.EndToEnd = out.Prefill
		return out, nil
	}
	var decode total
	for j := range output - 1 {
		one, err := step(1, input+j)
		if err != nil {
			return RequestTime{}, err
		}
		decode.add(one.estimate(), 1)
	}
	var mean, all total
	generated := decode.estimate()
	mean.add(generated, 1/float64(output-1))
	each := mean.estimate()
	out.TPOT = &each
	all.add(out.Prefill, 1)
	all.add(generated, 1)
	out.EndToEnd = all.estimate()
	return out, nil
}

// seedTime is a layer's time at a key of a seed table.
func (t *Table) seedTime(name string, tokens, context int, compat bool) (stat.Estimate[unit.Seconds], error) {
	l := t.ranks[t.options.TensorParallel][name]
	r := l.row(size{tokens: tokens, context: context})
	if r != nil && !compat {
		e := stat.Exactly(unit.Seconds(r.median), stat.Measured)
		e.Warnings = r.warnings
		return e, nil
	}
	return t.Time(profile.Layer{Name: name, Tokens: tokens, Context: context, TensorParallel: t.options.TensorParallel}, compat)
}

// Pair is a request of one size: what it took and what was estimated, several
// times each or once.
type Pair struct {
	// Measured and Estimated are times in seconds.
	Measured, Estimated []unit.Seconds
}

// ScalingFactor is the mean over the pairs of the mean measured over the mean
// estimated time.
func ScalingFactor(pairs []Pair) (float64, error) {
	if len(pairs) == 0 {
		return 0, errors.New("scaling factor: no pairs")
	}
	sum := 0.0
	for i, p := range pairs {
		measured, estimated := mean(p.Measured), mean(p.Estimated)
		if !(measured > 0) || !(estimated > 0) || math.IsInf(measured, 0) || math.IsInf(estimated, 0) {
			return 0, fmt.Errorf("scaling factor: pair %d: measured %v s, estimated %v s: want both above 0", i, measured, estimated)
		}
		sum += measured / estimated
	}
	return sum / float64(len(pairs)), nil
}

func mean(x []unit.Seconds) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v)
	}
	return sum / float64(max(1, len(x)))
}
