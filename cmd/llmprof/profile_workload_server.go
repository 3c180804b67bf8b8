package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/vllm"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/load/metrics"
	"github.com/llmprof/llmprof/measure/serving"
)

// workloadServer is a server that cells are measured on.
type workloadServer struct {
	opts    serving.Options
	facts   engine.Facts
	session engine.Session // nil for one of others
	asked   deploy.Config
	on      *serving.Experiment
}

func (s *workloadServer) close() error {
	if s == nil {
		return nil
	}
	if s.on != nil {
		s.on.Close()
	}
	if s.session == nil {
		return nil
	}
	return s.session.Close()
}

// start starts a server for all cells of a block size, or looks at the one that
// runs.
func (w *workloadRun) start(ctx context.Context, size int) (*workloadServer, error) {
	f := w.f
	s := &workloadServer{opts: serving.Options{
		Warmup: f.warmup, Runs: f.runs, Steps: f.steps, Seed: uint64(f.seed), Timeout: f.taskTimeout,
		Source: w.sampling.Source, Keep: w.sampling.Keep, Every: f.every,
	}}
	s.opts.Progress = func(p serving.Progress) { w.meter.line(w.progress(p), false, time.Now()) }
	begin := w.launch
	if f.url != "" {
		begin = w.join
	}
	err := begin(ctx, s, size)
	if err == nil {
		s.on, err = serving.Open(ctx, s.opts)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// launch starts a server.
func (w *workloadRun) launch(ctx context.Context, s *workloadServer, size int) error {
	setup := w.f.ask(w.setup, size)
	s.asked = setup.Deploy
	w.app.log().Info(fmt.Sprintf("starting %s on %s", w.driver.Name(), w.where))
	session, err := w.driver.Start(ctx, w.where, setup)
	if err != nil {
		return err
	}
	s.session = session
	server, ok := session.(engine.Serving)
	if !ok {
		return fmt.Errorf("%s has no server that clients can ask", w.driver.Name())
	}
	s.facts = session.Facts()
	w.app.warn(s.facts.Warnings...)
	s.take(server.Endpoint(), server)
	s.opts.Target.TokenChunks = !setup.LoadWeights
	d := s.facts.Deploy
	s.opts.Seats, s.opts.Budget, s.opts.PrefixCaching = d.MaxNumSeqs, d.MaxNumBatchedTokens, d.PrefixCaching
	if setup.Device != "cpu" {
		s.opts.StepNote = "where scheduling is asynchronous, this is how long the engine waited for the step"
	}
	published, err := metricsOf(s.opts.Target)
	s.opts.Metrics = &published
	return err
}

// take fills in what an engine's session says.
func (s *workloadServer) take(e engine.Endpoint, log engine.Serving) {
	s.opts.Target = load.Target{URL: e.URL, Model: e.Model, Engine: load.VLLM, TokenLow: e.TokenLow, TokenHigh: e.TokenHigh, APIKey: os.Getenv("OPENAI_API_KEY")}
	s.opts.Log = log
	s.opts.BlockSize, s.opts.MaxModelLen, s.opts.KVTokens = s.facts.Deploy.BlockSize, s.facts.MaxModelLen, s.facts.MaxTokens
}

// join looks at a server that runs.
func (w *workloadRun) join(ctx context.Context, s *workloadServer, size int) error {
	f := w.f
	t := load.Target{URL: f.url, Model: f.model, TokenLow: f.low, TokenHigh: f.high, TokenChunks: f.tokenChunks}
	if err := f.reach(&t); err != nil {
		return err
	}
	about, err := load.About(ctx, t)
	if err != nil {
		return err
	}
	if t.Model == "" {
		t.Model = about.Model
	}
	w.model, t.Engine = t.Model, about.Engine
	about.MaxModelLen = cmp.Or(about.MaxModelLen, about.Settings.MaxModelLen)
	told := about.Settings
	told.Model, told.Engine, told.EngineVersion, told.MaxModelLen = t.Model, string(about.Engine), about.Version, about.MaxModelLen
	s.facts = engine.Facts{Engine: string(about.Engine), Version: about.Version, MaxTokens: about.KVTokens, Deploy: told}
	if f.serverLog != "" {
		if err := w.readLog(ctx, s, t); err != nil {
			return err
		}
	}
	s.opts.Target, s.opts.MaxModelLen = t, about.MaxModelLen
	// What a log that others began says may be of an earlier server.
	s.asked = deploy.Config{MaxNumSeqs: f.seats.values[0], MaxNumBatchedTokens: f.maxBatchedTokens.values[0]}
	s.opts.Seats, s.opts.Budget = cmp.Or(s.asked.MaxNumSeqs, about.Settings.MaxNumSeqs), s.asked.MaxNumBatchedTokens
	s.opts.PrefixCaching = about.Settings.PrefixCaching
	s.opts.BlockSize, s.opts.KVTokens = s.facts.Deploy.BlockSize, s.facts.MaxTokens
	if err := w.readMetrics(ctx, s, t); err != nil {
		return err
	}
	if s.opts.BlockSize == 0 {
		s.opts.BlockSize = size
	}
	if s.opts.BlockSize == 0 {
		return usage("--block-size says it", "the server at %s does not say how many tokens a KV block holds", f.url)
	}
	s.facts.Deploy.BlockSize = s.opts.BlockSize
	if t.Engine == load.OpenAI {
		w.app.warn("the server takes no token ids as far as it tells: prompts are words, and C and M × block size hold only about")
	}
	return nil
}

// readLog has a server's log followed, which others write.
func (w *workloadRun) readLog(ctx context.Context, s *workloadServer, t load.Target) error {
	f := w.f
	client, header, err := t.HTTP()
	if err != nil {
		return err
	}
	session, err := (&vllm.Server{
		URL: f.url, APIKey: t.APIKey, Header: header, Client: client, OpenLog: func(context.Context) (io.ReadCloser, error) { return follow(f.serverLog) },
	}).Start(ctx, w.where, engine.Setup{Model: f.model, Seed: f.seed, StartTimeout: f.startTimeout, TaskTimeout: f.taskTimeout})
	if err != nil {
		return err
	}
	s.session, s.facts = session, session.Facts()
	s.opts.Log, _ = session.(engine.Serving)
	return nil
}

// readMetrics takes what a server's metrics say of its KV cache, and has them read
// beside its steps; one without metrics is told of.
func (w *workloadRun) readMetrics(ctx context.Context, s *workloadServer, t load.Target) error {
	server, err := metricsOf(t)
	if err != nil {
		return err
	}
	watcher, err := metrics.Watch(ctx, server, time.Hour)
	if err != nil {
		w.app.warn("the server's own metrics are not read: " + err.Error())
		return nil
	}
	defer watcher.Stop()
	s.opts.Metrics = &server
	if c := watcher.Cache(); c != nil {
		s.opts.BlockSize, s.opts.KVTokens = cmp.Or(c.BlockSize, s.opts.BlockSize), cmp.Or(int(c.Tokens), s.opts.KVTokens)
	}
	return nil
}
