// Maketiny writes the small random model of package tinymodel:
//
//	go run ./internal/tinymodel/maketiny -gguf tiny.gguf
//	go run ./internal/tinymodel/maketiny -folder DIR [-weights]
//
// Both may be asked for at once. -small writes 76 million parameters instead of
// 3.4 million; -vocab pads the vocabulary, as "vllm bench latency" wants it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/llmprof/llmprof/internal/tinymodel"
)

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "maketiny:", err)
		}
		os.Exit(2)
	}
}

func run(args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("maketiny", flag.ContinueOnError)
	flags.SetOutput(stderr)
	gguf := flags.String("gguf", "", "write a GGUF file to this `path`")
	folder := flags.String("folder", "", "write config.json and the tokenizer into this `folder`")
	weights := flags.Bool("weights", false, "write model.safetensors into the folder as well")
	small := flags.Bool("small", false, "76 million parameters instead of 3.4 million")
	vocab := flags.Int("vocab", 0, "pad the vocabulary to this many `tokens`")
	seed := flags.Int64("seed", 1, "seed of the weights")
	if err := flags.Parse(args); err != nil {
		return err
	}
	shape := tinymodel.Tiny()
	if *small {
		shape = tinymodel.Small()
	}
	if *vocab > 0 {
		shape.Vocab = *vocab
	}
	if *gguf == "" && *folder == "" {
		return errors.New("nothing to write: want -gguf PATH or -folder DIR")
	}
	if *gguf != "" {
		if err := writeFile(*gguf, shape, *seed, tinymodel.WriteGGUF); err != nil {
			return err
		}
	}
	if *folder == "" {
		return nil
	}
	if err := tinymodel.WriteFolder(*folder, shape); err != nil || !*weights {
		return err
	}
	return writeFile(filepath.Join(*folder, "model.safetensors"), shape, *seed, tinymodel.WriteSafetensors)
}

// writeFile writes a model to a path, which is removed again if that fails.
func writeFile(path string, shape tinymodel.Shape, seed int64, write func(io.Writer, tinymodel.Shape, int64) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = errors.Join(write(f, shape, seed), f.Close())
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
