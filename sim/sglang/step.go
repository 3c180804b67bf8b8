package sglang

import (
	"errors"
	"fmt"
	"math/rand/v2"
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
	// Piece is the request that is prefilled in pieces, or -1.
	Piece int32
	// Full says that no waiting request is tried.
	Full bool
	// Ratio is new_token_ratio: the share of the outputs to come that is
	// reserved for running requests.
	Ratio float64
	// Free and Evictable are tokens of the pool before execution.
	Free, Evictable int

	// Outputs were read in this iteration, Finished ended with them.
	Outputs  []Output
	Finished []int32
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

	adder         adder
	order, byNode []int32
	weight        []int32
	branch        []int32
	groupPass     []int64
	groupShared   []int32
	passes        int64
	refreshes     int
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
		tree: newTree(int32(c.Page), c.Rules.LazyTouch), piece: none, lastPiece: none,
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
	return len(s.waiting) > 0 || len(s.running) > 0 || len(s.last) > 0 || len(s.flight) > 0 || s.piece != none
}

// ErrStopped is wrapped by errors of a state in which the engine would stop.
var ErrStopped = errors.New("the engine would stop here")

// stop ends the run.
func (s *Scheduler) stop(why string) error {
	s.stopped = fmt.Errorf("%s: %w", why, ErrStopped)
	return s.stopped
}

// Step is one iteration of the loop: it plans a batch and, without overlap,
// reads its result, with overlap that of the one before. The batch is valid
// until the next call. The error is that of an engine that stopped, and stays.
func (s *Scheduler) Step() (*Batch, error) {
	if s.stopped != nil {
		return nil, s.stopped
	}
	b := &s.batch
	*b = Batch{
		Requests: b.Requests[:0], Tokens: b.Tokens[:0], Cached: b.Cached[:0],
		Retracted: b.Retracted[:0], Aborted: b.Aborted[:0], Outputs: b.Outputs[:0], Finished: b.Finished[:0],
	}
	if err := s.plan(); err != nil {
		return nil, err
	}
	b.Running, b.Waiting = s.running, s.waiting
	b.Piece, b.Full, b.Ratio = s.piece, s.full, s.ratio
	b.Free, b.Evictable = s.free, s.tree.evictable
	s.execute()
	b.FreeAfter = s.free
	return b, nil
}

// plan makes the batch of an iteration: a prefill if there is one to make,
// else a decode.
func (s *Scheduler) plan() error {
	s.keepPiece()
	s.mergeLast()
	if s.config.Rules.FinishedLeaveFirst {
		s.dropEnded()
	}
	if s.interval > 0 {
		s.interval--
	} else if made, err := s.tryPrefill(); made || err != nil {
		s.interval = s.config.DecodeInterval
		return err
	}
	_, err := s.tryDecode()
	return err
}

// keepPiece gives the tree what was computed of the request in pieces.
func (s *Scheduler) keepPiece() {
	s.holdsPiece = s.piece != none
	rules, r := s.config.Rules, s.piece
	if r == none || rules.PieceOnlyInRow && !s.lastPrefill || rules.PieceOnce && s.q.kv[r] <= s.q.prefix[r] {
		return
	}
	s.checkpoint(r, s.q.kv[r])
}

// mergeLast moves the requests of the last prefill batch to the running ones,
// but those that ended or are in pieces.
func (s *Scheduler) mergeLast() {
	if !s.lastPrefill {
		return
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
}

// dropEnded takes requests that have ended off the running ones; seats that
// become free open the queue.
func (s *Scheduler) dropEnded() {
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
			s.read(b.Requests, b.fresh)
		} else {
			s.idle()
		}
	case s.lastMade || made:
		s.read(s.flight, s.flightFresh)
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
}

// idle is an iteration with nothing to run.
func (s *Scheduler) idle() {
	if s.config.Rules.IdleNeedsEmptyQueue && (len(s.waiting) > 0 || len(s.running) > 0 || s.piece != none) {
		return
	}
	s.ratio = s.start
}
