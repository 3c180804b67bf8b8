package serving

import (
	"errors"
	"fmt"

	"github.com/llmprof/llmprof/profile"
)

// Cell is a load to measure.
type Cell struct {
	// Type is [profile.Prefill], [profile.Decode] or [profile.Mixed].
	Type string
	// NewTokens (C) are computed for each request, CachedBlocks (M) are the
	// blocks of BlockSize tokens before them that are in the KV cache.
	NewTokens, CachedBlocks, BlockSize int
	// Requests (B) is the number of requests at once, in a mixed cell of either
	// side.
	Requests int
}

// Cached is the length of a request's cached prefix in tokens.
func (c Cell) Cached() int { return c.CachedBlocks * c.BlockSize }

// Context is the length of a prompt in tokens.
func (c Cell) Context() int { return c.Cached() + c.NewTokens }

// Seats is the number of requests that are open together.
func (c Cell) Seats() int {
	if c.Type == profile.Mixed {
		return 2 * c.Requests
	}
	return c.Requests
}

// String is such as "mixed, C 512, M 32, B 8, blocks of 16".
func (c Cell) String() string {
	return fmt.Sprintf("%s, C %d, M %d, B %d, blocks of %d", c.Type, c.NewTokens, c.CachedBlocks, c.Requests, c.BlockSize)
}

// Bounds of a cell.
const (
	maxRequests = 4096
	maxTokens   = 1 << 22
)

// Validate reports every fault of the cell.
func (c Cell) Validate() error {
	var faults []error
	if c.Type != profile.Prefill && c.Type != profile.Decode && c.Type != profile.Mixed {
		faults = append(faults, fmt.Errorf("type %q: want prefill, decode or mixed", c.Type))
	}
	if c.NewTokens < 1 || c.NewTokens > maxTokens {
		faults = append(faults, fmt.Errorf("new tokens (C) are %d: want 1 to %d", c.NewTokens, maxTokens))
	}
	if c.BlockSize < 1 || c.BlockSize > maxTokens {
		faults = append(faults, fmt.Errorf("the block size is %d: want 1 to %d tokens", c.BlockSize, maxTokens))
	} else if c.CachedBlocks < 0 || c.CachedBlocks > maxTokens/c.BlockSize {
		faults = append(faults, fmt.Errorf("cached blocks (M) are %d: want 0 to %d of %d tokens", c.CachedBlocks, maxTokens/c.BlockSize, c.BlockSize))
	}
	if c.Requests < 1 || c.Requests > maxRequests {
		faults = append(faults, fmt.Errorf("requests at once (B) are %d: want 1 to %d", c.Requests, maxRequests))
	}
	return errors.Join(faults...)
}

// fits says why a server of these limits cannot run the cell with so many
// tokens out; empty where it can, as far as the limits are known.
func (o *Options) fits(c Cell, output int) (reason, hint string) {
	switch {
	case o.BlockSize > 0 && o.BlockSize != c.BlockSize:
		return fmt.Sprintf("the server's blocks hold %d tokens, asked for were %d", o.BlockSize, c.BlockSize), fmt.Sprintf("--block-size %d, or a server that is started with --block-size %d", o.BlockSize, c.BlockSize)
	case o.MaxModelLen > 0 && c.Context()+output > o.MaxModelLen:
		return fmt.Sprintf("%d tokens of prompt and %d out are longer than the server's %d", c.Context(), output, o.MaxModelLen), "a larger --max-model-len, or a smaller C or M"
	case o.Seats > 0 && c.Seats() > o.Seats:
		return fmt.Sprintf("%d requests at once, and the server runs %d", c.Seats(), o.Seats), "a larger --max-num-seqs, or a smaller B"
	case o.KVTokens > 0 && c.Seats()*(c.Context()+output) > o.KVTokens:
		return fmt.Sprintf("%d requests of up to %d tokens do not fit into a KV cache of %d tokens", c.Seats(), c.Context()+output, o.KVTokens), "a smaller B, C or M, or more memory for the KV cache"
	case o.PrefixCaching != nil && !*o.PrefixCaching && c.CachedBlocks > 0:
		return "the server does not cache prefixes, so that no block of M can be there", "start it with --enable-prefix-caching, or measure M 0"
	}
	return "", ""
}
