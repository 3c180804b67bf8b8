package gpu

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// NvidiaQuery are the arguments of nvidia-smi whose output [ParseNvidiaSMI]
// reads, for one reading of every device.
func NvidiaQuery() []string {
	return []string{
		"--query-gpu=timestamp,index,uuid,name,power.draw,power.limit,clocks.sm,clocks.mem,temperature.gpu,utilization.gpu,utilization.memory,memory.total,memory.used",
		"--format=csv,nounits",
	}
}

// maxText bounds what is read of a tool's output in bytes.
const maxText = 64 << 20

// ParseNvidiaSMI reads the output of "nvidia-smi --query-gpu=… --format=csv",
// with or without nounits. Columns are known by the header, in any order;
// unknown ones are passed over. A last line that is cut off is left out.
func ParseNvidiaSMI(r io.Reader) ([]Reading, error) {
	in := csv.NewReader(io.LimitReader(r, maxText))
	in.TrimLeadingSpace, in.FieldsPerRecord, in.LazyQuotes = true, -1, true
	header, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi: read the header: %w", err)
	}
	columns := make([]string, len(header))
	known := false
	for i, name := range header {
		// "power.draw [W]" is power.draw.
		name, _, _ = strings.Cut(strings.TrimSpace(name), " [")
		columns[i] = name
		known = known || name == "memory.total" || name == "index" || name == "uuid" || name == "name"
	}
	if !known {
		return nil, fmt.Errorf("nvidia-smi: the header %q names none of index, uuid, name, memory.total", strings.Join(header, ", "))
	}
	var out []Reading
	for line := 2; ; line++ {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("nvidia-smi: %w", err)
		}
		if len(row) < len(columns) {
			continue // cut off, or foreign
		}
		reading := Reading{Index: -1}
		for i, name := range columns {
			if err := reading.nvidia(name, strings.TrimSpace(row[i])); err != nil {
				return nil, fmt.Errorf("nvidia-smi: line %d: %s: %w", line, name, err)
			}
		}
		out = append(out, reading)
	}
}

// nvidiaFigures are the columns that hold a number.
func nvidiaFigures() []string {
	return []string{
		"index", "power.draw", "power.draw.instant", "power.draw.average", "power.limit", "clocks.sm", "clocks.current.sm", "clocks.mem",
		"clocks.current.memory", "temperature.gpu", "utilization.gpu", "utilization.memory", "memory.total", "memory.used",
	}
}

// nvidia takes one cell.
func (r *Reading) nvidia(column, text string) error {
	switch column {
	case "timestamp":
		r.Time = text
		return nil
	case "uuid":
		r.UUID = text
		return nil
	case "name":
		r.Name = text
		return nil
	}
	if !slices.Contains(nvidiaFigures(), column) {
		return nil
	}
	v, err := figure(text)
	if v == nil || err != nil {
		return err
	}
	scaled := func(by float64) *float64 { s := *v * by; return &s }
	switch column {
	case "index":
		r.Index = int(*v)
	case "power.draw", "power.draw.instant", "power.draw.average":
		r.Power = v
	case "power.limit":
		r.PowerLimit = v
	case "clocks.sm", "clocks.current.sm":
		r.Clock = scaled(1e6)
	case "clocks.mem", "clocks.current.memory":
		r.MemoryClock = scaled(1e6)
	case "temperature.gpu":
		r.Temperature = v
	case "utilization.gpu":
		r.Utilization = scaled(0.01)
	case "utilization.memory":
		r.MemoryUtilization = scaled(0.01)
	case "memory.total":
		r.MemoryTotal = bytes(*v, 1<<20)
	case "memory.used":
		r.MemoryUsed = bytes(*v, 1<<20)
	}
	return nil
}

// figure reads a number that may carry its unit; nil for what is not
// available.
func figure(text string) (*float64, error) {
	if text == "" || strings.HasPrefix(text, "N/A") || strings.HasPrefix(text, "[") {
		return nil, nil
	}
	number, _, _ := strings.Cut(text, " ")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 || v > maxFigure {
		return nil, fmt.Errorf("want a number, got %q", text)
	}
	return &v, nil
}

// maxFigure bounds a figure, so that it stays exact in bytes.
const maxFigure = 1 << 42

// bytes scales a figure to bytes.
func bytes(v float64, by int64) *int64 {
	b := int64(math.Round(v * float64(by)))
	return &b
}
