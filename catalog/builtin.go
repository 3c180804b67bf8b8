package catalog

import (
	_ "embed"
	"encoding/json"
	"fmt"
)

//go:embed models.json
var modelsJSON []byte

//go:embed devices.json
var devicesJSON []byte

// Builtin returns the embedded tables, checked. Every call reads them anew, so
// a program calls it once.
func Builtin() (*Catalog, error) {
	var models []*Model
	if err := json.Unmarshal(modelsJSON, &models); err != nil {
		return nil, fmt.Errorf("read the embedded table of models: %w", err)
	}
	var devices []*Device
	if err := json.Unmarshal(devicesJSON, &devices); err != nil {
		return nil, fmt.Errorf("read the embedded table of devices: %w", err)
	}
	c, err := newCatalog(models, devices)
	if err != nil {
		return nil, fmt.Errorf("embedded tables: %w", err)
	}
	return c, nil
}
