package vllmlog

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/profile"
)

// Refusal says why a server did not start.
type Refusal string

// The reasons.
const (
	// RefusedMemory: less memory is free than the server was told to take.
	RefusedMemory Refusal = "memory"
	// RefusedNoCache: weights and activations leave nothing for the KV cache.
	RefusedNoCache Refusal = "no-cache"
	// RefusedLength: the KV cache cannot hold one request of the longest
	// length.
	RefusedLength Refusal = "length"
	// RefusedBlockSize: the attention kernels have no such block size.
	RefusedBlockSize Refusal = "block-size"
	// RefusedOutOfMemory: memory ran out while starting or serving.
	RefusedOutOfMemory Refusal = "out-of-memory"
)

// RefusedError says that a server did not start, as its log tells it.
type RefusedError struct {
	// File is the name given to the reader, Line counts from 1.
	File string
	Line int
	// Reason is why.
	Reason Refusal
	// Detail says it in words, with the log's figures.
	Detail string
	// MaxModelLen is the longest request in tokens that would have fitted, as
	// the log estimates; 0 where it does not.
	MaxModelLen int
}

// Error names the place and what the log says.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s: line %d: the server did not start: %s", e.File, e.Line, e.Detail)
}

// Hint says what to change.
func (e *RefusedError) Hint() string {
	switch e.Reason {
	case RefusedMemory:
		return "free the device of other programs, or lower --gpu-memory-utilization"
	case RefusedNoCache, RefusedOutOfMemory:
		return "raise --gpu-memory-utilization if the device has room, lower --max-num-batched-tokens, or use more devices or smaller weights"
	case RefusedLength:
		if e.MaxModelLen > 0 {
			return fmt.Sprintf("start with --max-model-len %d or less, or with more memory for the KV cache", e.MaxModelLen)
		}
		return "lower --max-model-len, or give the KV cache more memory"
	case RefusedBlockSize:
		return "choose a --block-size that the message allows, or leave it out"
	}
	return ""
}

var (
	refusedMemory = regexp.MustCompile(`(Free memory on device|Available memory on node)\s*([^\s(]+)?\s*\(` + number + `/` + number + ` GiB\) on startup is less than desired \w+ memory utilization \(` + number + `, ` + gib + `\)`)
	refusedCache  = regexp.MustCompile(`No available memory for the cache blocks`)
	refusedLength = regexp.MustCompile(`max seq len \((\d+)\), \(?` + gib + ` KV cache is needed.*?available KV cache memory \(` + gib + `\)(?:.*?maximum model length is (\d+))?`)
	refusedTokens = regexp.MustCompile(`max seq len \((\d+)\) is larger than the maximum number of tokens that can be stored in KV cache \((\d+)\)`)
	refusedBlocks = regexp.MustCompile(`No common block size for (\d+)(?: \(((?:[^()]|\([^()]*\))*)\))?`)
	outOfMemory   = regexp.MustCompile(`(?:OutOfMemoryError|CUDA out of memory|HIP out of memory).*?Tried to allocate (\d[\d.]* [KMG]iB)`)
)

// refusalRules are the shapes of lines with which a start ends.
func refusalRules() []rule {
	return []rule{
		{"is less than desired", refusedMemory, (*reader).refuseMemory, true},
		{"No available memory for the cache blocks", refusedCache, func(r *reader, _ process, _ []string) {
			r.refuse(&RefusedError{Reason: RefusedNoCache, Detail: "nothing is left for the KV cache"})
		}, true},
		{"KV cache is needed", refusedLength, func(r *reader, _ process, f []string) {
			e := &RefusedError{Reason: RefusedLength, MaxModelLen: length(f[4])}
			e.Detail = fmt.Sprintf("one request of %s tokens needs %s GiB of KV cache and %s GiB are there", f[1], f[2], f[3])
			if e.MaxModelLen > 0 {
				e.Detail += fmt.Sprintf("; the estimated maximum model length is %d", e.MaxModelLen)
			}
			r.refuse(e)
		}, true},
		{"can be stored in KV cache", refusedTokens, func(r *reader, _ process, f []string) {
			r.refuse(&RefusedError{
				Reason: RefusedLength, MaxModelLen: length(f[2]),
				Detail: fmt.Sprintf("one request of %s tokens does not fit into a KV cache of %s tokens", f[1], f[2]),
			})
		}, true},
		{"No common block size for", refusedBlocks, func(r *reader, _ process, f []string) {
			e := &RefusedError{Reason: RefusedBlockSize, Detail: "no attention kernel has blocks of " + f[1] + " tokens (No common block size for " + f[1] + ")"}
			if f[2] != "" {
				e.Detail += ": it allows " + strings.ToValidUTF8(f[2], "�")
			}
			r.refuse(e)
		}, true},
		{"out of memory", outOfMemory, (*reader).refuseAllocation, false},
		{"OutOfMemoryError", outOfMemory, (*reader).refuseAllocation, false},
	}
}

func length(s string) int {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0
	}
	return int(n)
}

func (r *reader) refuseMemory(by process, f []string) {
	where := "the device"
	switch {
	case f[1] == "Available memory on node":
		where = "node " + f[2]
	case f[2] != "":
		where = "device " + f[2]
	}
	r.figure(by, profile.MemoryFree, f[3])
	r.figure(by, profile.MemoryTotal, f[4])
	r.server.set("gpu_memory_utilization", f[5])
	r.figure(by, profile.MemoryBudget, f[6])
	r.refuse(&RefusedError{
		Reason: RefusedMemory,
		Detail: fmt.Sprintf("it does not fit: of %s GiB of %s, %s GiB are free and %s GiB (%s of it) wanted", f[4], where, f[3], f[6], f[5]),
	})
}

func (r *reader) refuseAllocation(_ process, f []string) {
	if r.server.steps > 0 {
		return // it did start
	}
	r.refuse(&RefusedError{Reason: RefusedOutOfMemory, Detail: "memory ran out: it could not allocate " + f[1]})
}

// refuse records why a server did not start, once: every process repeats it,
// and tracebacks do.
func (r *reader) refuse(e *RefusedError) {
	if r.server.refused[e.Detail] {
		return
	}
	r.server.refused[e.Detail] = true
	e.File, e.Line = r.name, r.lines.number
	r.memory = append(r.memory, profile.Point{
		Kind: profile.KindFailure, Reason: e.Detail, Origin: r.name + ": " + place(e.Line),
		Extra: map[string]json.RawMessage{"refusal": jsonText(e.Reason)},
	})
	if len(r.warnings) < maxWarnings {
		r.warnings = append(r.warnings, e)
	}
}
