package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// simulatedRun runs llmprof simulate and returns its document.
func simulatedRun(t *testing.T, args ...string) (document []byte) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), append([]string{"simulate", "--json"}, args...), strings.NewReader(""), &stdout, &stderr); err != nil {
		t.Fatalf("simulate %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return stdout.Bytes()
}

// table is a CSV file by column.
type table map[string][]string

func readTable(t *testing.T, name string) table {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	out := table{}
	for i, column := range rows[0] {
		for _, row := range rows[1:] {
			out[column] = append(out[column], row[i])
		}
	}
	return out
}

// numbers are the filled fields of a column.
func (c table) numbers(t *testing.T, column string) []float64 {
	t.Helper()
	if _, ok := c[column]; !ok {
		t.Fatalf("no column %q", column)
	}
	var out []float64
	for _, text := range c[column] {
		if text == "" {
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("%s: %v", column, err)
		}
		out = append(out, v)
	}
	return out
}

func (c table) sum(t *testing.T, column string) float64 {
	t.Helper()
	total := 0.0
	for _, v := range c.numbers(t, column) {
		total += v
	}
	return total
}

// last adds up the last values of the replicas.
func (c table) last(t *testing.T, column string) float64 {
	t.Helper()
	of := map[string]float64{}
	for i, v := range c.numbers(t, column) {
		of[c["replica"][i]] = v
	}
	total := 0.0
	for _, v := range of {
		total += v
	}
	return total
}

// TestSimulateFiles holds the files of a run against its document: every token
// and every request is in both, and the times of a request add up.
func TestSimulateFiles(t *testing.T) {
	emptyHome(t)
	const prompts = 120
	for _, c := range []struct {
		why  string
		args []string
	}{
		{"one replica", nil},
		{"blocks are short, so requests are preempted", []string{"--num-gpu-blocks", "100", "--max-model-len", "1024", "--request-rate", "80"}},
		{"some replicas, on threads", []string{"--replicas", "3", "--threads", "2"}},
		{"SGLang", []string{"--engine", "sglang"}},
		{"conversations, which find their history in the cache", []string{"--session-turns", "3", "--think-time", "100ms", "--num-prompts", "40"}},
	} {
		folder := t.TempDir()
		name := func(file string) string { return filepath.Join(folder, file) }
		args := append([]string{
			"Llama-3.1-8B", "--gpu", "h100", "--request-rate", "40", "--num-prompts", strconv.Itoa(prompts), "--input-len", "uniform:16:300", "--output-len", "uniform:1:200",
			"--requests-csv", name("requests.csv"), "--steps-csv", name("steps.csv"), "--chrome-trace", name("trace.json"),
		}, c.args...)
		var d struct {
			Workload struct {
				Requests int     `json:"requests"`
				Input    float64 `json:"input_tokens"`
				Output   float64 `json:"output_tokens"`
			} `json:"workload"`
			Whole struct {
				TTFT figure `json:"ttft_ms"`
				E2EL figure `json:"e2el_ms"`
			} `json:"whole"`
			Replicas []struct {
				Steps       int     `json:"steps"`
				Prefill     float64 `json:"prefill_tokens"`
				Decode      float64 `json:"decode_tokens"`
				Preemptions float64 `json:"preemptions"`
				Queries     float64 `json:"prefix_queries_tokens"`
				Hits        float64 `json:"prefix_hits_tokens"`
			} `json:"replicas"`
			Files []string `json:"files"`
		}
		if err := json.Unmarshal(simulatedRun(t, args...), &d); err != nil {
			t.Fatalf("%s: %v", c.why, err)
		}
		if len(d.Files) != 3 {
			t.Errorf("%s: files %v, want three", c.why, d.Files)
		}
		steps, tokens, preempted, queries, hits := 0, 0.0, 0.0, 0.0, 0.0
		for _, r := range d.Replicas {
			steps, tokens, preempted = steps+r.Steps, tokens+r.Prefill+r.Decode, preempted+r.Preemptions
			queries, hits = queries+r.Queries, hits+r.Hits
		}
		requests, perStep := readTable(t, name("requests.csv")), readTable(t, name("steps.csv"))
		for _, same := range []struct {
			what      string
			got, want float64
		}{
			{"requests", float64(len(requests["id"])), float64(d.Workload.Requests)},
			{"prompt tokens", requests.sum(t, "input_tokens"), d.Workload.Input},
			{"output tokens", requests.sum(t, "output_tokens"), d.Workload.Output},
			{"preemptions of requests", requests.sum(t, "preemptions"), preempted},
			{"steps", float64(len(perStep["replica"])), float64(steps)},
			{"tokens of steps", perStep.sum(t, "tokens"), tokens},
			{"tokens by kind", perStep.sum(t, "prefill_tokens") + perStep.sum(t, "decodes"), tokens},
			{"preemptions of steps", perStep.sum(t, "preempted"), preempted},
			{"tokens looked up until the last steps", perStep.last(t, "prefix_queries_tokens"), queries},
			{"tokens found until the last steps", perStep.last(t, "prefix_hits_tokens"), hits},
			{"mean TTFT", requests.sum(t, "ttft_ms") / d.Whole.TTFT.N, d.Whole.TTFT.Mean},
			{"mean E2EL", requests.sum(t, "e2el_ms") / d.Whole.E2EL.N, d.Whole.E2EL.Mean},
			{"queue and prefill are TTFT", requests.sum(t, "queue_ms") + requests.sum(t, "prefill_ms"), requests.sum(t, "ttft_ms")},
			{"TTFT and decode are E2EL", requests.sum(t, "ttft_ms") + requests.sum(t, "decode_ms"), requests.sum(t, "e2el_ms")},
		} {
			if math.Abs(same.got-same.want) > 1e-6*math.Max(1, math.Abs(same.want)) {
				t.Errorf("%s: %s: %v, want %v", c.why, same.what, same.got, same.want)
			}
		}
		checkTrace(t, c.why, name("trace.json"), d.Workload.Requests, steps)
		if strings.Contains(c.why, "preempted") != (preempted > 0) {
			t.Errorf("%s: %v preemptions", c.why, preempted)
		}
		if found := requests.sum(t, "hit_tokens"); strings.Contains(c.why, "history") != (found > 0 && hits > 0 && preempted == 0) {
			t.Errorf("%s: %v tokens found in the cache, of requests %v", c.why, hits, found)
		}
	}
}

// figure is a metric of a document.
type figure struct {
	N    float64 `json:"n"`
	Mean float64 `json:"mean"`
}

// checkTrace holds a trace to the Trace Event Format: every slice of a request
// that begins ends, and there is one slice for each step.
func checkTrace(t *testing.T, why, name string, requests, steps int) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var trace struct {
		Events []struct {
			Name, Ph, ID string
			TS, Dur      float64
		} `json:"traceEvents"`
	}
	if err := json.Unmarshal(text, &trace); err != nil {
		t.Fatalf("%s: %v", why, err)
	}
	slices, open, ids := 0, map[string]float64{}, map[string]bool{}
	for _, e := range trace.Events {
		key := e.Name + " " + e.ID
		switch e.Ph {
		case "X":
			slices++
		case "b":
			open[key], ids[e.ID] = e.TS, true
		case "e":
			if began, ok := open[key]; !ok || e.TS < began {
				t.Fatalf("%s: %s ends at %v µs, and began at %v", why, key, e.TS, began)
			}
			delete(open, key)
		}
	}
	if slices != steps || len(ids) != requests || len(open) != 0 {
		t.Errorf("%s: %d slices of steps, %d requests, %d open: want %d, %d and none", why, slices, len(ids), len(open), steps, requests)
	}
}

// TestSimulateThreads runs replicas that have nothing to do with each other on
// several threads: document and files have the same bytes.
func TestSimulateThreads(t *testing.T) {
	emptyHome(t)
	t.Chdir(t.TempDir())
	var first [][]byte
	for _, threads := range []string{"1", "2", "8"} {
		document := simulatedRun(t, "Llama-3.1-8B", "--gpu", "h100", "--request-rate", "80", "--num-prompts", "300", "--output-len", "uniform:1:64", "--replicas", "5",
			"--threads", threads, "--slo", "ttft:40", "--requests-csv", "requests.csv", "--steps-csv", "steps.csv", "--chrome-trace", "trace.json")
		got := [][]byte{document}
		for _, name := range []string{"requests.csv", "steps.csv", "trace.json"} {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, text)
		}
		if first == nil {
			first = got
		}
		for i := range got {
			if !bytes.Equal(got[i], first[i]) {
				t.Errorf("%s threads: file %d of %d has other bytes", threads, i, len(got))
			}
		}
	}
}
