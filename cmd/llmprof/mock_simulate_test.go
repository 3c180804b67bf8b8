package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/format/vllmlog"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/mock"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/workload"
)

// mockCommandAt runs llmprof mock until the test or end ends it, and returns
// its address and what it says at the end.
func mockCommandAt(t *testing.T, args ...string) (url string, end func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	var stderr bytes.Buffer
	done := make(chan error, 1)
	go func() {
		err := run(ctx, append([]string{"mock"}, args...), strings.NewReader(""), out, &stderr)
		_ = out.CloseWithError(io.EOF)
		done <- err
	}()
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		cancel()
		t.Fatalf("no address: %v; %v\n%s", err, <-done, &stderr)
	}
	ended := false
	end = func() string {
		if !ended {
			ended = true
			cancel()
			if err := <-done; err != nil {
				t.Errorf("mock: %v", err)
			}
		}
		return stderr.String()
	}
	t.Cleanup(func() { end() })
	return strings.TrimSpace(line), end
}

// TestMockSimulate benches a server that imitates the vLLM whose steps the
// predictor learnt, and puts the client's times beside those of the simulation
// of the same schedule. The differences are printed only: the client measures
// real times.
func TestMockSimulate(t *testing.T) {
	if testing.Short() {
		t.Skip("three seconds of load")
	}
	emptyHome(t)
	const predictorFile = "../../fit/testdata/predictor_v1.1.json"
	steps, out := filepath.Join(t.TempDir(), "steps.log"), filepath.Join(t.TempDir(), "run")
	url, end := mockCommandAt(t, "--simulate", "--predictor-file", predictorFile, "--vllm-version", "0.32.0", "--num-gpu-blocks", "257", "--block-size", "128",
		"--max-model-len", "4096", "--max-num-batched-tokens", "512", "--max-num-seqs", "16", "--no-async-scheduling", "--iteration-log", steps, "--token-rule", "words")
	_, err := benched(t, url, "--request-rate", "12", "--num-prompts", "36", "--random-input-len", "150", "--random-range-ratio", "0.5", "--random-output-len", "12",
		"--random-prefix-len", "256", "--seed", "3", "-o", out)
	if err != nil && exitCode(err) != codeNo { // a busy machine makes it INVALID
		t.Fatal(err)
	}
	truth := truthOf(t, url)
	said := end()
	want := simulatedSchedule(t, predictorFile, schedule(t, out))
	if !strings.Contains(said, "simulated: vLLM 0.32.0, 512 tokens a step, 16 requests at once") {
		t.Errorf("said:\n%s", said)
	}
	got := clientRecords(t, out)
	if len(got) != len(want) || len(truth) < len(want) { // bench warms up
		t.Fatalf("%d requests were measured, %d sent, %d simulated", len(got), len(truth), len(want))
	}
	var ttft, tpot [2][]time.Duration
	for i := range want {
		for k, r := range []interface {
			TTFT() (time.Duration, bool)
			TPOT() (time.Duration, bool)
		}{&got[i], &want[i]} {
			first, ok := r.TTFT()
			per, _ := r.TPOT()
			if !ok {
				t.Fatalf("request %d has no first token", i)
			}
			ttft[k], tpot[k] = append(ttft[k], first), append(tpot[k], per)
		}
	}
	for _, line := range []struct {
		name   string
		values [2][]time.Duration
	}{{"TTFT", ttft}, {"TPOT", tpot}} {
		m, s := line.values[0], line.values[1]
		t.Logf("%s measured and simulated: mean %v %v, p50 %v %v, p90 %v %v", line.name, mean(m), mean(s), at(m, 0.5), at(s, 0.5), at(m, 0.9), at(s, 0.9))
	}
	checkSteps(t, steps, truth)
}

// truthOf is what the server says that it sent.
func truthOf(t *testing.T, url string) []mock.Truth {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/truth", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var truth []mock.Truth
	if err := json.NewDecoder(response.Body).Decode(&truth); err != nil {
		t.Fatal(err)
	}
	return truth
}

// checkSteps reads the log of steps as that of a real server: every token that
// was sent was computed in one.
func checkSteps(t *testing.T, name string, truth []mock.Truth) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	p, warnings, err := vllmlog.Read(name, bytes.NewReader(text), vllmlog.Options{})
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, %v", err, warnings)
	}
	decoded, steps, sent := 0, 0, 0
	for _, point := range p.Points {
		if point.Kind == profile.KindStep {
			steps++
			decoded += point.Step.Totals.DecodeTokens
		}
	}
	for _, r := range truth {
		sent += len(r.Dues) - 1
	}
	if decoded != sent || steps == 0 {
		t.Errorf("%d tokens were decoded in %d steps, and %d sent after the first ones", decoded, steps, sent)
	}
}

// simulatedSchedule is what becomes of a schedule offline.
func simulatedSchedule(t *testing.T, predictorFile string, requests []workload.Request) []fleet.Record {
	t.Helper()
	file, err := os.Open(predictorFile)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	predictors, err := fit.ReadPredictors(file)
	if err != nil {
		t.Fatal(err)
	}
	predictor, _, err := predictors.Predictor(predictors.Configs()[0])
	if err != nil {
		t.Fatal(err)
	}
	between, before, ok := hostTimes(predictor)
	if !ok {
		t.Fatal("the predictor knows no host times")
	}
	rules, err := sim.RulesOf("0.32.0")
	if err != nil {
		t.Fatal(err)
	}
	made, err := fleet.NewLoad(&workload.Schedule{Requests: requests})
	if err != nil {
		t.Fatal(err)
	}
	result, err := fleet.Run(t.Context(), made, fleet.Config{Replicas: []fleet.Replica{{
		VLLM:  &sim.Config{Rules: rules, Blocks: 257, BlockSize: 128, MaxBatchedTokens: 512, MaxSeqs: 16, MaxModelLen: 4096},
		Timer: predictor, Between: between, Before: before,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return result.Records
}

// clientRecords are the requests of a run, in the order of its schedule.
func clientRecords(t *testing.T, folder string) []load.Record {
	t.Helper()
	file, err := os.Open(filepath.Join(folder, "requests.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_, records, err := load.ReadRecords("requests", file)
	if err != nil {
		t.Fatal(err)
	}
	var out []load.Record
	for r, err := range records {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b load.Record) int { return a.ID - b.ID })
	return out
}

func mean(all []time.Duration) time.Duration {
	sum := time.Duration(0)
	for _, d := range all {
		sum += d
	}
	return (sum / time.Duration(len(all))).Round(time.Microsecond)
}

// at is a quantile.
func at(all []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[int(q*float64(len(sorted)-1))].Round(time.Microsecond)
}

// TestMockSimulatesModel: several requests at once are answered at the speed of a
// model on a device, whose steps are padded to device graphs.
func TestMockSimulatesModel(t *testing.T) {
	url, _ := mockCommandAt(t, "--simulate", "Llama-3.1-8B", "--gpu", "h100-sxm-80gb", "--speed", "10")
	var group sync.WaitGroup
	for range 7 {
		group.Go(func() {
			body := strings.NewReader(`{"model":"Llama-3.1-8B","prompt":"one two three four five six","max_tokens":20,"ignore_eos":true}`)
			answer, err := http.Post(url+"/v1/completions", "application/json", body)
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode != http.StatusOK || !bytes.Contains(text, []byte(`"completion_tokens":20`)) {
				t.Errorf("status %d, %v: %s", answer.StatusCode, err, text)
			}
		})
	}
	group.Wait()
}

// TestMockInterrupted: Ctrl-C is how a server ends.
func TestMockInterrupted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted there from outside")
	}
	var stderr bytes.Buffer
	cmd := newBench(t).command("mock", "--gap", "0s", "--fault", "500:every=2")
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "http://") {
		t.Errorf("it says %q, %v", line, err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(stderr.String(), "0 requests") {
		t.Errorf("%v\n%s", err, &stderr)
	}
}
