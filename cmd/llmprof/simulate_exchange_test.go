package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// TestSimulateExchange serves a trace with the step times of a layer profile on
// two ranks: what they exchange is measured where the profile holds it, else
// taken from the link's datasheet, and then said.
func TestSimulateExchange(t *testing.T) {
	emptyHome(t)
	const runs = "../../sim/fleet/testdata/"
	const bundle = runs + "RTXPRO6000-Qwen3-32B/profile"
	with := filepath.Join(t.TempDir(), "with.llmprof")
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), []string{"import", bundle, runs + "hardware.yaml", "-o", with}, strings.NewReader(""), &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	tpot := func(file string) (mean float64, said string) {
		var stdout, stderr bytes.Buffer
		err := run(t.Context(), []string{
			"simulate", "Qwen3-32B", "--gpu", "rtx-pro-6000-server", "--tp", "2", "--vllm-version", "0.19.0", "--max-num-seqs", "128", "--max-num-batched-tokens", "2048",
			"--profile", file, "--trace", runs + "RTXPRO6000-Qwen3-32B/requests.jsonl.gz", "--json",
		}, strings.NewReader(""), &stdout, &stderr)
		if err != nil {
			t.Fatalf("%v\n%s", err, &stderr)
		}
		var document struct {
			Whole struct {
				TPOT struct {
					Mean float64 `json:"mean"`
				} `json:"tpot_ms"`
			} `json:"whole"`
		}
		if err := json.Unmarshal(stdout.Bytes(), &document); err != nil {
			t.Fatal(err)
		}
		return document.Whole.TPOT.Mean, stdout.String() + stderr.String()
	}
	measured, silent := tpot(with)
	datasheet, warned := tpot(bundle)
	if !(datasheet > 0 && measured > 1.1*datasheet) {
		t.Errorf("TPOT %.2f ms with measured collectives and %.2f by the datasheet: want it longer, as it is on this link", measured, datasheet)
	}
	const warning = "taken from the datasheet of the link"
	if strings.Contains(silent, warning) || !strings.Contains(warned, warning) {
		t.Errorf("with measured collectives it said\n%s\nand without\n%s", silent, warned)
	}
}
