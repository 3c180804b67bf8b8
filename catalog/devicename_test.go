package catalog

import (
	"slices"
	"strings"
	"testing"
)

func TestDeviceKey(t *testing.T) {
	tests := []struct{ why, in, want string }{
		{"a socket's generation is not part of the identity", "NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"},
		{"form factor goes before the size", "NVIDIA A100 80GB PCIe", "a100-pcie-80gb"},
		{"the kind of memory is dropped", "NVIDIA-H100-80GB-HBM3", "h100-80gb"},
		{"the kind of memory is dropped wherever it stands", "h200_hbm3e_141gb", "h200-141gb"},
		{"form factor stays", "NVIDIA H100 PCIe", "h100-pcie"},
		{"underscores are hyphens", "h100_sxm", "h100-sxm"},
		{"brand words are dropped", "NVIDIA GeForce RTX 4090", "rtx-4090"},
		{"series and number are separate words", "RTX4090", "rtx-4090"},
		{"a suffix of the number is a word", "rtx 4060Ti 16 GB", "rtx-4060-ti-16gb"},
		{"and behind the series as well", "RTX4090D", "rtx-4090-d"},
		{"Tesla is a brand", "Tesla V100-SXM2-32GB", "v100-sxm-32gb"},
		{"AMD and Instinct are brands", "AMD Instinct MI300X", "mi300x"},
		{"trade marks are dropped", "AMD Radeon(TM) RX 7900XTX", "rx-7900-xtx"},
		{"GiB is spelled GB in names", "a100-80gib", "a100-80gb"},
		{"G is short for GB", "NVIDIA GH200 144G HBM3e", "gh200-144gb"},
		{"runs of separators are one hyphen", " --H100__80GB  ", "h100-80gb"},
		{"a form factor alone stays", "sxm5", "sxm"},
		{"brands alone stay, so that the error can name them", "NVIDIA Tesla", "nvidia-tesla"},
		{"nothing stays nothing", " - ", ""},
	}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			if got := deviceKey(tt.in); got != tt.want {
				t.Errorf("deviceKey(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

func TestAmbiguousNames(t *testing.T) {
	index := deviceIndex(t, devicesOfTable(t))
	bare := []string{
		"A100", "A100 80GB", "a100_sxm", "A100-PCIe", "A800", "H100", "H200", "H20", "GH200",
		"V100", "Tesla V100 16GB", "RTX PRO 6000", "MI300", "MI350", "Gaudi",
	}
	for _, name := range bare {
		key := deviceKey(name)
		choice, others, ok := ambiguous(key)
		if !ok {
			t.Errorf("%q (key %q) leaves a choice, but ambiguous does not say so", name, key)
			continue
		}
		if index[key] != choice {
			t.Errorf("%q: ambiguous chooses %q, the table's aliases %q", name, choice, index[key])
		}
		for _, other := range append(slices.Clone(others), choice) {
			if index[other] != other {
				t.Errorf("%q: the choice %q is not a device of the table", name, other)
			}
		}
		if len(others) == 0 || slices.Contains(others, choice) {
			t.Errorf("%q: others are %v beside the choice %q", name, others, choice)
		}
	}
}

func TestFullNamesLeaveNoChoice(t *testing.T) {
	for _, d := range devicesOfTable(t) {
		if choice, _, ok := ambiguous(d.Name); ok {
			t.Errorf("the canonical name %q is called ambiguous (choice %q)", d.Name, choice)
		}
	}
}

func FuzzDeviceKey(f *testing.F) {
	for _, seed := range []string{
		"NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe", "RTX4090", "80 GB", "4060ti 16 g",
		"80 nvidia gb", "rtx80g", "rx7900xtx-pcie", "\u00a0H100\u2122", "hbm3", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key := deviceKey(s)
		if again := deviceKey(key); again != key {
			t.Errorf("deviceKey(%q) = %q, and the key of that is %q", s, key, again)
		}
		if strings.Contains(key, "--") || strings.HasPrefix(key, "-") || strings.HasSuffix(key, "-") {
			t.Errorf("deviceKey(%q) = %q: empty words", s, key)
		}
		ambiguous(key)
	})
}
