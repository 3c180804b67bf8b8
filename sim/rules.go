package sim

import (
	"fmt"
	"regexp"
	"strconv"
)

// NewestRelease is the newest vLLM release whose rules are known.
const NewestRelease = "0.33.0"

// OldestRelease is the oldest vLLM release whose rules are known.
const OldestRelease = "0.9.2"

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
	// earlier in the list and had no tokens in this step, as from 0.27.1; else
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
	if release == "" {
		release = NewestRelease
	}
	v, ok := parseRelease(release)
	oldest, _ := parseRelease(OldestRelease)
	newest, _ := parseRelease(NewestRelease)
	if !ok || v.before(oldest) || newest.before(version{v[0], v[1], 0}) {
		return Rules{}, &UnknownReleaseError{Release: release}
	}
	from := func(minor, patch int) bool { return !v.before(version{0, minor, patch}) }
	return Rules{
		SetLongAside:      !from(12, 0),
		ReturnReversed:    !from(14, 0),
		ScheduledTokens:   from(17, 0),
		FullSequenceGate:  from(19, 0),
		SplitFree:         from(24, 0),
		Watermark:         from(24, 0),
		ThresholdBounded:  from(27, 0),
		VictimMovesIndex:  from(27, 1),
		LoneUncut:         from(31, 0),
		SelfPreemptGoesOn: from(33, 0),
	}, nil
}

// UnknownReleaseError says that the rules of a release are not known.
type UnknownReleaseError struct {
	// Release is the text that was given.
	Release string
}

// Error names the release.
func (e *UnknownReleaseError) Error() string {
	return fmt.Sprintf("vLLM release %q: its scheduling rules are not known", e.Release)
}

// Hint says which releases are known.
func (e *UnknownReleaseError) Hint() string {
	return fmt.Sprintf("known are %s to %s; of a newer one, %s is the nearest", OldestRelease, NewestRelease, NewestRelease)
}

// version is a release as numbers: major, minor, patch.
type version [3]int

func (v version) before(w version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

// parseRelease reads 0.32, 0.32.0, v0.32.0 and what builds add to it, such as
// 0.32.0rc1, 0.32.0.post1 or 0.32.0+cpu.
func parseRelease(text string) (version, bool) {
	parts := regexp.MustCompile(`^v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4})(?:[.+a-z][.+a-z0-9]*)?)?$`).FindStringSubmatch(text)
	if parts == nil {
		return version{}, false
	}
	var v version
	for i, digits := range parts[1:] {
		v[i], _ = strconv.Atoi(digits) // no patch is patch 0
	}
	return v, true
}
