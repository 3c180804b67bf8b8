package trace_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/trace"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

func open(t *testing.T, name string) *trace.Trace {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	got, err := trace.Read(name, bytes.NewReader(text), trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// want is a request in short: what a row must become.
type want struct {
	at            unit.Seconds
	input, output int
	prefix        int
	session       string
	turn          int
}

func TestRead(t *testing.T) {
	for _, test := range []struct {
		file      string
		why       string
		kind      trace.Kind
		untimed   bool
		estimated bool
		want      []want
		warnings  []string
	}{
		{
			file: "azure-2023.csv", why: "dates count from the first row; a row without generated tokens is left out", kind: trace.Azure,
			want:     []want{{0, 374, 44, 0, "", 0}, {4.314579, 396, 109, 0, "", 0}, {5.483469, 91, 16, 0, "", 0}},
			warnings: []string{"azure-2023.csv: line 4: no output tokens, as of a failed request: 1 such row left out"},
		},
		{
			file: "azure-2024.csv", why: "dates may have an offset", kind: trace.Azure,
			want: []want{{0, 2162, 5, 0, "", 0}, {0.007405, 2399, 6, 0, "", 0}, {0.007405, 77, 15, 0, "", 0}},
		},
		{
			file: "burstgpt.csv", why: "seconds as they stand; turns are counted within a session", kind: trace.BurstGPT,
			want:     []want{{5, 472, 18, 0, "a", 1}, {110.5, 417, 505, 0, "a", 2}},
			warnings: []string{"line 3: no output tokens"},
		},
		{
			file: "splitwise.csv", why: "seconds; the sizes are lengths", kind: trace.Splitwise,
			want: []want{{0, 374, 44, 0, "", 0}, {4.314579, 396, 109, 0, "", 0}},
		},
		{
			file: "vidur.csv", why: "the columns of Vidur's processed traces", kind: trace.Vidur,
			want: []want{{0, 374, 44, 0, "", 0}, {4.3, 396, 109, 0, "", 0}},
		},
		{
			file: "mooncake.jsonl", why: "every block is a span, the last one as long as the prompt", kind: trace.Mooncake,
			want: []want{{0, 1300, 52, 1300, "", 0}, {10.535, 1600, 26, 1600, "", 0}, {27.482, 655, 52, 655, "", 0}},
		},
		{
			file: "sharegpt.json", why: "characters, not bytes, make the estimate", kind: trace.ShareGPT, untimed: true, estimated: true,
			want:     []want{{0, 6, 6, 0, "", 0}},
			warnings: []string{"estimated at 4 characters a token", "[1]: fewer than two texts: 1 such row left out"},
		},
		{
			file: "own.csv", why: "empty cells are absent", kind: trace.OwnCSV,
			want: []want{{0.5, 100, 10, 0, "", 0}, {0.75, 200, 20, 64, "s1", 1}, {2, 300, 30, 80, "s1", 2}},
		},
		{
			file: "vllm-serve.json", why: "start times are of a clock of its own; a failure has no tokens", kind: trace.VLLM,
			want:     []want{{1000.25, 32, 8, 0, "", 0}, {1001.75, 16, 4, 0, "", 0}},
			warnings: []string{"vllm-serve.json: output_lens[1]: no output tokens"},
		},
	} {
		t.Run(test.why, func(t *testing.T) {
			got := open(t, test.file)
			if got.Kind != test.kind || got.Timed == test.untimed || got.Estimated != test.estimated {
				t.Errorf("kind %s, timed %v, estimated %v", got.Kind, got.Timed, got.Estimated)
			}
			if len(got.Requests) != len(test.want) {
				t.Fatalf("%d requests, want %d", len(got.Requests), len(test.want))
			}
			for i, q := range got.Requests {
				w := test.want[i]
				if diff := q.At - w.at; diff > 1e-9 || diff < -1e-9 {
					t.Errorf("request %d at %v, want %v", i, q.At, w.at)
				}
				w.at = q.At
				if g := (want{q.At, q.InputLen, q.OutputLen, q.PrefixLen(), q.Session, q.Turn}); g != w || q.ID != i {
					t.Errorf("request %d: %+v, want %+v", q.ID, g, w)
				}
			}
			checkWarnings(t, got.Warnings, test.warnings)
			if _, err := workload.Replay(got.Requests, workload.Replaying{Seed: 1, Name: got.Name}); err != nil {
				t.Errorf("replay: %v", err)
			}
		})
	}
}

func checkWarnings(t *testing.T, got []error, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("warnings %v, want %q", got, want)
	}
	for i, w := range got {
		if !strings.Contains(w.Error(), want[i]) {
			t.Errorf("warning %q, want %q", w, want[i])
		}
	}
}

func TestMooncakeShares(t *testing.T) {
	q := open(t, "mooncake.jsonl").Requests
	for _, test := range []struct {
		why  string
		a, b int
		want int
	}{
		{"two whole blocks are equal, the third is not", 0, 1, 1024},
		{"no block is equal", 0, 2, 0},
		{"a prompt shares all with itself", 1, 1, 1600},
	} {
		if got := workload.Shared(q[test.a], q[test.b]); got != test.want {
			t.Errorf("%s: %d tokens shared, want %d", test.why, got, test.want)
		}
	}
}

func TestOwnRecord(t *testing.T) {
	got := open(t, "own-record.jsonl")
	if got.Kind != trace.OwnJSONL || len(got.Requests) != 40 || len(got.Warnings) != 0 {
		t.Fatalf("kind %s, %d requests, warnings %v", got.Kind, len(got.Requests), got.Warnings)
	}
	// The second and third row were sent after the fourth, and are where they
	// were sent.
	if q := got.Requests[2]; q.Name != "1" || q.At != 0.80623599 || q.InputLen != 442 || q.OutputLen != 23 || q.Prefix[0].Group != "G1" || q.Prefix[0].Len != 192 {
		t.Errorf("third request %+v", q)
	}
	// The whole prompt of a request may be shared.
	if q := got.Requests[3]; q.Name != "2" || q.Prefix[0].Len != q.InputLen {
		t.Errorf("fourth request %+v", q)
	}
}

func TestOwnSessions(t *testing.T) {
	q := open(t, "own-sessions.jsonl").Requests
	if q[0].Name != "a1" || q[0].Class != "chat" || q[0].Timeout != 30 || q[2].Turn != 2 || q[3].Turn != 2 {
		t.Errorf("requests %+v", q)
	}
	if q[2].After == nil || *q[2].After != (workload.Dependency{Request: 0, Think: 2.5}) {
		t.Errorf("a turn without a time waits for the one before: %+v", q[2])
	}
	if q[3].After != nil || q[3].At != 9 {
		t.Errorf("a turn with a time keeps it: %+v", q[3])
	}
	for _, test := range []struct {
		why              string
		a, b, want, said int
	}{
		{"a turn begins with the prompt and the answer before it", 0, 2, 100, 120},
		{"and with no more than its own length", 1, 3, 40, 40},
		{"another session says something else", 2, 3, 0, 40},
	} {
		if got := workload.Shared(q[test.a], q[test.b]); got != test.want || q[test.b].PrefixLen() != test.said {
			t.Errorf("%s: %d tokens shared and %d of before, want %d and %d", test.why, got, q[test.b].PrefixLen(), test.want, test.said)
		}
	}
}

func TestReadFaults(t *testing.T) {
	const azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	for _, test := range []struct{ why, text, want string }{
		{"an unknown table", "a,b\n1,2\n", "x: line 1: no known trace"},
		{"an unknown object", `{"a":1}`, "x: no known trace"},
		{"a list of numbers", `[1,2]`, "x: no known trace"},
		{"no request", azure, "x: holds no usable request"},
		{"a broken date", azure + "yesterday,1,1\n", "x: line 2, TIMESTAMP: want a date"},
		{"a negative length", azure + "2023-11-16 18:15:46,-1,1\n", "x: line 2, ContextTokens: want a whole number"},
		{"an enormous length", azure + "2023-11-16 18:15:46,1,99999999999999999999\n", "x: line 2, GeneratedTokens: want a whole number"},
		{"a fraction of a token", "at_s,input,output\n0,1.5,1\n", "x: line 2, input: want a whole number"},
		{"an empty length", "at_s,input,output\n0,,1\n", "x: line 2, input: want a whole number"},
		{"a negative time", "at_s,input,output\n-1,1,1\n", "x: line 2, at_s: -1.000 s: want a time from 0"},
		{"Vidur: a negative time", "arrived_at,num_prefill_tokens,num_decode_tokens\n-0.5,1,1\n", "x: line 2, arrived_at: -500.0 ms: want a time from 0"},
		{"JSON: a negative time", `{"at_s":0,"input":5,"output":1}` + "\n" + `{"at_s":-1,"input":5,"output":1}`, "x: line 2.at_s: -1.000 s: want a time from 0"},
		{"JSON: sent at a negative time", `{"at_s":0,"sent_s":-1,"input":5,"output":1}`, "x: line 1.sent_s: -1.000 s: want a time from 0"},
		{"Mooncake: a negative time", `{"timestamp":-1,"input_length":5,"output_length":1}`, "x: line 1.timestamp: -1.000 ms: want a time from 0"},
		{"LLMServingSim: a negative time", `{"input_toks":5,"output_toks":1,"arrival_time_ns":-1}`, "arrival_time_ns: "},
		{"NaN as a time", "at_s,input,output\nNaN,1,1\n", "x: line 2, at_s: NaN"},
		{"more shared than there is", "at_s,input,output,group,shared\n0,5,1,g,6\n", "x: line 2, shared: want a whole number from 0 to 5"},
		{"shared with nobody", "at_s,input,output,group,shared\n0,5,1,,3\n", "x: line 2, shared: 3 shared tokens without a group"},
		{"a row cut short in the middle", "at_s,input,output\n0,5\n0,5,5\n", "x: line 2: want 3 cells"},
		{"JSON: shared with nobody", `{"at_s":0,"input":5,"output":1,"shared":3}`, "x: line 1.shared: 3 shared tokens without a group"},
		{"JSON: NaN as a time", `{"at_s":NaN,"input":5,"output":1}`, "x: line 1.at_s: NaN"},
		{"JSON: a missing length", `{"at_s":0,"input":5,"output":1}` + "\n" + `{"at_s":0,"input":5}`, "x: line 2.output: want a number, got nothing"},
		{"JSON: a misspelt length", `{"at_s":0,"input":5,"output":1}` + "\n" + `{"at_s":0,"input":5,"outptu":1}`, `x: line 2: "outptu" is no key of a row: nearest known is "output"`},
		{"JSON: a row cut short before another", `{"at_s":0,"input":5,"output":1}` + "\n" + `{"at_s":0,"input":5` + "\n" + `{"at_s":0,"input":5,"output":1}`, "x: line 2, column 20: want a comma or '}', got the end of the line"},
		{"JSON: a comma is missing in a row of two lines", `{"at_s":0,"input":5,"output":1}` + "\n" + `{"at_s":0` + "\n" + `"input":5}`, `x: line 3, column 1: want a comma or '}', got '"'`},
		{"JSON: a row that is no object", `{"at_s":0,"input":5,"output":1}` + "\n7", "x: line 2: want an object"},
		{"JSON: cut off", `{"at_s":0,"input":5,"output":1}` + "\n{", "ends in the middle"},
		{"JSON: cut off before the end of its last line", `{"at_s":0,"input":5,"output":1}` + "\n{\n", "line 2, column 2: the text ends in the middle"},
		{"blocks that are none", `{"timestamp":0,"input_length":5,"output_length":1,"hash_ids":7}`, "x: line 1.hash_ids: want a list"},
		{"a block without a number", `{"timestamp":0,"input_length":5,"output_length":1,"hash_ids":["q"]}`, "x: line 1.hash_ids[0]: want a number"},
		{"a time missing after the first", `{"timestamp":0,"input_length":5,"output_length":1}` + "\n" + `{"input_length":5,"output_length":1}`, "x: line 2.timestamp: want a number, got nothing"},
		{"lists of unequal length", `{"input_lens":[1,2],"output_lens":[1]}`, "x: output_lens: 1 values, but 2"},
		{"times of unequal length", `{"input_lens":[1],"output_lens":[1],"start_times":[]}`, "x: start_times: 0 values, but 1"},
		{"two results", `{"input_lens":[1],"output_lens":[1]} {"input_lens":[1],"output_lens":[1]}`, "a second result"},
		{"a summary", `{"input_lens":1,"output_lens":[1]}`, "--save-detailed"},
		{"a text that is none", `[{"conversations":[{"value":"a"},{"value":7}]}]`, "x: [0].conversations[1].value: want a string"},
		{"times that go back", "at_s,input,output\n2,5,1\n1,6,1\n", "x: line 3: is due at 1.000 s, 1.000 s before an earlier row"},
		{"JSON: times that go back", `{"at_s":2,"input":5,"output":1}` + "\n" + `{"at_s":1,"input":5,"output":1}`, "x: line 2: is due at 1.000 s"},
		{"dates that go back", azure + "2023-11-16 18:15:46,1,1\n2023-11-16 18:15:45,1,1\n", "x: line 3: is due at"},
		{"a first turn without a time", `{"at_s":0,"input":5,"output":1}` + "\n" + `{"input":5,"output":1,"session":"a"}`, "x: line 2.at_s: want a number, got nothing"},
		{"a negative think time", `{"at_s":0,"input":5,"output":1,"session":"a"}` + "\n" + `{"input":5,"output":1,"session":"a","think_s":-1}`, "x: line 2.think_s"},
		{"times of two kinds", `{"sent_s":0,"input":5,"output":1,"session":"a"}` + "\n" + `{"input":5,"output":1,"session":"a"}`, "x: line 2: some turns have"},
		{"a broken timeout", "at_s,input,output,timeout_s\n2,5,1,soon\n", "x: line 2, timeout_s: want a number of seconds"},
		{"an empty file", "", "x: the file is empty"},
	} {
		t.Run(test.why, func(t *testing.T) {
			_, err := trace.Read("x", strings.NewReader(test.text), trace.Options{})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestReadDoubts: what is read all the same, with a warning.
func TestReadDoubts(t *testing.T) {
	const row = `{"id":"a","at_s":0,"input":5,"output":1,"sesion":"s","x":1}`
	for _, test := range []struct {
		why, text string
		want      []string
	}{
		{"nothing to doubt", `{"id":"a","at_s":0,"input":5,"output":1,"model":"m"}`, nil},
		{"a misspelt key, named once", row + "\n" + strings.Replace(row, `"a"`, `"b"`, 1), []string{`x: line 1: "sesion" is no key of a row and is passed over: nearest known is "session"`}},
		{"an id twice", `{"id":"a","at_s":0,"input":5,"output":1}` + "\n" + `{"id":"a","at_s":0,"input":5,"output":1}`, []string{`x: line 2: id "a" stands in an earlier row too`}},
		{"rows that go back a little: by how much in truth", `{"at_s":0.5,"input":5,"output":1}` + "\n" + `{"at_s":0.4,"input":5,"output":1}`, []string{`x: 1 row due up to 100.00 ms before an earlier one: put in order`}},
		{"the one that goes back most", "at_s,input,output\n1,5,1\n0.7,5,1\n0.9,5,1\n", []string{`x: 2 rows due up to 300.0 ms before an earlier one: put in order`}},
		{"an id three times", "id,at_s,input,output\na,0,5,1\na,0,5,1\na,0,5,1\n", []string{`x: line 3: id "a" stands in an earlier row too: 2 such rows`}},
	} {
		t.Run(test.why, func(t *testing.T) {
			got, err := trace.Read("x", strings.NewReader(test.text), trace.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var texts []string
			for _, w := range got.Warnings {
				texts = append(texts, w.Error())
			}
			if !slices.Equal(texts, test.want) {
				t.Errorf("warnings %q, want %q", texts, test.want)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []trace.Options{{BlockTokens: -1}, {CharsPerToken: -1}, {CharsPerToken: 1e-9}} {
		if _, err := trace.Read("x", strings.NewReader("a"), o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	const row = `{"timestamp":0,"input_length":40,"output_length":1,"hash_ids":[1,2,3]}`
	got, err := trace.Read("x", strings.NewReader(row), trace.Options{BlockTokens: 16})
	if err != nil || len(got.Warnings) != 0 || len(got.Requests[0].Prefix) != 3 || got.Requests[0].Prefix[2].Len != 8 {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = trace.Read("x", strings.NewReader(row), trace.Options{})
	if err != nil || len(got.Warnings) != 1 || got.Requests[0].PrefixLen() != 40 {
		t.Errorf("blocks of 512: %+v, %v", got, err)
	}
	if _, err := trace.Read("x", strings.NewReader(row), trace.Options{Limits: format.Limits{Bytes: 10}}); err == nil {
		t.Error("a text beyond the limit is taken")
	}
}

func TestResultAndGzip(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(`{"input_lens":[5,6],"output_lens":[1,1],"start_times":[2,1]}`)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := trace.Read("x.gz", &packed, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Requests[0].At != 1 || got.Requests[0].ID != 0 {
		t.Errorf("first request %+v", got.Requests[0])
	}
	checkWarnings(t, got.Warnings, nil)
	if p := got.Pairs(); len(p) != 2 || p[0] != (workload.Pair{Input: 6, Output: 1}) {
		t.Errorf("pairs %v", p)
	}
}

func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := trace.Read("x", bytes.NewReader(text), trace.Options{Limits: format.Limits{Bytes: 1 << 16, Values: 1 << 12}})
		if err != nil {
			if got != nil || !strings.HasPrefix(err.Error(), "x") {
				t.Errorf("%v with error %v", got, err)
			}
			return
		}
		if _, err := workload.Replay(got.Requests, workload.Replaying{Speed: 10}); err != nil {
			t.Errorf("what was read cannot be replayed: %v", err)
		}
	})
}

func ExampleRead() {
	const rows = `{"timestamp": 0, "input_length": 655, "output_length": 52, "hash_ids": [46, 47]}
{"timestamp": 10535, "input_length": 672, "output_length": 26, "hash_ids": [46, 47]}
`
	t, err := trace.Read("mooncake.jsonl", strings.NewReader(rows), trace.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := workload.Replay(t.Requests, workload.Replaying{Seed: 7, Speed: 2, Name: t.Name})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(t.Kind, s.Requests[1].At, workload.Shared(s.Requests[0], s.Requests[1]))
	// Output: mooncake 5.268 s 655
}
