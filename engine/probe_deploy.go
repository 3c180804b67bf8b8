package engine

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
)

// runningDeploy is the deployment that an engine says it runs. What was asked
// for and is not confirmed is left out, with a warning; what is contradicted is
// an error.
func runningDeploy(e *probeEvent, setup Setup) (running deploy.Config, warnings []string, err error) {
	asked := setup.Deploy
	running = deploy.Config{
		Model: cmp.Or(asked.Model, setup.Model), Engine: e.Engine, EngineVersion: e.EngineVersion,
		Quantization: e.Quantization, BlockSize: max(e.BlockSize, 0), MaxModelLen: max(e.MaxModelLen, 0),
		MaxNumBatchedTokens: max(e.BatchedTokens, 0), TensorParallel: max(e.TensorSize, 0), PipelineParallel: max(e.PipelineSize, 0),
	}
	if 0 < e.Utilization && e.Utilization <= 1 {
		running.GPUMemoryUtilization = e.Utilization
	}
	for _, format := range []struct {
		stated string
		field  *catalog.DType
		what   string
	}{
		{e.DType, &running.DType, "computes in"},
		{e.KVCacheDType, &running.KVCacheDType, "keeps its KV cache in"},
	} {
		if format.stated == "" {
			continue
		}
		if *format.field, err = catalog.ParseDType(format.stated); err != nil {
			*format.field = ""
			warnings = append(warnings, fmt.Sprintf("the engine %s %q, which the catalog does not know", format.what, format.stated))
		}
	}
	if _, err := deploy.ParseWeightFormat(running.Quantization, catalog.BF16); err != nil {
		running.Quantization = ""
		warnings = append(warnings, fmt.Sprintf("the engine's weights are quantised as %q, which is not known here", e.Quantization))
	}
	var wrong, unsure []string
	for _, c := range comparisons(asked, running) {
		switch {
		case c.asked == "" || c.asked == c.usual && c.runs == "" || c.asked == c.runs:
		case c.runs == "":
			unsure = append(unsure, c.name+" "+c.asked)
		default:
			wrong = append(wrong, fmt.Sprintf("%s %s, and the engine runs with %s", c.name, c.asked, c.runs))
		}
	}
	if setup.LoadWeights && e.Weights == "random" {
		wrong = append(wrong, "the checkpoint's weights, and the engine has random ones")
	}
	if len(wrong) > 0 {
		return deploy.Config{}, nil, &probeError{
			text: "asked for " + strings.Join(wrong, "; "),
			hint: "leave out what the engine decides itself, or choose another engine",
		}
	}
	if len(unsure) > 0 {
		warnings = append(warnings, "the engine does not confirm what it was asked for, so that it is not recorded: "+strings.Join(unsure, ", "))
	}
	return running, warnings, nil
}

// weightFormat is the one name of a quantisation that has several, as "awq" is
// that of "awq_marlin"; one that is not known keeps its own.
func weightFormat(name string) string {
	format, err := deploy.ParseWeightFormat(name, catalog.BF16)
	if err != nil || name == "" {
		return name
	}
	return format.Name
}

// comparison is a field of a deployment as texts, empty where it is not set.
// What is usual need not be confirmed.
type comparison struct{ name, asked, runs, usual string }

// comparisons are the fields that an engine runs with as asked for or not at
// all. The longest sequence is none of them: an engine may have a shorter one.
func comparisons(asked, running deploy.Config) []comparison {
	set := func(n int) string {
		if n <= 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	share := func(x float64) string {
		if x <= 0 {
			return ""
		}
		return fmt.Sprintf("%.4g", x)
	}
	return []comparison{
		{"dtype", string(asked.DType), string(running.DType), ""},
		{"KV cache dtype", string(asked.KVCacheDType), string(running.KVCacheDType), string(running.DType)},
		{"quantisation", weightFormat(asked.Quantization), weightFormat(running.Quantization), "none"},
		{"block size", set(asked.BlockSize), set(running.BlockSize), ""},
		{"max num batched tokens", set(asked.MaxNumBatchedTokens), set(running.MaxNumBatchedTokens), ""},
		{"tensor parallel size", set(asked.TensorParallel), set(running.TensorParallel), "1"},
		{"pipeline parallel size", set(asked.PipelineParallel), set(running.PipelineParallel), "1"},
		{"GPU memory utilization", share(asked.GPUMemoryUtilization), share(running.GPUMemoryUtilization), ""},
	}
}

// noRequest are the fields of a deployment for which the probe protocol has no
// request.
func noRequest(d deploy.Config) []string {
	var fields []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"pipeline parallel size", d.PipelineParallel > 1 || len(d.PipelineLayers) > 0},
		{"data parallel size", d.DataParallel > 1},
		{"expert parallel size", d.ExpertParallel > 1},
		{"quantisation", d.Quantization != "" && d.Quantization != "none" || d.QuantizeEmbeddings},
		{"KV cache dtype", d.KVCacheDType != "" && d.KVCacheDType != d.DType},
		{"GPU memory utilization", d.GPUMemoryUtilization > 0 || d.MemFractionStatic > 0},
	} {
		if f.set {
			fields = append(fields, f.name)
		}
	}
	return fields
}
