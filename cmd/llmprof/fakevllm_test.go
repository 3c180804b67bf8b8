package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fakeVLLM is "vllm bench latency" that plays the script in the file that
// FAKE_VLLM names; measure/memory/testdata/SOURCES.md says what can stand there,
// and beside that
//
//	@expect TEXT   ends with status 9 unless the arguments hold TEXT
//
// FAKE_BANK names a folder with the memory of the machine's devices, see bank;
// FAKE_PROGRESS the file that llmprof's progress goes to, where the script waits
// until the moments that it tells have been heard.
// As "fakevllm smi" it is the nvidia-smi of that machine.
func fakeVLLM() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) > 0 && args[0] == "smi":
		err = fakeSMI(bank(os.Getenv("FAKE_BANK")), args[1:])
	case slices.Contains(args, "--version"):
		fmt.Println("0.32.0")
	default:
		err = playScript(args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakevllm:", err)
		os.Exit(3)
	}
}

func playScript(args []string) error {
	script, err := os.ReadFile(os.Getenv("FAKE_VLLM"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(script)) {
		line = strings.TrimSuffix(line, "\n")
		verb, rest, _ := strings.Cut(line, " ")
		switch {
		case strings.HasPrefix(line, "#"):
		case verb == "@used":
			err = bank(os.Getenv("FAKE_BANK")).hold(strings.Fields(rest))
		case verb == "@stderr":
			text, quoted := strconv.Unquote(rest)
			_, written := io.WriteString(os.Stderr, text)
			err = errors.Join(quoted, written, told(text))
		case verb == "@pause":
			var d time.Duration
			if d, err = time.ParseDuration(rest); err == nil {
				time.Sleep(d)
			}
		case verb == "@result":
			file := args[slices.Index(args, "--output-json")+1]
			err = os.WriteFile(file, []byte(`{"avg_latency": 0.5, "latencies": [0.4, 0.5, 0.6], "percentiles": {"10": 0.4, "50": 0.5, "90": 0.6}}`), 0o600)
		case verb == "@expect":
			if !strings.Contains(strings.Join(args, " "), rest) {
				fmt.Fprintf(os.Stderr, "want %q among %q\n", rest, args)
				os.Exit(9)
			}
		case verb == "@exit":
			code, wrong := strconv.Atoi(rest)
			if wrong != nil {
				return wrong
			}
			os.Exit(code)
		default:
			_, err = fmt.Println(line)
			err = errors.Join(err, told(line))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// told waits until llmprof has heard of the moment that a text tells of, so that
// the memory does not change before.
func told(text string) error {
	file := os.Getenv("FAKE_PROGRESS")
	phase := ""
	switch {
	case strings.Contains(text, "Starting to load model"):
		phase = "weights are loaded"
	case strings.Contains(text, "Model loading took"):
		phase = "weights are in memory, the start-up goes on"
	case strings.Contains(text, "init engine (profile"):
		phase = "warm-up runs"
	case strings.Contains(text, "Warmup iterations: 100%"):
		phase = "timed runs"
	}
	if file == "" || phase == "" {
		return nil
	}
	err := patiently(func() bool {
		progress, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(progress), ": "+phase+"\n")
	})
	time.Sleep(5 * time.Millisecond) // nvidia-smi's clock has whole milliseconds
	if err != nil {
		return fmt.Errorf("%q was not heard: %w", text, err)
	}
	return nil
}

// patiently waits until something holds.
func patiently(holds func() bool) error {
	for range 30_000 { // five minutes
		if holds() {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("waited five minutes")
}

// bank is a folder that stands for the memory of made-up devices. Its file
// "used" holds the number of the change and the bytes of each device; "seen" the
// number of the change that nvidia-smi has printed last, and how often until all
// of it had been read.
type bank string

// write replaces a file as a whole.
func (b bank) write(name, text string) error {
	file := filepath.Join(string(b), name)
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (b bank) read(name string) []string {
	text, err := os.ReadFile(filepath.Join(string(b), name))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// hold sets the memory of the devices that CUDA_VISIBLE_DEVICES names, and
// waits until it has been read from nvidia-smi a few times.
func (b bank) hold(used []string) error {
	state := b.read("used")
	if len(state) == 0 {
		return nil // nobody looks
	}
	change, err := strconv.Atoi(state[0])
	if err != nil {
		return err
	}
	state[0] = strconv.Itoa(change + 1)
	visible := strings.Split(os.Getenv("CUDA_VISIBLE_DEVICES"), ",")
	for i, bytes := range used {
		device := i
		if visible[0] != "" {
			if device, err = strconv.Atoi(visible[i]); err != nil {
				return err
			}
		}
		state[1+device] = bytes
	}
	if err := b.write("used", strings.Join(state, " ")); err != nil {
		return err
	}
	if err := patiently(func() bool {
		seen := b.read("seen")
		return len(seen) == 2 && seen[0] == state[0] && seen[1] >= "4"
	}); err != nil {
		return fmt.Errorf("nvidia-smi is not read: %w", err)
	}
	return nil
}

// fakeSMI is an nvidia-smi that prints a bank's devices.
func fakeSMI(b bank, args []string) error {
	line := strings.Join(args, " ")
	switch {
	case line == "-L":
		for i := range b.read("used")[1:] {
			fmt.Printf("GPU %d: NVIDIA H200 (UUID: GPU-%d)\n", i, i)
		}
		return nil
	case strings.Contains(line, "--query-compute-apps"):
		_, err := fmt.Println("gpu_uuid, pid, used_gpu_memory [MiB]")
		return err
	case !strings.Contains(line, "--query-gpu=timestamp,"):
		return fmt.Errorf("unknown arguments: %s", line)
	}
	every, err := strconv.Atoi(args[len(args)-1])
	if err != nil {
		return err
	}
	fmt.Println("timestamp, index, uuid, name, memory.total [MiB], memory.used [MiB]")
	last, times := "", 0
	for {
		state := b.read("used")
		for i, text := range state[1:] {
			bytes, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return err
			}
			if _, err := fmt.Printf("%s, %d, GPU-%d, NVIDIA H200, 143771, %d\n", time.Now().Format("2006/01/02 15:04:05.000"), i, i, bytes>>20); err != nil {
				return err
			}
		}
		if times++; state[0] != last {
			last, times = state[0], 1
		}
		time.Sleep(time.Duration(every) * time.Millisecond)
		if unread(os.Stdout) > 0 {
			continue // what is read last may not have been looked at
		}
		if err := b.write("seen", fmt.Sprint(last, " ", min(times, 9))); err != nil {
			return err
		}
	}
}
