package catalog

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// devicesOfTable reads the table without going through the catalog.
func devicesOfTable(t *testing.T) []Device {
	t.Helper()
	data, err := os.ReadFile("devices.json")
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var devices []Device
	if err := decoder.Decode(&devices); err != nil {
		t.Fatalf("devices.json: %v", err)
	}
	return devices
}

// deviceIndex maps every name and alias to its device and fails on a key that
// means two devices or that is not in the form of a key.
func deviceIndex(t *testing.T, devices []Device) map[string]string {
	t.Helper()
	index := make(map[string]string)
	for _, d := range devices {
		for _, name := range append([]string{d.Name}, d.Aliases...) {
			if key := deviceKey(name); key != name {
				t.Errorf("%s: %q is not a key: a lookup asks for %q", d.Name, name, key)
			}
			if other, taken := index[name]; taken {
				t.Errorf("%q names both %s and %s", name, other, d.Name)
			}
			index[name] = d.Name
		}
	}
	return index
}

func deviceNamed(t *testing.T, name string) Device {
	t.Helper()
	for _, d := range devicesOfTable(t) {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("no device %q in the table", name)
	return Device{}
}

// quantities lists every figure of a device by field name.
func quantities(d Device) map[string]Quantity {
	all := map[string]Quantity{
		"memory_bytes": d.Memory, "memory_total_bytes": d.MemoryTotal, "hbm_bytes_per_s": d.Bandwidth, "sms": d.SMs, "l2_bytes": d.L2,
		"link.bytes_per_s": d.Link.Bandwidth, "link.alpha_s": d.Link.Alpha,
		"inter_node_bytes_per_s": d.InterNode, "pcie_bytes_per_s": d.PCIe, "power_w": d.Power,
	}
	for dtype, q := range d.Peaks {
		all["peak_flops."+string(dtype)] = q
	}
	for field, q := range all {
		if q == (Quantity{}) {
			delete(all, field)
		}
	}
	return all
}

func TestEveryDeviceIsValidAndSourced(t *testing.T) {
	devices := devicesOfTable(t)
	if len(devices) < 50 {
		t.Errorf("the table has %d devices, want at least 50", len(devices))
	}
	var figures, verified int
	for _, d := range devices {
		if err := d.Validate(); err != nil {
			t.Error(err)
		}
		if d.FullName == "" || d.Vendor == "" || d.Year < 2017 || d.Year > 2026 {
			t.Errorf("%s: full name %q, vendor %q, year %d", d.Name, d.FullName, d.Vendor, d.Year)
		}
		for field, q := range quantities(d) {
			figures++
			if q.Verified {
				verified++
			}
			if strings.TrimSpace(q.Source) == "" || !q.Known() {
				t.Errorf("%s: %s is %g from %q", d.Name, field, q.Value, q.Source)
			}
			if q.Verified && (strings.Contains(q.Source, "assumption") || strings.HasPrefix(q.Source, "from memory") || strings.HasPrefix(q.Source, "as ")) {
				t.Errorf("%s: %s is called verified, but its source is %q", d.Name, field, q.Source)
			}
		}
		if d.Memory.Value != math.Trunc(d.Memory.Value) {
			t.Errorf("%s: memory is %g bytes", d.Name, d.Memory.Value)
		}
	}
	t.Logf("%d devices, %d figures, %d of them compared with a document", len(devices), figures, verified)
	if verified*3 < figures {
		t.Errorf("only %d of %d figures are verified", verified, figures)
	}
}

// TestSecondaryCopiesAreNotVerified: shops, cloud resellers, magazines,
// aggregators and sites that reprint a data sheet may name a figure, but a
// figure that only they name was not compared with a document. Verified are
// vendors' documents and repositories, driver and device-query logs, engine
// and NCCL source code, MLPerf system descriptions, and maintained
// engineering tables that cite vendor sheets (stas00/ml-engineering,
// Lightning's throughput.py, PyTorch's device_info.py, the wikis of pc2
// Paderborn and glennklockwood.com).
func TestSecondaryCopiesAreNotVerified(t *testing.T) {
	copies := strings.Fields(`
		ai-infrastructure.net aiwiki.ai akunu.prabod alldbin.com baseten.co biggo.com bloglaralemi.com
		brojogopalsapui.com clawtopic.com cputronic.com cuttingedgegamer.com datacrunch.io docs.vultr.com ecer.com
		emergentmind.com ferreiradozezere.net fibermall.com fpsbench.com gamebastion.com gpu.name gpuhunter.io
		grokipedia.com guru3d.com hawkvelt.id.au hmc-tech.com jishuzhan.net manuals.plus mobylak.com
		ohdoking/gpu_spec saulelectric.com sgpjbg.com sysrqmts.com TechPowerUp thundercompute.com tomshardware.com
		topcpu.net verda.com wccftech.com willitrunai.com y-ic.de zangshuxian.com`)
	// A figure that a copy names and one of these confirms was compared.
	confirm := []string{"stas00/ml-engineering", "torch/_inductor/analysis/device_info.py", "pytorch/ao PR 4002", "ai-dynamo/aiconfigurator"}
	names := func(source string, among []string) bool {
		return slices.ContainsFunc(among, func(s string) bool { return strings.Contains(source, s) })
	}
	seen := 0
	for _, d := range devicesOfTable(t) {
		for field, q := range quantities(d) {
			if !names(q.Source, copies) || names(q.Source, confirm) {
				continue
			}
			seen++
			if q.Verified {
				t.Errorf("%s: %s is called verified, but its source is a copy: %q", d.Name, field, q.Source)
			}
		}
	}
	if seen == 0 {
		t.Error("no figure has such a source: the list is out of date")
	}
}

func TestDriverSpellingsAreFound(t *testing.T) {
	index := deviceIndex(t, devicesOfTable(t))
	tests := []struct{ spelling, want string }{
		{"NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"},
		{"NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"},
		{"NVIDIA A100 80GB PCIe", "a100-pcie-80gb"},
		{"NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"},
		{"NVIDIA A800-SXM4-80GB", "a800-sxm-80gb"},
		{"NVIDIA-H100-80GB-HBM3", "h100-sxm-80gb"},
		{"NVIDIA H100 80GB HBM3", "h100-sxm-80gb"},
		{"NVIDIA H100 PCIe", "h100-pcie-80gb"},
		{"NVIDIA H100 NVL", "h100-nvl-94gb"},
		{"NVIDIA H200", "h200-sxm-141gb"},
		{"NVIDIA H200 NVL", "h200-nvl-141gb"},
		{"NVIDIA H800", "h800-sxm-80gb"},
		{"NVIDIA H20", "h20-sxm-96gb"},
		{"NVIDIA H20-3e", "h20-sxm-141gb"},
		{"NVIDIA GH200 480GB", "gh200-96gb"},
		{"NVIDIA GH200 144G HBM3e", "gh200-144gb"},
		{"NVIDIA B200", "b200-sxm"},
		{"NVIDIA B300 SXM6 AC", "b300-sxm"},
		{"NVIDIA GB200", "gb200"},
		{"NVIDIA GB300", "gb300"},
		{"Tesla V100-SXM2-32GB", "v100-sxm-32gb"},
		{"Tesla V100-PCIE-16GB", "v100-pcie-16gb"},
		{"Tesla T4", "t4"},
		{"NVIDIA A10", "a10"},
		{"NVIDIA A10G", "a10g"},
		{"NVIDIA A30", "a30"},
		{"NVIDIA A40", "a40"},
		{"NVIDIA L4", "l4"},
		{"NVIDIA L40", "l40"},
		{"NVIDIA L40S", "l40s"},
		{"NVIDIA RTX A6000", "rtx-a6000"},
		{"NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"},
		{"NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"},
		{"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000-workstation"},
		{"NVIDIA GeForce RTX 3090", "rtx-3090"},
		{"NVIDIA GeForce RTX 3090 Ti", "rtx-3090-ti"},
		{"NVIDIA GeForce RTX 4090", "rtx-4090"},
		{"NVIDIA GeForce RTX 4090 D", "rtx-4090-d"},
		{"NVIDIA GeForce RTX 5090", "rtx-5090"},
		{"NVIDIA GeForce RTX 5070 Ti", "rtx-5070-ti"},
		{"AMD Instinct MI300X", "mi300x"},
		{"AMD Instinct MI300X OAM", "mi300x"},
		{"AMD Instinct MI250X", "mi250x"},
		{"AMD Radeon RX 7900 XTX", "rx-7900-xtx"},
		{"AMD Radeon PRO W7900", "w7900"},
		{"Intel(R) Data Center GPU Max 1550", "max-1550"},
		{"Intel Data Center GPU Max 1550", "max-1550"},
		{"Gaudi2", "gaudi-2"},
		{"TPU v5e", "tpu-v5e"},
		{"v5litepod", "tpu-v5e"},
		{"trn2", "trainium-2"},
		{"Apple M4 Max", "m4-max"},
		{"Ascend 910B", "910b-64gb"},
		// The canonical names and spellings of conventions.md.
		{"H100", "h100-sxm-80gb"},
		{"h100_sxm", "h100-sxm-80gb"},
		{"H100-80GB", "h100-sxm-80gb"},
		{"h100_pcie", "h100-pcie-80gb"},
		{"h200_sxm", "h200-sxm-141gb"},
		{"A100", "a100-sxm-80gb"},
		{"a100_sxm", "a100-sxm-80gb"},
		{"b200_sxm", "b200-sxm"},
		{"b300_sxm", "b300-sxm"},
		{"RTX4090", "rtx-4090"},
		{"rtx_pro_6000_server", "rtx-pro-6000-server"},
		{"mi325x", "mi325x"},
		{"cpu", "cpu"},
		// The names of the reference tool's table.
		{"t4-pcie-15gb", "t4"},
		{"v100-pcie-32gb", "v100-pcie-32gb"},
		{"v100-sxm-32gb", "v100-sxm-32gb"},
		{"br104p", "br104p"},
		{"a100-pcie-40gb", "a100-pcie-40gb"},
		{"a100-sxm-40gb", "a100-sxm-40gb"},
		{"a100-pcie-80gb", "a100-pcie-80gb"},
		{"a100-sxm-80gb", "a100-sxm-80gb"},
		{"910b-64gb", "910b-64gb"},
		{"h100-sxm-80gb", "h100-sxm-80gb"},
		{"h100-pcie-80gb", "h100-pcie-80gb"},
		{"a30-pcie-24gb", "a30"},
		{"a30-sxm-24gb", "a30"},
		{"a40-pcie-48gb", "a40"},
	}
	for _, tt := range tests {
		if got := index[deviceKey(tt.spelling)]; got != tt.want {
			t.Errorf("%q (key %q) is %q, want %q", tt.spelling, deviceKey(tt.spelling), got, tt.want)
		}
	}
}

// near reports whether a is within the relative tolerance of b.
func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance*math.Abs(b) }

func TestPeaksFitEachOther(t *testing.T) {
	for _, d := range devicesOfTable(t) {
		rate := func(dtype DType) float64 { return d.Peaks[dtype].Value }
		both := func(a, b DType) bool { return rate(a) > 0 && rate(b) > 0 }
		switch d.Vendor {
		case "nvidia", "amd":
			if both(FP16, BF16) && rate(FP16) != rate(BF16) {
				t.Errorf("%s: fp16 %g, bf16 %g: matrix units run both at one rate", d.Name, rate(FP16), rate(BF16))
			}
			if both(FP8, FP16) && !near(rate(FP8), 2*rate(FP16), 0.02) {
				t.Errorf("%s: fp8 %g is not twice fp16 %g", d.Name, rate(FP8), rate(FP16))
			}
		}
		if d.Vendor == "nvidia" && both(TF32, FP16) && !near(rate(TF32), rate(FP16)/2, 0.02) {
			t.Errorf("%s: tf32 %g is not half of fp16 %g", d.Name, rate(TF32), rate(FP16))
		}
		if both(FP4, FP8) && rate(FP4) < 1.9*rate(FP8) {
			t.Errorf("%s: fp4 %g is below twice fp8 %g", d.Name, rate(FP4), rate(FP8))
		}
		if both(INT4, INT8) && rate(INT4) < rate(INT8) {
			t.Errorf("%s: int4 %g is below int8 %g", d.Name, rate(INT4), rate(INT8))
		}
		half := max(rate(FP16), rate(BF16))
		if half == 0 || rate(FP32) > half {
			t.Errorf("%s: fp32 %g, 16-bit %g: matrix rates are not below vector rates", d.Name, rate(FP32), half)
		}
		// What a decode step hits: FLOPs that fit into the time of one byte.
		if r := half / d.Bandwidth.Value; r < 10 || r > 800 {
			t.Errorf("%s: %.0f FLOP per byte of memory traffic: one of %g and %g is off", d.Name, r, half, d.Bandwidth.Value)
		}
		// Reading the whole memory once takes 10 ms to 2 s on anything sold.
		if s := d.Memory.Value / d.Bandwidth.Value; s < 0.01 || s > 2 {
			t.Errorf("%s: memory is read in %g s", d.Name, s)
		}
	}
}

func TestPeaksOfKnownRatios(t *testing.T) {
	for _, name := range []string{"a100-sxm-80gb", "a100-pcie-40gb", "h100-sxm-80gb", "h100-pcie-80gb", "h200-sxm-141gb", "a40", "l40s", "b200-sxm"} {
		d := deviceNamed(t, name)
		if !near(d.Peaks[INT8].Value, 2*d.Peaks[FP16].Value, 0.02) {
			t.Errorf("%s: int8 %g is not twice fp16 %g", name, d.Peaks[INT8].Value, d.Peaks[FP16].Value)
		}
	}
}

func TestFormatsThatHardwareLacks(t *testing.T) {
	tests := []struct {
		why     string
		devices []string
		lacks   []DType
	}{
		{"Volta multiplies fp16 only", []string{"v100-sxm-32gb", "v100-pcie-16gb"}, []DType{BF16, TF32, FP8, INT8, FP4, INT4}},
		{"Turing has no bf16", []string{"t4"}, []DType{BF16, TF32, FP8, FP4}},
		{"Ampere has no fp8", []string{"a100-sxm-80gb", "a30", "a40", "a10", "rtx-3090"}, []DType{FP8, FP4}},
		{"Hopper dropped int4 and has no fp4", []string{"h100-sxm-80gb", "h100-pcie-80gb", "h200-sxm-141gb", "h20-sxm-96gb"}, []DType{FP4, FP6, INT4}},
		{"Ada has no fp4", []string{"l4", "l40s", "rtx-4090"}, []DType{FP4, FP6}},
		{"CDNA 2 has no fp8", []string{"mi210", "mi250x"}, []DType{FP8, FP4}},
		{"CDNA 3 has no fp4", []string{"mi300x", "mi325x"}, []DType{FP4, FP6}},
	}
	for _, tt := range tests {
		for _, name := range tt.devices {
			d := deviceNamed(t, name)
			for _, dtype := range tt.lacks {
				if _, ok := d.Peak(dtype); ok {
					t.Errorf("%s: %s has a rate for %s", tt.why, name, dtype)
				}
			}
		}
	}
	for _, name := range []string{"b200-sxm", "b300-sxm", "gb200", "gb300", "rtx-5090", "rtx-pro-6000-server", "mi355x"} {
		d := deviceNamed(t, name)
		if _, ok := d.Peak(FP4); !ok {
			t.Errorf("%s multiplies fp4, but has no rate for it", name)
		}
	}
}

// TestWrongFiguresStayOut holds the figures that circulate in other tools'
// tables (with sparsity, both directions of a link, TF32 called fp32, bits
// called bytes) out of the catalog.
func TestWrongFiguresStayOut(t *testing.T) {
	tests := []struct {
		name, field string
		wrong, want float64
	}{
		{"h100-sxm-80gb", "peak_flops.fp16", 1979e12, 989e12},
		{"h100-sxm-80gb", "peak_flops.int8", 3958e12, 1979e12},
		{"h100-pcie-80gb", "peak_flops.fp16", 1513e12, 756e12},
		{"h100-pcie-80gb", "peak_flops.int8", 3026e12, 1513e12},
		{"h100-sxm-80gb", "hbm_bytes_per_s", 3430e9, 3350e9},
		{"h100-pcie-80gb", "hbm_bytes_per_s", 2048e9, 2000e9},
		{"h100-sxm-80gb", "peak_flops.fp32", 989e12, 67e12},
		{"h100-pcie-80gb", "peak_flops.fp32", 756e12, 51e12},
		{"a100-sxm-80gb", "peak_flops.fp32", 156e12, 19.5e12},
		{"a30", "peak_flops.fp32", 82e12, 10.3e12},
		{"a40", "peak_flops.fp32", 74.8e12, 37.4e12},
		{"v100-sxm-32gb", "peak_flops.fp16", 112e12, 125e12},
		{"t4", "hbm_bytes_per_s", 300e9, 320e9},
		{"910b-64gb", "hbm_bytes_per_s", 460e9, 1600e9},
		{"a100-sxm-80gb", "link.bytes_per_s", 600e9, 300e9},
		{"h100-sxm-80gb", "link.bytes_per_s", 900e9, 450e9},
		{"v100-sxm-32gb", "link.bytes_per_s", 300e9, 150e9},
		{"a100-pcie-80gb", "link.bytes_per_s", 64e9, 32e9},
		{"a100-sxm-80gb", "inter_node_bytes_per_s", 200e9, 25e9},
		{"h100-sxm-80gb", "inter_node_bytes_per_s", 400e9, 50e9},
		{"gb300", "peak_flops.fp16", 3750e12, 2500e12},
		{"gb300", "peak_flops.fp8", 7500e12, 5000e12},
		{"b300-sxm", "peak_flops.fp16", 3375e12, 2250e12},
		{"h800-sxm-80gb", "hbm_bytes_per_s", 4000e9, 3350e9},
		{"h800-sxm-80gb", "link.bytes_per_s", 400e9, 200e9},
	}
	for _, tt := range tests {
		got := quantities(deviceNamed(t, tt.name))[tt.field].Value
		if got == tt.wrong || !near(got, tt.want, 1e-9) {
			t.Errorf("%s: %s is %g, want %g (%g is the figure that circulates)", tt.name, tt.field, got, tt.want, tt.wrong)
		}
	}
}

func TestMemoryIsBinaryLessWhatFirmwareTakes(t *testing.T) {
	const gib = 1 << 30
	tests := []struct {
		name      string
		low, high float64 // GiB
	}{
		{"a100-sxm-80gb", 79, 80},
		{"a100-sxm-40gb", 39, 40},
		{"h100-sxm-80gb", 79, 80},
		{"h200-sxm-141gb", 139, 141},
		{"b200-sxm", 178, 180},
		{"l40s", 44, 45},
		{"rtx-4090", 23.5, 24},
		{"t4", 14.5, 15},
		{"mi300x", 191, 192},
	}
	for _, tt := range tests {
		d := deviceNamed(t, tt.name)
		if got := d.Memory.Value / gib; got < tt.low || got > tt.high {
			t.Errorf("%s: memory is %.2f GiB, want %g to %g", tt.name, got, tt.low, tt.high)
		}
	}
}

func TestLinksArePerDirection(t *testing.T) {
	// What a device sends at most, by technology: half of the vendors' totals.
	limit := map[string]float64{"nvlink": 900e9, "xgmi": 540e9, "pcie": 64e9, "roce": 525e9, "ici": 600e9, "neuronlink": 640e9, "xe-link": 424e9, "hccs": 196e9}
	for _, d := range devicesOfTable(t) {
		if d.PCIe.Known() && (d.PCIe.Value < 16e9 || d.PCIe.Value > 128e9) {
			t.Errorf("%s: PCIe at %g bytes/s per direction", d.Name, d.PCIe.Value)
		}
		if d.InterNode.Value > 100e9 {
			t.Errorf("%s: %g bytes/s between nodes: bits taken for bytes?", d.Name, d.InterNode.Value)
		}
		link := d.Link
		if link == (Link{}) {
			continue
		}
		if link.Bandwidth.Value <= 0 || link.Bandwidth.Value > limit[link.Kind] {
			t.Errorf("%s: %q link of %g bytes/s, want at most %g", d.Name, link.Kind, link.Bandwidth.Value, limit[link.Kind])
		}
		if link.Domain < 2 {
			t.Errorf("%s: a link that joins %d devices", d.Name, link.Domain)
		}
		if a := link.Alpha.Value; a < 0.1e-6 || a > 20e-6 {
			t.Errorf("%s: a hop of %g s", d.Name, a)
		}
		switch link.Topology {
		case "switch", "mesh", "ring", "torus", "pair", "host":
		default:
			t.Errorf("%s: topology %q", d.Name, link.Topology)
		}
		if link.Kind == "pcie" && (link.Bandwidth != d.PCIe || link.Topology != "host") {
			t.Errorf("%s: the PCIe link is not the host's", d.Name)
		}
	}
	for name, domain := range map[string]int{"a100-sxm-80gb": 8, "h100-sxm-80gb": 8, "b200-sxm": 8, "gb200": 72, "gb300": 72, "mi300x": 8} {
		if got := deviceNamed(t, name).Link.Domain; got != domain {
			t.Errorf("%s: a domain of %d, want %d", name, got, domain)
		}
	}
}

func TestDeviceValidate(t *testing.T) {
	good := deviceNamed(t, "a100-sxm-80gb")
	tests := []struct {
		why   string
		spoil func(*Device)
		want  string
	}{
		{"memory is needed", func(d *Device) { d.Memory = Quantity{} }, "memory_bytes"},
		{"a program sees no more than there is", func(d *Device) { d.MemoryTotal = Quantity{Value: 1 << 30, Source: "ours"} }, "memory_total_bytes is 1.073741824e+09: want at least memory_bytes"},
		{"a figure without a source is hearsay", func(d *Device) { d.Bandwidth.Source = "" }, "hbm_bytes_per_s has no source"},
		{"not a number is no figure", func(d *Device) { d.Power.Value = math.NaN() }, "power_w"},
		{"a device without a rate computes nothing", func(d *Device) { d.Peaks = nil }, "peak_flops is empty"},
		{"a misspelled format would be lost", func(d *Device) { d.Peaks = map[DType]Quantity{"fp17": {Value: 1, Source: "x"}} }, "fp17"},
		{"a negative rate", func(d *Device) { d.Peaks = map[DType]Quantity{FP16: {Value: -1, Source: "x"}} }, "peak_flops.fp16"},
		{"gigabytes in a field of bytes squared", func(d *Device) { d.Memory.Value = 1e18 }, "pebibyte"},
	}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			d := good
			tt.spoil(&d)
			err := d.Validate()
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), d.Name) {
				t.Errorf("Validate() = %v, want an error that names %q and the device", err, tt.want)
			}
		})
	}
	if err := good.Validate(); err != nil {
		t.Errorf("the unspoiled device: %v", err)
	}
}
