package catalog

import "strings"

// deviceKey maps the spellings of a device name onto one key, the form of
// the names and aliases in the table:
//
//	NVIDIA A100-SXM4-80GB     a100-sxm-80gb
//	NVIDIA A100 80GB PCIe     a100-pcie-80gb
//	NVIDIA-H100-80GB-HBM3     h100-80gb
//	NVIDIA GeForce RTX 4090   rtx-4090
//	RTX4090                   rtx-4090
//	h100_sxm                  h100-sxm
//
// It is lower case, without vendor and brand words and without the kind of
// memory; blanks, underscores and the like are single hyphens; a form factor
// loses its generation and stands before the memory size. Memory size and
// form factor stay, because they tell devices apart. A key is its own key.
func deviceKey(s string) string {
	marks := strings.NewReplacer("(tm)", " ", "(r)", " ")
	all := strings.FieldsFunc(marks.Replace(strings.ToLower(s)), isNameSeparator)
	words := make([]string, 0, len(all)+1)
	for _, word := range all {
		if !isBrand(word) && !isMemoryKind(word) {
			words = append(words, splitModel(word)...)
		}
	}
	if len(words) == 0 {
		return strings.Join(all, "-")
	}
	key := words[:0]
	for i := 0; i < len(words); i++ {
		word := words[i]
		if isNumber(word) && i+1 < len(words) && isByteUnit(words[i+1]) {
			i++
			word += words[i] // "80 GB"
		}
		key = append(key, memorySize(formFactor(word)))
	}
	return strings.Join(formBeforeSize(key), "-")
}

// isNameSeparator reports whether r only separates the words of a name.
func isNameSeparator(r rune) bool {
	return r <= ' ' || strings.ContainsRune("-_/,()®™\u00a0", r)
}

// isBrand reports whether the word names a maker or a brand and so tells no
// two devices of the table apart.
func isBrand(word string) bool {
	switch word {
	case "nvidia", "geforce", "tesla", "amd", "instinct", "radeon", "intel", "habana",
		"google", "cloud", "aws", "apple", "huawei", "ascend", "biren":
		return true
	}
	return false
}

// isMemoryKind reports whether the word is a kind of memory. NVIDIA's driver
// adds it to some names ("H100 80GB HBM3") and not to others.
func isMemoryKind(word string) bool {
	switch word {
	case "hbm", "hbm2", "hbm2e", "hbm3", "hbm3e":
		return true
	}
	return false
}

// formFactor drops the generation of a module socket: SXM2 to SXM6 are sxm.
func formFactor(word string) string {
	if len(word) == 4 && strings.HasPrefix(word, "sxm") && isNumber(word[3:]) {
		return "sxm"
	}
	return word
}

// memorySize writes a memory size in one way: 80g, 80gb and 80gib are 80gb.
func memorySize(word string) string {
	digits := strings.TrimRight(word, "gib")
	if digits != word && isNumber(digits) && isByteUnit(word[len(digits):]) {
		return digits + "gb"
	}
	return word
}

// splitModel separates what is written together or apart: rtx4090 is
// rtx-4090, 4060ti is 4060-ti, 7900xtx is 7900-xtx.
func splitModel(word string) []string {
	for _, series := range []string{"rtx", "gtx", "rx"} {
		if rest, ok := strings.CutPrefix(word, series); ok && rest != "" && isNumber(rest[:1]) {
			return append([]string{series}, splitModel(rest)...)
		}
	}
	for _, suffix := range []string{"xtx", "xt", "ti", "d", "super"} {
		if number, ok := strings.CutSuffix(word, suffix); ok && len(number) == 4 && isNumber(number) {
			return []string{number, suffix}
		}
	}
	return []string{word}
}

// formBeforeSize puts a form factor at the end before the memory size:
// a100-80gb-pcie is a100-pcie-80gb.
func formBeforeSize(words []string) []string {
	last := len(words) - 1
	if last < 1 || !isFormFactor(words[last]) {
		return words
	}
	size := words[last-1]
	if digits, ok := strings.CutSuffix(size, "gb"); ok && isNumber(digits) {
		words[last-1], words[last] = words[last], size
	}
	return words
}

func isFormFactor(word string) bool {
	return word == "sxm" || word == "pcie" || word == "nvl"
}

func isByteUnit(word string) bool {
	return word == "g" || word == "gb" || word == "gib"
}

func isNumber(word string) bool {
	for i := range len(word) {
		if word[i] < '0' || word[i] > '9' {
			return false
		}
	}
	return word != ""
}

// ambiguous says what a key that leaves a choice is taken to mean, and the
// other devices that it could mean; ok is false for a key that leaves none.
// Every such key is also an alias of its choice, so that a lookup finds it;
// whoever asked should be shown the choice.
func ambiguous(key string) (choice string, others []string, ok bool) {
	switch key {
	case "a100":
		return "a100-sxm-80gb", []string{"a100-sxm-40gb", "a100-pcie-80gb", "a100-pcie-40gb"}, true
	case "a100-80gb":
		return "a100-sxm-80gb", []string{"a100-pcie-80gb"}, true
	case "a100-40gb":
		return "a100-sxm-40gb", []string{"a100-pcie-40gb"}, true
	case "a100-sxm":
		return "a100-sxm-80gb", []string{"a100-sxm-40gb"}, true
	case "a100-pcie":
		return "a100-pcie-80gb", []string{"a100-pcie-40gb"}, true
	case "a800":
		return "a800-sxm-80gb", []string{"a800-pcie-80gb"}, true
	case "a800-80gb":
		return "a800-sxm-80gb", []string{"a800-pcie-80gb"}, true
	case "h100":
		return "h100-sxm-80gb", []string{"h100-pcie-80gb", "h100-nvl-94gb"}, true
	case "h200":
		return "h200-sxm-141gb", []string{"h200-nvl-141gb"}, true
	case "h20", "h20-sxm":
		return "h20-sxm-96gb", []string{"h20-sxm-141gb"}, true
	case "gh200":
		return "gh200-96gb", []string{"gh200-144gb"}, true
	case "v100":
		return "v100-sxm-32gb", []string{"v100-sxm-16gb", "v100-pcie-32gb", "v100-pcie-16gb"}, true
	case "v100-32gb":
		return "v100-sxm-32gb", []string{"v100-pcie-32gb"}, true
	case "v100-16gb":
		return "v100-sxm-16gb", []string{"v100-pcie-16gb"}, true
	case "v100-sxm":
		return "v100-sxm-32gb", []string{"v100-sxm-16gb"}, true
	case "v100-pcie":
		return "v100-pcie-32gb", []string{"v100-pcie-16gb"}, true
	case "rtx-pro-6000", "rtx-pro-6000-blackwell":
		return "rtx-pro-6000-server", []string{"rtx-pro-6000-workstation"}, true
	case "mi300":
		return "mi300x", []string{"mi300a", "mi308x"}, true
	case "mi350":
		return "mi350x", []string{"mi355x"}, true
	case "gaudi":
		return "gaudi-3", []string{"gaudi-2"}, true
	}
	return "", nil, false
}
