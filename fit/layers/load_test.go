package layers

import (
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/profile"
)

// readCSV reads a table of testdata by the names of its columns.
func readCSV(t testing.TB, name string, row func(get func(column string) string)) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(name, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	r := csv.NewReader(in)
	head, err := r.Read()
	if err != nil {
		t.Fatal(err)
	}
	column := map[string]int{}
	for i, h := range head {
		column[h] = i
	}
	for {
		cells, err := r.Read()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		row(func(name string) string {
			i, ok := column[name]
			if !ok {
				t.Fatalf("no column %s in %v", name, head)
			}
			return cells[i]
		})
	}
}

func number(t testing.TB, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func whole(t testing.TB, s string) int { return int(math.Round(number(t, s))) }

func layerPoint(l profile.Layer, seconds float64) profile.Point {
	return profile.Point{Kind: profile.KindLayer, Layer: &l, Samples: []float64{seconds}, Clock: profile.ClockDevice}
}

// bundle reads the tables of one device and degree, as the reader of such
// bundles gives them.
func bundle(t testing.TB, device string, tp int) []profile.Point {
	t.Helper()
	var points []profile.Point
	prefix := device + "-tp" + strconv.Itoa(tp) + "-"
	readCSV(t, prefix+"dense.csv.gz", func(get func(string) string) {
		points = append(points, layerPoint(profile.Layer{Name: get("layer"), Tokens: whole(t, get("tokens")), TensorParallel: tp}, number(t, get("time_us"))*1e-6))
	})
	readCSV(t, prefix+"per_sequence.csv.gz", func(get func(string) string) {
		points = append(points, layerPoint(profile.Layer{Name: get("layer"), Sequences: whole(t, get("sequences")), TensorParallel: tp}, number(t, get("time_us"))*1e-6))
	})
	readCSV(t, prefix+"attention.csv.gz", func(get func(string) string) {
		points = append(points, layerPoint(profile.Layer{
			Name: "attention", Tokens: whole(t, get("prefill_chunk")), Context: whole(t, get("kv_prefill")),
			Sequences: whole(t, get("n_decode")), SequenceContext: whole(t, get("kv_decode")), TensorParallel: tp,
		}, number(t, get("time_us"))*1e-6))
	})
	readCSV(t, prefix+"skew.csv.gz", func(get func(string) string) {
		p := layerPoint(profile.Layer{
			Name: "attention", Tokens: whole(t, get("pc")), Context: whole(t, get("kp")), Sequences: whole(t, get("n")), SequenceContext: whole(t, get("kvs")),
			LongSequences: whole(t, get("nb")), LongContext: whole(t, get("kv_big")), TensorParallel: tp,
		}, number(t, get("t_skew_us"))*1e-6)
		p.Extra = map[string]json.RawMessage{"t_mean_us": json.RawMessage(get("t_mean_us")), "t_max_us": json.RawMessage(get("t_max_us"))}
		if a := get("alpha"); a != "" {
			p.Extra["alpha"] = json.RawMessage(a)
		}
		points = append(points, p)
	})
	return points
}
