package deploy

import "regexp"

// VLLMBlockSize is the tokens of a KV block where none is given, for latent
// attention (MLA) or any other. Why names the reason, and sure is false where
// it depends on an attention backend that the engine picks at its start.
func VLLMBlockSize(r Release, m Machine, latent bool) (tokens int, why string, sure bool) {
	switch {
	case m.Platform == CPU && latent:
		return 16, "latent attention on a CPU", true
	case m.Platform == CPU:
		return 128, "CPUs", true
	case !latent && isIntel(m.Name) && !r.From(18, 0):
		return 64, "Intel GPUs", true
	case !latent:
		return 16, "attention backends that take it", true
	case isHopper(m.Name) && r.From(18, 0):
		return 16, "latent attention by FlashAttention (assumed)", false
	case isHopper(m.Name):
		return 64, "latent attention by FlashMLA (assumed)", false
	case isBlackwell(m.Name) && r.From(18, 0):
		return 32, "latent attention by FlashInfer (assumed)", false
	case isBlackwell(m.Name):
		return 128, "latent attention by CUTLASS (assumed)", false
	}
	return 16, "latent attention by Triton (assumed)", false
}

// VLLMBlockDoubt says why an engine on an NVIDIA device may not take a size of
// KV blocks, in tokens; empty where it does.
func VLLMBlockDoubt(tokens int) string {
	if tokens%16 == 0 {
		return ""
	}
	return "not a multiple of 16, which FlashAttention wants: the engine takes another attention backend or does not start"
}

// VLLMNewerRunner reports whether vLLM's newer model runner computes the steps
// by default: from 0.25 for models whose layers are all dense attention, from
// 0.29 for all, on accelerators.
func VLLMNewerRunner(r Release, m Machine, dense bool) bool {
	return m.Platform == GPU && (r.From(29, 0) || dense && r.From(25, 0))
}

func isHopper(name string) bool {
	return regexp.MustCompile(`(?i)\b(G?H100|G?H200|H800|H20)\b`).MatchString(name)
}

func isBlackwell(name string) bool {
	return regexp.MustCompile(`(?i)\bG?B[23]00\b`).MatchString(name)
}

func isIntel(name string) bool { return regexp.MustCompile(`(?i)\bIntel\b`).MatchString(name) }
