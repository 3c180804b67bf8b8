// Package catalog knows model architectures, accelerators, links and number
// formats: the datasheet facts from which every theoretical figure follows.
//
// [Builtin] returns the embedded tables. A [Catalog] finds a model by short
// name, hub id or alias ("Qwen3-14B", "Qwen/Qwen3-14B", "qwen3-14b") and a
// device by any spelling in use ("H100", "NVIDIA-H100-80GB-HBM3"); an unknown
// name gives an [*UnknownError] that carries the three nearest names, never
// another entry. A user's own entries are laid over the tables by
// [Catalog.Overlay].
//
// Every device figure carries its source and whether it was compared with
// it. A model's parameter count is checked against the architecture whenever
// a table is read.
package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Catalog holds models and devices and finds them by name. Its entries are
// shared: whoever wants to change one changes a copy ([Model.Clone]). A
// Catalog is immutable and safe for concurrent use.
type Catalog struct {
	models     []*Model // sorted by name
	devices    []*Device
	modelKeys  map[string]*Model // by modelKey of every spelling
	deviceKeys map[string]*Device
}

// newCatalog checks every entry and that no two share a name; it keeps the
// entries themselves.
func newCatalog(models []*Model, devices []*Device) (*Catalog, error) {
	c := &Catalog{
		models:     slices.Clone(models),
		devices:    slices.Clone(devices),
		modelKeys:  make(map[string]*Model, 8*len(models)),
		deviceKeys: make(map[string]*Device, 4*len(devices)),
	}
	slices.SortFunc(c.models, func(a, b *Model) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(c.devices, func(a, b *Device) int { return strings.Compare(a.Name, b.Name) })
	var faults []error
	for _, m := range c.models {
		faults = append(faults, m.Validate(), c.indexModel(m))
	}
	for _, d := range c.devices {
		faults = append(faults, d.Validate(), c.indexDevice(d))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return c, nil
}

// indexModel files m under all its spellings.
func (c *Catalog) indexModel(m *Model) error {
	if modelKey(m.Name) == "" {
		return errors.New("a model has no name")
	}
	for key := range modelSpellings(m) {
		if other, taken := c.modelKeys[key]; taken && other != m {
			return fmt.Errorf("model %s: the name %q is also model %s", m.Name, key, other.Name)
		}
		c.modelKeys[key] = m
	}
	return nil
}

// indexDevice files d under its name and aliases.
func (c *Catalog) indexDevice(d *Device) error {
	if deviceKey(d.Name) == "" {
		return errors.New("a device has no name")
	}
	for key := range deviceSpellings(d) {
		if other, taken := c.deviceKeys[key]; taken && other != d {
			return fmt.Errorf("device %s: the name %q is also device %s", d.Name, key, other.Name)
		}
		c.deviceKeys[key] = d
	}
	return nil
}

// Models lists the models by name.
func (c *Catalog) Models() []*Model { return slices.Clone(c.models) }

// Devices lists the devices by name.
func (c *Catalog) Devices() []*Device { return slices.Clone(c.devices) }

// UnknownError says that a name is not in the catalog.
type UnknownError struct {
	// Kind is "model" or "device".
	Kind string
	// Name is what was asked for.
	Name string
	// Nearest are the closest known names, best first; at most three.
	Nearest []string
}

// Error names the thing that was not found.
func (e *UnknownError) Error() string {
	if e.Name == "" {
		return "no " + e.Kind + " is named"
	}
	return fmt.Sprintf("%s %q is not in the catalog", e.Kind, e.Name)
}

// Hint says what to do next.
func (e *UnknownError) Hint() string {
	if len(e.Nearest) == 0 {
		return ""
	}
	return "nearest known: " + strings.Join(e.Nearest, ", ")
}

// normalise maps the spellings of one name onto one key: lower case, blanks
// and underscores as hyphens.
func normalise(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '_' {
			return '-'
		}
		return r
	}, s)
}
