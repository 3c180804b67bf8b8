package vllm_test

import (
	"testing"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
	"github.com/llmprof/llmprof/engine/vllm"
)

// attachReal attaches to the real server that a session started and measures
// without pausing it.
func attachReal(t *testing.T, started engine.Session, log *growing) {
	t.Helper()
	driver := &vllm.Server{URL: vllm.Address(started), OpenLog: log.open}
	session, err := driver.Start(t.Context(), place.Local(), engine.Setup{Model: "tiny"})
	if err != nil {
		t.Error("attach:", err)
		return
	}
	defer session.Close()
	t.Logf("attached: %+v", session.Facts())
	for _, r := range measured(t, session, []engine.Task{stepTask(1, 3, 1, 64, 8), stepTask(2, 3, 8, 64, 8), stepTask(3, 3, 4, 256, 8)}) {
		checkClean(t, r)
	}
}
