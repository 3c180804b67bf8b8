// Package fit turns measured steps into a predictor: how long does a prefill
// or a decode step of b sequences take, or one that mixes both?
//
// Points of a profile become rows ([Observations]), rows become a
// [Predictor] ([Train]), and a predictor answers queries and passes with an
// interval and a basis ([Predictor.Predict], [Predictor.StepTime]). Predictors
// live in files that the forward-time predictor reads as well ([File]), and
// are scored on rows that they have not seen ([CrossValidate], [HoldOut]) or on
// any file ([ScorePredictor]), where they tell how many rows they have seen.
//
// # Two models of homogeneous steps
//
// "linear" is the regression of the forward-time predictor, see [Linear]: four
// weights, least squares in seconds on the mean of the runs. It misses short
// steps by tens of percent, since they weigh nothing next to long ones and
// since a cold run spoils a mean. It is there to compare with and to export.
//
// "auto" is the default. It learns the median of the runs in relative error:
//
//	t(b, x) = (Σ coefficient · stretch of a physical variable) · exp(residual)
//
// with x the input length of a prefill, or the context of a decode. The
// variables are a constant (launching the step), the batch size, the tokens
// b·i and the attention pairs b·i² of a prefill, the context and the KV cache
// b·c of a decode. Each is cut at powers of two into stretches on which the
// function is straight ([Term]); non-negative least squares finds the slopes,
// and a penalty on bends carries them across gaps and beyond the data. What
// neighbouring measurements agree on beyond that is a smooth log-ratio that
// vanishes away from the data ([Residual]). Between a plain and a richer form
// of all this, and the regression itself, cross-validation inside the training
// rows decides, and near ties go to the form that continued best from the
// lower part of the data to the upper. The result is tabulated and made
// positive and non-decreasing in b and in x, as steps are.
//
// # What a prediction claims
//
// Intervals are split conformal: the half-width is an order statistic of the
// log errors on held-out rows, so in the measured range 80 % of new
// measurements fall into the default interval. Outside, the basis says
// extrapolated, and the half-width grows faster with every octave, at least as
// the error did from the lower part of the data to the upper. Such an interval
// is not calibrated: no data can promise that no other bound begins there. More
// than four octaves outside there is a warning instead of an interval. What was
// not measured is refused with a [NotMeasuredError]: a mode without rows, or,
// where no mixed steps were timed, a mixed step or prefill on a cached prefix.
//
// # Mixed steps
//
// A step that computes prompt chunks and generates, that works on cached
// prefixes, or that a server logged by its sums only ([forward.Totals]) is a
// mixed row. From them, and the homogeneous rows beside them, a third model is
// learnt, a sum of non-negative terms over what the step computes:
//
//	t = launch + host part of prompts + prompt tokens + generated tokens
//	    + requests + cached tokens + attention pairs of the chunks
//
// Cached tokens and pairs have terms where the rows tell them; tokens bend at
// powers of two where held-out rows, in stretches of time, show that it helps.
// Servers run on machines that are now faster and now slower, for seconds
// rather than for steps: what neighbouring steps share is taken for such a
// drift, unless their composition explains it, and only its mean belongs to
// the answer. So a predictor of one server log answers every query and pass
// ([Predictor.StepTime], [Predictor.StepTimeOf]), prefill and decode included
// where no grid was measured.
//
// Between its steps a server does other things. [HostGap] finds how long, from
// the log of a load and the times of its clients' requests; it is kept with
// the predictor ([Options], [Predictor.HostGap]) for those who simulate.
//
// # Medians and cold runs
//
// A run above 1.2 times the median of the other runs of its row is cold. The
// [Report] counts them; a median of three or more runs ignores one by itself,
// and of two runs a cold one is left out.
package fit
