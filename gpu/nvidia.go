package gpu

import (
	"bufio"
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
	lines := bufio.NewScanner(io.LimitReader(r, maxText))
	lines.Buffer(nil, maxLine)
	if !lines.Scan() {
		err := lines.Err()
		if err == nil {
			err = io.EOF
		}
		return nil, fmt.Errorf("nvidia-smi: read the header: %w", err)
	}
	table, ok := nvidiaHeader(lines.Text())
	if !ok {
		return nil, fmt.Errorf("nvidia-smi: the header %q names none of index, uuid, name, memory.total", lines.Text())
	}
	var out []Reading
	for line := 2; lines.Scan(); line++ {
		reading, ok, err := table.reading(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("nvidia-smi: line %d: %w", line, err)
		}
		if ok {
			out = append(out, reading)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("nvidia-smi: %w", err)
	}
	return out, nil
}

// nvidiaTable is the names of the columns of nvidia-smi's CSV.
type nvidiaTable []string

// cells cuts a line of nvidia-smi's CSV, which knows no quotes.
func cells(line string) []string {
	row := strings.Split(line, ",")
	for i, cell := range row {
		row[i] = strings.TrimSpace(cell)
	}
	return row
}

// nvidiaHeader reads the first line; ok is false where it is none.
func nvidiaHeader(line string) (nvidiaTable, bool) {
	columns := nvidiaTable(cells(line))
	known := false
	for i, name := range columns {
		// "power.draw [W]" is power.draw.
		columns[i], _, _ = strings.Cut(name, " [")
		known = known || slices.Contains([]string{"index", "uuid", "name", "memory.total"}, columns[i])
	}
	return columns, known
}

// reading reads a line; ok is false for one that is cut off, or foreign.
func (t nvidiaTable) reading(line string) (r Reading, ok bool, err error) {
	row := cells(line)
	if len(row) < len(t) {
		return r, false, nil
	}
	r.Index = -1
	for i, name := range t {
		if err := r.nvidia(name, row[i]); err != nil {
			return r, false, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r, true, nil
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
