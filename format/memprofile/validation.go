package memprofile

import (
	"io"
	"reflect"
	"slices"

	"github.com/llmprof/llmprof/format"
)

// ValidationRow compares one profile with a calculator, in the columns of LLM
// Sizer's batch-validate. All sizes are in GB of 1e9 bytes, all differences
// measured less calculated, and their percentages of the calculated figure;
// [WriteValidation] fills the differences. Nil is unknown.
type ValidationRow struct {
	ProfileFile   string   `csv:"profile_file"`
	ModelName     string   `csv:"model_name"`
	ParamsB       *float64 `csv:"params_b"` // a count, in 1e9
	GPUs          *int     `csv:"gpus"`
	GPUType       string   `csv:"gpu_type"`
	Batch         *int     `csv:"batch"`
	InputLen      *int     `csv:"input_len"`  // tokens
	OutputLen     *int     `csv:"output_len"` // tokens
	SeqLen        *int     `csv:"seq_len"`    // tokens
	DType         string   `csv:"dtype"`
	TotalGB       *float64 `csv:"profiled_total_gb,2"`
	WeightsGB     *float64 `csv:"profiled_weights_gb,2"`
	KVGB          *float64 `csv:"profiled_kv_gb,2"`
	ActivationsGB *float64 `csv:"profiled_activations_gb,2"`
	OverheadGB    *float64 `csv:"profiled_overhead_gb,2"`

	CalculatorTotalGB       *float64 `csv:"calculator_total_gb,2"`
	CalculatorWeightsGB     *float64 `csv:"calculator_weights_gb,2"`
	CalculatorKVGB          *float64 `csv:"calculator_kv_gb,2"`
	CalculatorActivationsGB *float64 `csv:"calculator_activations_gb,2"`
	CalculatorOverheadGB    *float64 `csv:"calculator_overhead_gb,2"`

	DiffTotalGB            *float64 `csv:"diff_total_gb,2"`
	DiffTotalPercent       *float64 `csv:"diff_total_pct,1"`
	DiffWeightsPercent     *float64 `csv:"diff_weights_pct,1"`
	DiffKVPercent          *float64 `csv:"diff_kv_pct,1"`
	DiffActivationsPercent *float64 `csv:"diff_activations_pct,1"`
	DiffOverheadPercent    *float64 `csv:"diff_overhead_pct,1"`

	MatchQuality   string   `csv:"match_quality"`
	MatchedModel   string   `csv:"matched_model"`
	MatchedGPU     string   `csv:"matched_gpu"`
	InferenceQuant string   `csv:"inference_quant"`
	KVQuant        string   `csv:"kv_quant"`
	LatencyMs      *float64 `csv:"latency_ms,2"`
}

// ProfileRow is one profile in the columns of LLM Sizer's validate-profile.
// All sizes are in GB of 1e9 bytes, the difference is measured less
// calculated and its percentage of the measured total; [WriteProfileRows]
// fills both. Nil is unknown.
type ProfileRow struct {
	Timestamp     string   `csv:"timestamp"`
	Profile       string   `csv:"profile"`
	Model         string   `csv:"model"`
	ParamsB       *float64 `csv:"params_b"` // a count, in 1e9
	GPUs          *int     `csv:"gpus"`
	Batch         *int     `csv:"batch"`
	InputLen      *int     `csv:"input_len"`  // tokens
	OutputLen     *int     `csv:"output_len"` // tokens
	TotalGB       *float64 `csv:"profiled_total_gb"`
	WeightsGB     *float64 `csv:"profiled_weights_gb"`
	KVGB          *float64 `csv:"profiled_kv_gb"`
	ActivationsGB *float64 `csv:"profiled_activations_gb"`
	OverheadGB    *float64 `csv:"profiled_overhead_gb"`
	LatencyMs     *float64 `csv:"latency_ms"`

	CalculatorTotalGB *float64 `csv:"calculator_total_gb"`
	DiffGB            *float64 `csv:"diff_gb"`
	DiffPercent       *float64 `csv:"pct_diff"`
	MatchQuality      string   `csv:"match_quality"`
}

// compared are the columns of a [ProfileRow] that only rows with a
// calculator's total have.
const compared = 4

// MeasuredRow is a row of any table of measured profiles: those of
// [BatchRow], [ValidationRow] and [ProfileRow]. All sizes are in GB as the
// file has them. Times are left out, since LLM Sizer's validations hold
// seconds in a column that is called latency_ms.
type MeasuredRow struct {
	ProfileFile     string   `csv:"profile_file|profile"`
	Model           string   `csv:"model_id|model_name|model"`
	ParamsB         *float64 `csv:"params_b"` // a count, in 1e9
	GPUs            *int     `csv:"gpus"`
	GPU             string   `csv:"matched_gpu|gpu_type"`
	Batch           *int     `csv:"batch_size|batch"`
	InputLen        *int     `csv:"input_len"`  // tokens
	OutputLen       *int     `csv:"output_len"` // tokens
	WeightDType     string   `csv:"weight_dtype|dtype"`
	ActivationDType string   `csv:"activation_dtype"`
	KVCacheDType    string   `csv:"kv_cache_dtype|kv_quant"`
	Confidence      string   `csv:"estimation_confidence"`

	TotalGB       *float64 `csv:"total_memory_gb|profiled_total_gb"`
	BaselineGB    *float64 `csv:"baseline_memory_gb"`
	WeightsGB     *float64 `csv:"weights_gb|profiled_weights_gb"`
	KVGB          *float64 `csv:"kv_cache_gb|profiled_kv_gb"`
	ActivationsGB *float64 `csv:"activations_gb|profiled_activations_gb"`
	OverheadGB    *float64 `csv:"overhead_gb|profiled_overhead_gb"`

	CalculatorTotalGB       *float64 `csv:"calculator_total_gb"`
	CalculatorWeightsGB     *float64 `csv:"calculator_weights_gb"`
	CalculatorKVGB          *float64 `csv:"calculator_kv_gb"`
	CalculatorActivationsGB *float64 `csv:"calculator_activations_gb"`
	CalculatorOverheadGB    *float64 `csv:"calculator_overhead_gb"`

	// ErrorMessage says why a configuration of a batch has no figures.
	ErrorMessage string `csv:"error_message"`
}

// ReadMeasuredCSV reads any table of measured profiles, as far as its columns
// go; it must name the model and a total.
func ReadMeasuredCSV(name string, r io.Reader, limits format.Limits) ([]MeasuredRow, []string, error) {
	return readRows[MeasuredRow](name, r, limits, "model_id", "total_memory_gb")
}

// ValidationRowOf is the measured half of a row: that of the document kept in
// file.
func ValidationRowOf(d *Document, file string) ValidationRow {
	d.Fill()
	run, b := &d.BenchmarkParameters, &d.MemoryBreakdown
	row := ValidationRow{
		ProfileFile: file, ModelName: string(d.ModelInfo.Name), ParamsB: billions(d.ModelInfo.Parameters),
		GPUs: d.GPUInfo.NumGPUs, GPUType: string(d.GPUInfo.GPUType), Batch: run.BatchSize,
		InputLen: run.InputLen, OutputLen: run.OutputLen, DType: string(d.ModelInfo.DType),
		TotalGB: (*float64)(b.TotalMeasuredGB), WeightsGB: (*float64)(b.ModelWeightsGB), KVGB: (*float64)(b.KVCacheGB),
		ActivationsGB: (*float64)(b.ActivationsGB), OverheadGB: (*float64)(b.FrameworkOverheadGB), LatencyMs: d.LatencyStats.MeanMs,
	}
	if run.InputLen != nil && run.OutputLen != nil {
		length := *run.InputLen + *run.OutputLen
		row.SeqLen = &length
	}
	return row
}

// ProfileRowOf is the row of batch-validate in the columns of validate-profile,
// with the time of its profile.
func ProfileRowOf(v ValidationRow, timestamp string) ProfileRow {
	return ProfileRow{
		Timestamp: timestamp, Profile: v.ProfileFile, Model: v.ModelName, ParamsB: v.ParamsB, GPUs: v.GPUs, Batch: v.Batch,
		InputLen: v.InputLen, OutputLen: v.OutputLen, TotalGB: v.TotalGB, WeightsGB: v.WeightsGB, KVGB: v.KVGB,
		ActivationsGB: v.ActivationsGB, OverheadGB: v.OverheadGB, LatencyMs: v.LatencyMs,
		CalculatorTotalGB: v.CalculatorTotalGB, MatchQuality: v.MatchQuality,
	}
}

func billions(n *float64) *float64 {
	if n == nil {
		return nil
	}
	return finite(*n / 1e9)
}

// WriteValidation writes rows in the layout of batch-validate.
func WriteValidation(w io.Writer, rows []ValidationRow) error {
	rows = slices.Clone(rows)
	for i := range rows {
		r := &rows[i]
		r.DiffTotalGB = less(r.TotalGB, r.CalculatorTotalGB)
		r.DiffTotalPercent = percent(r.DiffTotalGB, r.CalculatorTotalGB)
		r.DiffWeightsPercent = percent(less(r.WeightsGB, r.CalculatorWeightsGB), r.CalculatorWeightsGB)
		r.DiffKVPercent = percent(less(r.KVGB, r.CalculatorKVGB), r.CalculatorKVGB)
		r.DiffActivationsPercent = percent(less(r.ActivationsGB, r.CalculatorActivationsGB), r.CalculatorActivationsGB)
		r.DiffOverheadPercent = percent(less(r.OverheadGB, r.CalculatorOverheadGB), r.CalculatorOverheadGB)
	}
	return writeRows(w, rows, reflect.TypeFor[ValidationRow]().NumField(), true)
}

// WriteProfileRows writes rows in the layout of validate-profile. Its last
// four columns are there where any row has a calculator's total.
func WriteProfileRows(w io.Writer, rows []ProfileRow) error {
	rows = slices.Clone(rows)
	width := reflect.TypeFor[ProfileRow]().NumField() - compared
	for i := range rows {
		r := &rows[i]
		r.DiffGB = less(r.TotalGB, r.CalculatorTotalGB)
		r.DiffPercent = percent(r.DiffGB, r.TotalGB)
		if r.CalculatorTotalGB != nil {
			width = reflect.TypeFor[ProfileRow]().NumField()
		}
	}
	return writeRows(w, rows, width, true)
}

// less is a − b; nil where one is unknown.
func less(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return finite(*a - *b)
}

// percent of a whole; nil where one is unknown or the whole is zero.
func percent(part, whole *float64) *float64 {
	if part == nil || whole == nil {
		return nil
	}
	return finite(*part / *whole * 100)
}
