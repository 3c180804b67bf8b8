package sim

import "errors"

// Iteration is what one iteration of an engine's loop did, where every iteration
// makes one batch and reads one result. Requests are ids of the scheduler.
type Iteration struct {
	// Requests are those of the batch in order, Tokens what is computed of each.
	Requests, Tokens []int32
	// Cached is, of the prefilled ones, which come first, the tokens that were
	// there already. The others decode one token each, on Context tokens in sum.
	Cached  []int32
	Context int64
	// Steady are decodes, with their share of Context, of requests that are counted
	// and not listed in Requests. Settled are requests that are listed from now on.
	Steady  int
	Settled []int32
	// Piece is the request whose prompt goes on in a later batch, or -1.
	Piece int32
	// Preempted went back to the queue in this iteration, Aborted were given up.
	Preempted, Aborted []int32
	// Queried are the tokens of admitted prompts that were looked up in the
	// prefix cache, Hit those that were found.
	Queried, Hit int
	// Waiting and Running are requests after planning, FreeBlocks those of the
	// pool that nobody holds then, and Evicted those that left the cache.
	Waiting, Running, FreeBlocks, Evicted int
	// Outputs are the tokens of the result that was read in the end; a Number of
	// 0 is one that was wasted. Finished are the requests that ended with them.
	Outputs  []Token
	Finished []int32
	// SteadyOutputs counts further tokens of the result, one of each request that
	// it counted. Joined are those of them whose token before was listed.
	SteadyOutputs int
	Joined        []int32
}

// LoopState is where an engine's loop stands between two iterations.
type LoopState struct {
	// Waiting and Running are requests, UsedBlocks those of the UsableBlocks of
	// the pool that requests hold.
	Waiting, Running, UsedBlocks, UsableBlocks int
	// WaitingTokens are those of the prompts of the waiting requests, BlockTokens
	// those of a block.
	WaitingTokens int64
	BlockTokens   int
	// First is the first request in the queue, or -1.
	First int32
	// Busy says that there is something to do.
	Busy bool
	// Patience is after how many iterations in a row that computed and read
	// nothing none will do more, if nobody comes or leaves.
	Patience int
	// Overlap says that an iteration reads the result of the batch before, while
	// its own is to run; else it reads that of its own.
	Overlap bool
}

// ErrUnservable is wrapped by the error for a request that the engine refuses at
// arrival.
var ErrUnservable = errors.New("the engine refuses the request")
