package fleet_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/fit/layers"
	"github.com/llmprof/llmprof/format/llmservingsim"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/sim/launch"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// runErrors are what a simulated run is off, in percent.
type runErrors struct {
	// TTFT, TPOT and E2EL are signed errors of the run's means.
	TTFT, TPOT, E2EL float64
	// TTFT99 is that of the 99th percentile.
	TTFT99 float64
	// The last three are means of the requests' absolute errors.
	OfTTFT, OfTPOT, OfE2EL float64
}

func (e runErrors) list() []float64 {
	return []float64{e.TTFT, e.TPOT, e.E2EL, e.TTFT99, e.OfTTFT, e.OfTPOT, e.OfE2EL}
}

func (e runErrors) String() string {
	return fmt.Sprintf("TTFT %+6.2f  TPOT %+6.2f  E2EL %+6.2f  TTFT p99 %+6.2f  requests %5.1f %5.2f %5.2f", e.TTFT, e.TPOT, e.E2EL, e.TTFT99, e.OfTTFT, e.OfTPOT, e.OfE2EL)
}

// errorNames name the errors, and bounds are what the issue allows of each.
func errorNames() []string {
	return []string{"TTFT", "TPOT", "E2EL", "TTFT p99", "TTFT by request", "TPOT by request", "E2EL by request"}
}

func bounds() []float64 { return []float64{5, 2, 2, 4, 11, 2.5, 2.5} }

// servedRun is a run of a real server, and what a simulation of it starts from.
// Nothing of it was fitted to the run: the step times are of single layers, the
// KV capacity is what the server logged or memory less weights, the link was
// measured by itself.
type servedRun struct {
	name, folder, bundle string
	model, device        string
	layers, tp           int
	link                 string // hardware.yaml, where ranks exchange
	preempts             bool   // requests were preempted in it
	// theirs is what LLMServingSim publishes.
	theirs runErrors
	// misses are the figures that are known to break their bounds.
	misses []string
}

func servedRuns() []servedRun {
	const bundles = "../../format/llmservingsim/testdata/"
	return []servedRun{
		{
			name: "RTX PRO 6000, Llama-3.1-8B", folder: "testdata/RTXPRO6000-Llama-3.1-8B", bundle: bundles + "RTXPRO6000",
			model: "Llama-3.1-8B", device: "rtx-pro-6000-server", layers: 32, tp: 1,
			theirs: runErrors{-4.0, -1.0, -1.8, -2.0, 10.8, 1.5, 1.9},
		},
		{
			name: "RTX PRO 6000 × 2, Qwen3-32B", folder: "testdata/RTXPRO6000-Qwen3-32B", bundle: "testdata/RTXPRO6000-Qwen3-32B/profile",
			model: "Qwen3-32B", device: "rtx-pro-6000-server", layers: 64, tp: 2, link: "testdata/hardware.yaml",
			theirs: runErrors{1.3, 0.8, 1.0, 0.9, 2.6, 0.8, 1.1},
		},
		{
			name: "RTX 4090, Llama-3.1-8B", folder: "testdata/RTX4090-Llama-3.1-8B", bundle: bundles + "RTX4090",
			model: "Llama-3.1-8B", device: "rtx-4090", layers: 32, tp: 1, preempts: true,
			theirs: runErrors{0.6, 0.2, 0.5, 0.3, 3.8, 1.6, 0.6},
			misses: []string{"TPOT", "E2EL", "TTFT p99", "TPOT by request", "E2EL by request"},
		},
	}
}

// replayed is a run made ready: its requests, its server and its step times.
type replayed struct {
	servedRun
	requests  []profile.Request
	config    sim.Config
	computed  int // num_gpu_blocks from the sizes of model and device
	estimator *cost.Estimator
	messages  layers.Messages
	timer     *layers.Timer // without what ranks exchange
}

// ready reads a run once for all tests.
func ready(t testing.TB, r servedRun) *replayed {
	t.Helper()
	made, _ := prepared.LoadOrStore(r.name, sync.OnceValues(func() (*replayed, error) { return r.read() }))
	out, err := made.(func() (*replayed, error))()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var prepared sync.Map

func (r servedRun) read() (*replayed, error) {
	run, _, err := llmservingsim.ReadRun(r.folder, os.DirFS(r.folder), llmservingsim.Options{})
	if err != nil {
		return nil, err
	}
	out := &replayed{servedRun: r}
	ask := launch.Ask{Config: run.Header.Deploy}
	for _, p := range run.Points {
		if p.Request != nil {
			out.requests = append(out.requests, *p.Request)
		}
		if m := p.Memory; m != nil {
			ask.Measured = &launch.Capacity{Blocks: m.Blocks, BlockSize: m.BlockSize, Origin: p.Origin}
		}
	}
	all, err := catalog.Builtin()
	if err != nil {
		return nil, err
	}
	if ask.Model, err = all.Model(r.model); err != nil {
		return nil, err
	}
	if ask.Device, _, err = all.Device(r.device); err != nil {
		return nil, err
	}
	replica, err := launch.VLLM(ask)
	if err != nil {
		return nil, err
	}
	out.config = replica.Config
	ask.Measured = nil
	if replica, err = launch.VLLM(ask); err != nil {
		return nil, err
	}
	out.computed = replica.Config.Blocks
	if out.estimator, err = cost.New(ask.Model, ask.Device, replica.Deploy, cost.Settings{}); err != nil {
		return nil, err
	}
	model := ask.Model
	out.messages = layers.Messages{Token: int64(2 * model.HiddenSize), Row: int64(2 * model.VocabSize / r.tp)}
	table, err := r.table(r.link)
	if err != nil {
		return nil, err
	}
	out.timer, err = table.Timer(r.layers, r.tp, false)
	return out, err
}

// table is the layer profile, with the times of a link if there is one.
func (r servedRun) table(link string) (*layers.Table, error) {
	p, _, err := llmservingsim.ReadFS(r.bundle, os.DirFS(r.bundle), llmservingsim.Options{})
	if err != nil {
		return nil, err
	}
	if link != "" {
		f, err := os.Open(link)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		measured, _, err := llmservingsim.ReadHardware(link, f, llmservingsim.Options{})
		if err != nil {
			return nil, err
		}
		p.Points = append(p.Points, measured.Points...)
	}
	return layers.New(slices.Values(p.Points), layers.Options{})
}

// linked is the timer with the exchange over a link.
func (r *replayed) linked(t testing.TB, link string) sim.StepTimer {
	t.Helper()
	if r.tp == 1 {
		return r.timer
	}
	table, err := r.table(link)
	if err != nil {
		t.Fatal(err)
	}
	e, err := table.Exchange(r.layers, r.tp, r.messages)
	if err != nil {
		t.Fatal(err)
	}
	return r.timer.With(e)
}

// replica is the server as it is simulated.
func (r *replayed) replica(t testing.TB) fleet.Replica {
	t.Helper()
	config := r.config
	return fleet.Replica{VLLM: &config, Timer: r.linked(t, r.link)}
}

// serve simulates the requests, which arrive when arrival says, and compares.
func (r *replayed) serve(t testing.TB, arrival func(profile.Request) float64, replica fleet.Replica) (runErrors, *fleet.Result) {
	t.Helper()
	s := &workload.Schedule{}
	for i, q := range r.requests {
		s.Requests = append(s.Requests, workload.Request{ID: i, At: unit.Seconds(arrival(q)), InputLen: q.InputLen, OutputLen: q.OutputLen, Seed: uint64(i) + 1})
	}
	load, err := fleet.NewLoad(s)
	if err != nil {
		t.Fatal(err)
	}
	result, err := fleet.Run(context.Background(), load, fleet.Config{Replicas: []fleet.Replica{replica}})
	if err != nil {
		t.Fatal(err)
	}
	return r.compare(result), result
}

// compare scores the times of a run from the moment at which the engine took a
// request in, as the published figures do.
func (r *replayed) compare(result *fleet.Result) runErrors {
	var truth, ours [3][]float64
	for i, q := range r.requests {
		rec := result.Records[i]
		truth[0], ours[0] = append(truth[0], q.First-q.Sent), append(ours[0], (rec.First-rec.Queued).Seconds())
		truth[2], ours[2] = append(truth[2], q.Last-q.Sent), append(ours[2], (rec.Last-rec.Queued).Seconds())
		if n := float64(q.OutputLen - 1); n > 0 {
			truth[1], ours[1] = append(truth[1], (q.Last-q.First)/n), append(ours[1], (rec.Last-rec.First).Seconds()/n)
		}
	}
	signed := func(got, want float64) float64 { return 100 * (got/want - 1) }
	mean := func(k int) float64 { return signed(stat.Mean(ours[k]), stat.Mean(truth[k])) }
	each := func(k int) float64 {
		sum := 0.0
		for i, want := range truth[k] {
			sum += math.Abs(signed(ours[k][i], want))
		}
		return sum / float64(len(truth[k]))
	}
	p99 := signed(quantile(ours[0], 0.99), quantile(truth[0], 0.99))
	return runErrors{mean(0), mean(1), mean(2), p99, each(0), each(1), each(2)}
}

// quantile interpolates between the two nearest values.
func quantile(values []float64, share float64) float64 {
	v := slices.Sorted(slices.Values(values))
	at := share * float64(len(v)-1)
	i := min(int(at), len(v)-2)
	return v[i] + (at-float64(i))*(v[i+1]-v[i])
}

func due(q profile.Request) float64 { return q.Scheduled }

// TestServedRuns simulates three runs of vLLM 0.19.0 with step times from
// profiles of single layers on the same cards, and holds the errors to the
// bounds, but for those that are listed as missed.
func TestServedRuns(t *testing.T) {
	for _, run := range servedRuns() {
		t.Run(run.name, func(t *testing.T) {
			r := ready(t, run)
			start := time.Now()
			got, result := r.serve(t, due, r.replica(t))
			took := time.Since(start)
			steps := result.Replicas[0]
			t.Logf("%d requests, %d steps, %d preemptions, %d usable blocks (%d computed), %v to simulate", len(r.requests), steps.Steps, steps.Preemptions, steps.UsableBlocks, r.computed-1, took.Round(time.Millisecond))
			t.Logf("error in %%:     %v", got)
			t.Logf("LLMServingSim:  %v", run.theirs)
			for i, e := range got.list() {
				name, bound := errorNames()[i], bounds()[i]
				switch miss := slices.Contains(run.misses, name); {
				case miss && math.Abs(e) < 0.9*bound: // near the bound, rounding decides
					t.Errorf("%s is off by %+.2f %% and keeps the bound of %g %%: take it from the list of misses", name, e, bound)
				case miss:
					t.Logf("FAILS: %s %+.2f %%, the bound is %g %%", name, e, bound)
				case math.Abs(e) > bound:
					t.Errorf("%s is off by %+.2f %%, want at most %g %%", name, e, bound)
				}
			}
		})
	}
}

// byDatasheet is what ranks exchange by the datasheet of the link.
func (r *replayed) byDatasheet() layers.Exchange {
	return layers.Exchange{
		Tokens: func(n int) unit.Seconds { t, _ := r.estimator.Exchange(n, 0); return t },
		Rows:   func(n int) unit.Seconds { _, t := r.estimator.Exchange(0, n); return t },
	}
}
