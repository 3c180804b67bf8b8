package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/llmprof/llmprof/mock"
	"github.com/llmprof/llmprof/stat"
)

// server is a mock that runs.
type server struct {
	cmd *exec.Cmd
	url string
}

// serve starts a mock of its own for one run.
func serve(ctx context.Context, llmprof string) (*server, error) {
	cmd := exec.CommandContext(ctx, llmprof, "mock", "--ttft", "50ms", "--gap", "20ms", "--served-model-name", model)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()         // the reason is the missing address
		return nil, fmt.Errorf("start the server: no address: %w", err)
	}
	return &server{cmd, strings.TrimSpace(line)}, nil
}

// stop ends the server.
func (s *server) stop() error {
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		return fmt.Errorf("stop the server: %w", err)
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("stop the server: %w", err)
	}
	return nil
}

// truth asks the server what it has sent.
func (s *server) truth(ctx context.Context) ([]mock.Truth, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/truth", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask the server: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the server: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("ask the server: %w", err)
	}
	var all []mock.Truth
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("ask the server: %w", err)
	}
	return all, nil
}

// seen sums up the requests that the server has answered to the end, and the
// tokens of all.
func seen(all []mock.Truth) (times ttft, tokens int) {
	var firsts []float64
	for _, one := range all {
		tokens += len(one.Emits)
		if len(one.Emits) == outputTokens {
			firsts = append(firsts, float64(one.Emits[0]-one.Arrival)/1e6)
		}
	}
	return ttft{stat.Mean(firsts), stat.Quantile(firsts, 0.99), len(firsts)}, tokens
}
