package mock

import (
	"testing"

	"pgregory.net/rapid"
)

// TestKVCacheConserves takes, grows and releases at random, and holds the count
// against the blocks that are held.
func TestKVCacheConserves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(4, 40).Draw(t, "blocks")
		c := newKVCache(Options{KVBlocks: total, BlockSize: 4})
		type user struct {
			holding
			tokens int
		}
		var users []*user
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch which := rapid.IntRange(0, 2).Draw(t, "what"); {
			case which == 0 || len(users) == 0:
				ids := make([]int64, rapid.IntRange(1, 30).Draw(t, "prompt"))
				ids[0] = int64(rapid.IntRange(0, 2).Draw(t, "first token"))
				h, cached, ok := c.take(blockKeys(ids, 4), len(ids), len(ids))
				if cached >= len(ids) {
					t.Fatalf("%d of %d tokens are cached: the last one must be computed", cached, len(ids))
				}
				if ok {
					users = append(users, &user{h, len(ids)})
				}
			case which == 1:
				u := users[rapid.IntRange(0, len(users)-1).Draw(t, "who")]
				if c.grow(&u.holding, u.tokens+1) {
					u.tokens++
				}
			default:
				i := rapid.IntRange(0, len(users)-1).Draw(t, "who")
				c.release(&users[i].holding)
				users = append(users[:i], users[i+1:]...)
			}
			held, private := map[uint64]bool{}, 0
			for _, u := range users {
				if len(u.shared)+u.private != c.blocksOf(u.tokens) {
					t.Fatalf("%d tokens have %d blocks", u.tokens, len(u.shared)+u.private)
				}
				private += u.private
				for _, b := range u.shared {
					held[b.key] = true
				}
			}
			if want := private + len(held); c.used != want || c.used+c.idle.Len() > total {
				t.Fatalf("%d blocks used, want %d; with %d idle ones of %d", c.used, want, c.idle.Len(), total)
			}
			if len(c.known) != len(held)+c.idle.Len() {
				t.Fatalf("%d blocks are known, %d held and %d idle", len(c.known), len(held), c.idle.Len())
			}
		}
	})
}

// TestBlockKeys tells prompts apart.
func TestBlockKeys(t *testing.T) {
	seen := map[uint64]bool{}
	for _, ids := range [][]int64{make([]int64, 16), {1, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 1}} {
		for i, key := range blockKeys(ids, 4) {
			if repeated := seen[key]; repeated != (ids[0] == 0 && i == 0 && len(ids) == 8) {
				t.Errorf("block %d of %v: seen before is %v", i, ids, repeated)
			}
			seen[key] = true
		}
	}
}

func TestTokenTextIsOneToken(t *testing.T) {
	for _, rule := range []TokenRule{FourCharacters, Words} {
		if got := len(rule.tokens(tokenText + tokenText + tokenText)); got != 3 {
			t.Errorf("%s: three tokens count as %d", rule, got)
		}
	}
	if got := len(FourCharacters.tokens("äöüß\xff")); got != 2 {
		t.Errorf("five characters are %d tokens, want 2", got)
	}
}

func TestTruthsAreBounded(t *testing.T) {
	truths := truths{limit: 10}
	var last *Truth
	for range 20 {
		last = truths.begin("x", 1)
		for range 3 {
			truths.put(last, batch{emit: 2, pieces: []piece{{due: 1}}})
		}
	}
	if truths.held > 10 || len(truths.list()) != 2 || len(last.Emits) != 3 {
		t.Errorf("%d emissions of %d requests are held", truths.held, len(truths.list()))
	}
	for range 20 {
		truths.put(last, batch{emit: 2, pieces: []piece{{due: 1}}})
	}
	if truths.held != 0 || len(truths.list()) != 0 {
		t.Errorf("a request longer than the bound: %d are held", truths.held)
	}
}

func TestLateness(t *testing.T) {
	var l lateness
	for i := range 100 {
		l.observe(int64(i+1) * 1000)
	}
	for q, want := range map[float64]float64{0.5: 50e3, 0.99: 99e3, 1: 100e3} {
		if got := float64(l.quantile(q)); got < want || got > 1.1*want {
			t.Errorf("quantile %v is %v ns, want %v and at most 10 %% more", q, got, want)
		}
	}
}

// FuzzRequest reads bodies of completions and chats.
func FuzzRequest(f *testing.F) {
	for _, text := range []string{
		`{"prompt":"a","max_tokens":3,"stream":true,"stream_options":{"include_usage":true}}`,
		`{"prompt":[[1,2,3]],"min_tokens":1,"ignore_eos":true,"stop":["x"]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"max_completion_tokens":5,"n":1}`,
	} {
		f.Add([]byte(text), true)
		f.Add([]byte(text), false)
	}
	o := Options{MaxModelLen: 1000}.withDefaults()
	f.Fuzz(func(t *testing.T, text []byte, chat bool) {
		r, err := o.parseRequest(text, chat)
		if err != nil {
			return
		}
		tokens, _ := o.answer(r)
		if r.promptTokens() < 1 || tokens < 1 || r.promptTokens()+tokens > o.MaxModelLen || r.promptTokens() > len(text) {
			t.Errorf("%q: %d tokens of prompt, %d to put out", text, r.promptTokens(), tokens)
		}
	})
}
