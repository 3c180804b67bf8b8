package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/unit"
)

// MemoryTables shows a memory profile; files are what was written.
func MemoryTables(d *memprofile.Document, files ...string) []Table {
	return []Table{memorySummary(d, files), memoryMoments(d), memoryParts(d)}
}

func memorySummary(d *memprofile.Document, files []string) Table {
	t := pairTable("")
	or := func(s memprofile.Text) string {
		if s == "" {
			return "not known"
		}
		return string(s)
	}
	if len(files) > 0 {
		t.pair("wrote", strings.Join(files, ", "))
	}
	t.pair("model", or(d.ModelInfo.Name))
	t.pair("engine", strings.TrimSpace(string(d.EngineMetadata.EngineType+" "+d.EngineMetadata.EngineVersion)))
	if len(d.GPUInfo.Names) > 0 {
		t.pair("devices", strings.Join(d.GPUInfo.Names, ", "))
	}
	p := d.BenchmarkParameters
	if p.BatchSize != nil && p.InputLen != nil && p.OutputLen != nil {
		t.pair("run", fmt.Sprintf("%d × %d tokens in, %d out", *p.BatchSize, *p.InputLen, *p.OutputLen))
	}
	if l := d.LatencyStats; l.MeanMs != nil {
		text := fmt.Sprintf("%.4g ms a batch, mean of %d runs", *l.MeanMs, max(len(l.Latencies), 1))
		if l.TokensPerSecond != nil {
			text += fmt.Sprintf(", %.4g output tok/s", *l.TokensPerSecond)
		}
		t.pair("latency", text)
	} else {
		t.pair("latency", "not measured")
	}
	if kv := d.KVCache; kv.Bytes != nil || kv.Tokens != nil {
		t.pair("KV cache", kvText(kv))
	}
	if l := d.MemoryTimeline; l != nil && l.RateHz != nil {
		n := 0
		for _, device := range l.Devices {
			n += len(device.At)
		}
		t.pair("sampled", fmt.Sprintf("%d readings by %s, %.1f a second of each device", n, l.Source, *l.RateHz))
	} else {
		t.pair("sampled", "no")
	}
	return t
}

func kvText(kv memprofile.KVCache) string {
	var parts []string
	if kv.Bytes != nil {
		parts = append(parts, sizeText(kv.Bytes))
	}
	if kv.Tokens != nil {
		parts = append(parts, strconv.Itoa(*kv.Tokens)+" tokens")
	}
	if kv.Blocks != nil && kv.BlockSize != nil {
		parts = append(parts, fmt.Sprintf("%d blocks of %d", *kv.Blocks, *kv.BlockSize))
	}
	if kv.UsedBytes != nil {
		parts = append(parts, sizeText(kv.UsedBytes)+" in use")
	}
	return strings.Join(parts, ", ")
}

// sizeText prints a size in both units that are in use, so that none is
// mistaken for the other.
func sizeText(b *unit.Bytes) string {
	if b == nil {
		return "–"
	}
	return fmt.Sprintf("%s (%.2f GB)", *b, float64(*b)/1e9)
}

func memoryMoments(d *memprofile.Document) Table {
	t := Table{Title: "Memory", Columns: []Column{
		{Name: "moment", Left: true},
		{Name: "GiB", Key: "used_gib"},
		{Name: "GB", Key: "used_gb"},
		{Name: "fullest device GB", Key: "max_used_gb"},
		{Name: "at s", Key: "at_s"},
		{Name: "told by", Left: true},
	}}
	for _, m := range []struct {
		name  string
		point *memprofile.MemoryPoint
	}{{"baseline", d.MemoryMeasurements.Baseline}, {"post-warm-up", d.MemoryMeasurements.PostWarmup}, {"peak", d.MemoryMeasurements.Peak}} {
		row := []Cell{Say(m.name), Missing(), Missing(), Missing(), Missing(), Say("not measured")}
		if m.point != nil && m.point.TotalBytes != nil {
			row[1], row[2] = Fixed(m.point.TotalBytes.GiB(), 3), Fixed(float64(*m.point.TotalBytes)/1e9, 3)
			if m.point.MaxUsedGB != nil {
				row[3] = Fixed(float64(*m.point.MaxUsedGB), 3)
			}
			if m.point.At != nil {
				row[4] = Fixed(*m.point.At, 1)
			}
			row[5] = Say(string(m.point.Marker))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func memoryParts(d *memprofile.Document) Table {
	b := d.MemoryBreakdown
	t := Table{Title: "What the peak is made of", Columns: []Column{
		{Name: "part", Left: true},
		{Name: "GiB", Key: "size_gib"},
		{Name: "GB", Key: "size_gb"},
		{Name: "%", Key: "share_pct"},
		{Name: "confidence", Left: true},
		{Name: "from", Left: true},
	}}
	add := func(name string, bytes *unit.Bytes, confidence, source string) {
		row := []Cell{Say(name), Missing(), Missing(), Missing(), Say(confidence), Say(source)}
		if bytes != nil {
			row[1], row[2] = Fixed(bytes.GiB(), 3), Fixed(float64(*bytes)/1e9, 3)
			if total := b.TotalMeasuredBytes; total != nil && *total > 0 {
				row[3] = Fixed(100*float64(*bytes)/float64(*total), 1)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	add("baseline", b.BaselineBytes, "", "measured before the engine")
	for _, p := range b.Parts {
		source := string(p.Source)
		if p.Bytes == nil {
			source = string(p.Note)
		}
		add(strings.ReplaceAll(p.Name, "_", " "), p.Bytes, string(p.Confidence), source)
	}
	if b.UnexplainedBytes != nil {
		add("unexplained", b.UnexplainedBytes, "", "remainder")
	}
	add("peak", b.TotalMeasuredBytes, "", "measured")
	for _, p := range b.Parts {
		if p.Bytes != nil && p.Note != "" {
			t.Notes = append(t.Notes, strings.ReplaceAll(p.Name, "_", " ")+": "+string(p.Note))
		}
	}
	t.Notes = append(t.Notes, b.Notes...)
	return t
}
