package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/llmprof/llmprof/store"
)

// A run of two cells, the second of which is out of memory.
func Example() {
	ctx := context.Background()
	st, err := store.Open(ctx, store.Memory) // a file, as a rule: store.DefaultPath
	if err != nil {
		fmt.Println(err)
		return
	}
	run := store.Run{ID: "2026-03-01-a1", Kind: "batch", Source: "grid.yaml"}
	err = st.CreateRun(ctx, run, []store.Cell{
		{Hash: "6f1a", Index: 0, Spec: json.RawMessage(`{"batch_size":1}`)},
		{Hash: "90c2", Index: 1, Spec: json.RawMessage(`{"batch_size":256}`)},
	})
	cells, fault := st.Cells(ctx, run.ID)
	err = errors.Join(err, fault)
	for _, c := range cells {
		c.Attempts, fault = st.Begin(ctx, c.RunID, c.Hash, time.Now())
		if c.State, c.Result = store.Done, json.RawMessage(`{"peak_gib":21.5}`); c.Index == 1 {
			c.State, c.Result, c.Error = store.OOM, nil, "out of memory"
		}
		err = errors.Join(err, fault, st.Finish(ctx, c))
	}
	found, fault := st.Run(ctx, "2026") // a beginning that is unique
	fmt.Println(found.ID, found.Source)
	runs, further := st.Runs(ctx)
	for _, r := range runs {
		fmt.Println(r.Counts)
	}
	fmt.Println(errors.Join(err, fault, further, st.Close()))
	// Output:
	// 2026-03-01-a1 grid.yaml
	// map[done:1 oom:1]
	// <nil>
}

// A lock keeps a second process from working on the same run.
func ExampleStore_Lock() {
	ctx := context.Background()
	st, err := store.Open(ctx, store.Memory)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer st.Close()
	if err := st.CreateRun(ctx, store.Run{ID: "night"}, nil); err != nil {
		fmt.Println(err)
		return
	}
	release, err := st.Lock(ctx, "night", "node-1:4711", time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = st.Lock(ctx, "night", "node-1:4712", time.Minute)
	fmt.Println(err)
	fmt.Println(release())
	// Output:
	// lock run night: run night is in use by node-1:4711
	// <nil>
}

// A profile is found by its name or by the beginning of its hash.
func ExampleStore_PutProfile() {
	ctx := context.Background()
	st, err := store.Open(ctx, store.Memory)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer st.Close()
	hash, err := st.PutProfile(ctx, store.Profile{Name: "qwen-h100", Model: "Qwen/Qwen3-4B", Text: []byte("the text of the profile")})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := st.Profile(ctx, hash[:8])
	fmt.Println(p.Name, p.Model, string(p.Text), err)
	// Output: qwen-h100 Qwen/Qwen3-4B the text of the profile <nil>
}
