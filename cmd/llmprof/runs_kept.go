package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/store"
)

// The kinds of what the store keeps.
const (
	keptProfile   = "profile"
	keptPredictor = "predictor"
)

func (a *app) runsPutCommand(f *storeFlags) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "put FILE...",
		Short: "Keep profiles (.llmprof) and predictor files in the store",
		Long: `Put copies profiles and files of predictors into the store, from which "runs get"
reads them back by name, by hash, or by a beginning of the hash. They are named
after their files. The same content is kept once.`,
		Example: `  llmprof runs put llama-h100.llmprof
  llmprof runs put predictors.json --name h100-june`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usage("llmprof runs put llama-h100.llmprof", "llmprof runs put wants files, and got none")
			case len(args) > 1 && name != "":
				return usage("", "--name names one file, and there are %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var put []kept
			for _, file := range args {
				one, err := readKept(file)
				if err != nil {
					return err
				}
				one.Name = cmp.Or(name, one.Name)
				put = append(put, one)
			}
			return a.putKept(cmd.Context(), f, put)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name in the store (default: the file's)")
	onlyOnCommandLine(cmd.Flags(), "name")
	return cmd
}

func (a *app) runsKeptCommand(f *storeFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "kept",
		Short: "List the profiles and predictors in the store",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withRuns(cmd.Context(), f, func(s *store.Store) error {
				all, err := listKept(cmd.Context(), s)
				if err != nil {
					return err
				}
				if len(all) == 0 && a.people() {
					a.log().Info("nothing is kept yet: llmprof batch keeps the profile of every cell, llmprof runs put FILE any other")
					return nil
				}
				d := report.Kept(all, version())
				return a.write(d, report.KeptTable(d))
			})
		},
	}
}

func (a *app) runsGetCommand(f *storeFlags) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "get NAME -o FILE",
		Short: "Read a profile or a predictor back from the store",
		Example: `  llmprof runs get llama-h100 -o copy.llmprof
  llmprof runs get 3f2a91 -o - | head`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("llmprof runs kept lists them", "llmprof runs get wants one name or hash, and got %d", len(args))
			}
			if out == "" {
				return usage("-o FILE, or -o - for stdout", "llmprof runs get wants a file to write")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withRuns(cmd.Context(), f, func(s *store.Store) error {
				text, err := findKept(cmd.Context(), s, args[0])
				if err != nil {
					return err
				}
				write := func(w io.Writer) error {
					_, err := w.Write(text)
					return err
				}
				if out != "-" {
					return writeFile(out, write)
				}
				if err := write(a.stdout); err != nil {
					return &outputError{err}
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write, - for stdout")
	onlyOnCommandLine(cmd.Flags(), "output")
	return cmd
}

// kept is a file on its way into the store.
type kept struct {
	store.Artefact
	kind string
}

// readKept reads a profile or a file of predictors.
func readKept(file string) (kept, error) {
	text, err := readBounded(file, keptBytes+1)
	if err == nil && len(text) > keptBytes {
		err = usage("", "read %s: it has more than %d bytes", file, keptBytes)
	}
	if err != nil {
		return kept{}, err
	}
	name := filepath.Base(file)
	for _, end := range []string{".gz", ".llmprof", ".json", ".jsonl"} {
		name = strings.TrimSuffix(name, end)
	}
	k := kept{store.Artefact{Name: name, Text: text}, keptProfile}
	p, _, notProfile := profile.Read(file, bytes.NewReader(text))
	if notProfile == nil {
		h := p.Header
		k.Model, k.Device, k.Engine = h.Deploy.Model, cmp.Or(h.Device.Name, h.Device.Reported), h.Deploy.Engine
		return k, nil
	}
	predictors, err := fit.ReadPredictors(bytes.NewReader(text))
	if err == nil {
		err = usable(predictors)
	}
	if err != nil {
		return k, usage("llmprof import makes a profile of other tools' files", "%s is neither a profile nor a file of predictors: %w; %w", file, notProfile, err)
	}
	k.kind = keptPredictor
	return k, nil
}

// keptBytes bounds a file that is put into the store.
const keptBytes = 256 << 20

// usable asks for a file of predictors with at least one, and none that is
// broken.
func usable(f *fit.File) error {
	for _, config := range f.Configs() {
		if _, _, err := f.Predictor(config); err != nil {
			return err
		}
	}
	if len(f.Configs()) == 0 {
		return errors.New("it holds no predictor")
	}
	return nil
}

// putKept stores files and says under which names.
func (a *app) putKept(ctx context.Context, f *storeFlags, put []kept) (fault error) {
	s, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer func() { fault = errors.Join(fault, s.Close()) }()
	var done []report.KeptKeys
	for _, k := range put {
		var hash string
		if k.kind == keptPredictor {
			hash, err = s.PutPredictor(ctx, store.Predictor(k.Artefact))
		} else {
			hash, err = s.PutProfile(ctx, store.Profile(k.Artefact))
		}
		if err != nil {
			return err
		}
		k.Hash = hash
		done = append(done, keptKeys(k.kind, k.Artefact))
		if a.people() {
			a.log().Info(fmt.Sprintf("kept the %s %s as %s", k.kind, k.Name, hash[:10]))
		}
	}
	if a.people() {
		return nil
	}
	d := report.Kept(done, version())
	return a.write(d, report.KeptTable(d))
}

func keptKeys(kind string, a store.Artefact) report.KeptKeys {
	return report.KeptKeys{
		Kind: kind, Name: a.Name, Hash: a.Hash, Model: a.Model, Device: a.Device, Engine: a.Engine, Created: a.Created, File: shownPath(a.Path),
	}
}

// listKept lists all that is kept, newest first.
func listKept(ctx context.Context, s *store.Store) ([]report.KeptKeys, error) {
	profiles, err := s.Profiles(ctx, store.Filter{})
	if err != nil {
		return nil, err
	}
	predictors, err := s.Predictors(ctx, store.Filter{})
	if err != nil {
		return nil, err
	}
	var all []report.KeptKeys
	for _, p := range profiles {
		all = append(all, keptKeys(keptProfile, store.Artefact(p)))
	}
	for _, p := range predictors {
		all = append(all, keptKeys(keptPredictor, store.Artefact(p)))
	}
	slices.SortStableFunc(all, func(a, b report.KeptKeys) int { return b.Created.Compare(a.Created) })
	return all, nil
}

// findKept reads the text of a profile, or else of a predictor.
func findKept(ctx context.Context, s *store.Store, name string) ([]byte, error) {
	p, err := s.Profile(ctx, name)
	noProfile, missing := errors.AsType[*store.NotFoundError](err)
	if !missing {
		return p.Text, err
	}
	predictor, err := s.Predictor(ctx, name)
	noPredictor, missing := errors.AsType[*store.NotFoundError](err)
	if !missing {
		return predictor.Text, err
	}
	hint := "llmprof runs kept lists what there is"
	if nearest := slices.Concat(noProfile.Nearest, noPredictor.Nearest); len(nearest) > 0 {
		hint = "nearest known: " + strings.Join(nearest, ", ")
	}
	return nil, usage(hint, "the store keeps no profile and no predictor %q", name)
}
