package hub

import (
	"fmt"
	"strings"
)

// readQuantization names the weight format of a quantization_config, as
// deploy.ParseWeightFormat reads it. A method that is not known is passed on
// by its own name, with a warning, so that whoever needs the format refuses
// it by name.
func readQuantization(q *object) string {
	method := strings.ToLower(q.word("quant_method"))
	if method == "" && q.has("quant_algo") {
		method = "modelopt"
	}
	switch method {
	case "fp8", "fbgemm_fp8":
		return readFP8(q)
	case "awq":
		return fourBit(q, "awq", q.integerOr("bits", q.integerOr("w_bit", 4, 1, 16), 1, 16), q.integerOr("group_size", q.integerOr("q_group_size", 128, -1, maxWidth), -1, maxWidth))
	case "gptq", "auto-round", "autoround":
		bits, group := q.integerOr("bits", 4, 1, 16), q.integerOr("group_size", 128, -1, maxWidth)
		if bits == 8 {
			return "gptq-int8"
		}
		return fourBit(q, "gptq", bits, group)
	case "mxfp4":
		return "mxfp4"
	case "bitsandbytes":
		if q.flag("load_in_8bit", false) && !q.flag("load_in_4bit", false) {
			return "int8-weight-only"
		}
		return "bitsandbytes-nf4"
	case "modelopt", "modelopt_fp4":
		return readModelOpt(q, "quant_algo")
	case "compressed-tensors":
		return readCompressedTensors(q)
	case "quark":
		return readQuark(q)
	case "":
		q.fail("quant_method", "is missing: the weight format is not known")
		return ""
	}
	q.warnf("quantization method %q is not known: its weight format has to be given", shorten(method))
	return method
}

// readFP8 tells blockwise scales from others.
func readFP8(q *object) string {
	if !q.has("weight_block_size") {
		return "fp8"
	}
	block := q.integers("weight_block_size", 1, maxWidth)
	if q.notes.err == nil && (len(block) != 2 || block[0] != 128 || block[1] != 128) {
		q.warnf("fp8 blocks of %v: 128 by 128 is assumed for the size of the scales", block)
	}
	return "fp8-block"
}

// fourBit checks that an integer format is the one its name stands for.
func fourBit(q *object, name string, bits, group int) string {
	if bits != 4 {
		q.warnf("%s with %d bits is not known: its weight format has to be given", name, bits)
		return fmt.Sprintf("%s-int%d", name, bits)
	}
	if group != 128 {
		q.warnf("%s with groups of %d: the scales of groups of 128 are assumed", name, group)
	}
	return name
}

// readModelOpt reads the algorithm of a ModelOpt quantisation at key.
func readModelOpt(q *object, key string) string {
	switch algo := strings.ToUpper(q.word(key)); algo {
	case "FP8", "FP8_PER_CHANNEL_PER_TOKEN":
		return "fp8"
	case "FP8_PB_WO":
		return "fp8-block"
	case "NVFP4", "NVFP4_AWQ", "W4A8_NVFP4_FP8":
		return "nvfp4"
	case "W4A16_AWQ", "INT4_AWQ":
		return "awq"
	case "W8A8_SQ_PER_CHANNEL", "INT8_SQ":
		return "int8"
	case "":
		q.fail(key, "is missing: the weight format is not known")
		return ""
	default:
		q.warnf("ModelOpt algorithm %q is not known: its weight format has to be given", shorten(algo))
		return strings.ToLower(algo)
	}
}

// readCompressedTensors reads the first group of a compressed-tensors
// configuration; groups that differ draw a warning.
func readCompressedTensors(q *object) string {
	groups := q.child("config_groups")
	if groups == nil {
		q.fail("config_groups", "is missing: the weight format is not known")
		return ""
	}
	name := ""
	for _, key := range sortedKeys(groups.fields) {
		group := groups.child(key)
		if group == nil {
			continue
		}
		weights := group.child("weights")
		if weights == nil {
			continue
		}
		format := compressedFormat(q, group, weights)
		if name != "" && format != name {
			q.warnf("quantization groups differ (%s, %s): %s is taken for all", name, format, name)
			continue
		}
		name = format
	}
	if name == "" {
		groups.fail("group_0", "no group says how weights are stored")
	}
	return name
}

func compressedFormat(q, group, weights *object) string {
	bits, kind, strategy := weights.integerOr("num_bits", 8, 1, 32), weights.word("type"), weights.word("strategy")
	size := weights.integerOr("group_size", 0, -1, maxWidth)
	both := group.has("input_activations")
	switch {
	case kind == "float" && bits == 8 && strategy == "block":
		return "fp8-block"
	case kind == "float" && bits == 8 && both:
		return "fp8"
	case kind == "float" && bits == 8:
		return "fp8-weight-only"
	case kind == "float" && bits == 4 && size == 32:
		return "mxfp4-all"
	case kind == "float" && bits == 4:
		if !both {
			q.warnf("fp4 weights with 16-bit activations: priced as nvfp4")
		}
		return "nvfp4"
	case kind == "int" && bits == 8 && both:
		return "int8"
	case kind == "int" && bits == 8:
		return "int8-weight-only"
	case kind == "int" && bits == 4:
		return fourBit(q, "awq", bits, size)
	}
	name := fmt.Sprintf("compressed-tensors-%s%d", kind, bits)
	q.warnf("%s is not known: the weight format has to be given", name)
	return name
}

// readQuark reads AMD's layout.
func readQuark(q *object) string {
	global := q.child("global_quant_config")
	if global == nil {
		q.fail("global_quant_config", "is missing: the weight format is not known")
		return ""
	}
	weight := global.child("weight")
	if weight == nil {
		global.fail("weight", "is missing: the weight format is not known")
		return ""
	}
	switch kind := weight.word("dtype"); kind {
	case "fp8_e4m3":
		return "fp8"
	case "fp4":
		return "mxfp4-all"
	case "int8":
		return "int8"
	default:
		q.warnf("quark format %q is not known: its weight format has to be given", shorten(kind))
		return "quark-" + kind
	}
}

// ParseQuantConfig reads hf_quant_config.json, in which ModelOpt describes a
// checkpoint whose config.json does not say that it is quantised. It returns
// the weight format's name, "" for none.
func ParseQuantConfig(name string, text []byte) (string, []string, error) {
	if len(text) > MaxConfigBytes {
		return "", nil, &FileError{File: name, Problem: fmt.Sprintf("the file is longer than %d bytes", MaxConfigBytes)}
	}
	root, err := parseObject(name, text)
	if err != nil {
		return "", nil, err
	}
	q := root.child("quantization")
	if q == nil {
		root.fail("quantization", "is missing")
		return "", nil, root.notes.err
	}
	format := ""
	if q.has("quant_algo") {
		format = readModelOpt(q, "quant_algo")
	}
	if root.notes.err != nil {
		return "", nil, root.notes.err
	}
	return format, root.notes.warnings, nil
}
