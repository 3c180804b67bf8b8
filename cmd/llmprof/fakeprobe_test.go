package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// fakeProbe speaks the probe protocol and answers with made-up times. What the
// variable FAKE_PROBE names goes wrong at the task of 2 × 64 tokens:
//
//	oom, exception   the task fails
//	crash, killed    the process ends
//	garbage          nonsense between the answers
//	broken           half an answer
//	hang             no answer
//	unstable         the first answer scatters
//
// FAKE_PROBE_PAUSE is the time that every task takes, FAKE_PROBE_STARTS a file
// that gets a line for each start, FAKE_PROBE_ENVIRONMENT one that gets the
// variables. FAKE_PROBE_SCRIPT says what goes wrong at
// other tasks, see [mishap].
func fakeProbe() {
	how := os.Getenv("FAKE_PROBE")
	pause, _ := time.ParseDuration(os.Getenv("FAKE_PROBE_PAUSE"))
	say := func(event map[string]any) {
		line, err := json.Marshal(event)
		if err != nil {
			os.Exit(3)
		}
		fmt.Printf("%s\n", line)
	}
	tries, load := 0, ""
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var r struct {
			Op        string
			ID        int
			BatchSize int `json:"batch_size"`
			InputLen  int `json:"input_len"`
			OutputLen int `json:"output_len"`
			Tokens    int
			Context   int
			Sequences int
			Runs      int
			Model     string
			BlockSize int `json:"block_size"`
		}
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			os.Exit(3)
		}
		switch r.Op {
		case "open":
			if how == "missing" {
				say(map[string]any{"event": "fatal", "reason": "engine-missing", "message": "No module named 'fake'"})
				os.Exit(1)
			}
			load = fmt.Sprintf("%s block %d", r.Model, r.BlockSize)
			count(os.Getenv("FAKE_PROBE_STARTS"), load+"\n")
			count(os.Getenv("FAKE_PROBE_ENVIRONMENT"), strings.Join(os.Environ(), "\n"))
			say(map[string]any{
				"event": "ready", "schema": "llmprof/probe", "version": 1, "engine": "fake", "engine_version": "1.0",
				"device": "Imaginary 9000", "device_count": 1, "driver": "580.1", "clock": "device", "timer": "counter", "timer_resolution_s": 1e-9,
				"max_model_len": 4096, "max_total_tokens": 8192, "dtype": "bf16", "libraries": map[string]string{"fakelib": "2"},
			})
		case "step":
			time.Sleep(pause)
			wrong := mishap(load, r.BatchSize, r.InputLen, r.OutputLen)
			if r.BatchSize == 2 && r.InputLen == 64 && wrong == "" {
				tries++
				wrong = how
			}
			switch wrong {
			case "oom":
				say(map[string]any{"event": "failed", "id": r.ID, "reason": "oom", "message": "out of memory"})
				continue
			case "refuse":
				say(map[string]any{"event": "failed", "id": r.ID, "reason": "skipped_due_to_limits"})
				continue
			case "exception":
				say(map[string]any{"event": "failed", "id": r.ID, "reason": "exception", "message": "tensor sizes differ"})
				continue
			case "crash":
				fmt.Fprintln(os.Stderr, "Segmentation fault")
				os.Exit(139)
			case "killed":
				os.Exit(137)
			case "garbage":
				fmt.Println("Loading checkpoint shards: 50%\n\x00\xff")
			case "broken":
				fmt.Println("{\"event\":")
			case "hang":
				time.Sleep(time.Hour)
			}
			prefill, decode := 1e-3+1e-5*float64(r.BatchSize*r.InputLen), 2e-3+1e-6*float64(r.BatchSize*r.InputLen)
			var prefills []float64
			var decodes [][]float64
			for run := range r.Runs {
				jitter := 1 + 0.001*noise(r.BatchSize, r.InputLen, run)
				if how == "unstable" && r.BatchSize == 2 && r.InputLen == 64 && tries == 1 {
					jitter += 0.5 * float64(run)
				}
				prefills = append(prefills, prefill*jitter)
				var steps []float64
				for range r.OutputLen - 1 {
					steps = append(steps, decode*jitter)
				}
				decodes = append(decodes, steps)
			}
			say(map[string]any{"event": "step", "id": r.ID, "prefill_s": prefills, "decode_s": decodes})
		case "layers":
			time.Sleep(pause)
			var list []map[string]any
			for i, name := range strings.Fields("embedding input_layernorm q_proj k_proj v_proj rope attn o_proj post_layernorm gate_proj up_proj act_fn down_proj final_layernorm lm_head") {
				seconds := 1e-5 * float64(i+1) * (1 + float64(r.Tokens)/256)
				if name == "attn" {
					seconds += 1e-9 * float64(r.Tokens) * float64(r.Tokens+r.Context)
				}
				var samples []float64
				for run := range r.Runs {
					samples = append(samples, seconds*(1+0.001*noise(r.Tokens, r.Context+i, run)))
				}
				list = append(list, map[string]any{"name": name, "per_sequence": name == "lm_head", "samples_s": samples})
			}
			say(map[string]any{"event": "layers", "id": r.ID, "layers": list})
		case "close":
			os.Exit(0)
		}
	}
}

// mishap is what FAKE_PROBE_SCRIPT says of a task: "oom:b8i512,crash:b4i256*2"
// runs out of memory at 8 × 512 tokens and crashes at the first two tries of
// 4 × 256; "o64" names the output, and what is not named may be anything. The
// first rule that fits counts. Tries are counted in the folder FAKE_PROBE_STATE,
// for each load by itself.
func mishap(load string, batch, input, output int) string {
	for rule := range strings.SplitSeq(os.Getenv("FAKE_PROBE_SCRIPT"), ",") {
		how, task, _ := strings.Cut(rule, ":")
		task, times, limited := strings.Cut(task, "*")
		fits := how != ""
		for _, part := range regexp.MustCompile(`[bio]\d+`).FindAllString(task, -1) {
			fits = fits && part[1:] == strconv.Itoa(map[byte]int{'b': batch, 'i': input, 'o': output}[part[0]])
		}
		if !fits {
			continue
		}
		most, _ := strconv.Atoi(times)
		name := fmt.Sprintf("%s %s %dx%dx%d", how, load, batch, input, output)
		if limited && count(filepath.Join(os.Getenv("FAKE_PROBE_STATE"), strings.ReplaceAll(name, "/", "-")), "x") > most {
			continue
		}
		return how
	}
	return ""
}

// count appends a text to a file and returns how often the file holds it now.
// Without a name it does nothing.
func count(name, text string) int {
	if name == "" {
		return 0
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		os.Exit(3)
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		os.Exit(3)
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		os.Exit(3)
	}
	return strings.Count(string(whole), text)
}

// noise is a number from 0 to 1 that depends on the sample alone.
func noise(parts ...int) float64 {
	h := fnv.New32a()
	for _, p := range parts {
		_, _ = h.Write([]byte(strconv.Itoa(p) + " "))
	}
	return float64(h.Sum32()) / (1 << 32)
}
