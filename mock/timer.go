package mock

import "time"

// Load is what a server has to do when the time of a token is asked for.
type Load struct {
	// Prompt, Cached and Output are tokens of the request: those to start from,
	// those of them that a cache had, and those put out so far.
	Prompt, Cached, Output int
	// Running is the number of requests that run, this one included.
	Running int
}

// Timer says how long a server takes. Its methods are called one at a time.
type Timer interface {
	// FirstToken is the time from the admission of a request to its first chunk.
	FirstToken(Load) time.Duration
	// NextToken is the time from one chunk of a request to the next.
	NextToken(Load) time.Duration
}

// Timing is the timer that depends on nothing but sizes.
type Timing struct {
	// First is the time to the first chunk, and PerPromptToken is added to it for
	// each token of the prompt that no cache has.
	First, PerPromptToken time.Duration
	// Gap is the time between two chunks, and PerRunning is added to it for each
	// other request that runs.
	Gap, PerRunning time.Duration
}

// FirstToken is the time from the admission of a request to its first chunk.
func (t Timing) FirstToken(l Load) time.Duration {
	return t.First + time.Duration(l.Prompt-l.Cached)*t.PerPromptToken
}

// NextToken is the time from one chunk of a request to the next.
func (t Timing) NextToken(l Load) time.Duration {
	return t.Gap + time.Duration(l.Running-1)*t.PerRunning
}

var _ Timer = Timing{}
