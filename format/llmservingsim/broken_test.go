package llmservingsim_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/llmservingsim"
)

func TestBroken(t *testing.T) {
	row := func(cells string) string { return "layer,tokens,time_us\r\nq_proj,1,45.895\r\n" + cells + "\r\n" }
	attention := func(cells string) string {
		return "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n" + cells + "\n"
	}
	skew := func(cells string) string {
		return "regime,n,nb,ratio,skew,pc,kp,kvs,kv_big,kv_mean,t_mean_us,t_max_us,t_skew_us,alpha\n" + cells + "\n"
	}
	for _, c := range []struct{ why, file, text, want string }{
		{"empty", "tp1/dense.csv", " ", "x/tp1/dense.csv: the file holds nothing but blanks"},
		{"empty meta", "meta.yaml", " ", "x/meta.yaml: the file holds nothing but blanks"},
		{"huge meta", "meta.yaml", strings.Repeat("a: b\n", 1<<18), "x/meta.yaml: text is longer than"},
		{"cut gzip", "tp1/per_sequence.csv.gz", "\x1f\x8b\x08\x00", "x/tp1/per_sequence.csv.gz: the compressed data is cut off"},
		{"binary", "tp1/skew_fit.csv", "\xff\xfe\x00", "x/tp1/skew_fit.csv: the file is UTF-16"},
		{"a missing column", "tp1/dense.csv", "layer,time_us\nq_proj,1\n", "x/tp1/dense.csv: line 1: column tokens is missing: want layer,tokens,time_us"},
		{"another unit", "tp1/dense.csv", "layer,tokens,time_ms\nq_proj,1,1\n", "column time_us is missing"},
		{"an equal column", "tp1/dense.csv", "layer,tokens,time_us,tokens\n", `line 1: column "tokens" stands twice`},
		{"the columns of another file", "tp1/attention.csv", dense, "column prefill_chunk is missing"},
		{"no rows anywhere", "tp1/dense.csv", "layer,tokens,time_us\n", "x: holds no rows"},
		{"a short row", "tp1/dense.csv", row("q_proj,2"), "x/tp1/dense.csv: line 3: want 3 cells, got 2"},
		{"a long row", "tp1/dense.csv", row("q_proj,2,3,4"), "line 3: want 3 cells, got 4"},
		{"no layer", "tp1/dense.csv", row(",2,3"), "line 3, layer: missing"},
		{"no tokens", "tp1/dense.csv", row("q_proj,0,3"), `line 3, tokens: want a whole number from 1 to 1073741824, got "0"`},
		{"negative tokens", "tp1/dense.csv", row("q_proj,-2,3"), "line 3, tokens: want a whole number"},
		{"text for tokens", "tp1/dense.csv", row("q_proj,two,3"), `line 3, tokens: want a whole number from 1 to 1073741824, got "two"`},
		{"huge tokens", "tp1/dense.csv", row("q_proj,99999999999999999999,3"), "line 3, tokens: want a whole number"},
		{"negative time", "tp1/dense.csv", row("q_proj,2,-3"), `line 3, time_us: want a positive number, got "-3"`},
		{"NaN", "tp1/dense.csv", row("q_proj,2,nan"), `line 3, time_us: want a positive number, got "nan"`},
		{"infinity", "tp1/dense.csv", row("q_proj,2,inf"), `line 3, time_us: want a positive number`},
		{"zero", "tp1/dense.csv", row("q_proj,2,0.0"), `line 3, time_us: want a positive number`},
		{"a unit in the cell", "tp1/dense.csv", row("q_proj,2,3us"), `line 3, time_us: want a positive number`},
		{"a time of years", "tp1/dense.csv", row("q_proj,2,1e300"), "line 3, time_us: \"1e300\" is more than a day"},
		{"an open quote", "tp1/dense.csv", row(`"q_proj,2,3`), "line 3"},
		{"nothing computed", "tp1/attention.csv", attention("0,0,0,16,5"), "line 2: neither tokens nor sequences"},
		{"negative context", "tp1/attention.csv", attention("0,-1,1,16,5"), "line 2, kv_prefill: want a whole number from 0"},
		{"more long sequences than sequences", "tp1/skew.csv", skew("pure,2,3,0.5,4.0,0,0,128,512,320,52,56,53,0.2"), "line 2, nb: 3 of 2 sequences"},
		{"no skewed time", "tp1/skew.csv", skew("pure,2,1,0.5,4.0,0,0,128,512,320,52,56,,0.2"), `line 2, t_skew_us: want a positive number, got ""`},
	} {
		t.Run(c.why, func(t *testing.T) {
			p, _, err := llmservingsim.ReadFS("x", small(map[string]string{c.file: c.text}), llmservingsim.Options{})
			if err == nil {
				t.Fatalf("read as %+v", p)
			}
			if bad, ok := errors.AsType[*format.Error](err); !ok || !strings.HasPrefix(bad.File, "x") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestTolerated(t *testing.T) {
	for _, c := range []struct {
		why     string
		files   map[string]string
		points  int
		warning string
	}{
		{"a byte order mark", map[string]string{"tp1/dense.csv": "\ufeff" + dense}, 1, ""},
		{"line ends of Unix", map[string]string{"tp1/dense.csv": strings.ReplaceAll(dense, "\r", "")}, 1, ""},
		{"another order of columns", map[string]string{"tp1/dense.csv": "time_us,layer,tokens\n5,q_proj,1\n"}, 1, ""},
		{"a column of others", map[string]string{"tp1/dense.csv": "layer,tokens,time_us,note\nq_proj,1,5,x\n"}, 1, ""},
		{"a cut last row", map[string]string{"tp1/dense.csv": dense + "q_pr"}, 1, "line 3: the file ends in the middle of this line"},
		{"a last row without an end", map[string]string{"tp1/dense.csv": dense + "q_proj,2,5"}, 2, "line 3: the last line has no line end"},
		{"the columns once more", map[string]string{"tp1/dense.csv": dense + dense}, 2, "line 3: the column names once more"},
		{"a foreign file", map[string]string{"tp1/notes.txt": "x"}, 1, "x/tp1/notes.txt: left out"},
		{"a file plain and as gzip", map[string]string{"tp1/dense.csv.gz": "rubbish"}, 1, "x/tp1/dense.csv.gz: left out: the plain file is there as well"},
		{"a folder that is no rank", map[string]string{"tp01/dense.csv": "rubbish", "tpx/dense.csv": "rubbish", "tp0/dense.csv": "rubbish"}, 1, ""},
		{"a model without a name", map[string]string{"meta.yaml": "gpu: H42\n"}, 1, "x/meta.yaml: names no model"},
		{"meta.yaml that is no YAML", map[string]string{"meta.yaml": "{{{:::\n\t- [ *x\n"}, 1, "names no model"},
	} {
		t.Run(c.why, func(t *testing.T) {
			p, warnings, err := llmservingsim.ReadFS("x", small(c.files), llmservingsim.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Points) != c.points {
				t.Errorf("%d points, want %d", len(p.Points), c.points)
			}
			if text := fmt.Sprint(warnings); !strings.Contains(text, c.warning) || c.warning == "" && len(warnings) > 0 {
				t.Errorf("warnings %v", warnings)
			}
		})
	}
}
