package llamacpp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/llmprof/llmprof/engine"
	format "github.com/llmprof/llmprof/format/llamacpp"
	"github.com/llmprof/llmprof/profile"
)

// Limits of what the program may print and of how long it may take to end.
const (
	maxLine = 16 << 20 // bytes
	maxHelp = 1 << 20  // bytes
	grace   = 3 * time.Second
)

// begin starts the program.
func (s *benchSession) begin(ctx context.Context, args []string) (engine.Process, error) {
	process, err := s.place.Start(ctx, engine.Command{
		Argv: append([]string{s.program}, args...), Env: s.setup.Env, Stderr: s.setup.Log,
	})
	if err != nil {
		return nil, s.missing(err)
	}
	_ = process.Stdin().Close() // it reads nothing
	return process, nil
}

// missing gives the absence of the program a remedy, however the place tells
// it; other errors stay as they are.
func (s *benchSession) missing(err error) error {
	unusable, ok := errors.AsType[*engine.UnusableError](err)
	exit, ended := errors.AsType[*engine.ExitError](err)
	if (!ok || unusable.Problem != engine.ProgramMissing) && (!ended || exit.Code != 127) {
		return err
	}
	if ok {
		err = unusable.Err // it says the same in other words
	}
	return &engine.UnusableError{
		Problem: engine.ProgramMissing, What: s.program + " on " + s.place.String(), Err: err,
		Remedy: "install llama.cpp (https://github.com/ggml-org/llama.cpp/releases) and name its llama-bench: --program PATH; or measure with --engine node-llama-cpp",
	}
}

// help is what the program prints about its options.
func (s *benchSession) help(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.start)
	defer cancel()
	process, err := s.begin(ctx, []string{"--help"})
	if err != nil {
		return "", err
	}
	text, readErr := io.ReadAll(io.LimitReader(process.Stdout(), maxHelp))
	_, _ = io.Copy(io.Discard, process.Stdout())
	err = process.Wait()
	var exit *engine.ExitError
	if errors.As(err, &exit) && exit.Code != 127 && len(text) > 0 {
		err = nil // some releases end with a failure after the help
	}
	if err = errors.Join(err, readErr); err != nil {
		return "", s.missing(fmt.Errorf("ask %s on %s for its options: %w", s.program, s.place, err))
	}
	return string(text), nil
}

// timeoutError says that a test took too long.
type timeoutError struct{ limit time.Duration }

// Error names the limit.
func (e *timeoutError) Error() string { return fmt.Sprintf("no result within %v", e.limit) }

// run runs the program and hands over its results as they come. Each result
// may take as long as limit.
func (s *benchSession) run(ctx context.Context, limit time.Duration, args []string, take func(*profile.Profile) error) error {
	process, err := s.begin(ctx, append(s.arguments(), args...))
	if err != nil {
		return &engine.DiedError{Engine: program, Err: err} // it was there before
	}
	lines, quit := make(chan []byte), make(chan struct{})
	go scan(process.Stdout(), lines, quit)
	err = s.listen(ctx, limit, lines, take)
	close(quit)
	if err != nil {
		err = errors.Join(err, process.Stop(grace))
		_ = process.Wait() // that it was stopped is no news
		return err
	}
	return s.missing(process.Wait())
}

// scan hands over the lines of a text, and drops what comes after quit. It
// closes lines at the end.
func scan(text io.Reader, lines chan<- []byte, quit <-chan struct{}) {
	defer close(lines)
	scanner := bufio.NewScanner(text)
	scanner.Buffer(nil, maxLine)
	for scanner.Scan() {
		select {
		case lines <- bytes.Clone(scanner.Bytes()):
		case <-quit:
		}
	}
	_, _ = io.Copy(io.Discard, text) // so that the process can end
}

// listen takes the results until the lines end.
func (s *benchSession) listen(ctx context.Context, limit time.Duration, lines <-chan []byte, take func(*profile.Profile) error) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return &timeoutError{limit}
		case line, ok := <-lines:
			if !ok {
				return nil
			}
			if !bytes.HasPrefix(line, []byte("{")) {
				s.chatter(line)
				continue
			}
			result, warnings, err := format.Read(s.program, bytes.NewReader(line), format.Options{})
			if err != nil {
				return err
			}
			for i := range result.Points {
				for _, w := range warnings {
					result.Points[i].Warnings = append(result.Points[i].Warnings, w.Error())
				}
			}
			if err := take(result); err != nil {
				return err
			}
			timer.Reset(limit)
		}
	}
}

// chatter logs what is no result.
func (s *benchSession) chatter(line []byte) {
	if s.setup.Log != nil && len(bytes.TrimSpace(line)) > 0 {
		_, _ = io.WriteString(s.setup.Log, s.redactor.Redact(string(line))+"\n") // a log that fails must not fail the measurement
	}
}

// failure is why a test gave no result, as profiles write it.
func failure(err error) string {
	if err == nil {
		return engine.FailureRuntime + "llama-bench ended without a result for it"
	}
	if late, ok := errors.AsType[*timeoutError](err); ok {
		return engine.FailureTimeout + late.Error()
	}
	if engine.OutOfMemory(err) {
		return engine.FailureOOM
	}
	if exit, ok := errors.AsType[*engine.ExitError](err); ok {
		lines := strings.Split(strings.TrimSpace(exit.Stderr), "\n")
		return engine.FailureRuntime + cmp.Or(strings.TrimSpace(lines[len(lines)-1]), exit.Error())
	}
	return engine.FailureException + err.Error()
}
