package gpu

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// ParseROCmSMI reads the output of "rocm-smi --showuse --showpower --showtemp
// --showmeminfo vram --json": one object a card, every value as text. A
// secondary die of a card has no power of its own.
func ParseROCmSMI(r io.Reader) ([]Reading, error) {
	var cards map[string]json.RawMessage
	if err := json.NewDecoder(io.LimitReader(r, maxText)).Decode(&cards); err != nil {
		return nil, fmt.Errorf("rocm-smi: %w", err)
	}
	var out []Reading
	for name, text := range cards {
		index, ok := strings.CutPrefix(name, "card")
		number, err := strconv.Atoi(index)
		if !ok || err != nil {
			continue
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			return nil, fmt.Errorf("rocm-smi: %s: %w", name, err)
		}
		reading := Reading{Index: number}
		for key, value := range fields {
			text, ok := value.(string)
			if !ok {
				continue
			}
			if err := reading.rocm(key, text); err != nil {
				return nil, fmt.Errorf("rocm-smi: %s: %s: %w", name, key, err)
			}
		}
		out = append(out, reading)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("rocm-smi: the output names no card")
	}
	slices.SortFunc(out, func(a, b Reading) int { return cmp.Compare(a.Index, b.Index) })
	return out, nil
}

// rocm takes one field.
func (r *Reading) rocm(key, text string) error {
	if key == "Card Series" || key == "Card series" {
		r.Name = text
		return nil
	}
	known := []string{
		"Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)", "GPU use (%)", "GPU Memory Allocated (VRAM%)",
		"VRAM Total Memory (B)", "VRAM Total Used Memory (B)", "Temperature (Sensor junction) (C)",
	}
	if !slices.Contains(known, key) {
		return nil
	}
	v, err := figure(text)
	if v == nil || err != nil {
		return err
	}
	switch key {
	case known[0], known[1]:
		r.Power = v
	case known[2]:
		share := *v / 100
		r.Utilization = &share
	case known[4]:
		r.MemoryTotal = bytes(*v, 1)
	case known[5]:
		r.MemoryUsed = bytes(*v, 1)
	case known[6]:
		r.Temperature = v
	}
	return nil
}

// amdFigure is a figure of amd-smi: {"value": 42, "unit": "%"}, or "N/A".
type amdFigure struct{ value *float64 }

// UnmarshalJSON takes the object; anything else is not available.
func (f *amdFigure) UnmarshalJSON(text []byte) error {
	var object struct {
		Value any `json:"value"`
	}
	if json.Unmarshal(text, &object) != nil {
		return nil //nolint:nilerr // "N/A" stands for a figure that the device does not give
	}
	switch v := object.Value.(type) {
	case float64:
		if v >= 0 && v <= maxFigure {
			f.value = &v
		}
	case string:
		value, err := figure(v)
		f.value = value
		return err
	}
	return nil
}

// amdGroup is a group of figures; a whole group can be "N/A".
type amdGroup map[string]amdFigure

// UnmarshalJSON takes the figures of an object that are such.
func (g *amdGroup) UnmarshalJSON(text []byte) error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil {
		return nil //nolint:nilerr // "N/A" stands for a group that the device does not give
	}
	*g = amdGroup{}
	for key, value := range fields {
		var f amdFigure
		if err := json.Unmarshal(value, &f); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		(*g)[key] = f
	}
	return nil
}

// ParseAMDSMI reads the output of "amd-smi metric --usage --power --temperature
// --mem-usage --json": a list of devices, which some releases wrap into an
// object. Its MB are taken as 2^20 bytes, which gives the known sizes.
func ParseAMDSMI(r io.Reader) ([]Reading, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxText))
	if err != nil {
		return nil, fmt.Errorf("amd-smi: %w", err)
	}
	type device struct {
		GPU         *int     `json:"gpu"`
		Usage       amdGroup `json:"usage"`
		Power       amdGroup `json:"power"`
		Temperature amdGroup `json:"temperature"`
		Memory      amdGroup `json:"mem_usage"`
	}
	var devices []device
	if err := json.Unmarshal(text, &devices); err != nil {
		var wrapped map[string]json.RawMessage
		if json.Unmarshal(text, &wrapped) != nil {
			return nil, fmt.Errorf("amd-smi: %w", err)
		}
		for _, value := range wrapped {
			if json.Unmarshal(value, &devices) == nil && len(devices) > 0 {
				break
			}
		}
	}
	var out []Reading
	for _, d := range devices {
		if d.GPU == nil {
			continue
		}
		reading := Reading{Index: *d.GPU, Power: d.Power["socket_power"].value, Temperature: d.Temperature["hotspot"].value}
		share := func(f amdFigure) *float64 {
			if f.value == nil {
				return nil
			}
			s := *f.value / 100
			return &s
		}
		reading.Utilization, reading.MemoryUtilization = share(d.Usage["gfx_activity"]), share(d.Usage["umc_activity"])
		if v := d.Memory["total_vram"].value; v != nil {
			reading.MemoryTotal = bytes(*v, 1<<20)
		}
		if v := d.Memory["used_vram"].value; v != nil {
			reading.MemoryUsed = bytes(*v, 1<<20)
		}
		out = append(out, reading)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("amd-smi: the output names no device")
	}
	return out, nil
}
