package fit_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

// sweep is a profile of a device that launches a step in 5 ms, computes a
// prompt token in 20 µs and reads a cached token in 0.1 µs.
func sweep() []profile.Point {
	var points []profile.Point
	for b := 1; b <= 32; b *= 2 {
		for i := 1; i <= 4096; i *= 4 {
			prefill := max(5e-3, float64(b*i)*20e-6)
			decode := 5e-3 + float64(b*(i+16))*0.1e-6
			points = append(points,
				profile.Point{
					Kind: profile.KindStep, Samples: []float64{3 * prefill, prefill, prefill}, // the first run is cold
					Step: &profile.Step{Mode: profile.Prefill, BatchSize: b, InputLen: i, OutputLen: 32, Pass: forward.Prefill(b, i, 0)},
				},
				profile.Point{
					Kind: profile.KindStep, Samples: []float64{decode, decode, decode},
					Step: &profile.Step{Mode: profile.Decode, BatchSize: b, InputLen: i, OutputLen: 32, Pass: forward.Decode(b, i+16)},
				})
		}
	}
	return points
}

func Example() {
	data, err := fit.ObservationsOf(sweep())
	if err != nil {
		fmt.Println(err)
		return
	}
	predictor, report, err := fit.Train(context.Background(), data.Rows, fit.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("rows:", len(data.Rows), "cold runs:", report.ColdRuns)

	prompt, _ := predictor.Predict(fit.Query{Mode: fit.Prefill, BatchSize: 3, InputLen: 1000})
	fmt.Printf("3 prompts of 1000 tokens: %.0f ms, %s\n", prompt.Value.Milliseconds(), prompt.Basis)
	far, _ := predictor.Predict(fit.Query{Mode: fit.Decode, BatchSize: 100, InputLen: 500})
	fmt.Printf("100 sequences: %.0f ms, %s\n", far.Value.Milliseconds(), far.Basis)

	_, err = predictor.StepTime(forward.Pass{
		Prefill: []forward.Chunk{{Count: 1, New: 512}},
		Decode:  forward.Sequences{Count: 8, SumContext: 8000},
	})
	fmt.Println(err)
	// Output:
	// rows: 84 cold runs: 42
	// 3 prompts of 1000 tokens: 60 ms, interpolated
	// 100 sequences: 10 ms, extrapolated
	// mixed prefill and decode step: not measured: only homogeneous steps were timed
}

// A server's log of its steps answers for mixed steps, and with the times of
// its clients' requests for what passes between steps.
func ExampleHostGap() {
	// The server prefills in 20 ms, generates in 5 ms a step, and rests 1 ms
	// between steps; its client is 3 ms away.
	var steps, requests []profile.Point
	for n := range 60 {
		sent := float64(n)
		output := 4 + n%7
		log := func(totals forward.Totals, seconds float64) {
			steps = append(steps, profile.Point{Kind: profile.KindStep, Samples: []float64{seconds}, Step: &profile.Step{Mode: profile.Mixed, Totals: &totals}})
		}
		log(forward.Totals{PrefillRequests: 1, PrefillTokens: 200}, 20e-3)
		for range output - 1 {
			log(forward.Totals{DecodeRequests: 1, DecodeTokens: 1}, 5e-3)
		}
		requests = append(requests, profile.Point{Kind: profile.KindRequest, Request: &profile.Request{
			InputLen: 200, OutputLen: output, Sent: sent, First: sent + 23e-3, Last: sent + 23e-3 + float64(output-1)*6e-3,
		}})
	}
	gap, err := fit.HostGap(steps, requests)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.1f ms between steps, %.1f ms before a request\n", gap.Between.Value.Milliseconds(), gap.Before.Value.Milliseconds())

	data, err := fit.ObservationsOf(steps)
	if err != nil {
		fmt.Println(err)
		return
	}
	predictor, _, err := fit.Train(context.Background(), data.Rows, fit.Options{HostGap: &gap})
	if err != nil {
		fmt.Println(err)
		return
	}
	step, _ := predictor.Predict(fit.Query{Totals: &forward.Totals{DecodeRequests: 1, DecodeTokens: 1}})
	fmt.Printf("%.1f ms for a token\n", step.Value.Milliseconds())
	// Output:
	// 1.0 ms between steps, 3.0 ms before a request
	// 5.0 ms for a token
}

// A file of the forward-time predictor answers without any measurement.
func ExampleReadPredictors() {
	file, err := fit.ReadPredictors(strings.NewReader(`{
  "a100": {"decode": {"weights": [8.5e-06, 4.4e-08, 4.4e-08, 8.5e-06], "bias": 0.0075, "model_type": "linear"}}
}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	predictor, _, err := file.Predictor("a100")
	if err != nil {
		fmt.Println(err)
		return
	}
	step, _ := predictor.Predict(fit.Query{Mode: fit.Decode, BatchSize: 8, InputLen: 1024})
	fmt.Println(step.Value, step.Basis)
	_, err = predictor.Predict(fit.Query{Mode: fit.Prefill, BatchSize: 8, InputLen: 1024})
	fmt.Println(err)
	// Output:
	// 8.357 ms fitted
	// prefill step: not measured: the predictor was trained without prefill rows
}

// Held-out errors of both models, side by side.
func ExampleCrossValidate() {
	data, err := fit.ObservationsOf(sweep())
	if err != nil {
		fmt.Println(err)
		return
	}
	scores, err := fit.CrossValidate(context.Background(), data.Mode(fit.Prefill), 5, []string{fit.LinearModel, fit.Auto}, fit.Median)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("auto beats linear:", scores[1].MAPE < scores[0].MAPE/2)
	// Output: auto beats linear: true
}

// A config that is trained again takes the place of the one of its name.
func ExampleFile_Set() {
	file, err := fit.ReadPredictors(strings.NewReader(`{"other": {"prefill": {"weights": [1e-5, 0, 1e-5, 0], "bias": 0.01, "model_type": "linear"}}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := file.Set("new", &fit.Predictor{}, nil); err != nil {
		fmt.Println(err)
		return
	}
	if err := file.Write(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {
	//   "other": {"prefill": {"weights": [1e-5, 0, 1e-5, 0], "bias": 0.01, "model_type": "linear"}},
	//   "new": {}
	// }
}
