package main

import (
	"strings"

	"github.com/llmprof/llmprof/engine"
)

// publicArgs are the arguments of an engine as they may be printed and kept: of
// an option whose name promises a secret the value is hidden, be it in the same
// word or in the next one, and so is what is found in their line as a whole. env
// is the engine's environment, whose secrets are hidden too.
func publicArgs(args, env []string) []string {
	redactor := engine.NewRedactor(env...)
	clean := redactor.RedactEnv(args)
	for i := 1; i < len(clean); i++ {
		if promisesSecret(args[i-1]) && !strings.HasPrefix(args[i], "-") {
			clean[i] = engine.Hidden
		}
	}
	// A secret may lie across words: "Bearer" and what follows.
	line := strings.ReplaceAll(strings.Join(clean, " "), engine.Hidden, "-")
	if redacted := redactor.Redact(line); redacted != line {
		return strings.Fields(redacted)
	}
	return clean
}

// promisesSecret reports whether an argument is an option that a secret follows.
func promisesSecret(arg string) bool {
	return strings.HasPrefix(arg, "-") && !strings.Contains(arg, "=") && engine.SecretName(strings.TrimLeft(arg, "-"))
}
