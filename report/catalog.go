package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/unit"
)

// ModelDocument is the JSON of one model: its entry and what follows from it.
type ModelDocument struct {
	Head
	*catalog.Model
	Params ParamsKeys `json:"params"`
	// KVBytesPerToken is the growth of a bf16 cache on one device.
	KVBytesPerToken int64 `json:"kv_bytes_per_token_bf16"`
	// Origin is where the architecture was found, Revision which state of it.
	Origin   string `json:"origin,omitempty"`
	Revision string `json:"revision,omitempty"`
	// Checkpoint is what the headers of its weights say, where they were read.
	Checkpoint *CheckpointKeys `json:"checkpoint,omitempty"`
}

// CheckpointKeys say what the headers of a model's weights hold; 0 where a
// figure is not known.
type CheckpointKeys struct {
	Bytes  int64 `json:"bytes,omitempty"`
	Params int64 `json:"params,omitempty"`
	// BitsPerWeight is the mean storage of one weight in bits.
	BitsPerWeight float64 `json:"bits_per_weight,omitempty"`
}

// Model builds the document of one model.
func Model(m *catalog.Model, tool string) ModelDocument {
	return ModelDocument{Head: NewHead("model", tool), Model: m, Params: Params(m), KVBytesPerToken: kvPerToken(m)}
}

// ModelsDocument is the JSON of a list of models.
type ModelsDocument struct {
	Head
	Models []ModelDocument `json:"models"`
}

// Models builds the document of a list of models.
func Models(models []*catalog.Model, tool string) ModelsDocument {
	d := ModelsDocument{NewHead("models", tool), make([]ModelDocument, len(models))}
	for i, m := range models {
		d.Models[i] = Model(m, tool)
	}
	return d
}

// kvPerToken is the cache of one token in two bytes a number.
func kvPerToken(m *catalog.Model) int64 { return 2 * m.KVElementsPerToken() }

// ModelList shows one row for each model.
func ModelList(models []*catalog.Model) Table {
	t := Table{Columns: []Column{
		{Name: "model", Left: true},
		{Name: "type", Left: true},
		{Name: "params", Key: "params_total"},
		{Name: "active", Key: "params_active"},
		{Name: "layers", Key: "num_layers"},
		{Name: "hidden", Key: "hidden_size"},
		{Name: "context", Key: "max_seq_len"},
		{Name: "KV/token", Key: "kv_bytes_per_token_bf16"},
		{Name: "hub id", Key: "hub_id", Left: true},
	}}
	for _, m := range models {
		p := m.Params()
		active := Missing()
		if p.Active != p.Total {
			active = Shown(unit.Count(float64(p.Active)), p.Active)
		}
		t.Rows = append(t.Rows, []Cell{
			Say(m.Name), Say(m.Type), Shown(unit.Count(float64(p.Total)), p.Total), active,
			Whole(m.NumLayers), Whole(m.HiddenSize), Whole(m.MaxSeqLen),
			Shown(unit.Bytes(kvPerToken(m)).String(), kvPerToken(m)), Say(m.HubID),
		})
	}
	t.Notes = []string{fmt.Sprintf("%d models; KV/token is a bf16 cache on one device", len(models))}
	return t
}

// pairTable is a table of names and values.
func pairTable(title string) Table {
	return Table{Title: title, Columns: []Column{{Left: true, Key: "name"}, {Left: true, Key: "value"}}}
}

func (t *Table) pair(name, text string) {
	t.Rows = append(t.Rows, []Cell{Say(name), Say(text)})
}

// ModelTables shows one model in full.
func ModelTables(d ModelDocument) []Table {
	m := d.Model
	p := m.Params()
	t := pairTable("")
	t.pair("model", m.Name)
	if m.HubID != "" {
		t.pair("hub id", m.HubID)
	}
	if len(m.Aliases) > 0 {
		t.pair("also", strings.Join(m.Aliases, ", "))
	}
	t.pair("type", m.Type)
	t.pair("parameters", fmt.Sprintf("%d (%s)", p.Total, unit.Count(float64(p.Total))))
	if p.Active != p.Total {
		t.pair("active", fmt.Sprintf("%d (%s), both embeddings counted", p.Active, unit.Count(float64(p.Active))))
	}
	t.pair("layers", layersText(m))
	t.pair("hidden size", strconv.Itoa(m.HiddenSize))
	t.pair("attention", attentionText(m))
	t.pair("feed-forward", ffnText(m))
	t.pair("vocabulary", fmt.Sprintf("%d, embeddings %s", m.VocabSize, map[bool]string{true: "tied", false: "separate"}[m.TieEmbeddings]))
	t.pair("longest sequence", fmt.Sprintf("%d tokens", m.MaxSeqLen))
	t.pair("KV cache", unit.Bytes(kvPerToken(m)).String()+" a token in bf16 on one device")
	if m.DType != "" || m.Quantization != "" {
		t.pair("published in", strings.TrimSpace(string(m.DType)+" "+m.Quantization))
	}
	if d.Origin != "" {
		t.pair("found in", strings.TrimSpace(d.Origin+" "+d.Revision))
	}
	if c := d.Checkpoint; c != nil && c.Bytes > 0 {
		text := unit.Bytes(c.Bytes).String()
		if c.BitsPerWeight > 0 {
			text += fmt.Sprintf(", %.2f bits a weight", c.BitsPerWeight)
		}
		t.pair("checkpoint", text)
	}
	if m.Note != "" {
		t.pair("note", m.Note)
	}
	t.pair("source", m.Source+verifiedText(m.Verified))
	return []Table{t}
}

func verifiedText(v bool) string {
	if v {
		return " (compared)"
	}
	return " (not compared)"
}

func layersText(m *catalog.Model) string {
	kinds := m.Layers(0, m.NumLayers)
	if len(kinds) == 1 && kinds[0].Attention == catalog.FullAttention {
		return strconv.Itoa(m.NumLayers)
	}
	parts := make([]string, len(kinds))
	for i, k := range kinds {
		ffn := "dense"
		if k.MoE {
			ffn = "experts"
		}
		parts[i] = fmt.Sprintf("%d × %s attention + %s", k.Count, k.Attention, ffn)
	}
	return fmt.Sprintf("%d: %s", m.NumLayers, strings.Join(parts, ", "))
}

func attentionText(m *catalog.Model) string {
	if a := m.MLA; a != nil {
		return fmt.Sprintf("%d heads, latent: KV rank %d, query rank %d, head %d + %d rotary, value %d", m.NumHeads, a.KVLoraRank, a.QLoraRank, a.QKNopeHeadDim, a.QKRopeHeadDim, a.VHeadDim)
	}
	text := fmt.Sprintf("%d heads, %d KV heads of %d", m.NumHeads, m.NumKVHeads, m.HeadDim)
	if m.Window > 0 {
		text += fmt.Sprintf(", window %d", m.Window)
	}
	if m.QKVBias {
		text += ", qkv bias"
	}
	if m.QKNorm != "" {
		text += ", q/k norm"
	}
	return text
}

func ffnText(m *catalog.Model) string {
	if m.MoE == nil {
		return fmt.Sprintf("width %d", m.IntermediateSize)
	}
	text := fmt.Sprintf("%d experts of width %d, %d a token", m.MoE.NumExperts, m.MoE.IntermediateSize, m.MoE.ExpertsPerToken)
	if s := m.MoE.SharedIntermediateSize; s > 0 {
		text += fmt.Sprintf(", shared width %d", s)
	}
	if m.IntermediateSize > 0 {
		text += fmt.Sprintf("; dense layers of width %d", m.IntermediateSize)
	}
	return text
}

// DeviceDocument is the JSON of one device.
type DeviceDocument struct {
	Head
	*catalog.Device
}

// Device builds the document of one device.
func Device(d *catalog.Device, tool string) DeviceDocument {
	return DeviceDocument{NewHead("device", tool), d}
}

// DevicesDocument is the JSON of a list of devices.
type DevicesDocument struct {
	Head
	Devices []*catalog.Device `json:"devices"`
}

// Devices builds the document of a list of devices.
func Devices(devices []*catalog.Device, tool string) DevicesDocument {
	return DevicesDocument{NewHead("devices", tool), append([]*catalog.Device{}, devices...)}
}

// DeviceList shows one row for each device.
func DeviceList(devices []*catalog.Device) Table {
	t := Table{Columns: []Column{
		{Name: "gpu", Left: true},
		{Name: "vendor", Left: true},
		{Name: "memory", Key: "memory_bytes"},
		{Name: "bandwidth", Key: "hbm_bytes_per_s"},
		{Name: "16-bit", Key: "peak_16bit_flops"},
		{Name: "fp8", Key: "peak_fp8_flops"},
		{Name: "int8", Key: "peak_int8_flops"},
		{Name: "link/direction", Key: "link_bytes_per_s"},
		{Name: "power", Key: "power_w"},
		{Name: "year"},
	}}
	for _, d := range devices {
		peak := func(types ...catalog.DType) Cell {
			for _, dt := range types {
				if q, ok := d.Peak(dt); ok {
					return Shown(q.String(), float64(q))
				}
			}
			return Missing()
		}
		link, power, year := Missing(), Missing(), Missing()
		if d.Link.Bandwidth.Known() {
			link = Shown(unit.BytesPerSecond(d.Link.Bandwidth.Value).String(), d.Link.Bandwidth.Value)
		}
		if d.Power.Known() {
			power = Shown(fmt.Sprintf("%g W", d.Power.Value), d.Power.Value)
		}
		if d.Year > 0 {
			year = Whole(d.Year)
		}
		t.Rows = append(t.Rows, []Cell{
			Say(d.Name), Say(d.Vendor), Shown(d.MemoryBytes().String(), int64(d.MemoryBytes())),
			Shown(unit.BytesPerSecond(d.Bandwidth.Value).String(), d.Bandwidth.Value),
			peak(catalog.BF16, catalog.FP16), peak(catalog.FP8), peak(catalog.INT8), link, power, year,
		})
	}
	t.Notes = []string{fmt.Sprintf("%d devices; peaks are dense; llmprof gpus NAME shows the sources", len(devices))}
	return t
}

// DeviceTables shows one device in full with its sources.
func DeviceTables(d *catalog.Device) []Table {
	t := pairTable("")
	t.pair("gpu", d.Name)
	t.pair("name", d.FullName)
	t.pair("vendor", d.Vendor)
	if len(d.Aliases) > 0 {
		t.pair("also", strings.Join(d.Aliases, ", "))
	}
	if d.Link.Kind != "" {
		t.pair("link", fmt.Sprintf("%s, %s, %d devices", d.Link.Kind, d.Link.Topology, d.Link.Domain))
	}
	if d.Note != "" {
		t.pair("note", d.Note)
	}
	figures := Table{
		Title: "Figures",
		Columns: []Column{
			{Name: "figure", Left: true},
			{Name: "value"},
			{Name: "compared", Left: true},
			{Name: "source", Left: true},
		},
	}
	add := func(name string, q catalog.Quantity, text string) {
		if !q.Known() {
			return
		}
		compared := Shown("no", false)
		if q.Verified {
			compared = Shown("yes", true)
		}
		figures.Rows = append(figures.Rows, []Cell{Say(name), Shown(text, q.Value), compared, Say(q.Source)})
	}
	rate := func(q catalog.Quantity) string { return unit.BytesPerSecond(q.Value).String() }
	add("memory", d.Memory, d.MemoryBytes().String())
	add("memory.total of nvidia-smi", d.MemoryTotal, d.MemoryTotalBytes().String())
	add("memory bandwidth", d.Bandwidth, rate(d.Bandwidth))
	for _, dt := range catalog.DTypes() {
		if q, ok := d.Peaks[dt]; ok {
			add("dense "+string(dt), q, unit.FLOPsPerSecond(q.Value).String())
		}
	}
	add("multiprocessors", d.SMs, fmt.Sprintf("%g", d.SMs.Value))
	add("last-level cache", d.L2, unit.Bytes(d.L2.Value).String())
	add("link per direction", d.Link.Bandwidth, rate(d.Link.Bandwidth))
	add("link latency", d.Link.Alpha, unit.Seconds(d.Link.Alpha.Value).String())
	add("network per direction", d.InterNode, rate(d.InterNode))
	add("PCIe per direction", d.PCIe, rate(d.PCIe))
	add("power", d.Power, fmt.Sprintf("%g W", d.Power.Value))
	return []Table{t, figures}
}
