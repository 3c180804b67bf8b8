package sim

import "github.com/llmprof/llmprof/deploy"

// NewestRelease is the newest vLLM release whose rules are known.
const NewestRelease = deploy.NewestVLLM

// OldestRelease is the oldest vLLM release whose rules are known.
const OldestRelease = deploy.OldestVLLM

// Rules is what differs between the releases of vLLM's scheduler. [RulesOf]
// sets all of them as a release has them; each can also be set alone.
type Rules struct {
	// SetLongAside lets the next request try where prompts are not cut and the
	// head is longer than the budget; else it stops the pass, as from 0.12.
	SetLongAside bool
	// ReturnReversed puts requests that were set aside back in reversed order,
	// as before 0.14.
	ReturnReversed bool
	// ScheduledTokens is the setting max_num_scheduled_tokens, from 0.17.
	ScheduledTokens bool
	// FullSequenceGate is scheduler_reserve_full_isl, from 0.19: a request is
	// admitted only when blocks for all its tokens are free.
	FullSequenceGate bool
	// SplitFree puts freed blocks without an identity at the front of the free
	// list and cached ones at its end, as from 0.24; else all go to the end.
	SplitFree bool
	// Watermark is the setting watermark, from 0.24.
	Watermark bool
	// ThresholdBounded refuses a long_prefill_token_threshold above
	// max_model_len, as from 0.27.
	ThresholdBounded bool
	// VictimMovesIndex keeps the walk at its request when a victim stood
	// earlier in the list and had no tokens in this step, as from 0.28; else
	// the request after it is passed over.
	VictimMovesIndex bool
	// LoneUncut lifts the threshold of long prompts where at most one request
	// is present, as from 0.31.
	LoneUncut bool
	// SelfPreemptGoesOn lets the walk go on after a request that preempted
	// itself under the priority policy, as from 0.33; else the walk ends.
	SelfPreemptGoesOn bool
}

// RulesOf gives the rules of a vLLM release such as "0.32.0"; "" is the
// newest. A release that is not known is an [*UnknownReleaseError].
func RulesOf(release string) (Rules, error) {
	v, err := deploy.VLLMRelease(release)
	if err != nil {
		return Rules{}, err
	}
	from := v.From
	return Rules{
		SetLongAside:      !from(12, 0),
		ReturnReversed:    !from(14, 0),
		ScheduledTokens:   from(17, 0),
		FullSequenceGate:  from(19, 0),
		SplitFree:         from(24, 0),
		Watermark:         from(24, 0),
		ThresholdBounded:  from(27, 0),
		VictimMovesIndex:  from(28, 0),
		LoneUncut:         from(31, 0),
		SelfPreemptGoesOn: from(33, 0),
	}, nil
}

// UnknownReleaseError says that the rules of a release are not known.
type UnknownReleaseError = deploy.UnknownReleaseError
