package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/hub"
)

// catalog reads the built-in tables and lays the user's files over them:
// catalog.yaml of the configuration folder, then every --catalog.
func (a *app) catalog() (*catalog.Catalog, error) {
	cat, err := catalog.Builtin()
	if err != nil {
		return nil, err
	}
	files := a.catalogs
	if dir := configDir(); dir != "" {
		own := filepath.Join(dir, "catalog.yaml")
		if _, err := os.Stat(own); !errors.Is(err, fs.ErrNotExist) {
			files = append([]string{own}, files...)
		}
	}
	for _, file := range files {
		text, err := readBounded(file, maxCatalogBytes)
		if err != nil {
			return nil, err
		}
		if cat, err = cat.Overlay(file, text); err != nil {
			return nil, usage("docs/catalog.md shows the keys", "%w", err)
		}
	}
	return cat, nil
}

// maxCatalogBytes bounds what is read of a catalog file; the catalog's own
// bound is below it.
const maxCatalogBytes = 4 << 20

// readBounded reads at most the given number of bytes of a file.
func readBounded(name string, limit int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fileError("read", name, err)
	}
	defer func() { _ = file.Close() }() // read only
	text, err := io.ReadAll(io.LimitReader(file, limit))
	if err != nil {
		return nil, fileError("read", name, err)
	}
	return text, nil
}

// model finds a model by any kind of reference and says on stderr where it
// was found outside the catalog.
func (a *app) model(ctx context.Context, cat *catalog.Catalog, ref string) (*catalog.Model, error) {
	found, err := a.resolve(ctx, cat, ref)
	if err != nil {
		return nil, err
	}
	return found.Model, nil
}

// hubClient looks models up as the environment says.
func hubClient(cat *catalog.Catalog) *hub.Client {
	home, err := os.UserHomeDir()
	if err != nil {
		home = ""
	}
	client := hub.ClientFromEnv(os.Getenv, home)
	client.Catalog = cat
	return client
}

// resolve is model with where it was found.
func (a *app) resolve(ctx context.Context, cat *catalog.Catalog, ref string) (*hub.Resolved, error) {
	found, err := hubClient(cat).Model(ctx, ref)
	if err != nil {
		return nil, err
	}
	a.log().Debug("model", "name", found.Model.Name, "origin", found.Origin, "source", found.Model.Source)
	if found.Origin != "catalog" {
		a.log().Info(fmt.Sprintf("model %s from %s", found.Model.Name, found.Origin))
	}
	a.warn(found.Warnings...)
	return found, nil
}

// device finds a device and says on stderr which one a bare name meant.
func (a *app) device(cat *catalog.Catalog, name string) (*catalog.Device, error) {
	device, note, err := cat.Device(name)
	if err != nil {
		var unknown *catalog.UnknownError
		if errors.As(err, &unknown) {
			return nil, &codedError{codeUnknown, err, unknown.Hint() + "; describe your own device in a file for --catalog (docs/catalog.md)"}
		}
		return nil, err
	}
	if note != "" {
		a.log().Info(note)
	}
	a.log().Debug("device", "name", device.Name, "full_name", device.FullName)
	return device, nil
}

// completeModels completes model names from the catalog.
func (a *app) completeModels(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	cat, err := a.catalog()
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var names []cobra.Completion
	for _, m := range cat.Models() {
		names = append(names, m.Name)
	}
	return names, cobra.ShellCompDirectiveDefault
}

// completeDevices completes device names from the catalog.
func (a *app) completeDevices(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	cat, err := a.catalog()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []cobra.Completion
	for _, d := range cat.Devices() {
		names = append(names, cobra.CompletionWithDesc(d.Name, d.FullName))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
