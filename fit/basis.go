package fit

import "math"

// Variable is a physical size of a step, the only thing that a term of the
// fitted function depends on.
type Variable string

// The variables, with b the batch size, i the input length and c the context
// of a decoding sequence.
const (
	// VarLaunch is 1: what a step costs whatever it computes.
	VarLaunch Variable = "launch"
	// VarBatch is b, in sequences.
	VarBatch Variable = "batch"
	// VarTokens is b·i, the new tokens of a prefill.
	VarTokens Variable = "tokens"
	// VarAttention is b·i², in token pairs, the work of causal attention.
	VarAttention Variable = "attention"
	// VarContext is c in tokens: one sequence alone cannot fill the device.
	VarContext Variable = "context"
	// VarKV is b·c in tokens, the KV cache that a decode step reads.
	VarKV Variable = "kv"
)

// unitOf is the unit of a coefficient of the variable.
func unitOf(v Variable) string {
	if u := workUnit(v); u != "" {
		return u
	}
	switch v {
	case VarBatch:
		return "s/sequence"
	case VarTokens, VarContext, VarKV:
		return "s/token"
	case VarAttention:
		return "s/token^2"
	case VarLaunch:
	}
	return "s"
}

// variablesOf lists the variables of a mode.
func variablesOf(m Mode) []Variable {
	if m == Prefill {
		return []Variable{VarLaunch, VarBatch, VarTokens, VarAttention}
	}
	return []Variable{VarLaunch, VarBatch, VarContext, VarKV}
}

// value is the variable at batch size b and size x: the input length of a
// prefill, the context of a decode.
func (v Variable) value(b, x float64) float64 {
	switch v {
	case VarBatch:
		return b
	case VarTokens, VarKV:
		return b * x
	case VarAttention:
		return b * x * x
	case VarContext:
		return x
	case VarLaunch:
	}
	return 1
}

// Term is one summand of the fitted function: Coefficient times the part of
// the variable between From and To.
type Term struct {
	// Variable is what the term depends on.
	Variable Variable
	// From and To bound the stretch of the variable, in its own units (1,
	// sequences, tokens or token pairs), over which the term grows. To is
	// infinite for a term that keeps growing.
	From, To float64
	// Coefficient is in seconds per unit of the variable; negative only in a
	// form that is the plain regression.
	Coefficient float64
}

// Unit is the unit of the coefficient, such as "s/token".
func (t Term) Unit() string { return unitOf(t.Variable) }

// ramp is the term's value at v with a coefficient of one.
func (t Term) ramp(v float64) float64 {
	return min(max(v-t.From, 0), t.To-t.From)
}

// sum evaluates terms at batch size b and size x, in seconds.
func sum(terms []Term, b, x float64) float64 {
	var total float64
	for _, t := range terms {
		total += t.Coefficient * t.ramp(t.Variable.value(b, x))
	}
	return total
}

// basis lists the terms that samples can tell apart, with a coefficient of
// one. With knots, each variable is cut at powers inside its measured range,
// so the sum is a piecewise linear function of it that may bend where a kernel
// changes and is linear in between, as work is. Without, each variable but the
// context has one straight term.
//
// A variable that was measured at one value only has no term of its own. Nor
// has the context if a single batch size was measured: then it cannot be told
// from the KV cache, which is what grows with further sequences.
func basis(m Mode, samples []sample, knots bool) []Term {
	terms := []Term{{Variable: VarLaunch, To: 1, Coefficient: 1}}
	batches := 0.0
	for _, v := range variablesOf(m)[1:] {
		low, high := math.Inf(1), 0.0
		for _, s := range samples {
			x := v.value(s.b, s.x)
			low, high = min(low, x), max(high, x)
		}
		if v == VarBatch {
			batches = high - low
		}
		switch {
		case low == high, v == VarContext && (batches == 0 || !knots):
		case knots:
			terms = append(terms, ramps(v, low, high)...)
		default:
			terms = append(terms, Term{Variable: v, To: math.Inf(1), Coefficient: 1})
		}
	}
	return terms
}

// knotStep is the ratio of neighbouring knots. Attention has few: it matters
// over a few octaves only, and its last stretch carries predictions beyond
// the longest input.
func knotStep(v Variable) float64 {
	if v == VarAttention {
		return 16
	}
	return 2
}

// ramps cuts the range low..high of a variable at powers. The last stretch
// goes on for ever, except for the context: a long sequence fills the device
// in the end, and from there on only the KV cache counts.
func ramps(v Variable, low, high float64) []Term {
	last := math.Exp2(math.Ceil(math.Log2(high)) - 1)
	var terms []Term
	from := 0.0
	for to := math.Exp2(math.Floor(math.Log2(low)) + 1); to < last; to *= knotStep(v) {
		terms = append(terms, Term{Variable: v, From: from, To: to, Coefficient: 1})
		from = to
	}
	end := math.Inf(1)
	if v == VarContext {
		end = last
	}
	if end <= from {
		return terms
	}
	return append(terms, Term{Variable: v, From: from, To: end, Coefficient: 1})
}

// linearTerms writes the four-weight regression as terms. Their coefficients
// may be negative.
func linearTerms(m Mode, l Linear) []Term {
	straight := func(v Variable, c float64) Term {
		return Term{Variable: v, To: math.Inf(1), Coefficient: c}
	}
	launch := Term{Variable: VarLaunch, To: 1, Coefficient: l.Bias}
	w := l.Weights
	if m == Prefill {
		return []Term{launch, straight(VarBatch, w[3]), straight(VarTokens, w[0]+w[2]), straight(VarAttention, w[1])}
	}
	return []Term{launch, straight(VarBatch, w[0]+w[3]), straight(VarKV, w[1]+w[2])}
}
