package llmservingsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strconv"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// RunKey is the key of the profile's metadata that holds the meta.json of a run
// as it stands.
const RunKey = "llmservingsim_run"

// The files of a run that are read.
const (
	requestsFile = "requests.jsonl"
	runMetaFile  = "meta.json"
)

// maxRunTokens bounds the tokens of a request, maxRunRanks a number of ranks.
const (
	maxRunTokens = 1 << 31
	maxRunRanks  = 1 << 14
)

// DetectRequests reports whether a file, plain or gzip, that begins with head
// holds the requests of a run.
func DetectRequests(head []byte) bool {
	keys, _ := format.TopKeys(format.Head(head))
	return keys["input_toks"] && keys["output_toks"] && keys["queued_ts"] && keys["first_token_ts"]
}

// IsRun reports whether a folder is that of a run: requests.jsonl is in it, or in
// its folder vllm.
func IsRun(fsys fs.FS) bool {
	_, ok := runFolder(fsys)
	return ok
}

func runFolder(fsys fs.FS) (string, bool) {
	for _, folder := range []string{".", "vllm"} {
		entries, err := fs.ReadDir(fsys, folder)
		if err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == requestsFile || e.Name() == requestsFile+".gz" }) {
			return folder, true
		}
	}
	return "", false
}

// ReadRun reads the folder of a run of LLMServingSim's bench: the requests, and
// from meta.json, where it is there, engine, deployment, device and KV cache.
// Times are in seconds from the first arrival on. A request was due when the
// client sent it and sent when the engine took it in, which is the moment from
// which the engine's own figures count; the two clocks are brought together by
// [format.OneClock].
func ReadRun(name string, fsys fs.FS, opts Options) (*profile.Profile, []error, error) {
	folder, ok := runFolder(fsys)
	if !ok {
		return nil, nil, &format.Error{File: name, Err: errors.New("no requests.jsonl: this is no run of LLMServingSim's bench")}
	}
	sub, err := fs.Sub(fsys, folder)
	if err != nil {
		return nil, nil, &format.Error{File: name, Err: err}
	}
	entries, err := fs.ReadDir(sub, ".")
	if err != nil {
		return nil, nil, &format.Error{File: name, Err: err}
	}
	r := &reader{name: name, fsys: sub, opts: opts, texts: map[string][]byte{}}
	for _, file := range []string{requestsFile, runMetaFile} {
		if err := r.load(".", entries, file, 0); err != nil {
			return nil, nil, err
		}
	}
	p, err := requests(name+"/"+requestsFile, r.texts[requestsFile], opts.Limits)
	if err != nil {
		return nil, nil, err
	}
	if text, ok := r.texts[runMetaFile]; ok {
		if err := runMeta(p, name+"/"+runMetaFile, text, opts); err != nil {
			return nil, nil, err
		}
	}
	p.Header.Source = name
	return p, r.warnings, nil
}

// ReadRequests reads a requests.jsonl alone, see [ReadRun].
func ReadRequests(name string, r io.Reader, limits format.Limits) (*profile.Profile, []error, error) {
	text, err := format.ReadText(name, r, limits)
	if err != nil {
		return nil, nil, err
	}
	p, err := requests(name, text, limits)
	return p, nil, err
}

// requests turns the rows of requests.jsonl into points.
func requests(name string, text []byte, limits format.Limits) (*profile.Profile, error) {
	rows, err := format.ParseJSON(name, text, limits)
	if err != nil {
		return nil, err
	}
	p := &profile.Profile{Header: profile.Header{Schema: profile.Schema, Version: profile.Version, Source: name}}
	p.Header.Deploy.Engine = "vllm"
	var arrivals, queued []float64
	for i, row := range rows {
		row = row.At("line " + strconv.Itoa(row.Line()))
		point, arrival, err := request(row, i)
		if err != nil {
			return nil, err
		}
		point.Origin = name + ": " + row.Path()
		p.Points = append(p.Points, point)
		arrivals, queued = append(arrivals, arrival), append(queued, point.Request.Sent)
	}
	if len(p.Points) == 0 {
		return nil, &format.Error{File: name, Err: errors.New("holds no requests")}
	}
	due := format.OneClock(arrivals, queued)
	zero := min(slices.Min(due), slices.Min(queued))
	for i := range p.Points {
		q := p.Points[i].Request
		q.Scheduled = min(due[i], q.Sent) - zero
		q.Sent, q.First, q.Last = q.Sent-zero, q.First-zero, q.Last-zero
		if err := p.Points[i].Validate(); err != nil {
			return nil, &format.Error{File: name, Place: p.Points[i].Origin[len(name)+2:], Err: err}
		}
	}
	return p, nil
}

// request reads a row; its times are on the engine's clock, arrival on the
// client's.
func request(row format.Node, index int) (p profile.Point, arrival float64, err error) {
	if row.Kind() != format.Object {
		return p, 0, row.Errorf("want an object for each request, got %s", row.Got())
	}
	q := &profile.Request{ID: strconv.Itoa(index)}
	if id := row.Get("request_id"); id.Present() {
		if q.ID, err = id.Text(); err != nil {
			return p, 0, err
		}
	}
	if q.InputLen, err = row.Get("input_toks").Int(0, maxRunTokens); err != nil {
		return p, 0, err
	}
	if q.OutputLen, err = row.Get("output_toks").Int(0, maxRunTokens); err != nil {
		return p, 0, err
	}
	for _, t := range []struct {
		key string
		to  *float64
	}{{"queued_ts", &q.Sent}, {"first_token_ts", &q.First}, {"last_token_ts", &q.Last}} {
		if *t.to, err = row.Get(t.key).Float(); err != nil {
			return p, 0, err
		}
	}
	arrival = q.Sent
	if node := row.Get("arrival_time"); node.Present() {
		if arrival, err = node.Float(); err != nil {
			return p, 0, err
		}
	}
	p = profile.Point{Kind: profile.KindRequest, Request: q, Clock: profile.ClockWall, Extra: map[string]json.RawMessage{}}
	for key, value := range row.Members() {
		switch key {
		case "request_id", "input_toks", "output_toks":
		default: // the times as they stand, on their own clocks
			if raw, ok := value.JSON(); ok {
				p.Extra[key] = raw
			}
		}
	}
	return p, arrival, nil
}

// runMeta reads meta.json into the header, and the KV cache into a point.
func runMeta(p *profile.Profile, name string, text []byte, opts Options) error {
	nodes, err := format.ParseJSON(name, text, opts.Limits)
	if err != nil {
		return err
	}
	if len(nodes) != 1 || nodes[0].Kind() != format.Object {
		return &format.Error{File: name, Err: errors.New("want one object")}
	}
	meta := nodes[0]
	var compact bytes.Buffer
	if raw, ok := meta.JSON(); ok && json.Compact(&compact, raw) == nil {
		p.Header.Metadata = map[string]json.RawMessage{RunKey: compact.Bytes()}
	}
	h := &p.Header
	engine := meta.Get("engine_kwargs")
	h.Deploy.Model = textOf(engine.Get("model"), textOf(meta.Get("model"), ""))
	h.Deploy.EngineVersion = textOf(meta.Get("vllm_version"), "")
	h.Created = textOf(meta.Get("started_at"), "")
	h.Device.Reported = textOf(meta.Get("hardware").Get("device_name"), "")
	findDevice(h, opts.Device, h.Device.Reported)
	cache := meta.Get("kv_cache")
	return errors.Join(deployed(&h.Deploy, engine, cache), kvPoint(p, cache))
}

// deployed reads the engine's arguments; what the engine made of them wins.
func deployed(c *deploy.Config, engine, cache format.Node) error {
	var faults []error
	number := func(n format.Node, to *int, most int) {
		if !n.Present() {
			return
		}
		v, err := n.Int(1, most)
		if err != nil {
			faults = append(faults, err)
			return
		}
		*to = v
	}
	number(engine.Get("tensor_parallel_size"), &c.TensorParallel, maxRunRanks)
	number(engine.Get("pipeline_parallel_size"), &c.PipelineParallel, maxRunRanks)
	number(engine.Get("data_parallel_size"), &c.DataParallel, maxRunRanks)
	number(engine.Get("max_num_seqs"), &c.MaxNumSeqs, maxRunTokens)
	number(engine.Get("max_num_batched_tokens"), &c.MaxNumBatchedTokens, maxRunTokens)
	number(engine.Get("max_model_len"), &c.MaxModelLen, maxRunTokens)
	number(engine.Get("block_size"), &c.BlockSize, maxRunTokens)
	number(cache.Get("block_size"), &c.BlockSize, maxRunTokens)
	for _, n := range []format.Node{engine.Get("gpu_memory_utilization"), cache.Get("gpu_memory_utilization")} {
		if share, err := n.Float(); n.Present() && err == nil && share > 0 && share <= 1 {
			c.GPUMemoryUtilization = share
		}
	}
	if t, err := catalog.ParseDType(textOf(engine.Get("dtype"), "")); err == nil {
		c.DType = t
	}
	if t, err := catalog.ParseDType(textOf(engine.Get("kv_cache_dtype"), "")); err == nil {
		c.KVCacheDType = t
	}
	return errors.Join(faults...)
}

// kvPoint keeps the capacity of the KV cache, where the run recorded it.
func kvPoint(p *profile.Profile, cache format.Node) error {
	m := &profile.Memory{Part: profile.MemoryKVCache}
	for key, to := range map[string]*int64{"num_gpu_blocks": &m.Blocks, "num_kv_tokens": &m.Tokens} {
		if n := cache.Get(key); n.Present() {
			v, err := n.Int(0, 1<<40)
			if err != nil {
				return err
			}
			*to = int64(v)
		}
	}
	if m.Blocks == 0 && m.Tokens == 0 {
		return nil
	}
	m.BlockSize = p.Header.Deploy.BlockSize
	p.Points = append(p.Points, profile.Point{Kind: profile.KindMemory, Memory: m, Origin: cache.Path()})
	return nil
}

// textOf is a string, or what is taken where there is none.
func textOf(n format.Node, otherwise string) string {
	if s, err := n.Text(); err == nil && s != "" {
		return s
	}
	return otherwise
}
