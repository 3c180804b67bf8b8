package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/format/layerscsv"
	"github.com/llmprof/llmprof/format/llmservingsim"
	"github.com/llmprof/llmprof/format/vllmbench"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/report"
)

// The foreign formats of layer profiles.
const (
	formatLayersCSV     = "layers-csv"
	formatLLMServingSim = "llmservingsim"
)

// formatVLLMServe is the format of load measurements.
const formatVLLMServe = "vllm-serve"

// exportFormats names the formats.
const exportFormats = "benchmark, layers-csv, llmservingsim, vllm-serve or llmprof"

// exportOptions are what a format may be told.
type exportOptions struct {
	// scale multiplies latencies, 0 leaves them; keep writes the scaled ones
	// into a column of their own.
	scale float64
	keep  bool
}

func (a *app) exportCommand() *cobra.Command {
	var format, out string
	var opts exportOptions
	cmd := &cobra.Command{
		Use:   "export X.llmprof --format FORMAT -o FILE",
		Short: "Write a profile in another tool's format",
		Long: `Export writes measurements, of any kind that import reads, in one of the formats

  benchmark      JSON of the forward-time predictor (whole steps)
  layers-csv     CSV of LLM-Profile (layers)
  llmservingsim  bundle of LLMServingSim, a folder (layers)
  vllm-serve     JSON of vllm bench serve (runs of load tools, requests)
  llmprof        llmprof's own profile

Layer CSVs and bundles that were read are written byte for byte, a benchmark with
equal figures. What a format has no place for is said, and in a bundle kept
beside the files.`,
		Example: `  llmprof export layers.llmprof --format layers-csv -o RTX3090/Llama-3.1-8B.csv
  llmprof export RTX3090/Llama-3.1-8B.csv --format llmservingsim -o perf/RTX3090
  llmprof export steps.llmprof --format benchmark -o benchmark.json
  llmprof export run.llmprof --format vllm-serve -o serve.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("llmprof import merges several", "export wants one file of measurements, and got %d", len(args))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case format == "":
				return usage("", "export wants --format: %s", exportFormats)
			case out == "":
				return usage("", "export wants a file to write: give -o FILE")
			case opts.scale < 0:
				return usage("", "--scaling-factor is %g: want a positive ratio", opts.scale)
			case opts.scale > 0 && format != formatLayersCSV:
				return usage("", "--scaling-factor goes with --format layers-csv")
			}
			if from, err := os.Stat(args[0]); err == nil {
				if to, err := os.Stat(out); err == nil && os.SameFile(from, to) {
					return usage("name another file: -o FILE", "export would replace %s, which it reads", args[0])
				}
			}
			cat, err := a.catalog()
			if err != nil {
				return err
			}
			p, _, err := a.readMeasurement(args[0], readOptions{cat: cat})
			if err != nil {
				return err
			}
			if err := a.export(p, format, out, opts); err != nil {
				return err
			}
			if out == "-" {
				return nil
			}
			document := report.Import(p, out, version())
			return a.write(document, report.ImportTables(document)...)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&format, "format", "", exportFormats)
	flags.StringVarP(&out, "output", "o", "", "file to write, - for stdout; a folder for a bundle")
	flags.Float64Var(&opts.scale, "scaling-factor", 0, "multiply every latency by this ratio, as validate layers finds it (layers-csv)")
	flags.BoolVar(&opts.keep, "scaling-add-new-col", false, "keep the measured latencies and add the scaled ones as a column")
	completeWith(cmd, "format", fileBenchmark, formatLayersCSV, formatLLMServingSim, formatVLLMServe, fileProfile)
	onlyOnCommandLine(flags, "format", "output", "scaling-factor", "scaling-add-new-col")
	return cmd
}

// export writes a profile in a format. A file is written as a whole or not at
// all.
func (a *app) export(p *profile.Profile, format, out string, opts exportOptions) error {
	file := func(write func(io.Writer) error) error {
		if out != "-" {
			return writeFile(out, write)
		}
		buffered := bufio.NewWriter(a.stdout)
		if err := write(buffered); err != nil {
			return err
		}
		if err := buffered.Flush(); err != nil {
			return &outputError{err}
		}
		return nil
	}
	switch format {
	case fileProfile:
		return file(func(w io.Writer) error { return p.Write(out, w) })
	case fileBenchmark:
		if out == "-" {
			return usage("", "--format benchmark writes a file: give -o FILE")
		}
		return a.writeBenchmark(out, p)
	case formatLayersCSV:
		variant := layerscsv.Seed
		if _, ok := layerscsv.VariantOf(p.Header); ok {
			variant = layerscsv.AsRead
		}
		return file(func(w io.Writer) error {
			return layerscsv.Write(w, p, layerscsv.WriteOptions{Variant: variant, Scale: opts.scale, KeepUnscaled: opts.keep})
		})
	case formatVLLMServe:
		runs, err := vllmbench.FromProfile(p)
		if err != nil {
			return usage("import a load tool's result first", "export as %s: %w", format, err)
		}
		return file(func(w io.Writer) error {
			for _, run := range runs {
				if err := vllmbench.WriteServe(w, run); err != nil {
					return err
				}
			}
			return nil
		})
	case formatLLMServingSim:
		if out == "-" {
			return usage("", "a bundle is a folder: give -o FOLDER")
		}
		return a.writeBundle(p, out, false)
	}
	return usage("", "unknown format %q: want %s", format, exportFormats)
}

// bundleTarget reports whether a bundle may be written into a folder: where
// nothing is, into an empty one and, if replace says so, in place of a bundle
// that llmprof made and that nobody has changed since.
func bundleTarget(out string, replace bool) error {
	entries, err := os.ReadDir(out)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(entries) == 0:
		return nil
	case err != nil:
		return fileError("write", out, err)
	case !replace:
		return usage("name a new folder", "write %s: it exists and is not empty", out)
	}
	ours, err := llmservingsim.Ours(os.DirFS(out))
	if err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	if !ours {
		return usage("move it away, or name another folder", "write %s: it holds something else than an unchanged bundle of llmprof", out)
	}
	return nil
}

// writeBundle writes a bundle into a folder of its own, which takes its name
// only when it is complete.
func (a *app) writeBundle(p *profile.Profile, out string, replace bool) error {
	if err := bundleTarget(out, replace); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return fileError("write", out, err)
	}
	temporary, err := os.MkdirTemp(filepath.Dir(out), ".llmprof-*")
	if err != nil {
		return fileError("write", out, err)
	}
	defer func() { _ = os.RemoveAll(temporary) }() // gone after the rename
	remarks, err := llmservingsim.Write(p, func(name string) (io.WriteCloser, error) {
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%s lies outside of the folder", name)
		}
		path := filepath.Join(temporary, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		return os.Create(path)
	}, llmservingsim.WriteOptions{})
	if err = errors.Join(err, os.Chmod(temporary, 0o755)); err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	a.warn(remarks...)
	// What stood there is removed last, and only where it may be replaced.
	if err := os.RemoveAll(out); err != nil {
		return fileError("write", out, err)
	}
	if err := os.Rename(temporary, out); err != nil {
		return fileError("write", out, err)
	}
	return nil
}
