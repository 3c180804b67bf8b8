package layerscsv_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/layerscsv"
)

func zipped(text string) string {
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	_, err := zw.Write([]byte(text))
	if err = errors.Join(err, zw.Close()); err != nil {
		return err.Error()
	}
	return b.String()
}

func TestBroken(t *testing.T) {
	good := "R,m,q_proj,1,0,7"
	statistics := "time_stats.attn_prefill.mean,time_stats.attn_decode.mean,batch_size,prefill_chunk_size,kv_cache_size,is_prefill\n"
	for _, c := range []struct{ why, text, want string }{
		{"empty", "", "x.csv: the file is empty"},
		{"blanks", " \n\r\n", "nothing but blanks"},
		{"gzip of nothing", zipped(""), "the file is empty"},
		{"cut gzip", zipped(seed(good))[:30], "the compressed data is cut off"},
		{"UTF-16", "\xff\xfeh\x00", "UTF-16"},
		{"not UTF-8", seed("R\xff,m,q_proj,1,0,7"), "line 2, column 2: byte 0xff is not UTF-8"},
		{"JSON", `{"results": []}`, "line 1, column 2: bare"},
		{"another table", "a,b\n1,2\n", `line 1: the columns "a", "b" are not those of a layer profile: want hardware, model`},
		{"a long line of columns", strings.Repeat("column,", 30) + "x\n", `line 1: column "column" stands twice`},
		{"an equal column", "hardware,model,layer_name,input,kv_cache,latency(ns),input\n", `line 1: column "input" stands twice`},
		{"a missing column", "hardware,model,layer_name,input,latency(ns)\nR,m,q,1,7\n", `line 1: column kv_cache is missing: a layer profile of layout "seed" has`},
		{"another unit", "hardware,model,layer_name,input,kv_cache,latency(us)\n" + good, "column latency(ns) is missing"},
		{"a bundle's table", "layer,tokens,time_us\nq_proj,1,7\n", "part of an LLMServingSim bundle: read the folder"},
		{"no rows", seedColumns + "\n", "x.csv: holds no rows"},
		{"no rows but columns again", seed(seedColumns), "holds no rows"},
		{"a short row", seed("R,m,q_proj,1,0", good), "line 2: want 6 cells, got 5"},
		{"a long row", seed(good, "R,m,q_proj,1,0,7,8"), "line 3: want 6 cells, got 7"},
		{"an open quote", seed(`R,"m,q_proj,1,0,7`), "line 2"},
		{"a stray quote", seed(`R,m"x,q_proj,1,0,7`), `line 2, column 4: bare " in non-quoted-field`},
		{"two devices", seed(good, "S,m,q_proj,1,0,7"), `line 3, hardware: "S" after rows of "R": a profile is of one hardware; split the file`},
		{"two models", seed(good, "R,n,q_proj,1,0,7"), `line 3, model: "n" after rows of "m"`},
		{"no layer name", seed("R,m,,1,0,7"), "line 2, layer_name: missing"},
		{"input zero", seed("R,m,q_proj,0,0,7"), `line 2, input: want a whole number from 1 to 1073741824, got "0"`},
		{"input negative", seed("R,m,q_proj,-1,0,7"), `line 2, input: want a whole number`},
		{"input a fraction", seed("R,m,q_proj,1.5,0,7"), `line 2, input: want a whole number`},
		{"input text", seed("R,m,q_proj,many,0,7"), `line 2, input: want a whole number from 1 to 1073741824, got "many"`},
		{"input huge", seed("R,m,q_proj,1e300,0,7"), `line 2, input: want a whole number`},
		{"input hexadecimal", seed("R,m,q_proj,0x10,0,7"), `line 2, input: want a whole number`},
		{"kv negative", seed("R,m,q_proj,1,-1,7"), `line 2, kv_cache: want a whole number from 0`},
		{"kv NaN", seed("R,m,q_proj,1,nan,7"), `line 2, kv_cache: want a whole number from 0`},
		{"kv missing", seed("R,m,q_proj,1,,7"), `line 2, kv_cache: want a whole number from 0 to 1073741824, got ""`},
		{"latency negative", seed("R,m,q_proj,1,0,-7"), `line 2, latency(ns): want a positive number, got "-7"`},
		{"latency zero", seed("R,m,q_proj,1,0,0"), `line 2, latency(ns): want a positive number, got "0"`},
		{"latency missing", seed("R,m,q_proj,1,0,"), `line 2, latency(ns): want a positive number, got ""`},
		{"latency NaN", seed("R,m,q_proj,1,0,NaN"), `line 2, latency(ns): want a positive number, got "NaN"`},
		{"latency infinite", seed("R,m,q_proj,1,0,inf"), `line 2, latency(ns): want a positive number`},
		{"latency text", seed("R,m,q_proj,1,0,12ns"), `line 2, latency(ns): want a positive number, got "12ns"`},
		{"latency hexadecimal", seed("R,m,q_proj,1,0,0x1p3"), `line 2, latency(ns): want a positive number`},
		{"latency with underscores", seed("R,m,q_proj,1,0,1_000"), `line 2, latency(ns): want a positive number`},
		{"latency of years", seed("R,m,q_proj,1,0,99999999999999999999"), `more than a day: a mistaken unit?`},
		{"latency beyond a float64", seed("R,m,q_proj,1,0,1e399"), `more than a day`},
		{"latency beyond reason", seed("R,m,q_proj,1,0,1e99999999999999999999"), `want a positive number`},
		{"latency below a float64", seed("R,m,q_proj,1,0,1e-399"), `want a positive number`},
		{"no rank", "layer_name,input,kv_cache,tp_size,latency(ns)\nq_proj,1,0,0,7\n", "line 2, tp_size: want a whole number from 1"},
		{"a prefill of several sequences", statistics + "0.5,,2,32,0,True\n", "line 2, batch_size: a prefill of 2 sequences"},
		{"neither prefill nor decode", statistics + "0.5,,1,32,0,1\n", `line 2, is_prefill: want True or False, got "1"`},
		{"statistics of the other phase alone", statistics + "0.5,,1,0,32,False\n", `line 2, time_stats.attn_decode.mean: want a positive number, got ""`},
		{"a prediction of nothing", "kv_cache_size,prefill_chunk_size,prediction\n0,0,5\n", "line 2, prefill_chunk_size: want a whole number from 1"},
		{"a line of another file", seed(good) + "INFO done\n", "line 3: want 6 cells, got 1"},
	} {
		t.Run(c.why, func(t *testing.T) {
			p, _, err := layerscsv.Read("x.csv", strings.NewReader(c.text), layerscsv.Options{})
			if err == nil {
				t.Fatalf("read as %+v", p)
			}
			if bad, ok := errors.AsType[*format.Error](err); !ok || bad.File != "x.csv" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestTolerated(t *testing.T) {
	good := "R,m,q_proj,1,0,7"
	for _, c := range []struct {
		why, text string
		points    int
		warning   string
	}{
		{"a byte order mark", "\ufeff" + seed(good), 1, ""},
		{"line ends of Unix", strings.ReplaceAll(seed(good), "\r", ""), 1, ""},
		{"blank lines", seed(good, "", good), 2, ""},
		{"blanks around numbers", seed("R,m,q_proj, 1,0 , 7 "), 1, ""},
		{"quoted cells", seed(`"R","m","q_proj","1","0","7"`), 1, ""},
		{"blanks around column names", strings.ReplaceAll(seed(good), ",input,", ", input ,"), 1, ""},
		{"the line of columns once more", seed(good, seedColumns, good), 2, "line 3: the column names once more"},
		{"a cut last row", seed(good) + "R,m,q_pr", 1, "line 3: the file ends in the middle of this line: left out"},
		{"a last row without an end", seed(good) + good, 2, "line 3: the last line has no line end"},
	} {
		t.Run(c.why, func(t *testing.T) {
			p, warnings, err := layerscsv.Read("x.csv", strings.NewReader(c.text), layerscsv.Options{})
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

func TestLimits(t *testing.T) {
	text := seed("R,m,q_proj,1,0,7", "R,m,q_proj,2,0,7")
	for _, c := range []struct {
		limits format.Limits
		want   string
	}{
		{format.Limits{Values: 11}, "line 3: more than 11 cells"},
		{format.Limits{Bytes: 60}, "text is longer than 60 bytes"},
	} {
		if _, _, err := layerscsv.Read("x.csv", strings.NewReader(text), layerscsv.Options{Limits: c.limits}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}
