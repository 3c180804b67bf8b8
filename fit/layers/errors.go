package layers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/settings"
)

// UnknownLayerError says that a table has no such layer.
type UnknownLayerError struct {
	// Name is what was asked for.
	Name string
	// Nearest are names that the table has, the most similar first.
	Nearest []string
}

// Error names the layer.
func (e *UnknownLayerError) Error() string {
	return fmt.Sprintf("layer %q: not in the profile", e.Name)
}

// Hint names what the profile has instead.
func (e *UnknownLayerError) Hint() string {
	if len(e.Nearest) == 0 {
		return "the profile has no layers of this kind"
	}
	return "nearest: " + strings.Join(e.Nearest, ", ")
}

func unknownLayer(name string, known []string) error {
	near := slices.Clone(known)
	slices.SortFunc(near, func(a, b string) int {
		if d := distance(name, a) - distance(name, b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return &UnknownLayerError{Name: name, Nearest: near[:min(3, len(near))]}
}

// maxName bounds the bytes of a name that are compared with others.
const maxName = 64

// distance is the number of edits between two names.
func distance(a, b string) int {
	return settings.EditDistance(a[:min(len(a), maxName)], b[:min(len(b), maxName)])
}

func notMeasured(what, why string) error { return &fit.NotMeasuredError{What: what, Why: why} }
