package hub

import "strings"

// ggmlType is the layout of one tensor format of GGUF.
type ggmlType struct {
	name string
	// elements share one block of bytes.
	elements, bytes int64
}

// ggmlTypeOf returns the layout of a tensor format. Source: GGML_QUANT_SIZES
// of the gguf package 0.19.0.
func ggmlTypeOf(id uint32) (ggmlType, bool) {
	switch id {
	case 0:
		return ggmlType{"F32", 1, 4}, true
	case 1:
		return ggmlType{"F16", 1, 2}, true
	case 2:
		return ggmlType{"Q4_0", 32, 18}, true
	case 3:
		return ggmlType{"Q4_1", 32, 20}, true
	case 6:
		return ggmlType{"Q5_0", 32, 22}, true
	case 7:
		return ggmlType{"Q5_1", 32, 24}, true
	case 8:
		return ggmlType{"Q8_0", 32, 34}, true
	case 9:
		return ggmlType{"Q8_1", 32, 40}, true
	case 10:
		return ggmlType{"Q2_K", 256, 84}, true
	case 11:
		return ggmlType{"Q3_K", 256, 110}, true
	case 12:
		return ggmlType{"Q4_K", 256, 144}, true
	case 13:
		return ggmlType{"Q5_K", 256, 176}, true
	case 14:
		return ggmlType{"Q6_K", 256, 210}, true
	case 15:
		return ggmlType{"Q8_K", 256, 292}, true
	case 16:
		return ggmlType{"IQ2_XXS", 256, 66}, true
	case 17:
		return ggmlType{"IQ2_XS", 256, 74}, true
	case 18:
		return ggmlType{"IQ3_XXS", 256, 98}, true
	case 19:
		return ggmlType{"IQ1_S", 256, 50}, true
	case 20:
		return ggmlType{"IQ4_NL", 32, 18}, true
	case 21:
		return ggmlType{"IQ3_S", 256, 110}, true
	case 22:
		return ggmlType{"IQ2_S", 256, 82}, true
	case 23:
		return ggmlType{"IQ4_XS", 256, 136}, true
	case 24:
		return ggmlType{"I8", 1, 1}, true
	case 25:
		return ggmlType{"I16", 1, 2}, true
	case 26:
		return ggmlType{"I32", 1, 4}, true
	case 27:
		return ggmlType{"I64", 1, 8}, true
	case 28:
		return ggmlType{"F64", 1, 8}, true
	case 29:
		return ggmlType{"IQ1_M", 256, 56}, true
	case 30:
		return ggmlType{"BF16", 1, 2}, true
	case 34:
		return ggmlType{"TQ1_0", 256, 54}, true
	case 35:
		return ggmlType{"TQ2_0", 256, 66}, true
	case 39:
		return ggmlType{"MXFP4", 32, 17}, true
	case 40:
		return ggmlType{"NVFP4", 64, 36}, true
	case 41:
		return ggmlType{"Q1_0", 128, 18}, true
	}
	return ggmlType{}, false
}

// plainGGML reports whether a format is an unquantised one.
func plainGGML(name string) bool {
	switch name {
	case "F32", "F16", "BF16", "F64":
		return true
	}
	return false
}

// ggmlFormatName is the weight format as deploy.ParseWeightFormat reads it,
// for the format that holds most of a model's weights. MXFP4 is GGUF's format
// of gpt-oss, whose experts alone are stored so.
func ggmlFormatName(dtype string) string {
	if plainGGML(dtype) {
		return ""
	}
	return strings.ToLower(dtype)
}
