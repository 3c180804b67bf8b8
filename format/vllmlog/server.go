package vllmlog

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/profile"
)

// server is what one start of a server said.
type server struct {
	settings map[string]string // by the names of vLLM's arguments
	deploy   deploy.Config
	workers  []*worker
	engines  []*engine
	steps    int
	refused  map[string]bool
	banner   bool
	started  map[string]bool // processes that said their configuration
}

func newServer() *server {
	return &server{settings: map[string]string{}, refused: map[string]bool{}, started: map[string]bool{}}
}

// amount is a size with the place where the log tells it.
type amount struct {
	bytes int64
	// step is one unit of the last digit printed, in bytes; 0 if exact.
	step     int64
	line     int
	estimate bool
}

// worker is one rank, or the one process that writes.
type worker struct {
	by    process
	parts map[string]amount
}

// engine is one KV cache as its scheduler sees it.
type engine struct {
	by          process
	told        int64 // tokens
	blocks      int64
	maxLen      int64   // tokens
	concurrency float64 // requests of maxLen
	line        int
	blockSize   int // tokens, as a setting says
}

func (s *server) worker(by process) *worker {
	for _, w := range s.workers {
		if w.by == by {
			return w
		}
	}
	w := &worker{by: by, parts: map[string]amount{}}
	if len(s.workers) < 1<<14 {
		s.workers = append(s.workers, w)
	}
	return w
}

func (s *server) engine(by process) *engine {
	for _, e := range s.engines {
		if e.by == by {
			return e
		}
	}
	e := &engine{by: by}
	if len(s.engines) < 1<<14 {
		s.engines = append(s.engines, e)
	}
	return e
}

// figure keeps a size as it is printed, in GiB where it has no unit, unless a
// finer one is known. What is printed as GB or MB is GiB or MiB.
func (w *worker) figure(part, printed string, line int) {
	digits := strings.TrimRight(printed, "GMiB \t")
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil || part == "" || v <= 0 || v > 1<<24 {
		return
	}
	step := float64(1 << 30)
	if strings.Contains(printed, "M") {
		step = 1 << 20
	}
	size := v * step // bytes
	if _, decimals, ok := strings.Cut(digits, "."); ok {
		step /= math.Pow(10, float64(len(decimals)))
	}
	a := amount{bytes: int64(math.Round(size)), step: max(1, int64(math.Round(step))), line: line}
	if known, ok := w.parts[part]; ok && !known.estimate && known.step < a.step {
		return
	}
	w.parts[part] = a
}

// estimate keeps what the engine expects graphs to take, until it is known.
func (w *worker) estimate(printed string, line int) {
	if known, ok := w.parts[profile.MemoryGraphs]; ok && !known.estimate {
		return
	}
	delete(w.parts, profile.MemoryGraphs)
	w.figure(profile.MemoryGraphs, printed, line)
	if a, ok := w.parts[profile.MemoryGraphs]; ok {
		a.estimate = true
		w.parts[profile.MemoryGraphs] = a
	}
}

func (w *worker) exact(part string, bytes int64, line int) {
	w.parts[part] = amount{bytes: bytes, line: line}
}

// setTokens keeps the smallest of the sizes that an engine tells: older ones
// print one for each rank.
func (e *engine) setTokens(n int64, line int) {
	if n > 0 && (e.told == 0 || n < e.told) {
		e.told, e.line = n, line
	}
}

// blockTokens is the size of a block in tokens: as set, or the one whole
// number that agrees with blocks and concurrency; 0 where neither tells it.
func (e *engine) blockTokens() (size int, derived bool) {
	if e.blockSize > 0 {
		return e.blockSize, false
	}
	if e.blocks == 0 || e.maxLen == 0 {
		return 0, false
	}
	perBlock := float64(e.maxLen) / float64(e.blocks)
	const rounding = 0.005 // concurrency has two decimals
	low, high := math.Ceil((e.concurrency-rounding)*perBlock), math.Floor((e.concurrency+rounding)*perBlock)
	if low != high || low < 1 || low > 1<<20 {
		return 0, false
	}
	return int(low), true
}

// tokens is the capacity of the KV cache in tokens; 0 where it is not told.
func (e *engine) tokens() int64 {
	if e.told > 0 {
		return e.told
	}
	if size, _ := e.blockTokens(); size > 0 && e.blocks < math.MaxInt64/int64(size) {
		return e.blocks * int64(size)
	}
	return 0
}

// serverLine begins a server.
func (r *reader) serverLine(_ process, found []string) {
	if r.server.banner || len(r.server.engines) > 0 {
		r.endServer()
	}
	r.server.banner = true
	r.server.set("version", found[1]+found[2])
}

// engineLine reads the configuration of an engine; a second one of the same
// process begins another server.
func (r *reader) engineLine(by process, found []string) {
	if r.server.started[by.name] || !r.server.banner && len(r.server.engines) > 0 {
		r.endServer()
	}
	r.server.started[by.name] = true
	r.server.settings["version"] = found[1]
	pairs := pythonPairs(found[2])
	plain := map[string]any{}
	for key, value := range pairs {
		switch value.(type) {
		case bool, int64, float64, string:
			if text, ok := value.(string); ok && strings.ContainsAny(text, "([{<") {
				continue
			}
			plain[key] = value
		}
		r.server.set(key, value)
	}
	r.metadata("engine_config", plain)
}

// loading begins another server where a worker loads a model again.
func (r *reader) loading(by process) {
	if len(r.server.engines) == 0 {
		return
	}
	for _, w := range r.server.workers {
		if w.by == by && w.parts[profile.MemoryWeights].bytes > 0 {
			r.endServer()
			return
		}
	}
}

// argsLine reads the arguments of the command line.
func (r *reader) argsLine(_ process, found []string) {
	var args map[string]any
	if found[1] != "" {
		value, _, _ := pythonValue(found[1], 0)
		args, _ = value.(map[string]any)
	} else {
		args = pythonPairs(found[2])
	}
	if args == nil {
		return
	}
	for key, value := range args {
		if secret(key) {
			args[key] = "(removed)"
		}
		r.server.set(key, value)
	}
	r.metadata("args", args)
}

// secret reports whether an argument should not go into files.
func secret(key string) bool {
	return key == "api_key" || key == "hf_token" || strings.Contains(key, "password") || strings.Contains(key, "secret")
}

// endServer turns what a server said into points and starts the next.
func (r *reader) endServer() {
	s := r.server
	r.server = newServer()
	if len(s.settings)+len(s.workers)+len(s.engines)+s.steps+len(s.refused) == 0 {
		return
	}
	r.servers++
	r.configure(s)
	if size := s.deploy.BlockSize; size > 0 {
		for _, e := range s.engines {
			e.blockSize = size
		}
	}
	r.check(s)
	names := workerNames(s.workers)
	merged := map[*engine]bool{}
	for i, w := range s.workers {
		for _, part := range slices.Sorted(maps.Keys(w.parts)) {
			a := w.parts[part]
			m := &profile.Memory{Part: part, Bytes: a.bytes, Resolution: a.step, Worker: names[i]}
			p := profile.Point{Kind: profile.KindMemory, Memory: m, Origin: r.name + ": " + place(a.line)}
			if a.estimate {
				p.Extra = map[string]json.RawMessage{"estimate": json.RawMessage("true")}
			}
			if e := s.engineOf(w); part == profile.MemoryKVCache && e != nil {
				e.describe(&p)
				merged[e] = true
			}
			r.memory = append(r.memory, p)
		}
	}
	for _, e := range s.engines {
		if merged[e] || e.tokens() == 0 && e.blocks == 0 {
			continue
		}
		p := profile.Point{
			Kind: profile.KindMemory, Memory: &profile.Memory{Part: profile.MemoryKVCache},
			Origin: r.name + ": " + place(e.line),
		}
		if len(s.engines) > 1 || len(s.workers) > 1 {
			p.Memory.Worker = strings.TrimSpace(e.by.name)
		}
		e.describe(&p)
		r.memory = append(r.memory, p)
	}
}

// engineOf is the engine whose whole cache is in the worker; nil where several
// workers share one.
func (s *server) engineOf(w *worker) *engine {
	caches := 0
	for _, other := range s.workers {
		if other.parts[profile.MemoryKVCache].bytes > 0 {
			caches++
		}
	}
	for _, e := range s.engines {
		if e.by == w.by || len(s.engines) == 1 && caches == 1 {
			return e
		}
	}
	return nil
}

// describe writes the capacity of the engine's cache to a point.
func (e *engine) describe(p *profile.Point) {
	size, derived := e.blockTokens()
	p.Memory.Tokens, p.Memory.Blocks, p.Memory.BlockSize = e.tokens(), e.blocks, size
	if derived {
		if p.Extra == nil {
			p.Extra = map[string]json.RawMessage{}
		}
		p.Extra["block_size_from"] = jsonText(fmt.Sprintf("%d blocks and %.2f x %d tokens", e.blocks, e.concurrency, e.maxLen))
	}
}

// workerNames names the workers: not at all where there is one, with the
// process id where the name alone does not tell them apart.
func workerNames(workers []*worker) []string {
	names := make([]string, len(workers))
	if len(workers) < 2 {
		return names
	}
	times := map[string]int{}
	for _, w := range workers {
		times[w.by.name]++
	}
	for i, w := range workers {
		names[i] = w.by.name
		if times[w.by.name] > 1 && w.by.pid != "" {
			names[i] += " pid=" + w.by.pid
		}
	}
	return names
}
