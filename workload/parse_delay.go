package workload

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/llmprof/llmprof/unit"
)

// ParseSeconds reads a time: a number of seconds, or one with its unit as "250ms"
// or "1m30s".
func ParseSeconds(text string) (unit.Seconds, error) {
	text = strings.TrimSpace(text)
	if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsInf(v, 0) && !math.IsNaN(v) {
		return unit.Seconds(v), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time: want a form such as 2.5 (seconds), 250ms or 1m30s", text)
	}
	return unit.Seconds(d.Seconds()), nil
}

// ParseDelay reads a distribution of think times, whose times are those of
// [ParseSeconds]:
//
//	2s                   always that time
//	exponential:2s       mean
//	uniform:1s:3s        from and to
//	lognormal:2s:1s      mean and standard deviation of the times themselves
func ParseDelay(text string) (Delay, error) {
	name, rest, named := strings.Cut(text, ":")
	if !named {
		name, rest = "fixed", text
	}
	name = strings.TrimSpace(name)
	var times []unit.Seconds
	for part := range strings.SplitSeq(rest, ":") {
		t, err := ParseSeconds(part)
		if err != nil {
			return nil, fmt.Errorf("think time %q: %w", text, err)
		}
		times = append(times, t)
	}
	var d Delay
	switch {
	case name == "fixed" && len(times) == 1:
		d = Pause(times[0])
	case name == "exponential" && len(times) == 1:
		d = ExponentialDelay{Mean: times[0]}
	case name == "uniform" && len(times) == 2:
		d = UniformDelay{Low: times[0], High: times[1]}
	case name == "lognormal" && len(times) == 2:
		d = LogNormalDelay{Mean: times[0], StdDev: times[1]}
	default:
		return nil, fmt.Errorf("think time %q: want a form such as 2s, exponential:2s, uniform:1s:3s or lognormal:2s:1s", text)
	}
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("think time %q: %w", text, err)
	}
	return d, nil
}
