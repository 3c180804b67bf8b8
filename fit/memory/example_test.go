package memory_test

import (
	"fmt"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/cost/llmsizer"
	"github.com/llmprof/llmprof/fit/memory"
)

// A public run of vLLM on an RTX 4090, judged by two calculators.
func ExampleJudge() {
	c, err := catalog.Builtin()
	if err != nil {
		fmt.Println(err)
		return
	}
	calculators := []memory.Calculator{memory.Ours(c, cost.Settings{}), memory.Sizer(llmsizer.AppEarly)}
	report := memory.Judge([]memory.Measured{card()}, calculators, memory.Options{Catalog: c})
	for _, v := range report.Verdicts {
		fmt.Println(v.Calculator)
		for _, part := range v.Comparisons {
			fmt.Printf("  %-11s measured %9v, calculated %9v: %s\n", part.Component, part.Measured, part.Calculated, part.Class)
		}
	}
	for _, s := range report.Summaries {
		for _, r := range s.Recommendations {
			fmt.Printf("%s: %s\n", s.Calculator, r.Text)
		}
	}
	// Output:
	// llmprof
	//   total       measured 20.01 GiB, calculated 20.02 GiB: excellent
	//   weights     measured 14.96 GiB, calculated 14.96 GiB: excellent
	//   KV cache    measured  5.05 GiB, calculated  5.06 GiB: excellent
	//   KV capacity measured  5.05 GiB, calculated  4.99 GiB: excellent
	// llm-sizer app-2c8af80
	//   total       measured 20.01 GiB, calculated 35.18 GiB: bad
	//   weights     measured 14.96 GiB, calculated 14.96 GiB: excellent
	//   KV cache    measured  5.05 GiB, calculated 20.22 GiB: bad
	// llm-sizer app-2c8af80: KV cache is overestimated 4.0 × on the 1 profile with grouped-query attention: count KV heads, not query heads
}
