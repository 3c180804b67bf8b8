package layers

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// relative collects relative errors.
type relative struct {
	sum, signed float64
	n           int
}

func (r *relative) add(got, want float64) {
	r.sum += math.Abs(got/want - 1)
	r.signed += got/want - 1
	r.n++
}

// percent is the mean absolute error in percent.
func (r relative) percent() float64 { return 100 * r.sum / float64(max(1, r.n)) }

func powerOfTwo(x float64) bool { return x == 0 || x == math.Exp2(math.Round(math.Log2(x))) }

// launchOf is the shortest time of any layer.
func launchOf(rank map[string]*layer) float64 {
	least := math.Inf(1)
	for _, l := range rank {
		for _, r := range l.rows {
			least = min(least, r.median)
		}
	}
	return least
}

// onSubset trains all one-size layers on the points that keep picks, which sees
// the position in the layer, the size and the largest size, and scores them on
// those that test picks of the others.
func onSubset(rank map[string]*layer, keep, test func(i int, x, end float64) bool) map[string]relative {
	launch := launchOf(rank)
	curves, held := map[string]*curve{}, map[string][]sample{}
	var shared []*curve
	for _, name := range sortedNames(rank) {
		l := rank[name]
		if l.kind == perBatch {
			continue
		}
		all := l.samples()
		end := all[len(all)-1].x
		var train []sample
		for i, s := range all {
			switch {
			case keep(i, s.x, end):
				train = append(train, s)
			case test(i, s.x, end):
				held[name] = append(held[name], s)
			}
		}
		curves[name] = fitCurve(train, launch)
		if l.kind == perToken {
			shared = append(shared, curves[name])
		}
	}
	common := balance(shared)
	out := map[string]relative{}
	for name, c := range curves {
		c.continued(common)
		var r relative
		for _, s := range held[name] {
			r.add(c.at(s.x), s.t)
		}
		out[name] = r
	}
	return out
}

func everything(int, float64, float64) bool { return true }

// TestAccuracy holds the physical lookups to the bars on measured points that
// they have not seen, and prints how far all layers are off.
func TestAccuracy(t *testing.T) {
	for _, d := range devices() {
		rank := tables(t)[d.name].ranks[d.tp]
		launch := launchOf(rank)
		fourth := onSubset(rank, func(i int, x, end float64) bool { return i%4 == 0 || x == end }, everything)
		powers := onSubset(rank, func(_ int, x, _ float64) bool { return powerOfTwo(x) }, everything)
		quarter := onSubset(rank, func(_ int, x, end float64) bool { return x <= end/4 }, func(_ int, x, end float64) bool { return x >= end/2 })
		halved := onSubset(rank, func(_ int, x, end float64) bool { return x <= end/2 }, everything)
		t.Logf("%s tp%d, mean absolute error in %%:", d.name, d.tp)
		var sparse, layers float64
		t.Logf("%-16s %8s %8s %8s %8s %8s", "", "one out", "4th", "powers", "<= 1/4", "<= 1/2")
		for _, name := range sortedNames(rank) {
			l := rank[name]
			if l.kind == perBatch {
				continue
			}
			all := l.samples()
			var out relative
			for i := 1; i+1 < len(all); i++ {
				out.add(fitCurve(slices.Concat(all[:i], all[i+1:]), launch).at(all[i].x), all[i].t)
			}
			t.Logf("%-16s %8.2f %8.2f %8.2f %8.2f %8.2f", name, out.percent(), fourth[name].percent(), powers[name].percent(), quarter[name].percent(), halved[name].percent())
			sparse, layers = sparse+powers[name].percent(), layers+1
			bar := func(what string, got, most float64) {
				if got > most {
					t.Errorf("%s tp%d: %s, %s: off by %.2f %%, want at most %g %%", d.name, d.tp, name, what, got, most)
				}
			}
			bar("one point left out", out.percent(), 3)
			if l.physical.curve.heavy && l.kind == perToken {
				bar("every 4th point", fourth[name].percent(), 3)
				bar("sizes beyond twice the largest", quarter[name].percent(), 15)
			}
		}
		if sparse/layers > 8 {
			t.Errorf("%s tp%d: powers of two only: layers are off by %.2f %%, want at most 8 %%", d.name, d.tp, sparse/layers)
		}
	}
}

// attentionRows are the measured batches of a bundle.
func attentionRows(t testing.TB, device string, tp int) []timed {
	t.Helper()
	var rows []timed
	for _, r := range tables(t)[device].ranks[tp][attention].rows {
		rows = append(rows, timed{batch{float64(r.tokens), float64(r.context), float64(r.sequences), float64(r.sequenceContext)}, r.median})
	}
	return rows
}

func TestAttentionAccuracy(t *testing.T) {
	for _, d := range devices() {
		rows := attentionRows(t, d.name, d.tp)
		t.Logf("%s tp%d, mean absolute error in %%:", d.name, d.tp)
		score := func(why string, bars [4]float64, folds int, keep func(fold, i int, r timed) bool) {
			var phases [3]relative
			var all relative
			for fold := range folds {
				var train, test []timed
				for i, r := range rows {
					if keep(fold, i, r) {
						train = append(train, r)
					} else {
						test = append(test, r)
					}
				}
				surfaces := surfacesOf(train)
				for _, r := range test {
					got := surfaces[r.phase()].seconds(r.batch)
					phases[r.phase()].add(got, r.t)
					all.add(got, r.t)
				}
			}
			if all.n == 0 {
				return
			}
			t.Logf("%-26s decode %5.2f  chunk %5.2f  mixed %5.2f  all %5.2f", why, phases[0].percent(), phases[1].percent(), phases[2].percent(), all.percent())
			for i, got := range []relative{phases[0], phases[1], phases[2], all} {
				if got.percent() > bars[i] {
					t.Errorf("%s tp%d: %s: %s off by %.2f %%, want at most %g %%", d.name, d.tp, why, []string{"decode", "chunk", "mixed", "all"}[i], got.percent(), bars[i])
				}
			}
		}
		order := rand.New(rand.NewPCG(1, 2)).Perm(len(rows))
		score("2 of 5 folds", [4]float64{5, 4, 3, 3}, 2, func(fold, i int, _ timed) bool { return order[i]%5 != fold })
		score("powers of two", [4]float64{5, 8, 8, 8}, 1, func(_, _ int, r timed) bool {
			return powerOfTwo(r.c) && powerOfTwo(r.p) && powerOfTwo(r.n) && powerOfTwo(r.k)
		})
		score("contexts up to 4096", [4]float64{5, 15, 15, 15}, 1, func(_, _ int, r timed) bool { return max(r.p, r.k) <= 4096 })
	}
}
