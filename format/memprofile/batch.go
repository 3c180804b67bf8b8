package memprofile

import (
	"io"
	"reflect"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/unit"
)

// BatchRow is one configuration of a batch, in the columns of LLM Sizer's
// batch-bench-results. All sizes are in GB of 1e9 bytes where we wrote them;
// LLM Sizer printed MiB/1024 for CUDA. Nil was not measured.
type BatchRow struct {
	ModelID         string   `csv:"model_id"`
	ContainerName   string   `csv:"container_name"`
	InputLen        *int     `csv:"input_len"`  // tokens
	OutputLen       *int     `csv:"output_len"` // tokens
	BatchSize       *int     `csv:"batch_size"`
	Success         bool     `csv:"success"`
	ProfileFile     string   `csv:"profile_file"`
	TotalMemoryGB   *float64 `csv:"total_memory_gb"`
	BaselineGB      *float64 `csv:"baseline_memory_gb"`
	IncreaseGB      *float64 `csv:"memory_increase_gb"`
	WeightsGB       *float64 `csv:"weights_gb"`
	KVCacheGB       *float64 `csv:"kv_cache_gb"`
	ActivationsGB   *float64 `csv:"activations_gb"`
	OverheadGB      *float64 `csv:"overhead_gb"`
	EngineVersion   string   `csv:"engine_version"`
	WeightDType     string   `csv:"weight_dtype"`
	ActivationDType string   `csv:"activation_dtype"`
	KVCacheDType    string   `csv:"kv_cache_dtype"`
	Confidence      string   `csv:"estimation_confidence"`
	LatencyMs       *float64 `csv:"latency_ms"`
	DurationSeconds *float64 `csv:"duration_seconds"`
	ErrorMessage    string   `csv:"error_message"`
}

// BatchRowOf is the row of a document that was measured in container, within
// duration, and is kept in file.
func BatchRowOf(d *Document, container, file string, duration unit.Seconds) BatchRow {
	d.Fill()
	b := &d.MemoryBreakdown
	return BatchRow{
		ModelID: string(d.ModelInfo.Name), ContainerName: container,
		InputLen: d.BenchmarkParameters.InputLen, OutputLen: d.BenchmarkParameters.OutputLen, BatchSize: d.BenchmarkParameters.BatchSize,
		Success: true, ProfileFile: file,
		TotalMemoryGB: (*float64)(b.TotalMeasuredGB), BaselineGB: (*float64)(b.BaselineGB), IncreaseGB: (*float64)(b.NetIncreaseGB),
		WeightsGB: (*float64)(b.ModelWeightsGB), KVCacheGB: (*float64)(b.KVCacheGB),
		ActivationsGB: (*float64)(b.ActivationsGB), OverheadGB: (*float64)(b.FrameworkOverheadGB),
		EngineVersion: string(d.EngineMetadata.EngineVersion), WeightDType: string(d.DTypeMetadata.WeightDType),
		ActivationDType: string(d.DTypeMetadata.ActivationDType), KVCacheDType: string(d.DTypeMetadata.KVCacheDType),
		Confidence: string(b.Confidence), LatencyMs: d.LatencyStats.MeanMs, DurationSeconds: finite(float64(duration)),
	}
}

// ReadBatch reads batch-bench-results. Columns may be missing but for
// model_id and total_memory_gb, and others are passed over.
func ReadBatch(name string, r io.Reader, limits format.Limits) ([]BatchRow, []string, error) {
	return readRows[BatchRow](name, r, limits, "model_id", "total_memory_gb")
}

// WriteBatch writes batch-bench-results as LLM Sizer does: True and False,
// numbers as in Python, and an empty cell for zero as for what was not
// measured.
func WriteBatch(w io.Writer, rows []BatchRow) error {
	return writeRows(w, rows, reflect.TypeFor[BatchRow]().NumField(), false)
}
