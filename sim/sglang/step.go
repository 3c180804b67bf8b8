package sglang

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/llmprof/llmprof/sim"
)

// Kind is what a batch does.
type Kind uint8

const (
	// None is an iteration without a batch.
	None Kind = iota
	// Prefill computes prompts.
	Prefill
	// Decode computes one token of every running request.
	Decode
	// Mixed is Prefill with decode rows behind it.
	Mixed
)

// String is the name in a scenario text.
func (k Kind) String() string {
	switch k {
	case None:
		return "none"
	case Prefill:
		return "prefill"
	case Decode:
		return "decode"
	case Mixed:
		return "mixed"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Batch is what one iteration decided and read. Requests are numbers of
// [Scheduler.Add]; sizes are in tokens.
type Batch struct {
	// Kind is what is computed.
	Kind Kind
	// Requests are those of the batch in order, Tokens what is computed of each.
	Requests, Tokens []int32
	// Cached is what was there already of the prefilled ones, which come first.
	Cached []int32
	// Retracted went back to the queue in this iteration, in order.
	Retracted []int32
	// Aborted were given up by the scheduler.
	Aborted []int32

	// Running are the requests that decode, without those of a prefill batch
	// of this iteration, and Waiting the queue: both after planning.
	Running, Waiting []int32
	// Open counts the requests that wait or run, those of the batch included.
	Open int
	// Context is what the decode rows of the batch have in the cache before it,
	// in tokens and in sum.
	Context int64
	// Piece is the request that is prefilled in pieces, or -1.
	Piece int32
	// Full says that no waiting request is tried.
	Full bool
	// Ratio is new_token_ratio: the share of the outputs to come that is
	// reserved for running requests.
	Ratio float64
	// Queried are the tokens of admitted requests that were looked up in the
	// cache, Hit those that were found, both without further pieces.
	Queried, Hit int
	// Free and Evictable are tokens of the pool before execution, Evicted those
	// that were evicted for it.
	Free, Evictable, Evicted int

	// Steady counts the decode rows that are not in Requests: see
	// [Config.Aggregate]. Settled are requests that no later batch counts.
	Steady  int
	Settled []int32

	// Outputs were read in this iteration, Finished ended with them. A Number of
	// 0 is a wasted token, of a request that had ended or gone back to the queue
	// before it was read.
	Outputs  []sim.Token
	Finished []int32
	// SteadyOutputs counts the outputs of counted rows, which are not in Outputs.
	// Joined are those of them that were not counted before: their output before
	// it was listed.
	SteadyOutputs int
	Joined        []int32
	// FreeAfter is Free after that.
	FreeAfter int

	fresh int
}

// Scheduler is the loop of one replica. It is not safe for concurrent use.
type Scheduler struct {
	config Config
	policy Policy
	page   int32
	size   int
	clipAt int

	q    requests
	tree *tree
	free int

	waiting, running []int32
	line             []int32 // the memory of waiting, empty: its first ones leave room that is used again
	open             int     // requests that wait or run
	queued           int64   // prompt tokens of those that wait
	piece            int32
	holdsPiece       bool // a piece was computed and the next is to come
	full             bool

	ratio, start, least, decay float64
	entries                    int64
	// prefilled is the engine's counter of prefilled tokens. It adds, with every
	// decode too, the tokens of the prefill batch that became the running one.
	prefilled           int64
	lastTokens, adopted int64
	interval            int

	batch       Batch
	last        []int32 // the batch before, if it prefilled
	lastPrefill bool
	lastPiece   int32
	lastMade    bool
	flight      []int32 // under overlap, the batch whose result is not read
	flightFresh int
	steady      steady

	adder         adder
	order, byNode []int32
	weight        []int32
	branch        []int32
	branchPass    []int64 // of each branch: the pass that last looked at it
	branchEnd     []int32 // of each branch: its tokens that were seen in that pass
	passes        int64
	refreshes     int
	limits        limits
	random        *rand.Rand
	stopped       error
}

// New makes a scheduler without requests.
func New(c Config) (*Scheduler, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("sglang scheduler: %w", err)
	}
	s := &Scheduler{
		config: c, policy: c.Policy, page: int32(c.Page), clipAt: c.Clip,
		steady: steady{most: mostPasses}, tree: newTree(int32(c.Page), c.Rules.LazyTouch), piece: none, lastPiece: none,
		random: rand.New(rand.NewPCG(c.Seed, 0)),
	}
	if s.clipAt == 0 {
		s.clipAt = DefaultClip
	}
	if c.NoPrefixCache && c.Policy.cacheAware() {
		s.policy = FCFS
	}
	s.size = c.Pool / c.Page * c.Page
	s.free = s.size
	s.start = min(startRatio*c.Conservativeness, 1)
	s.least = min(s.start*leastShare, 1)
	s.decay = (s.start - s.least) / decaySteps
	s.ratio = s.start
	return s, nil
}

// The ratio that SGLang starts with, the share of it that is its least, and
// the decode iterations from one to the other.
const (
	startRatio = 0.7
	leastShare = 0.14
	decaySteps = 600
)

// Pool is the usable size of the pool in tokens.
func (s *Scheduler) Pool() int { return s.size }

// Busy reports whether anything waits, runs or is in flight.
func (s *Scheduler) Busy() bool {
	return len(s.waiting) > 0 || len(s.running) > 0 || len(s.last) > 0 || len(s.flight) > 0 || s.steady.flies || s.piece != none
}

// ErrStopped is wrapped by errors of a state in which the engine would stop.
var ErrStopped = errors.New("the engine would stop here")

// stop ends the run.
func (s *Scheduler) stop(why string) error {
	s.stopped = fmt.Errorf("%s: %w", why, ErrStopped)
	return s.stopped
}

// Step is one iteration of the loop: [Scheduler.Plan] and [Scheduler.Read]. The
// batch is valid until the next call of Step or Cancel. The error is that of an
// engine that stopped, and stays.
func (s *Scheduler) Step() (*Batch, error) {
	b, err := s.Plan()
	if err != nil {
		return nil, err
	}
	s.Read()
	return b, nil
}

// Plan is the first half of an iteration: it makes a batch, and leaves what was
// read empty. Plan and Read take turns.
func (s *Scheduler) Plan() (*Batch, error) {
	if s.stopped != nil {
		return nil, s.stopped
	}
	b := &s.batch
	*b = Batch{
		Requests: b.Requests[:0], Tokens: b.Tokens[:0], Cached: b.Cached[:0],
		Retracted: b.Retracted[:0], Aborted: b.Aborted[:0], Outputs: b.Outputs[:0], Finished: b.Finished[:0],
		Settled: b.Settled[:0], Joined: b.Joined[:0],
	}
	evicted := s.tree.evicted
	if err := s.plan(); err != nil {
		return nil, err
	}
	b.Running, b.Waiting = s.running, s.waiting
	b.Open = s.open
	b.Piece, b.Full, b.Ratio = s.piece, s.full, s.ratio
	b.Free, b.Evictable, b.Evicted = s.free, s.tree.evictable, s.tree.evicted-evicted
	return b, nil
}

// Read is the second half: without overlap it reads the result of the batch that
// was planned, with overlap that of the one before, and writes it into the batch
// that Plan returned.
func (s *Scheduler) Read() {
	s.execute()
	s.batch.FreeAfter = s.free
}

// plan makes the batch of an iteration: a prefill if there is one to make,
// else a decode.
func (s *Scheduler) plan() error {
	s.keepPiece()
	s.joinSteady(s.mergeLast())
	if s.config.Rules.FinishedLeaveFirst {
		s.dropEnded()
	}
	if s.interval > 0 {
		s.interval--
		if len(s.waiting) > 0 || s.piece != none {
			s.limits.held++
		}
	} else if made, err := s.tryPrefill(); made || err != nil {
		s.interval = s.config.DecodeInterval
		return err
	}
	_, err := s.tryDecode()
	return err
}

// keepPiece gives the tree what was computed of the request in pieces, once.
// Releases before 0.5.16 do so again where the next piece is put off. Nothing
// comes of it: what that refreshes is locked until it is refreshed once more.
func (s *Scheduler) keepPiece() {
	s.holdsPiece = s.piece != none
	r := s.piece
	if r == none || s.q.kv[r] <= s.q.prefix[r] {
		return // there is none, or the tree has it
	}
	s.checkpoint(r, s.q.kv[r])
}

// mergeLast moves the requests of the last prefill batch to the running ones,
// but those that ended or are in pieces, and returns how many ran before.
func (s *Scheduler) mergeLast() int {
	before := len(s.running)
	if !s.lastPrefill {
		return before
	}
	rules := s.config.Rules
	kept := s.last[:0]
	for _, r := range s.last {
		all := rules.OneFlag && s.piece == none
		inPieces := r == s.piece || r == s.lastPiece && !rules.OneFlag
		if all || s.q.state[r] == runs && !inPieces {
			kept = append(kept, r)
		}
	}
	switch {
	case rules.OneFlag:
		s.full = s.full && s.piece == none
	case len(kept) < len(s.last), len(kept) > 0 && len(s.running) == 0:
		s.full = false
	}
	if len(kept) > 0 && len(s.running) == 0 {
		s.adopted = s.lastTokens
	}
	s.running = append(s.running, kept...)
	s.last = s.last[:0]
	return before
}

// dropEnded takes requests that have ended off the running ones; seats that
// become free open the queue.
func (s *Scheduler) dropEnded() {
	if s.steady.on {
		if s.dropSteadyEnded() {
			s.full = false
		}
		return
	}
	kept := s.running[:0]
	for _, r := range s.running {
		if s.q.state[r] == runs {
			kept = append(kept, r)
		}
	}
	if len(kept) < len(s.running) {
		s.full = false
	}
	s.running = kept
}

// execute reads the result that is due and remembers the batch.
func (s *Scheduler) execute() {
	b := &s.batch
	s.countTokens()
	made := b.Kind != None
	switch {
	case !s.config.Overlap:
		if made {
			s.readBatch(b.Requests, b.fresh, b.Steady)
		} else {
			s.idle()
		}
	case s.lastMade || made:
		s.readBatch(s.flight, s.flightFresh, s.steady.flown)
		s.launch()
	default:
		s.idle()
	}
	s.lastMade = made
	s.lastPrefill = b.Kind == Prefill || b.Kind == Mixed
	s.lastPiece = none
	s.last = s.last[:0]
	if s.lastPrefill {
		s.last = append(s.last, b.Requests...)
		s.lastPiece = s.piece
	}
}

// countTokens advances the counter of prefilled tokens.
func (s *Scheduler) countTokens() {
	switch s.batch.Kind {
	case Decode:
		s.prefilled += s.adopted
	case Prefill, Mixed:
		s.lastTokens = 0
		for _, n := range s.batch.Tokens {
			s.lastTokens += int64(n)
		}
		s.prefilled += s.lastTokens
	}
}

// launch remembers the batch as the one whose result is not read.
func (s *Scheduler) launch() {
	for _, r := range s.flight {
		s.q.flying[r] = false
	}
	s.flight = append(s.flight[:0], s.batch.Requests...)
	s.flightFresh = s.batch.fresh
	for _, r := range s.flight {
		s.q.flying[r] = true
	}
	s.steady.launch(s.batch.Steady)
}

// idle is an iteration with nothing to run.
func (s *Scheduler) idle() {
	if s.config.Rules.IdleNeedsEmptyQueue && (len(s.waiting) > 0 || len(s.running) > 0 || s.piece != none) {
		return
	}
	s.ratio = s.start
}
