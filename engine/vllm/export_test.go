package vllm

import "github.com/llmprof/llmprof/engine"

// Address is where the server of a session listens.
func Address(s engine.Session) string { return s.(*session).client.base }
