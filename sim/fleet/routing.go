package fleet

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Policy is how a router chooses among replicas. Of replicas that are equally
// good the one is taken that was sent the fewest requests so far, and of these
// the one of the lowest index.
type Policy uint8

const (
	// RoundRobin takes the replicas in turn.
	RoundRobin Policy = iota
	// Random draws a replica.
	Random
	// LeastRunning takes the replica with the fewest running requests, as the
	// engine counts them.
	LeastRunning
	// LeastRequests takes the replica with the fewest requests that the router
	// sent there and that have not ended.
	LeastRequests
	// LeastTokens takes the replica whose waiting requests have the fewest
	// prompt tokens.
	LeastTokens
	// LeastKV takes the replica that uses the smallest share of its KV blocks.
	LeastKV
	// PowerOfTwo draws two replicas and takes the one of them with fewer
	// requests, counted as LeastRequests does.
	PowerOfTwo
	// PrefixAffinity sends prompts that begin with the same tokens, as far as
	// their first shared span goes, to one replica, by rendezvous hashing; with
	// a bound on the load, to the next one in the order of that prefix where
	// the first has too much.
	PrefixAffinity
	// PrefixHit takes the replica whose prefix cache holds the most tokens of
	// the prompt; of several, the one with the fewest requests.
	PrefixHit
	// Weighted takes the replica with the highest weighted sum of scores.
	Weighted
	// Sticky takes the replicas in turn, but all turns of a session go where
	// its first one went.
	Sticky

	policies = iota
)

// String is the policy as [ParseRouting] reads it.
func (p Policy) String() string {
	names := [policies]string{
		"round-robin", "random", "least-running", "least-requests", "least-tokens", "least-kv",
		"power-of-two", "prefix-affinity", "prefix-hit", "weighted", "sticky",
	}
	if p < policies {
		return names[p]
	}
	return fmt.Sprintf("policy %d", uint8(p))
}

// Policies are all of them.
func Policies() []Policy {
	all := make([]Policy, policies)
	for i := range all {
		all[i] = Policy(i)
	}
	return all
}

// Weights are those of the scores of [Weighted]. Every score is 0 to 1, and 1
// is best. A count is scaled to the replicas that there are to choose from: 1
// for the smallest, 0 for the largest, 1 for all if they are equal.
type Weights struct {
	// Queue scores the waiting requests, Running the running ones, both as the
	// engine counts them; Requests those that the router has sent there and
	// that have not ended; Tokens the prompt tokens of the waiting ones.
	Queue, Running, Requests, Tokens float64
	// KV scores the free share of the KV blocks, Prefix the share of the prompt
	// that the prefix cache holds. Session is 1 for the replica of the
	// session's turn before.
	KV, Prefix, Session float64
}

// weight is one of the weights under its name.
type weight struct {
	name string
	of   *float64
}

// list names the weights, in the order of their scores.
func (w *Weights) list() []weight {
	return []weight{
		{"queue", &w.Queue},
		{"running", &w.Running},
		{"requests", &w.Requests},
		{"tokens", &w.Tokens},
		{"kv", &w.KV},
		{"prefix", &w.Prefix},
		{"session", &w.Session},
	}
}

// Routing says how requests find their replica. The zero value takes the
// replicas in turn.
type Routing struct {
	// Policy chooses.
	Policy Policy
	// Weights are those of [Weighted], and of no other policy.
	Weights Weights
	// SignalDelay is how old what the router knows of an engine is: its waiting
	// and running requests, its KV blocks and its prefix cache. The requests
	// that it has sent itself it knows at once.
	SignalDelay time.Duration
	// Bound is the load bound of [PrefixAffinity]: no replica gets a request
	// while it has Bound times the mean number of requests, this one included,
	// rounded up. It is 1 or more; 0 is no bound.
	Bound float64
	// Seed is that of what [Random] and [PowerOfTwo] draw; [Routing.Drawn] takes
	// 0 for none.
	Seed uint64
}

// String is the routing as [ParseRouting] reads it.
func (r Routing) String() string {
	var set []string
	for _, w := range r.Weights.list() {
		if *w.of != 0 {
			set = append(set, w.name+"="+strconv.FormatFloat(*w.of, 'g', -1, 64))
		}
	}
	if r.Bound != 0 {
		set = append(set, "bound="+strconv.FormatFloat(r.Bound, 'g', -1, 64))
	}
	if r.SignalDelay != 0 {
		set = append(set, "delay="+r.SignalDelay.String())
	}
	if r.Seed != 0 {
		set = append(set, "seed="+strconv.FormatUint(r.Seed, 10))
	}
	if len(set) == 0 {
		return r.Policy.String()
	}
	return r.Policy.String() + ":" + strings.Join(set, ",")
}

// RoutingError says that a text is no routing.
type RoutingError struct {
	// Text is what was to be read.
	Text string
	// Err says what is wrong.
	Err error
}

// Error names the text.
func (e *RoutingError) Error() string { return fmt.Sprintf("router %q: %v", e.Text, e.Err) }

// Unwrap is what is wrong.
func (e *RoutingError) Unwrap() error { return e.Err }

// Hint shows the forms.
func (e *RoutingError) Hint() string {
	return "a router is least-running, power-of-two:seed=3, prefix-affinity:bound=1.25 or weighted:queue=2,kv=1,prefix=3,delay=100ms"
}

// policyNames lists the policies.
func policyNames() string {
	var names []string
	for _, p := range Policies() {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// ParseRouting reads a routing: the name of a policy and its settings, such as
// "least-running", "power-of-two:seed=3", "prefix-affinity:bound=1.25" or
// "weighted:queue=2,kv=1,prefix=3,delay=100ms". Errors are of type
// [*RoutingError].
func ParseRouting(text string) (Routing, error) {
	r, err := parseRouting(strings.TrimSpace(text))
	if err == nil {
		err = r.Validate()
	}
	if err != nil {
		return Routing{}, &RoutingError{text, err}
	}
	return r, nil
}

func parseRouting(text string) (Routing, error) {
	name, settings, some := strings.Cut(text, ":")
	at := slices.IndexFunc(Policies(), func(p Policy) bool { return p.String() == name })
	if at < 0 {
		return Routing{}, fmt.Errorf("want one of %s", policyNames())
	}
	r := Routing{Policy: Policy(at)}
	if !some {
		return r, nil
	}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(settings, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || seen[key] {
			return r, fmt.Errorf("%q: want settings such as seed=3, each once", part)
		}
		seen[key] = true
		if err := r.set(key, value); err != nil {
			return r, fmt.Errorf("%s %q: %w", key, value, err)
		}
		if key == "seed" && r.Policy != Random && r.Policy != PowerOfTwo {
			return r, fmt.Errorf("%s draws nothing that a seed would change", r.Policy)
		}
	}
	return r, nil
}

// set reads one setting.
func (r *Routing) set(key, value string) error {
	var err error
	want := "a number"
	switch key {
	case "delay":
		want = "a time such as 100ms"
		r.SignalDelay, err = time.ParseDuration(value)
	case "seed":
		want = "a whole number from 0 to 18446744073709551615"
		r.Seed, err = strconv.ParseUint(value, 10, 64)
	case "bound":
		r.Bound, err = strconv.ParseFloat(value, 64)
	default:
		list := r.Weights.list()
		at := slices.IndexFunc(list, func(w weight) bool { return w.name == key })
		if at < 0 {
			return errors.New("is no setting: want delay, seed, bound or a weight (queue, running, requests, tokens, kv, prefix, session)")
		}
		*list[at].of, err = strconv.ParseFloat(value, 64)
	}
	if err != nil {
		return errors.New("want " + want)
	}
	return nil
}

// Drawn is the routing with a seed of its own made of that of a run, where it
// draws and has none; stream tells the routers of a run apart.
func (r Routing) Drawn(seed, stream uint64) Routing {
	if r.Seed == 0 && (r.Policy == Random || r.Policy == PowerOfTwo) {
		r.Seed = mix(seed ^ mix(streamRouting+stream))
	}
	return r
}

// Validate reports all faults. A setting that the policy does not look at is
// one.
func (r Routing) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if r.Policy >= policies {
		fault("%s: want one of %s", r.Policy, policyNames())
	}
	weighted := false
	for _, w := range r.Weights.list() {
		if !(*w.of >= 0 && *w.of <= math.MaxInt32) {
			fault("weight %s of %g: want 0 or more", w.name, *w.of)
		}
		weighted = weighted || *w.of != 0 // one below 0 is a fault already
	}
	switch {
	case r.Policy == Weighted && !weighted:
		fault("weighted: want a weight above 0")
	case r.Policy != Weighted && weighted:
		fault("%s has no weights", r.Policy)
	}
	if r.Bound != 0 && (r.Policy != PrefixAffinity || !(r.Bound >= 1 && r.Bound <= MaxReplicas)) {
		fault("bound %g: want 1 to %d, and prefix-affinity", r.Bound, MaxReplicas)
	}
	if r.SignalDelay < 0 || r.SignalDelay > time.Hour {
		fault("signals delayed by %v: want 0 to 1 h", r.SignalDelay)
	}
	if r.SignalDelay > 0 && !r.looks() {
		fault("%s looks at no signal that could be delayed", r.Policy)
	}
	return errors.Join(faults...)
}

// looks reports whether the router looks at signals of the engines.
func (r Routing) looks() bool {
	w := r.Weights
	return r.Policy == LeastRunning || r.Policy == LeastTokens || r.Policy == LeastKV || r.prefixed() ||
		w.Queue > 0 || w.Running > 0 || w.Tokens > 0 || w.KV > 0
}

// prefixed reports whether the router looks at the prefix caches.
func (r Routing) prefixed() bool { return r.Policy == PrefixHit || r.Weights.Prefix > 0 }

// stateless reports whether the choice does not depend on what became of
// requests before.
func (r Routing) stateless() bool {
	switch r.Policy {
	case RoundRobin, Random, Sticky:
		return true
	case PrefixAffinity:
		return r.Bound == 0
	}
	return false
}
