package stepbench_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/stepbench"
)

var update = flag.Bool("update", false, "write testdata/broken anew")

// goodRow is a row without fault; the cases below break one thing of it.
const goodRow = `{"run_name": "r", "batch_size": 1, "input_len": 16, "output_len": 32, "prefill_latency": 0.011, "median_decode_latency": 0.0075, "num_runs": 1, "runs_data": [{"batch_size": 1, "input_len": 16, "output_len": 32, "prefill_latency": 0.011, "median_decode_latency": 0.0075}]}`

const goodMeta = `{"model_path": "Qwen/Qwen3-4B", "tp_size": 1, "pp_size": 1, "output_len": 32, "failed_configs": []}`

// goodFile is a file without fault.
const goodFile = `{"metadata": ` + goodMeta + `, "results": [` + goodRow + `, ` + goodRow + `]}` + "\n"

// with replaces a piece of the good file, in the last row where it stands in
// both.
func with(old, fresh string) string {
	at := strings.LastIndex(goodFile, old)
	if at < 0 {
		panic("no " + old)
	}
	return goodFile[:at] + fresh + goodFile[at+len(old):]
}

// row replaces a piece of the second row, outside its runs.
func row(old, fresh string) string {
	start := strings.LastIndex(goodFile, goodRow)
	at := start + strings.Index(goodFile[start:], old)
	return goodFile[:at] + fresh + goodFile[at+len(old):]
}

func zipped(text string) string {
	var b bytes.Buffer
	zw, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		panic(err)
	}
	if _, err := zw.Write([]byte(text)); err != nil {
		panic(err)
	}
	if err := zw.Close(); err != nil {
		panic(err)
	}
	return b.String()
}

type brokenFile struct {
	name, text string
	want       string // fragment of the error: place and fault
}

func brokenFiles() []brokenFile {
	gz := zipped(goodFile)
	nested := strings.Repeat("[", 5000)
	return append(brokenRows(), []brokenFile{
		// What is no text at all.
		{"empty.json", "", "the file is empty"},
		{"empty.json.gz", zipped(""), "the file is empty"},
		{"blanks.json", " \n\t\r\n", "nothing but blanks"},
		{"bom-only.json", "\ufeff", "nothing but blanks"},
		{"utf16.json", "\xff\xfe{\x00}\x00", "UTF-16 text"},
		{"binary.json", "\x00\x01\x02\x03\x7f\x10", `line 1, column 1: '\x00' begins no value`},
		{"invalid-utf8.json", with("Qwen/Qwen3-4B", "Qwen\xff"), "line 1, column 34: byte 0xff is not UTF-8"},
		{"zip-archive.json", "PK\x03\x04\x14\x00\x00\x00\x08\x00", "a zip archive"},
		{"zstd.json.zst", "\x28\xb5\x2f\xfd\x04\x00", "zstd data"},
		{"xz.json.xz", "\xfd7zXZ\x00\x00", "xz data"},
		{"bzip2.json.bz2", "BZh91AY&SY", "bzip2 data"},
		{"gguf-model.json", "GGUF\x03\x00\x00\x00", "a GGUF model"},
		{"csv.json", "batch_size,input_len,prefill_latency\n1,1,0.011\n", `line 1, column 1: "batch" begins no value`},
		{"html.json", "<!DOCTYPE html><html></html>", "line 1, column 1: '<' begins no value"},
		{"python-repr.json", "{'metadata': {}, 'results': []}", `line 1, column 2: want a key in quotes, got '\''`},
		{"yaml.json", "metadata:\n  model_path: x\n", `line 1, column 1: "metadata" begins no value`},
		// Compressed data.
		{"gzip-cut.json.gz", gz[:len(gz)/2], "the compressed data is cut off"},
		{"gzip-header-only.json.gz", gz[:6], "the compressed data is cut off"},
		{"gzip-bad-checksum.json.gz", gz[:len(gz)-8] + "\x00\x00\x00\x00" + gz[len(gz)-4:], "gzip: invalid checksum"},
		{"gzip-corrupt.json.gz", gz[:12] + "\xff\xff\xff\xff" + gz[16:], "corrupt input"},
		{"gzip-trailing-rubbish.json.gz", gz + "rubbish of a page", "gzip: invalid header"},
		{"gzip-in-gzip.json.gz", zipped(gz), "gzip inside gzip"},
		{"bomb-blanks.json.gz", zipped(goodFile + strings.Repeat(" ", 16<<20)), "compressed data expands beyond"},
		{"bomb-zeros.json.gz", zipped(`{"results": [` + strings.Repeat("0,", 4<<20)), "compressed data expands beyond"},
		{"bomb-of-members.json.gz", strings.Repeat(zipped(strings.Repeat(" ", 4<<20)), 4), "compressed data expands beyond"},
		// Broken JSON.
		{"cut-in-row.json", goodFile[:len(goodFile)/2], "the text ends in the middle of a value"},
		{"cut-in-string.json", `{"metadata": {"model_path": "Qwen`, "line 1, column 34: the text ends in the middle of a value"},
		{"cut-in-number.json", `{"results": [{"batch_size": 1, "prefill_latency": 0.`, "the text ends in the middle of a value"},
		{"cut-before-end.json", strings.TrimSpace(goodFile)[:len(goodFile)-2], "the text ends in the middle of a value"},
		{"open-brace.json", "{", "line 1, column 2: the text ends"},
		{"missing-comma.json", with(`"input_len": 16, `, `"input_len": 16 `), "want a comma or '}', got '\"'"},
		{"trailing-comma.json", with(`"tp_size": 1, "pp_size": 1, "output_len": 32, "failed_configs": []}`, `"tp_size": 1,}`), "want a key in quotes, got '}'"},
		{"missing-colon.json", with(`"tp_size": `, `"tp_size" `), `want a colon after key "tp_size"`},
		{"extra-bracket.json", strings.TrimSpace(goodFile) + "]", "']' begins no value"},
		{"comment.json", "// made by hand\n" + goodFile, "line 1, column 1: '/' begins no value"},
		{"control-character.json", with("Qwen/Qwen3-4B", "Qwen\x01"), "control character 0x01 in a string"},
		{"unknown-escape.json", with("Qwen/Qwen3-4B", `Qwen\x`), `unknown escape \x in a string`},
		{"deep-lists.json", nested, "line 1, column 66: values nest deeper than 64"},
		{"deep-objects.json", strings.Repeat(`{"a":`, 5000), "values nest deeper than 64"},
		{"deep-in-extra.json", with(`"run_name": "r"`, `"x": `+nested), "values nest deeper than 64"},
		{"duplicate-key.json", with(`"tp_size": 1`, `"tp_size": 1, "tp_size": 2`), `key "tp_size" stands twice`},
		{"duplicate-latency.json", with(`"num_runs": 1`, `"prefill_latency": 9`), `key "prefill_latency" stands twice`},
		{"duplicate-results.json", `{"results": [` + goodRow + `], "results": [` + goodRow + `]}`, `key "results" stands twice`},
		{"leading-zero.json", with(`"num_runs": 1`, `"num_runs": 01`), "malformed number 01: leading zero"},
		{"hexadecimal.json", with(`"num_runs": 1`, `"num_runs": 0x1`), "malformed number 0x"},
		{"bare-word.json", with(`"num_runs": 1`, `"num_runs": one`), `"one" begins no value`},
		// Another shape.
		{"top-number.json", "42\n", "want a row as an object, got 42"},
		{"top-string.json", `"benchmark"`, `want a row as an object, got "benchmark"`},
		{"top-null.json", "null", "want a row as an object, got null"},
		{"top-nan.json", "NaN", "want a row as an object, got NaN"},
		{"top-list-of-numbers.json", "[1, 2, 3]", "rows[0]: want a row as an object, got 1"},
		{"top-empty-list.json", "[]", "rows: holds no rows"},
		{"top-empty-object.json", "{}", "line 1.batch_size: missing"},
		{"another-tool.json", `{"avg_latency": 1.5, "latencies": [1.5]}`, "line 1.batch_size: missing"},
		{"missing-results.json", `{"metadata": ` + goodMeta + `}`, "results: missing: want a list of rows"},
		{"null-results.json", `{"metadata": ` + goodMeta + `, "results": null}`, "results: missing: want a list of rows"},
		{"empty-results.json", `{"metadata": ` + goodMeta + `, "results": []}`, "results: holds no rows"},
		{"results-object.json", `{"metadata": {}, "results": {"0": ` + goodRow + `}}`, "results: want a list of rows, got an object of 1 keys"},
		{"results-string.json", `{"metadata": {}, "results": "see attachment"}`, `results: want a list of rows, got "see attachment"`},
		{"row-list.json", `{"results": [` + goodRow + `, [1, 2]]}`, "results[1]: want a row as an object, got a list of 2"},
		{"row-null.json", `{"results": [null]}`, "results[0]: want a row as an object, got null"},
		{"two-benchmarks.json", goodFile + goodFile, "line 2, column 1: a second value after the benchmark object"},
		{"jsonl-bad-row.jsonl", goodRow + "\n" + `{"batch_size": 1}` + "\n" + goodRow + "\n", "line 2.input_len: missing"},
		{"jsonl-broken-line.jsonl", goodRow + "\n" + goodRow[:40] + "\n" + goodRow + "\n", "line 2, column 41: control character 0x0a in a string"},
		{"jsonl-foreign-line.jsonl", goodRow + "\nINFO done\n", `line 2, column 1: "INFO" begins no value`},
		// Metadata.
		{"metadata-list.json", `{"metadata": [1], "results": [` + goodRow + `]}`, "metadata: want an object, got a list of 1"},
		{"metadata-string.json", `{"metadata": "A100", "results": [` + goodRow + `]}`, `metadata: want an object, got "A100"`},
		{"model-path-number.json", with(`"Qwen/Qwen3-4B"`, "7"), "metadata.model_path: want a string, got 7"},
		{"gpu-type-list.json", with(`"tp_size"`, `"gpu_type": ["A100"], "tp_size"`), "metadata.gpu_type: want a string, got a list of 1"},
		{"gpu-count-zero.json", with(`"tp_size"`, `"gpu_count": 0, "tp_size"`), "metadata.gpu_count: want a whole number from 1"},
		{"tp-zero.json", with(`"tp_size": 1`, `"tp_size": 0`), "metadata.tp_size: want a whole number from 1"},
		{"tp-string.json", with(`"tp_size": 1`, `"tp_size": "two"`), `metadata.tp_size: want a number, got "two"`},
		{"tp-contradiction.json", with(`"tp_size": 1`, `"tp_size": 1, "tensor_parallel_size": 4`), "metadata.tensor_parallel_size: is 4, but tp_size is 1"},
		{"pp-fraction.json", with(`"pp_size": 1`, `"pp_size": 1.5`), "metadata.pp_size: want a whole number from 1 to 16384, got 1.5"},
		{"failed-configs-object.json", with(`"failed_configs": []`, `"failed_configs": {"a": 1}`), "metadata.failed_configs: want a list, got an object of 1 keys"},
		{"failed-config-number.json", with(`"failed_configs": []`, `"failed_configs": [8]`), "metadata.failed_configs[0]: want an object, got 8"},
		{"failed-config-without-size.json", with(`"failed_configs": []`, `"failed_configs": [{"reason": "oom"}]`), "metadata.failed_configs[0].batch_size: missing"},
		{"failed-config-reason-number.json", with(`"failed_configs": []`, `"failed_configs": [{"batch_size": 1, "input_len": 1, "reason": 137}]`), "metadata.failed_configs[0].reason: want a string, got 137"},
	}...)
}

// brokenRows are files with a fault in results[1].
func brokenRows() []brokenFile {
	return []brokenFile{
		{"batch-missing.json", row(`"batch_size": 1, `, ""), "results[1].batch_size: missing"},
		{"batch-zero.json", row(`"batch_size": 1`, `"batch_size": 0`), "results[1].batch_size: want a whole number from 1 to 1048576, got 0"},
		{"batch-negative.json", row(`"batch_size": 1`, `"batch_size": -4`), "results[1].batch_size: want a whole number from 1 to 1048576, got -4"},
		{"batch-fraction.json", row(`"batch_size": 1`, `"batch_size": 1.5`), "results[1].batch_size: want a whole number"},
		{"batch-huge.json", row(`"batch_size": 1`, `"batch_size": 1e300`), "results[1].batch_size: want a whole number from 1 to 1048576, got 1e300"},
		{"batch-list.json", row(`"batch_size": 1`, `"batch_size": [1]`), "results[1].batch_size: want a number, got a list of 1"},
		{"batch-nan.json", row(`"batch_size": 1`, `"batch_size": NaN`), "results[1].batch_size: want a whole number from 1 to 1048576, got NaN"},
		{"batch-true.json", row(`"batch_size": 1`, `"batch_size": true`), "results[1].batch_size: want a number, got true"},
		{"input-missing.json", row(`"input_len": 16, `, ""), "results[1].input_len: missing"},
		{"input-zero.json", row(`"input_len": 16`, `"input_len": 0`), "results[1].input_len: want a whole number from 1"},
		{"input-huge.json", row(`"input_len": 16`, `"input_len": 99999999999999999999`), "results[1].input_len: want a whole number from 1"},
		{"pass-huge.json", row(`"batch_size": 1, "input_len": 16`, `"batch_size": 1048576, "input_len": 1073741824`), "results[1]: batch size 1048576 times 1073741856 tokens"},
		{"output-negative.json", row(`"output_len": 32`, `"output_len": -1`), "results[1].output_len: want a whole number from 1"},
		{"output-string.json", row(`"output_len": 32`, `"output_len": "many"`), `results[1].output_len: want a number, got "many"`},
		{"prefill-string.json", row(`"prefill_latency": 0.011`, `"prefill_latency": "abc"`), `results[1].prefill_latency: want a positive number of seconds, got "abc"`},
		{"prefill-negative.json", row(`"prefill_latency": 0.011`, `"prefill_latency": -0.011`), "results[1].prefill_latency: want a positive number of seconds, got -0.011"},
		{"prefill-zero.json", row(`"prefill_latency": 0.011`, `"prefill_latency": 0`), "results[1].prefill_latency: want a positive number of seconds, got 0"},
		{"prefill-nan.json", row(`"prefill_latency": 0.011`, `"prefill_latency": NaN`), "results[1].prefill_latency: want a positive number of seconds, got NaN"},
		{"prefill-infinity.json", row(`"prefill_latency": 0.011`, `"prefill_latency": Infinity`), "results[1].prefill_latency: want a positive number of seconds, got Infinity"},
		{"prefill-minus-infinity.json", row(`"prefill_latency": 0.011`, `"prefill_latency": -Infinity`), "results[1].prefill_latency: want a positive number of seconds, got -Infinity"},
		{"prefill-1e999.json", row(`"prefill_latency": 0.011`, `"prefill_latency": 1e999`), "results[1].prefill_latency: want a positive number of seconds, got 1e999"},
		{"prefill-microseconds.json", row(`"prefill_latency": 0.011`, `"prefill_latency": 11000000`), "results[1].prefill_latency: want a positive number of seconds, got 11000000"},
		{"prefill-object.json", row(`"prefill_latency": 0.011`, `"prefill_latency": {"s": 1}`), "results[1].prefill_latency: want a positive number of seconds, got an object of 1 keys"},
		{"prefill-true.json", row(`"prefill_latency": 0.011`, `"prefill_latency": true`), "results[1].prefill_latency: want a positive number of seconds, got true"},
		{"decode-list.json", row(`"median_decode_latency": 0.0075`, `"median_decode_latency": [0.0075]`), "results[1].median_decode_latency: want a positive number of seconds, got a list of 1"},
		{"decode-negative.json", row(`"median_decode_latency": 0.0075`, `"median_decode_latency": -1e-3`), "results[1].median_decode_latency: want a positive number of seconds, got -1e-3"},
		{"decode-quoted-nan.json", row(`"median_decode_latency": 0.0075`, `"median_decode_latency": "nan"`), `results[1].median_decode_latency: want a positive number of seconds, got "nan"`},
		{"no-latency.json", `{"results": [{"batch_size": 1, "input_len": 1}]}`, "results[0]: holds neither prefill_latency nor median_decode_latency"},
		{"total-string.json", row(`"num_runs": 1`, `"total_latency": "long"`), `results[1].total_latency: want a number, got "long"`},
		{"throughput-negative.json", row(`"num_runs": 1`, `"prefill_throughput": -5`), "results[1].prefill_throughput: want 0 or more, got -5"},
		{"kv-list.json", row(`"num_runs": 1`, `"predicted_kv_usage_in_gb": []`), "results[1].predicted_kv_usage_in_gb: want a number, got a list of 0"},
		{"std-negative.json", row(`"num_runs": 1`, `"prefill_latency_std": -1`), "results[1].prefill_latency_std: want 0 or more, got -1"},
		{"std-string.json", row(`"num_runs": 1`, `"median_decode_latency_std": "?"`), `results[1].median_decode_latency_std: want a number, got "?"`},
		{"num-runs-zero.json", row(`"num_runs": 1`, `"num_runs": 0`), "results[1].num_runs: want a whole number from 1"},
		{"runs-object.json", row(`"num_runs": 1, "runs_data": [`, `"runs_data": {}, "other": [`), "results[1].runs_data: want a list of runs, got an object of 0 keys"},
		{"run-number.json", row(`"runs_data": [`, `"runs_data": [7, `), "results[1].runs_data[0]: want a run as an object, got 7"},
		{"run-latency-negative.json", with(`"prefill_latency": 0.011, "median`, `"prefill_latency": -0.011, "median`), "results[1].runs_data[0].prefill_latency: want a positive number of seconds, got -0.011"},
		{"run-latency-nan.json", with(`"median_decode_latency": 0.0075`, `"median_decode_latency": NaN`), "results[1].runs_data[0].median_decode_latency: want a positive number of seconds, got NaN"},
		{"run-of-another-config.json", with(`"batch_size": 1, "input_len": 16, "output_len": 32, "prefill_latency": 0.011, "median`, `"batch_size": 2, "input_len": 16, "prefill_latency": 0.011, "median`), "results[1].runs_data[0].batch_size: is 2, but the row's is 1"},
		{"run-total-string.json", with(`"output_len": 32, "prefill_latency": 0.011, "median`, `"total_latency": "x", "prefill_latency": 0.011, "median`), `results[1].runs_data[0].total_latency: want a number, got "x"`},
	}
}

func TestGoodFileIsGood(t *testing.T) {
	p, warnings, err := stepbench.Read("good.json", strings.NewReader(goodFile), stepbench.Options{})
	if err != nil || len(warnings) > 0 || len(p.Points) != 4 {
		t.Fatalf("%v, %v, %+v", err, warnings, p)
	}
}

// TestBroken reads every broken file: one clear error that names file and
// place, and no profile.
func TestBroken(t *testing.T) {
	files := brokenFiles()
	dir := filepath.Join("testdata", "broken")
	if *update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(dir, f.name), []byte(f.text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	known := map[string]bool{}
	for _, f := range files {
		known[f.name] = true
		t.Run(f.name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(dir, f.name))
			if err != nil {
				t.Fatal(err)
			}
			p, _, err := stepbench.Read(f.name, bytes.NewReader(text), stepbench.Options{})
			if err == nil || p != nil {
				t.Fatalf("read without an error: %+v", p)
			}
			if _, ok := errors.AsType[*format.Error](err); !ok {
				t.Errorf("error is a %T", err)
			}
			if got := err.Error(); !strings.HasPrefix(got, f.name+": ") || !strings.Contains(got, f.want) || strings.Contains(got, "\n") || len(got) > 300 {
				t.Errorf("error\n\t%s\nwant the file, one line, and\n\t%s", got, f.want)
			}
		})
	}
	onDisk, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range onDisk {
		if !known[e.Name()] {
			t.Errorf("%s is not in the table", e.Name())
		}
	}
	t.Logf("%d broken files", len(files))
}
