package main

import (
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// fleetFlags say how many replicas share a load, how requests find theirs, and
// what a device draws and costs.
type fleetFlags struct {
	replicas        int
	router          string
	threads         int
	prefill, decode int
	decodeRouter    string
	link            unit.Bytes
	linkLatency     time.Duration
	powerIdle       float64
	powerBusy       float64
	powerLimit      bool
	price           float64
	given           func(name string) bool
	routed          string // how requests are routed, once config was made
}

func (f *fleetFlags) register(a *app, cmd *cobra.Command) {
	flags := cmd.Flags()
	f.given = a.givenIn(cmd)
	flags.IntVar(&f.replicas, "replicas", 1, "equal replicas that share the load")
	flags.StringVar(&f.router, "router", "round-robin", "how a request finds its replica, e.g. least-running, or weighted:queue=2,kv=1,prefix=3,delay=100ms")
	flags.IntVar(&f.threads, "threads", 1, "processors for replicas that have nothing to do with each other; the result is the same")
	flags.IntVar(&f.prefill, "prefill-replicas", 0, "replicas that only compute prompts, whose KV --decode-replicas fetch")
	flags.IntVar(&f.decode, "decode-replicas", 0, "replicas that fetch the KV of prompts and generate")
	flags.StringVar(&f.decodeRouter, "decode-router", "round-robin", "how a request finds the replica that decodes it")
	flags.Var(bytesFlag{&f.link}, "kv-link", "KV that the link between two replicas moves in a second, e.g. 50GB")
	flags.DurationVar(&f.linkLatency, "kv-link-latency", 0, "latency of that link")
	flags.Float64Var(&f.powerBusy, "power-busy", 0, "watts of a device while a step runs")
	flags.Float64Var(&f.powerIdle, "power-idle", 0, "watts of a device otherwise")
	flags.BoolVar(&f.powerLimit, "power-limit", false, "take the device's power limit for what it always draws, an upper bound")
	flags.Float64Var(&f.price, "price", 0, "what an hour of a device costs, in any currency")
	var names []string
	for _, p := range fleet.Policies() {
		names = append(names, p.String())
	}
	completeWith(cmd, "router", names...)
	completeWith(cmd, "decode-router", names...)
	onlyOnCommandLine(flags, "replicas", "router", "threads", "prefill-replicas", "decode-replicas", "decode-router", "kv-link", "kv-link-latency",
		"power-busy", "power-idle", "power-limit", "price")
}

// check refuses flags that contradict each other or do nothing.
func (f *fleetFlags) check() error {
	apart := f.prefill > 0 || f.decode > 0
	for _, n := range []struct {
		flag  string
		value int
		least int
	}{{"replicas", f.replicas, 1}, {"threads", f.threads, 1}, {"prefill-replicas", f.prefill, 0}, {"decode-replicas", f.decode, 0}} {
		if n.value < n.least || n.value > fleet.MaxReplicas {
			return usage("", "--%s is %d: want %d to %d", n.flag, n.value, n.least, fleet.MaxReplicas)
		}
	}
	switch {
	case apart && (f.prefill == 0 || f.decode == 0):
		return usage("", "--prefill-replicas and --decode-replicas go together")
	case apart && f.given("replicas"):
		return usage("leave it out", "--replicas has no use beside --prefill-replicas and --decode-replicas")
	case apart && f.link == 0:
		return usage("for example --kv-link 50GB", "--prefill-replicas: how fast KV moves is not said")
	case !apart && (f.given("decode-router") || f.given("kv-link") || f.given("kv-link-latency")):
		return usage("", "--decode-router, --kv-link and --kv-link-latency go with --prefill-replicas and --decode-replicas")
	case !apart && f.replicas == 1 && f.given("router"):
		return usage("give --replicas", "--router has no use with one replica")
	case f.powerLimit && (f.given("power-busy") || f.given("power-idle")):
		return usage("give one of them", "--power-limit and --power-busy both say what a device draws")
	case f.given("power-idle") != f.given("power-busy"):
		return usage("give both, for example --power-busy 600 --power-idle 80", "--power-busy and --power-idle go together")
	case f.linkLatency < 0 || f.linkLatency > time.Hour:
		return usage("", "--kv-link-latency is %v: want 0 to 1 h", f.linkLatency)
	}
	return f.checkUsage()
}

// checkUsage refuses powers and prices that cannot be.
func (f *fleetFlags) checkUsage() error {
	for _, n := range []struct {
		flag  string
		value float64
	}{{"power-busy", f.powerBusy}, {"power-idle", f.powerIdle}, {"price", f.price}} {
		if !(n.value >= 0) || math.IsInf(n.value, 1) {
			return usage("", "--%s is %g: want 0 or more", n.flag, n.value)
		}
	}
	if f.powerIdle > f.powerBusy {
		return usage("", "--power-idle %g is above --power-busy %g", f.powerIdle, f.powerBusy)
	}
	return nil
}

// checkRanks refuses a data parallel deployment of which only some ranks would
// serve: each rank has a scheduler and is a replica.
func (f *fleetFlags) checkRanks(ranks int) error {
	for _, n := range []struct {
		flag  string
		value int
	}{{"replicas", f.replicas}, {"prefill-replicas", f.prefill}, {"decode-replicas", f.decode}} {
		if n.flag == "replicas" && f.prefill > 0 {
			continue
		}
		if n.value%ranks != 0 {
			return usage(fmt.Sprintf("for example --%s %d", n.flag, ranks), "--data-parallel-size is %d and --%s %d: each rank has a scheduler of its own and is simulated as a replica", ranks, n.flag, n.value)
		}
	}
	return nil
}

// config is the fleet of equal replicas. Routers that draw and name no seed
// draw by that of the load.
func (f *fleetFlags) config(served *simulated, seed uint64) (fleet.Config, error) {
	var c fleet.Config
	var err error
	if c.Router, err = fleet.ParseRouting(f.router); err != nil {
		return c, usage(hintOf(err), "--router: %w", err)
	}
	f.routed = c.Router.String()
	c.Router = c.Router.Drawn(seed, 0)
	replica := served.replica
	if err := f.usage(served, &replica); err != nil {
		return c, err
	}
	c.Threads = f.threads
	add := func(n int, role fleet.Role) {
		for range n {
			replica.Role = role
			c.Replicas = append(c.Replicas, replica)
		}
	}
	if f.prefill == 0 {
		add(f.replicas, fleet.Whole)
		return c, nil
	}
	add(f.prefill, fleet.Prefill)
	add(f.decode, fleet.Decode)
	if c.Decode, err = fleet.ParseRouting(f.decodeRouter); err != nil {
		return c, usage(hintOf(err), "--decode-router: %w", err)
	}
	f.routed = fmt.Sprintf("%d for prompts by %s, %d that decode by %s", f.prefill, f.routed, f.decode, c.Decode)
	c.Decode = c.Decode.Drawn(seed, 1)
	if served.perToken == 0 {
		return c, usage("give the model and --gpu", "--prefill-replicas: the KV of a token is not known without a model")
	}
	c.Transfer = fleet.Transfer{BytesPerToken: served.perToken, Bandwidth: unit.BytesPerSecond(f.link), Latency: f.linkLatency}
	return c, nil
}

// usage says what a replica draws and costs.
func (f *fleetFlags) usage(served *simulated, r *fleet.Replica) error {
	if !f.powerLimit && !f.given("power-busy") && !f.given("price") {
		return nil
	}
	r.Devices = served.devices
	switch {
	case f.powerLimit && served.device == nil:
		return usage("give --power-busy", "--power-limit wants a model and --gpu")
	case f.powerLimit:
		power, ok := fleet.PowerLimit(*served.device)
		if !ok {
			return usage("give --power-busy", "--power-limit: the catalog has no power limit of %s", served.device.Name)
		}
		r.Power = &power
	case f.given("power-busy"):
		r.Power = &fleet.Power{Idle: f.powerIdle, Busy: f.powerBusy, Basis: stat.Assumed}
	}
	if f.given("price") {
		r.Price = &f.price
	}
	return nil
}
