package sglang

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/sim"
)

// token is one token by its name: whose it is, and where it stands.
type token struct {
	node    int32
	request int
	place   int32
}

// spell writes the first n tokens of a request out.
func spell(request int, prefix []sim.Span, n int32) (tokens [100]token) {
	for p := range n {
		tokens[p] = token{node: none, request: request, place: p}
		for _, s := range prefix {
			if int(p) < s.End {
				tokens[p] = token{node: s.Node, place: p}
				break
			}
		}
	}
	return tokens
}

// TestTreeIsSetOfPages holds the tree against a set of all beginnings that were
// inserted, token by token.
func TestTreeIsSetOfPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		page := rapid.SampledFrom([]int32{1, 4, 7}).Draw(t, "page")
		tree := newTree(page, rapid.Bool().Draw(t, "lazy"))
		requests := drawRequests(t)
		for i := range requests {
			requests[i].MaxNew = 20
			if err := tree.know(requests[i].Prefix, 200); err != nil {
				t.Fatal(err)
			}
		}
		cached, pages := map[[100]token]bool{}, map[sim.Block]bool{}
		tree.watched = true
		longest := func(r int, n int32) (hit int32) {
			for hit+page <= n && cached[spell(r, requests[r].Prefix, hit+page)] {
				hit += page
			}
			return hit
		}
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			r := rapid.IntRange(0, len(requests)-1).Draw(t, "request")
			n := int32(rapid.IntRange(0, 100).Draw(t, "tokens"))
			want := longest(r, n)
			if hit := tree.peek(int32(r), n); hit != want {
				t.Fatalf("request %d: %d of %d tokens are seen, want %d", r, hit, n, want)
			}
			switch rapid.IntRange(0, 4).Draw(t, "operation") {
			case 0:
				if hit, node := tree.match(int32(r), n); hit != want || tree.end[node] != hit {
					t.Fatalf("request %d: %d of %d tokens are found, want %d", r, hit, n, want)
				}
			case 1:
				total := tree.total
				if freed := tree.evict(int(n) / 4); freed != total-tree.total || freed < min(int(n)/4, total) {
					t.Fatalf("%d tokens are evicted of %d, %d stay", freed, total, tree.total)
				}
				for beginning := range cached {
					delete(cached, beginning)
				}
				for i := range requests {
					hit, _ := tree.match(int32(i), 100)
					for end := page; end <= hit; end += page {
						cached[spell(i, requests[i].Prefix, end)] = true
					}
				}
			default:
				if present, node := tree.insert(int32(r), n); present != want || tree.end[node] != n/page*page {
					t.Fatalf("request %d: %d of %d tokens are there, want %d", r, present, n, want)
				}
				for end := page; end <= n; end += page {
					cached[spell(r, requests[r].Prefix, end)] = true
				}
			}
			for _, c := range tree.changes {
				if pages[c.Block] == c.There {
					t.Fatalf("page %+v comes or leaves twice", c)
				}
				if pages[c.Block] = true; !c.There {
					delete(pages, c.Block)
				}
			}
			tree.changes = tree.changes[:0]
			shared := 0
			for beginning := range cached {
				last := 0
				for last+1 < len(beginning) && beginning[last+1] != (token{}) {
					last++
				}
				if node := beginning[last].node; node != none {
					if shared++; !pages[sim.Block{Owner: sim.Node(node), Index: int32(last+1)/page - 1}] {
						t.Fatalf("page %d of node %d is cached and was not told", last, node)
					}
				}
			}
			if shared != len(pages) {
				t.Fatalf("%d pages of shared nodes were told, %d are cached", len(pages), shared)
			}
			if tree.total != len(cached)*int(page) {
				t.Fatalf("the tree holds %d tokens, want %d pages of %d", tree.total, len(cached), page)
			}
		}
	})
}

// TestPrefixFaults holds prefixes that are none to an error and no request.
func TestPrefixFaults(t *testing.T) {
	rules, err := RulesOf("")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Rules: rules, Pool: 100, Page: 1, MaxPrefill: 64, Seats: 8, Conservativeness: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Add(Request{Prompt: 10, MaxNew: 4, Prefix: []sim.Span{{Node: 1, End: 4}, {Node: 2, End: 14}}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why    string
		prefix []sim.Span
		want   string
	}{
		{"a node has a number", []sim.Span{{Node: -1, End: 4}}, "add request: shared node -1: want 0 to 2147483646"},
		{"tokens beyond the last are nobody's", []sim.Span{{Node: 1, End: 15}}, "add request: spans of a prefix: want ends that grow and are no later than the request's last token"},
		{"spans go on", []sim.Span{{Node: 1, End: 4}, {Node: 2, End: 3}}, "add request: spans of a prefix: want ends that grow and are no later than the request's last token"},
		{"a node begins at one place", []sim.Span{{Node: 1, End: 5}, {Node: 2, End: 9}}, "add request: shared node 2 begins at token 5 here and at 4 elsewhere: want the same tokens before it"},
		{"a node has one node before it", []sim.Span{{Node: 3, End: 4}, {Node: 2, End: 9}}, "add request: shared node 2 begins at token 4 here and at 4 elsewhere: want the same tokens before it"},
	} {
		t.Run(c.why, func(t *testing.T) {
			if _, err := s.Add(Request{Prompt: 10, MaxNew: 4, Prefix: c.prefix}); err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	if id, err := s.Add(Request{Prompt: 10, MaxNew: 4, Prefix: []sim.Span{{Node: 1, End: 4}, {Node: 2, End: 9}}}); id != 1 || err != nil {
		t.Errorf("the next request is %d, %v; want 1", id, err)
	}
}
