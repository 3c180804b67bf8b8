package mock

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Unlimited stands for no limit in [Options].
const Unlimited = 0

// TokenRule says how text is cut into tokens.
type TokenRule string

// The token rules: four characters each, or words with the white space before
// them.
const (
	FourCharacters TokenRule = "chars"
	Words          TokenRule = "words"
)

// RoleChunk says when a chat stream sends its chunk without text.
type RoleChunk string

// The moments of the role chunk: with the first token, as vLLM does, as soon as
// the request is there, or never.
const (
	RoleWithFirst RoleChunk = "first"
	RoleAtOnce    RoleChunk = "at-once"
	RoleNever     RoleChunk = "none"
)

// Options set a server up. The zero value answers at once, without limits, on a
// free port of this machine.
type Options struct {
	// Listen is the address of [Server.Start], default "127.0.0.1:0".
	Listen string
	// CertFile and KeyFile are PEM files; with both the server speaks TLS.
	CertFile, KeyFile string
	// APIKey is asked for below /v1 as a bearer token, if it is not empty.
	APIKey string
	// Model is the name of the only model, default "mock".
	Model string

	// Timer is the schedule, default Timing{}.
	Timer Timer
	// TokensPerChunk is the number of tokens in a chunk, default 1.
	TokensPerChunk int
	// EventsPerWrite is how many chunks are sent together, when the last of them
	// is due, default 1.
	EventsPerWrite int
	// Role is when a chat stream sends its role, default RoleWithFirst.
	Role RoleChunk
	// Rule cuts text prompts, default FourCharacters.
	Rule TokenRule
	// NaturalTokens is where answers end by themselves, unless ignore_eos or
	// min_tokens ask for more; Unlimited: all go on to max_tokens.
	NaturalTokens int
	// DefaultTokens is max_tokens where a request has none, as far as the model
	// is long enough, default 16.
	DefaultTokens int
	// MaxModelLen is the most tokens of prompt and answer, default 1 Mi.
	MaxModelLen int

	// MaxNumSeqs is the most requests that run at once, or Unlimited.
	MaxNumSeqs int
	// KVBlocks is the number of blocks of the KV cache, or Unlimited.
	KVBlocks int
	// BlockSize is the number of tokens in a block, default 16.
	BlockSize int
	// NoPrefixCache forgets prompts.
	NoPrefixCache bool

	// Simulation, if it is not nil, takes the place of Timer, MaxNumSeqs and
	// KVBlocks, and brings its own MaxModelLen, BlockSize and prefix cache.
	Simulation *Simulation

	// Faults strike requests that bring no faults of their own.
	Faults []Fault
	// Seed decides which requests a fault with a share strikes.
	Seed uint64
	// TruthEmissions is how many emissions /truth remembers, default 1 Mi.
	TruthEmissions int
}

const (
	mebi = 1 << 20
	// cacheBlocks is the most blocks that a prefix cache without limit keeps.
	cacheBlocks = 1 << 18
)

// withDefaults fills in what is open.
func (o Options) withDefaults() Options {
	fill := func(value *int, otherwise int) {
		if *value == 0 {
			*value = otherwise
		}
	}
	if o.Simulation != nil {
		o = o.simulated()
	}
	fill(&o.TokensPerChunk, 1)
	fill(&o.EventsPerWrite, 1)
	fill(&o.DefaultTokens, 16)
	fill(&o.MaxModelLen, mebi)
	fill(&o.BlockSize, 16)
	fill(&o.TruthEmissions, mebi)
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Model == "" {
		o.Model = "mock"
	}
	if o.Timer == nil {
		o.Timer = Timing{}
	}
	if o.Role == "" {
		o.Role = RoleWithFirst
	}
	if o.Rule == "" {
		o.Rule = FourCharacters
	}
	return o
}

// Validate reports every fault of the options together.
func (o Options) Validate() error {
	o = o.withDefaults()
	var faults []error
	for _, v := range []struct {
		name         string
		value, least int
	}{
		{"tokens per chunk", o.TokensPerChunk, 1},
		{"events per write", o.EventsPerWrite, 1},
		{"natural tokens", o.NaturalTokens, Unlimited},
		{"default tokens", o.DefaultTokens, 1},
		{"longest sequence", o.MaxModelLen, 2},
		{"running requests", o.MaxNumSeqs, Unlimited},
		{"KV blocks", o.KVBlocks, Unlimited},
		{"block size", o.BlockSize, 1},
		{"remembered emissions", o.TruthEmissions, 1},
	} {
		if v.value < v.least || v.value > 1<<30 {
			faults = append(faults, fmt.Errorf("%s: %d: want %d to %d", v.name, v.value, v.least, 1<<30))
		}
	}
	if t, ok := o.Timer.(Timing); ok {
		for _, d := range []time.Duration{t.First, t.PerPromptToken, t.Gap, t.PerRunning} {
			if d < 0 || d > time.Hour {
				faults = append(faults, fmt.Errorf("timing: %v: want 0 to 1 h", d))
			}
		}
	}
	switch o.Role {
	case RoleWithFirst, RoleAtOnce, RoleNever:
	default:
		faults = append(faults, fmt.Errorf("role chunk %q: want %s, %s or %s", o.Role, RoleWithFirst, RoleAtOnce, RoleNever))
	}
	if o.Rule != FourCharacters && o.Rule != Words {
		faults = append(faults, fmt.Errorf("token rule %q: want %s or %s", o.Rule, FourCharacters, Words))
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		faults = append(faults, errors.New("TLS wants a certificate and a key: one is missing"))
	}
	if strings.ContainsAny(o.Model, "\"\\\n\r") || !utf8.ValidString(o.Model) {
		faults = append(faults, fmt.Errorf("model name %q: want plain text", o.Model))
	}
	if o.Simulation != nil {
		faults = append(faults, o.checkSimulation())
	}
	for _, f := range o.Faults {
		faults = append(faults, f.validate())
	}
	return errors.Join(faults...)
}

// tokenText is what a token that is put out looks like: one token under each
// rule.
const tokenText = " tok"

// tokens cuts a text and returns an id for each token.
func (r TokenRule) tokens(text string) []int64 {
	if r == Words {
		words := strings.Fields(text)
		ids := make([]int64, len(words))
		for i, word := range words {
			ids[i] = textID(word)
		}
		return ids
	}
	ids := make([]int64, 0, len(text)/4+1)
	for text != "" {
		end := 0
		for range 4 {
			_, size := utf8.DecodeRuneInString(text[end:])
			end += size
		}
		ids = append(ids, textID(text[:end]))
		text = text[end:]
	}
	return ids
}

// textID is a number for a piece of text, by FNV-1a.
func textID(text string) int64 {
	hash := uint64(14695981039346656037)
	for i := range len(text) {
		hash = (hash ^ uint64(text[i])) * 1099511628211
	}
	return int64(hash >> 33) // ids of token ids lie in 31 bits
}
