package fit

import (
	"strings"
	"testing"
)

// reread writes a predictor to a file and reads it back.
func reread(t *testing.T, p *Predictor) (*Predictor, string) {
	t.Helper()
	var f File
	if err := f.Set("c", p, nil); err != nil {
		t.Fatal(err)
	}
	text := write(t, &f)
	back, _, err := read(t, text).Predictor("c")
	if err != nil {
		t.Fatal(err)
	}
	return back, text
}

// TestTrainedOn: a predictor knows how many of the rows it has seen, also
// when it comes from a file.
func TestTrainedOn(t *testing.T) {
	rows := a100(t).Rows
	half := func(r Row) bool { return r.Index%2 == 0 }
	var some []Row
	for _, r := range rows {
		if half(r) {
			some = append(some, r)
		}
	}
	elsewhere := append([]Row(nil), rows...)
	repeated := append([]Row(nil), rows...)
	for i := range rows {
		elsewhere[i].BatchSize += 100
		repeated[i].Median *= 1.01
	}
	yes := func(n int) *int { return &n }
	bare, _, err := read(t, original).Predictor("bare")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why       string
		predictor *Predictor
		rows      []Row
		want      *int // in each mode
	}{
		{"the rows themselves", train(t, rows), rows, yes(94)},
		{"trained on every other row", train(t, some), rows, yes(47)},
		{"other batch sizes", train(t, rows), elsewhere, yes(0)},
		{"the same configurations measured again", train(t, rows), repeated, yes(94)},
		{"a file of the original does not say", bare, rows, nil},
	} {
		t.Run(c.why, func(t *testing.T) {
			back, _ := reread(t, c.predictor)
			for _, p := range []*Predictor{c.predictor, back} {
				scores, err := ScorePredictor(p, c.rows, Median, "m", "given predictor")
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range scores {
					if (s.TrainedOn == nil) != (c.want == nil) || (c.want != nil && *s.TrainedOn != *c.want) {
						t.Errorf("%s: trained on %v of %d", s.Mode, s.TrainedOn, s.N)
					}
				}
			}
		})
	}
	folds, err := CrossValidate(t.Context(), rows, 5, []string{LinearModel}, Median)
	if err != nil {
		t.Fatal(err)
	}
	everything := func(Row) bool { return true }
	leaky, err := HoldOut(t.Context(), rows, Split{Name: "leaky", Train: everything, Test: half}, []string{LinearModel}, Median)
	if err != nil {
		t.Fatal(err)
	}
	if *folds[0].TrainedOn != 0 || *leaky[0].TrainedOn != 47 {
		t.Errorf("folds were trained on %d test rows, want 0; a split that trains on all on %d, want 47", *folds[0].TrainedOn, *leaky[0].TrainedOn)
	}
}

// TestTrainedOnMany: of many rows only the set is remembered, in little room.
func TestTrainedOnMany(t *testing.T) {
	rows := make([]Row, maxHashedRows+1)
	for i := range rows {
		rows[i] = Row{Mode: Prefill, BatchSize: 1 + i, InputLen: 8}
	}
	for _, c := range []struct {
		why   string
		rows  []Row
		bytes int
	}{
		{"one by one", rows[:maxHashedRows], maxHashedRows * rowHashBytes},
		{"as a set", rows, 32},
	} {
		t.Run(c.why, func(t *testing.T) {
			j := fingerprintOf(c.rows).toJSON()
			if n := len(j.Hashes) + len(j.Set); n != c.bytes {
				t.Errorf("%d bytes, want %d", n, c.bytes)
			}
			f, err := j.fingerprint()
			if err != nil {
				t.Fatal(err)
			}
			if n := f.count(c.rows); n == nil || *n != len(c.rows) {
				t.Errorf("trained on %v of %d", n, len(c.rows))
			}
			if n := f.count(c.rows[1:]); (n == nil) != (len(c.rows) > maxHashedRows) {
				t.Errorf("of a part it tells %v", n)
			}
		})
	}
}

func TestReadBrokenFingerprint(t *testing.T) {
	_, text := reread(t, train(t, a100(t).Mode(Prefill)))
	at := strings.Index(text, `"row_hashes": "`) + len(`"row_hashes": "`)
	rows := strings.LastIndex(text, `"rows": 94`)
	for _, c := range []struct{ why, text string }{
		{"a row too few", text[:rows] + `"rows": 95` + text[rows+10:]},
		{"hashes out of order", text[:at] + "////////" + text[at+8:]},
		{"a set of few rows", strings.Replace(text, `"row_hashes": "`, `"set_hash": "`, 1)},
		{"no base64", text[:at] + "!" + text[at+1:]},
	} {
		t.Run(c.why, func(t *testing.T) {
			f, err := ReadPredictors(strings.NewReader(c.text))
			if err == nil {
				_, _, err = f.Predictor("c")
			}
			if err == nil {
				t.Error("accepted")
			}
		})
	}
}
