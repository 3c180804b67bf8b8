package requestlog_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/format/requestlog"
	"github.com/llmprof/llmprof/profile"
)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestRecorded(t *testing.T) {
	points, warnings, err := requestlog.Read("a.jsonl", bytes.NewReader(fixture(t, "a-poisson.record.jsonl")))
	if err != nil || len(warnings) > 0 || len(points) != 160 {
		t.Fatalf("%d points, warnings %v, error %v", len(points), warnings, err)
	}
	want := profile.Point{
		Kind: profile.KindRequest, Origin: "a.jsonl: line 1",
		Request: &profile.Request{ID: "0", InputLen: 591, OutputLen: 22, Scheduled: 0.200724, Sent: 0.201828658, First: 0.305852318, Last: 0.411359073},
	}
	if d := cmp.Diff(want, points[0]); d != "" {
		t.Error(d)
	}
	var ttft float64
	for _, p := range points {
		ttft += p.Request.First - p.Request.Sent
	}
	if mean := ttft / 160 * 1e3; mean < 52 || mean > 57 {
		t.Errorf("mean time to first token %.1f ms, want about 54", mean)
	}
}

func TestPrefixes(t *testing.T) {
	points, _, err := requestlog.Read("b.jsonl", bytes.NewReader(fixture(t, "b-burst-prefix.record.jsonl")))
	if err != nil {
		t.Fatal(err)
	}
	cached := 0
	for _, p := range points {
		cached += p.Request.CachedLen
	}
	if cached != 18624 {
		t.Errorf("%d cached tokens, want 18624", cached)
	}
	if d := cmp.Diff(map[string]json.RawMessage{"group": json.RawMessage(`"G1"`), "shared": json.RawMessage("192")}, points[1].Extra); d != "" {
		t.Error(d)
	}
}

func TestRows(t *testing.T) {
	const times = `"sent_s":1,"first_s":2,"last_s":3`
	good := `{"input":1,"output":1,` + times + `}` + "\n"
	for _, c := range []struct {
		why, row, warning string
		want              profile.Request
	}{
		{why: "the server's counts win", row: `{"id":"a","at_s":0.5,"input":10,"output":20,"prompt_tokens":11,"output_tokens":7,"cached_tokens":4,` + times + `}`, want: profile.Request{ID: "a", InputLen: 11, OutputLen: 7, CachedLen: 4, Scheduled: 0.5, Sent: 1, First: 2, Last: 3}},
		{why: "no id, no schedule", row: `{"input":10,"output":20,"error":null,` + times + `}`, want: profile.Request{ID: "1", InputLen: 10, OutputLen: 20, Scheduled: 1, Sent: 1, First: 2, Last: 3}},
		{why: "failed", row: `{"input":10,"output":20,"error":"timeout",` + times + `}`, warning: "x: line 2: the request failed"},
		{why: "no first token", row: `{"input":10,"output":20,"sent_s":1}`, warning: "first_s is missing"},
		{why: "null times", row: `{"input":10,"output":20,"sent_s":1,"first_s":null,"last_s":null}`, warning: "first_s is missing"},
		{why: "no lengths", row: `{` + times + `}`, warning: "neither prompt_tokens nor input"},
		{why: "not finite", row: `{"input":10,"output":20,"sent_s":1,"first_s":NaN,"last_s":3}`, warning: "want a number of seconds"},
		{why: "last before first", row: `{"input":10,"output":20,"sent_s":1,"first_s":4,"last_s":3}`, warning: "want them in this order"},
		{why: "more cached than there is", row: `{"input":10,"output":20,"cached_tokens":11,` + times + `}`, warning: "out of range"},
		{why: "no object", row: `[1]`, warning: "want an object"},
		{why: "cut off", row: `{"input":10,"out`, warning: "the rows before it were read"},
	} {
		t.Run(c.why, func(t *testing.T) {
			points, warnings, err := requestlog.Read("x", strings.NewReader(good+c.row))
			if err != nil {
				t.Fatal(err)
			}
			if c.warning != "" {
				if len(points) != 1 || len(warnings) != 1 || !strings.Contains(warnings[0].Error(), c.warning) {
					t.Errorf("%d points, warnings %v: want %q", len(points), warnings, c.warning)
				}
				return
			}
			if len(points) != 2 || len(warnings) > 0 {
				t.Fatalf("%d points, warnings %v", len(points), warnings)
			}
			if d := cmp.Diff(c.want, *points[1].Request); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestNothingServed(t *testing.T) {
	for _, text := range []string{"", "{}", `{"error":"x"}`, "no json"} {
		if _, _, err := requestlog.Read("x", strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), "x: ") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

func TestDetect(t *testing.T) {
	if !requestlog.Detect(fixture(t, "b-burst-prefix.record.jsonl")) {
		t.Error("a record is not taken for one")
	}
	if requestlog.Detect([]byte(`{"batch_size":1,"input_len":2}`)) {
		t.Error("a benchmark is taken for a record")
	}
}

func ExampleRead() {
	record := `{"id":7,"at_s":0.2,"input":591,"output":22,"sent_s":0.25,"first_s":0.75,"last_s":1.5}`
	points, _, err := requestlog.Read("record.jsonl", strings.NewReader(record))
	if err != nil {
		fmt.Println(err)
		return
	}
	r := points[0].Request
	fmt.Println("request", r.ID, "waited", r.First-r.Sent, "s for its first token")
	// Output: request 7 waited 0.5 s for its first token
}

func FuzzRead(f *testing.F) {
	f.Add(fixture(f, "b-burst-prefix.record.jsonl")[:700])
	f.Add([]byte(`[{"input":1,"output":1,"sent_s":"1","first_s":2,"last_s":3,"at_s":NaN}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		requestlog.Detect(text)
		points, _, err := requestlog.Read("x", bytes.NewReader(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "x: ") {
				t.Errorf("error does not name the file: %v", err)
			}
			return
		}
		for i := range points {
			if err := points[i].Validate(); err != nil {
				t.Error(err)
			}
			if _, err := json.Marshal(points[i]); err != nil {
				t.Error(err)
			}
		}
	})
}
