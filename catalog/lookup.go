package catalog

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/settings"
)

// Model finds a model by short name, hub id or alias. Case does not matter,
// blanks and underscores count as hyphens, and the organisation may be left
// out: "Qwen/Qwen3-14B", "qwen3-14b" and "Qwen3 14B" are one model. Another
// organisation's id is another model. An unknown name gives an
// [*UnknownError]. The model must not be changed.
func (c *Catalog) Model(name string) (*Model, error) {
	if m, ok := c.modelKeys[modelKey(name)]; ok {
		return m, nil
	}
	return nil, &UnknownError{Kind: "model", Name: name, Nearest: nearest(modelKey(name), c.modelNames(), suggestions)}
}

// Device finds a device by canonical name, vendor's name or alias. Of a name
// that fits several devices note says which one was taken: "A100 means
// a100-sxm-80gb; others: …"; it is empty where the name leaves no choice. An
// unknown name gives an [*UnknownError]. The device must not be changed.
func (c *Catalog) Device(name string) (d *Device, note string, err error) {
	key := deviceKey(name)
	d, ok := c.deviceKeys[key]
	if !ok {
		return nil, "", &UnknownError{Kind: "device", Name: name, Nearest: nearest(key, c.deviceNames(), suggestions)}
	}
	if choice, others, open := ambiguous(key); open && choice == d.Name {
		note = fmt.Sprintf("%s means %s; others: %s", strings.TrimSpace(name), d.Name, strings.Join(others, ", "))
	}
	return d, note, nil
}

// modelKey maps the spellings of a model name onto one key.
func modelKey(name string) string {
	key := normalise(name)
	for strings.Contains(key, "--") {
		key = strings.ReplaceAll(key, "--", "-")
	}
	return strings.Trim(key, "-")
}

// spellings lists the keys under which one name of a model is found: with and
// without organisation. A bare name may stand behind the organisation of the
// model's hub id, given as a key.
func spellings(org, name string) []string {
	key := modelKey(name)
	if key == "" {
		return nil
	}
	if _, short, hasOrg := strings.Cut(key, "/"); hasOrg {
		return []string{key, short}
	}
	if org == "" {
		return []string{key}
	}
	return []string{key, org + "/" + key}
}

// hubOrg is the key of the organisation in the model's hub id; empty without
// one.
func hubOrg(m *Model) string {
	org, _, _ := strings.Cut(m.HubID, "/")
	return modelKey(org)
}

// modelSpellings yields the keys under which m is found.
func modelSpellings(m *Model) iter.Seq[string] {
	return func(yield func(string) bool) {
		org := hubOrg(m)
		for _, name := range slices.Concat([]string{m.Name, m.HubID}, m.Aliases) {
			for _, key := range spellings(org, name) {
				if !yield(key) {
					return
				}
			}
		}
	}
}

// deviceSpellings yields the keys under which d is found.
func deviceSpellings(d *Device) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, name := range slices.Concat([]string{d.Name}, d.Aliases) {
			if key := deviceKey(name); key != "" && !yield(key) {
				return
			}
		}
	}
}

// modelNames yields every key with the canonical name that it stands for.
func (c *Catalog) modelNames() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for key, m := range c.modelKeys {
			if !yield(key, m.Name) {
				return
			}
		}
	}
}

// deviceNames yields every key with the canonical name that it stands for.
func (c *Catalog) deviceNames() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for key, d := range c.deviceKeys {
			if !yield(key, d.Name) {
				return
			}
		}
	}
}

// suggestions is how many names an [*UnknownError] offers.
const suggestions = 3

// Nearest returns the at most n of names that are closest to name, best
// first: names that contain it, then few edits, and a long common beginning
// where edits are equal in number or nearly so. What stands before a slash is not compared, nor what
// follows the first 64 bytes. It serves any "did you mean".
func Nearest(name string, names []string, n int) []string {
	return nearest(name, func(yield func(string, string) bool) {
		for _, candidate := range names {
			if !yield(candidate, candidate) {
				return
			}
		}
	}, n)
}

// nearest does the work of [Nearest] for names that stand behind several
// keys: known yields each key with its name.
func nearest(key string, known iter.Seq2[string, string], n int) []string {
	const compared = 64 // bytes
	short := func(s string) string {
		s = s[strings.LastIndexByte(s, '/')+1:]
		return s[:min(len(s), compared)]
	}
	key = short(key)
	best := map[string]int{} // name → cost of its closest key
	for candidate, name := range known {
		candidate = short(candidate)
		cost := 2*settings.EditDistance(key, candidate) - commonPrefix(key, candidate)
		if len(key) >= 3 && strings.Contains(candidate, key) {
			// A part of a name, such as "4090": closer than any misspelling.
			cost = len(candidate) - len(key) - 4*compared
		}
		if old, seen := best[name]; !seen || cost < old {
			best[name] = cost
		}
	}
	names := slices.Collect(maps.Keys(best))
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(best[a], best[b]), strings.Compare(a, b))
	})
	return names[:max(min(len(names), n), 0)]
}

// commonPrefix is the number of bytes with which both strings begin.
func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
