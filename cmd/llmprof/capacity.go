package main

import (
	"bufio"
	"cmp"
	"errors"
	"io"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/format/prom"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/launch"
	"github.com/llmprof/llmprof/sim/sglang"
	"github.com/llmprof/llmprof/stat"
)

// kvCapacity is the KV capacity that a file tells: the log of a server, the
// text of its metrics, or a profile.
func (a *app) kvCapacity(cat *catalog.Catalog, name string) (profile.KVCapacity, error) {
	if name == "-" {
		return profile.KVCapacity{}, usage("", "--server-log wants a file, not stdin")
	}
	c, ok, err := a.metricsCapacity(name)
	if err != nil {
		return c, err
	}
	if !ok {
		p, _, err := a.readMeasurement(name, readOptions{cat: cat})
		if _, unknown := errors.AsType[*unknownKindError](err); unknown {
			return c, usage("a log from the start of a server tells its KV cache", "--server-log %s: neither a server's log nor its /metrics nor a profile", name)
		}
		if err != nil {
			return c, err
		}
		c, ok = p.KVCapacity()
	}
	if !ok {
		return c, usage("a log from the start of a server tells it, and so do its /metrics and its profile", "%s does not tell a KV capacity", name)
	}
	return c, nil
}

// metricsCapacity reads the text of a server's metrics; ok is false for every
// other file, and for metrics that do not tell it.
func (a *app) metricsCapacity(name string) (c profile.KVCapacity, ok bool, err error) {
	in, err := a.openInput(name)
	if err != nil {
		return c, false, err
	}
	defer func() { _ = in.Close() }() // read only
	const headSize = 64 << 10
	text := bufio.NewReaderSize(in, headSize)
	head, err := text.Peek(headSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return c, false, fileError("read", name, err)
	}
	if !prom.Detect(head) {
		return c, false, nil
	}
	scrape, warnings, err := prom.Read(name, text)
	if err != nil {
		return c, false, err
	}
	for _, w := range warnings {
		a.warn(w.Error())
	}
	if c, ok = scrape.KVCapacity(name); !ok {
		return c, false, usage("vLLM tells it in vllm:cache_config_info, SGLang in sglang:max_total_num_tokens", "the metrics of %s do not tell a KV capacity", name)
	}
	return c, true, nil
}

// launchVLLM launches a replica of vLLM by the flags. Usual is a usual request
// with its output in tokens, 0 for the longest.
func (f *replicaFlags) launchVLLM(a *app, cat *catalog.Catalog, model *catalog.Model, device *catalog.Device, costs cost.Settings, usual int) (launch.Replica, error) {
	ask := launch.Ask{Model: model, Device: device, Costs: costs, RequestLen: usual}
	var err error
	if ask.Config, err = f.config(); err != nil {
		return launch.Replica{}, err
	}
	if ask.Knobs, err = f.knobs(); err != nil {
		return launch.Replica{}, err
	}
	if ask.Usage, err = f.usageOf(); err != nil {
		return launch.Replica{}, err
	}
	if f.serverLog != "" {
		c, err := a.kvCapacity(cat, f.serverLog)
		if err != nil {
			return launch.Replica{}, err
		}
		ask.Measured = &launch.Capacity{Blocks: c.Blocks, Tokens: c.Tokens, BlockSize: c.BlockSize, Origin: c.Origin}
	}
	return launch.VLLM(ask)
}

// launchSGLang launches a replica of SGLang by the flags.
func (f *replicaFlags) launchSGLang(a *app, cat *catalog.Catalog, model *catalog.Model, device *catalog.Device, costs cost.Settings) (sglang.Replica, error) {
	ask := sglang.LaunchAsk{Model: model, Device: device, Costs: costs}
	var err error
	if ask.Config, err = f.config(); err != nil {
		return sglang.Replica{}, err
	}
	if ask.Knobs, err = f.knobs(); err != nil {
		return sglang.Replica{}, err
	}
	if f.serverLog != "" {
		c, err := a.kvCapacity(cat, f.serverLog)
		if err != nil {
			return sglang.Replica{}, err
		}
		if c.Tokens < 1 || c.Tokens > sglang.MaxCount {
			return sglang.Replica{}, usage("", "%s tells a capacity of %d tokens: want 1 to %d", f.serverLog, c.Tokens, sglang.MaxCount)
		}
		ask.PoolTokens, ask.PoolOrigin = int(c.Tokens), c.Origin
	}
	return sglang.Launch(ask)
}

// bareReplica is a replica of vLLM whose model is not known.
type bareReplica struct {
	config    sim.Config
	scheduler deploy.VLLM
	basis     stat.Basis // of the KV cache, and where its size comes from
	origin    string
}

// bareVLLM launches a replica of vLLM without a model: its requests are as long
// as the KV cache allows where nothing else is said.
func (f *replicaFlags) bareVLLM(a *app) (bareReplica, error) {
	r := bareReplica{basis: stat.Assumed, origin: "--num-gpu-blocks"}
	var ask deploy.VLLMAsk
	var err error
	if ask.Config, err = f.config(); err != nil {
		return r, err
	}
	if ask.Knobs, err = f.knobs(); err != nil {
		return r, err
	}
	if ask.Usage, err = f.usageOf(); err != nil {
		return r, err
	}
	var read profile.KVCapacity
	if f.serverLog != "" {
		cat, err := a.catalog()
		if err != nil {
			return r, err
		}
		if read, err = a.kvCapacity(cat, f.serverLog); err != nil {
			return r, err
		}
		if f.blocks.values[0] == 0 {
			r.basis, r.origin = stat.Measured, read.Origin
		}
	}
	size := cmp.Or(ask.Config.BlockSize, read.BlockSize, 16)
	blocks := int(min(cmp.Or(int64(f.blocks.values[0]), read.Blocks, read.Tokens/int64(size)), sim.MaxCount))
	ask.Config.BlockSize, ask.ModelLen = size, max(2, (blocks-1)*size)
	if r.scheduler, err = deploy.VLLMScheduler(ask); err != nil {
		return r, err
	}
	if r.config, err = launch.Config(r.scheduler, blocks, size); err != nil {
		return r, usage("", "%w", err)
	}
	return r, nil
}
