package campaign

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/settings"
)

// secrets finds what must not be stored with a cell: variables and arguments
// whose names promise a secret, and values that look like one.
func (c Cell) secrets() []problem {
	var found []problem
	add := func(field string, index int, text string) {
		found = append(found, problem{
			field: field, index: index, secret: true, text: text + ", which would be stored with every cell",
			advice: "set it in the environment of llmprof or of the container instead",
		})
	}
	redactor := engine.NewRedactor()
	looks := func(value string) bool { return redactor.Redact(value) != value }
	for _, name := range slices.Sorted(maps.Keys(c.EngineEnv)) {
		switch {
		case engine.SecretName(name):
			add("engine_env", -1, settings.Clip(name)+" holds a secret")
		case looks(c.EngineEnv[name]):
			add("engine_env", -1, settings.Clip(name)+" holds what looks like a secret")
		}
	}
	option := "" // that the next word belongs to
	for i, word := range c.EngineArgs {
		name, value := word, ""
		if at := strings.IndexAny(word, "= "); at >= 0 {
			name, value = word[:at], strings.TrimSpace(word[at+1:])
		}
		switch {
		case value != "" && engine.SecretName(name):
			add("engine_args", i, settings.Clip(name)+" holds a secret")
		case option != "" && word != "" && !strings.HasPrefix(word, "-"):
			add("engine_args", i, settings.Clip(option)+" holds a secret")
		case looks(word):
			add("engine_args", i, fmt.Sprintf("word %d looks like a secret", i+1))
		}
		option = ""
		if strings.HasPrefix(word, "-") && engine.SecretName(word) {
			option = word
		}
	}
	return found
}
