package sglang

import (
	"fmt"
	"slices"
	"strings"
)

// NewestRelease is the newest SGLang release whose rules are known.
const NewestRelease = "0.5.23"

// Releases lists the releases whose rules are known, oldest first.
func Releases() []string { return []string{"0.4.1", "0.4.7", "0.5.5", "0.5.10", "0.5.16", "0.5.23"} }

// SeatGate says what a prefill pass does when no seat is free at its start.
type SeatGate uint8

const (
	// SeatsStopAll ends the pass, even for a request in pieces.
	SeatsStopAll SeatGate = iota
	// SeatsStopNew ends the pass unless a request in pieces waits for its next.
	SeatsStopNew
	// SeatsStopPieces ends the pass only when a request in pieces waits.
	SeatsStopPieces
)

// CutRule says how many tokens the request that is cut gets.
type CutRule uint8

const (
	// CutExact takes all that the chunk has left.
	CutExact CutRule = iota
	// CutLessPage takes what is left less a page and one token more.
	CutLessPage
	// CutPages takes the whole pages of what is left.
	CutPages
	// CutEnd takes whole pages and ends on the border of a page.
	CutEnd
)

// Rules is what differs between the releases of SGLang's scheduler. [RulesOf]
// sets all of them as a release has them; each can also be set alone.
type Rules struct {
	// Order of an iteration.

	// FinishedLeaveFirst drops finished requests from the running batch before
	// the prefill pass; else only the decode branch does.
	FinishedLeaveFirst bool
	// OneFlag keeps a single full flag in the scheduler; else it belongs to the
	// running batch and is lost when an empty batch is replaced.
	OneFlag bool
	// EmptyClearsFlag clears the full flag on an empty running batch.
	EmptyClearsFlag bool
	// Seats is what a pass does when no seat is free.
	Seats SeatGate
	// PieceHoldsSeat counts the request in pieces twice against the seats, unless
	// one that has ended is still counted with the running ones.
	PieceHoldsSeat bool
	// IdleNeedsEmptyQueue resets the ratio only when nothing waits either.
	IdleNeedsEmptyQueue bool
	// DecodeInterval is the setting prefill_decode_interval.
	DecodeInterval bool
	// SpentStops ends the pass before the first candidate when the budgets of
	// the batch are used up.
	SpentStops bool
	// MixedNeedsRoom leaves the decode rows out of a mixed batch when they lack
	// room; else the engine would stop.
	MixedNeedsRoom bool

	// Admission.

	// NeedCountsPage adds a page to what a request needs.
	NeedCountsPage bool
	// BatchCountsPage adds a page for every request admitted in the batch.
	BatchCountsPage bool
	// NeedLessOutputs takes outputs that exist off what a request needs.
	NeedLessOutputs bool
	// StrictWhenLocked compares strictly also after the hit prefix is locked.
	StrictWhenLocked bool
	// StrictInput wants a second request strictly below what is left of
	// max_prefill_tokens; else at most that.
	StrictInput bool
	// InputUnchunked tests max_prefill_tokens only with chunking off.
	InputUnchunked bool
	// Cut is the size of a cut request.
	Cut CutRule
	// ChargePages charges pieces by the page; else by the token.
	ChargePages bool
	// PieceByMemory bounds a further piece by the memory that is left.
	PieceByMemory bool
	// PieceAlways takes the chunk for a further piece when memory says none.
	PieceAlways bool
	// IgnoreEOSWhole counts all of max_new for running requests that ignore EOS.
	IgnoreEOSWhole bool
	// StepwiseByPage is the newer form of the test for requests that ignore EOS
	// without a prefix cache.
	StepwiseByPage bool
	// StepwiseExtraPage adds a page to what that test asks for.
	StepwiseExtraPage bool

	// Queue order.

	// Priorities is the setting enable_priority_scheduling.
	Priorities bool
	// RoutingKey is the policy routing-key.
	RoutingKey bool
	// ShortPolicies are the policies hrrn and shortest-prefill-first.
	ShortPolicies bool
	// MatchLessOne looks a waiting request up without its last token, and
	// keeps what it found until it is admitted.
	MatchLessOne bool
	// SortLessOne sorts by hits of at most all tokens but one.
	SortLessOne bool
	// RefreshWaiting looks up the first 128 waiting requests at every 32nd pass
	// of a policy that ignores the cache.
	RefreshWaiting bool
	// PreemptStops stops adding victims when there are enough.
	PreemptStops bool
	// PreemptByFill reckons the need of a preempting request from its last
	// lookup; else from the tokens it was last given.
	PreemptByFill bool
	// PreemptedReturn puts victims back when the request they made room for is
	// not admitted; else they are lost.
	PreemptedReturn bool

	// Decode.

	// RetractAhead retracts until 20 steps of all who stay are free.
	RetractAhead bool
	// RatioPlusOne adds 1 to the divisor of the ratio after a retraction.
	RatioPlusOne bool
	// AbortLast aborts a last request that does not fit; else the engine stops.
	AbortLast bool
	// RetractPriority is the setting retraction_policy.
	RetractPriority bool
	// PagesByLength counts the pages of the next step from the outputs read so
	// far, with OverlapLength one more under overlap.
	PagesByLength, OverlapLength bool

	// Overlap.

	// FreeWasted gives the slot of a wasted token back when its result is read;
	// else it goes to the tree with the rest.
	FreeWasted bool
	// RetractKeepsSlot leaves the slot in flight of a retracted request until
	// its result is read.
	RetractKeepsSlot bool
	// SkipFinishing leaves requests that end by length out of the next decode.
	SkipFinishing bool

	// Cache.

	// LazyTouch refreshes only nodes that matched as a whole.
	LazyTouch bool
	// EvictMissing evicts only what is missing; else the whole request.
	EvictMissing bool
	// SplitPrompt splits a leaf between prompt and outputs.
	SplitPrompt bool
}

// RulesOf gives the rules of an SGLang release such as "0.5.10"; "" is the
// newest. A release that was not read is an [*UnknownReleaseError].
func RulesOf(release string) (Rules, error) {
	if release == "" {
		release = NewestRelease
	}
	at := slices.Index(Releases(), release)
	if at < 0 {
		return Rules{}, &UnknownReleaseError{Release: release}
	}
	from := func(r string) bool { return at >= slices.Index(Releases(), r) }
	only := func(r string) bool { return release == r }
	return Rules{
		FinishedLeaveFirst: from("0.5.23"), OneFlag: only("0.4.1"), EmptyClearsFlag: from("0.5.23"),
		Seats: seatsOf(release), PieceHoldsSeat: only("0.5.16"),
		IdleNeedsEmptyQueue: from("0.5.16"), DecodeInterval: from("0.5.23"),
		SpentStops: from("0.5.23"), MixedNeedsRoom: from("0.5.23"),

		NeedCountsPage: from("0.5.16"), BatchCountsPage: from("0.5.10"),
		NeedLessOutputs: from("0.5.5"), StrictWhenLocked: from("0.5.5"),
		StrictInput: from("0.5.5"), InputUnchunked: from("0.5.16"),
		Cut: cutOf(release), ChargePages: from("0.5.5"),
		PieceByMemory: from("0.5.5"), PieceAlways: from("0.5.10"),
		IgnoreEOSWhole: from("0.5.23"), StepwiseByPage: from("0.5.5"), StepwiseExtraPage: from("0.5.23"),

		Priorities: from("0.5.5"), RoutingKey: from("0.5.10"), ShortPolicies: from("0.5.23"),
		MatchLessOne: !from("0.5.5"), SortLessOne: from("0.5.16"), RefreshWaiting: from("0.5.23"),
		PreemptStops: from("0.5.10"), PreemptByFill: from("0.5.16"), PreemptedReturn: from("0.5.23"),

		RetractAhead: !from("0.5.5"), RatioPlusOne: from("0.5.5"), AbortLast: from("0.5.10"),
		RetractPriority: from("0.5.16"), PagesByLength: !from("0.5.10"), OverlapLength: only("0.5.5"),

		FreeWasted: !from("0.5.10"), RetractKeepsSlot: only("0.5.5"), SkipFinishing: from("0.5.23"),

		LazyTouch: only("0.4.1"), EvictMissing: from("0.5.23"), SplitPrompt: from("0.5.23"),
	}, nil
}

func seatsOf(release string) SeatGate {
	switch release {
	case "0.4.1":
		return SeatsStopAll
	case "0.5.10":
		return SeatsStopPieces
	}
	return SeatsStopNew
}

func cutOf(release string) CutRule {
	switch release {
	case "0.4.1":
		return CutExact
	case "0.4.7":
		return CutLessPage
	case "0.5.5", "0.5.10":
		return CutPages
	}
	return CutEnd
}

// UnknownReleaseError is a release whose rules were not read.
type UnknownReleaseError struct{ Release string }

// Error names the release.
func (e *UnknownReleaseError) Error() string {
	return fmt.Sprintf("sglang release %q: its scheduler is not known", e.Release)
}

// Hint lists the releases that are known.
func (e *UnknownReleaseError) Hint() string {
	return "known: " + strings.Join(Releases(), ", ") + "; take the nearest older one"
}
