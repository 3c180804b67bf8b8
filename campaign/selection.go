package campaign

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/settings"
	"github.com/llmprof/llmprof/store"
	"github.com/llmprof/llmprof/unit"
)

// Filter chooses cells. The zero value chooses all of them.
type Filter struct{ terms []term }

// term is one key with the values of which one must match.
type term struct {
	key    string
	values []string
}

// Select reads a filter such as "model=llama*,batch=8,input=512|1024,state=failed".
// All terms must hold; of the values between bars one must. A star stands for
// any text, case does not matter, and what stands before the last slash of a
// model, an organisation or folders, may be left out. Sizes may be written as 4k or 4Ki. An empty text
// chooses all cells.
func Select(expr string) (Filter, error) {
	var f Filter
	if strings.TrimSpace(expr) == "" {
		return f, nil
	}
	keys := slices.Sorted(maps.Keys(selectable()))
	for part := range strings.SplitSeq(expr, ",") {
		key, text, found := strings.Cut(strings.TrimSpace(part), "=")
		key = strings.TrimSpace(key)
		bad := func(format string, args ...any) (Filter, error) {
			return Filter{}, &SelectError{Text: expr, Why: fmt.Sprintf(format, args...), Keys: keys}
		}
		switch {
		case !found:
			return bad("%q is not of the form key=value", settings.Clip(part))
		case !slices.Contains(keys, key):
			return bad("unknown key %q", settings.Clip(key))
		case slices.ContainsFunc(f.terms, func(t term) bool { return t.key == key }):
			return bad("%s stands twice: write %s=a|b", key, key)
		}
		t := term{key: key}
		for value := range strings.SplitSeq(text, "|") {
			if n, err := unit.ParseCount(value); err == nil && sized(key) {
				value = strconv.Itoa(n)
			}
			value = strings.ToLower(strings.TrimSpace(value))
			if value == "" {
				return bad("%s has an empty value", key)
			}
			if sized(key) && strings.Trim(value, "0123456789*") != "" {
				return bad("%s=%s: want a number", key, settings.Clip(value))
			}
			if key == "state" && !slices.ContainsFunc(store.States(), func(s store.State) bool { return matches(value, string(s)) }) {
				return bad("no state is called %q: want one of %s", settings.Clip(value), unit.List(store.States()))
			}
			t.values = append(t.values, value)
		}
		f.terms = append(f.terms, t)
	}
	return f, nil
}

// selectable lists the keys of a filter with what they look at.
func selectable() map[string]func(Cell, store.State) string {
	count := func(of func(Cell) int) func(Cell, store.State) string {
		return func(c Cell, _ store.State) string { return strconv.Itoa(of(c)) }
	}
	word := func(of func(Cell) string) func(Cell, store.State) string {
		return func(c Cell, _ store.State) string { return of(c) }
	}
	return map[string]func(Cell, store.State) string{
		"model":        word(func(c Cell) string { return c.ModelID }),
		"container":    word(Cell.host),
		"place":        word(func(c Cell) string { return c.Place }),
		"engine":       word(func(c Cell) string { return c.Engine }),
		"device":       word(func(c Cell) string { return c.Device }),
		"dtype":        word(func(c Cell) string { return c.DType }),
		"quantization": word(func(c Cell) string { return c.Quantization }),
		"kv":           word(func(c Cell) string { return c.KVCacheDType }),
		"hash":         word(Cell.Hash),
		"input":        count(func(c Cell) int { return c.InputLen }),
		"output":       count(func(c Cell) int { return c.OutputLen }),
		"batch":        count(func(c Cell) int { return c.BatchSize }),
		"block":        count(func(c Cell) int { return c.BlockSize }),
		"tp":           count(func(c Cell) int { return c.TensorParallel }),
		"pp":           count(func(c Cell) int { return max(c.PipelineParallel, 1) }),
		"state":        func(_ Cell, s store.State) string { return string(s) },
	}
}

// sized reports whether the values of a key are counts.
func sized(key string) bool {
	return slices.Contains([]string{"input", "output", "batch", "block", "tp", "pp"}, key)
}

// Match reports whether a cell in a state is chosen. Before a run every cell
// is pending.
func (f Filter) Match(c Cell, state store.State) bool {
	keys := selectable()
	for _, t := range f.terms {
		value := keys[t.key](c, state)
		names := []string{value}
		if t.key == "model" {
			names = append(names, value[strings.LastIndexAny(value, `/\`)+1:])
		}
		if !slices.ContainsFunc(t.values, func(pattern string) bool {
			return slices.ContainsFunc(names, func(name string) bool { return matches(pattern, name) })
		}) {
			return false
		}
	}
	return true
}

// ByState reports whether the filter asks for certain states.
func (f Filter) ByState() bool {
	return slices.ContainsFunc(f.terms, func(t term) bool { return t.key == "state" })
}

// matches compares with a pattern in lower case, in which a star stands for
// any text.
func matches(pattern, value string) bool {
	value = strings.ToLower(value)
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == value
	}
	value, ok := strings.CutPrefix(value, parts[0])
	if !ok {
		return false
	}
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		_, rest, found := strings.Cut(value, part)
		if !found {
			return false
		}
		value = rest
	}
	return strings.HasSuffix(value, last)
}

// SelectError says that a text is not a filter.
type SelectError struct {
	// Text is the whole filter, Why what is wrong with it.
	Text, Why string
	// Keys are all keys that there are.
	Keys []string
}

// Error names the filter.
func (e *SelectError) Error() string {
	return fmt.Sprintf("filter %q: %s", settings.Clip(e.Text), e.Why)
}

// Hint lists the keys.
func (e *SelectError) Hint() string {
	return "known keys: " + strings.Join(e.Keys, ", ") + "; for example model=llama*,batch=8,input=512|1024"
}

// ExitCode is that of wrong usage.
func (e *SelectError) ExitCode() int { return 2 }
