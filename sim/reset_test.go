package sim

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestReset holds a scheduler that was used for something else, and left in the
// middle of it, against a new one.
func TestReset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) (Config, []Request) {
			c := drawConfig(t)
			c.Aggregate = rapid.Bool().Draw(t, name+" aggregates")
			load := make([]Request, rapid.IntRange(1, 10).Draw(t, name))
			for i := range load {
				load[i] = drawRequest(t, c)
				load[i].Hold = rapid.IntRange(0, 3).Draw(t, "hold") == 0
				load[i].Remote = max(0, rapid.IntRange(-load[i].Prompt, load[i].Prompt).Draw(t, "remote"))
			}
			return c, load
		}
		c, load := draw("before")
		used, err := NewScheduler(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range load {
			arrives(t, used, q)
		}
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			used.Schedule()
			used.Apply()
		}
		bad := c
		if bad.Blocks = 0; used.Reset(bad) == nil {
			t.Fatal("a pool without blocks is taken")
		}
		c, load = draw("after")
		if err := used.Reset(c); err != nil {
			t.Fatal(err)
		}
		fresh, err := NewScheduler(c)
		if err != nil {
			t.Fatal(err)
		}
		for step := 0; step < 200 && (len(load) > 0 || !fresh.Idle()); step++ {
			if len(load) > 0 {
				arrives(t, used, load[0])
				arrives(t, fresh, load[0])
				load = load[1:]
			}
			p := fresh.Schedule()
			loads := append([]Load(nil), p.Loads...)
			if want, got := fmt.Sprintf("%+v", *p), fmt.Sprintf("%+v", *used.Schedule()); got != want {
				t.Fatalf("step %d: plan %s, want %s", step, got, want)
			}
			if want, got := fmt.Sprintf("%+v", *fresh.Apply()), fmt.Sprintf("%+v", *used.Apply()); got != want {
				t.Fatalf("step %d: outcome %s, want %s", step, got, want)
			}
			for _, l := range loads {
				if used.Loaded(l.Request) != fresh.Loaded(l.Request) {
					t.Fatalf("step %d: request %d", step, l.Request)
				}
			}
			for id := range fresh.requests.state {
				fresh.Release(int32(id))
				used.Release(int32(id))
			}
			if err := used.unbalanced(); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
		if used.Totals() != fresh.Totals() {
			t.Fatalf("%+v, want %+v", used.Totals(), fresh.Totals())
		}
	})
}
