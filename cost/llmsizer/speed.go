package llmsizer

import (
	"math"

	"github.com/llmprof/llmprof/catalog"
)

// Status is the app's word for how full the GPUs are.
type Status string

// The statuses.
const (
	// Okay is up to 80 %.
	Okay Status = "okay"
	// Warning is above 80 %.
	Warning Status = "warning"
	// TooMuch is above 100 %; the app calls it "error".
	TooMuch Status = "error"
)

// Fill is how full the GPUs are.
type Fill struct {
	// UsedGB and DeviceGB are sums over the GPUs in GB of 1e9 bytes.
	UsedGB   float64 `json:"usedVRAM"`
	DeviceGB float64 `json:"totalVRAM"`
	// Percent is used over device, in percent.
	Percent float64 `json:"vramPercentage"`
	Status  Status  `json:"status"`
}

func fillOf(used, device float64) *Fill {
	f := &Fill{UsedGB: used, DeviceGB: device, Percent: used / device * 100, Status: Okay}
	switch {
	case f.Percent > 100:
		f.Status = TooMuch
	case f.Percent > 80:
		f.Status = Warning
	}
	return f
}

// Speed is the app's estimate in whole tokens/s.
type Speed struct {
	// Generation and PerUser are both the total divided by the users, in
	// tokens/s.
	Generation float64 `json:"generationSpeed"`
	// Total is of all users, in tokens/s.
	Total float64 `json:"totalThroughput"`
	// PerUser is in tokens/s.
	PerUser float64 `json:"perUserSpeed"`
}

// speed is the smaller of two rooflines times guesses for the batch, the
// number of GPUs and how full they are, given in percent.
func (in Input) speed(percent float64) *Speed {
	n, params := float64(in.GPUs), in.Model.Params
	efficiency := 1.0
	if in.GPUs > 1 {
		efficiency = 0.85 + 0.15/n
	}
	compute := in.tflops() * 1e12 * n * efficiency / (2 * params)
	bandwidth := in.GPU.BandwidthGBps * 1e9 * n * efficiency / (2 * params)
	v := min(compute, bandwidth)
	switch {
	case percent > 95:
		v *= 0.5
	case percent > 90:
		v *= 0.7
	case percent > 80:
		v *= 0.85
	case percent > 70:
		v *= 0.95
	}
	v *= min(1, math.Log2(float64(in.Batch)+1)/5)
	perUser := halfUp(v / float64(in.Users))
	return &Speed{Generation: perUser, Total: halfUp(v), PerUser: perUser}
}

// tflops is the peak that the app takes for the weights' format, in TFLOP/s.
func (in Input) tflops() float64 {
	fp16, fp8 := in.GPU.FP16TFLOPS, in.GPU.FP8TFLOPS
	or := func(factor float64) float64 {
		if fp8 > 0 {
			return fp8
		}
		return factor * fp16
	}
	switch in.Weights {
	case catalog.FP8:
		return or(2)
	case catalog.INT8:
		return or(2.2)
	case catalog.INT4, catalog.FP4:
		if fp8 > 0 {
			return 2 * fp8
		}
		return 4 * fp16
	}
	return fp16
}

// halfUp rounds to a whole number, halves upwards.
func halfUp(v float64) float64 { return math.Floor(v + 0.5) }
