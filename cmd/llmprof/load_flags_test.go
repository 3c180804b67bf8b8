package main

import (
	"bytes"
	"context"
	"strings"
	"syscall"
	"testing"
)

// TestInterruptedWhileALoadIsMade: a load of millions takes seconds to make, and
// who interrupts that has made no mistake.
func TestInterruptedWhileALoadIsMade(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&interruption{syscall.SIGINT})
	for _, command := range []string{"workload", "simulate Llama-3.1-8B --gpu h100"} {
		var out, messages bytes.Buffer
		args := append(strings.Fields(command), "--num-prompts", "9", "--request-rate", "3", "-q")
		err := run(ctx, args, strings.NewReader(""), &out, &messages)
		if exitCode(err) != codeInterrupted || messages.String() != "llmprof: interrupted\n" || out.Len() > 0 {
			t.Errorf("%s: exit code %d, %q, %q", command, exitCode(err), messages.String(), out.String())
		}
	}
}
