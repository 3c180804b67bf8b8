package mock

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/llmprof/llmprof/sim"
)

// iterationLog writes what vLLM logs of its steps.
type iterationLog struct{ to io.Writer }

// cacheTokens is the size of the KV cache as vLLM prints it: what its blocks
// hold in requests of full length.
func cacheTokens(c *sim.Config) int {
	perRequest := (c.MaxModelLen + c.BlockSize - 1) / c.BlockSize
	return int(float64(c.Blocks) / float64(perRequest) * float64(c.MaxModelLen))
}

// newIterationLog begins a log with the lines of a server's start that say how
// large the cache is.
func newIterationLog(c *Simulation) (*iterationLog, error) {
	l, s := &iterationLog{c.IterationLog}, &c.Scheduler
	perRequest := (s.MaxModelLen + s.BlockSize - 1) / s.BlockSize
	err := l.write(fmt.Sprintf("GPU KV cache size: %s tokens\nMaximum concurrency for %s tokens per request: %.2fx\n",
		grouped(cacheTokens(s)), grouped(s.MaxModelLen), float64(s.Blocks)/float64(perRequest)))
	return l, err
}

func (l *iterationLog) write(text string) error {
	if _, err := io.WriteString(l.to, text); err != nil {
		return fmt.Errorf("write the log of iterations: %w", err)
	}
	return nil
}

// step writes the line of a step whose results came at a time of the day, with
// the used share of the KV cache after it.
func (l *iterationLog) step(s step, at time.Time, usage float64) error {
	t := s.totals
	return l.write(fmt.Sprintf("INFO %s [mock] Engine 000: Iteration(%d): %d context requests, %d context tokens, %d generation requests, %d generation tokens, "+
		"iteration elapsed time: %.2f ms, GPU KV cache usage: %.1f%%\n",
		at.Format("01-02 15:04:05"), s.number, t.PrefillRequests, t.PrefillTokens, t.DecodeRequests, t.DecodeTokens,
		float64(s.took)/1e6, 100*usage))
}

// grouped prints a number with commas between its thousands.
func grouped(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}
