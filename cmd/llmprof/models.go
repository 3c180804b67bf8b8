package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/report"
)

func (a *app) modelsCommand() *cobra.Command {
	var filter, kind string
	var moe bool
	cmd := &cobra.Command{
		Use:   "models [MODEL]",
		Short: "List the models of the catalog, or show one in full",
		Long: `Models lists what the catalog knows, or shows one model in full with its
source. MODEL may also be a hub id, a folder with config.json, or a .gguf file:
then what was read there is shown.`,
		Example: `  llmprof models
  llmprof models --filter qwen3 --moe
  llmprof models Qwen/Qwen3-14B
  llmprof models ./my-model --json`,
		Args: atMostOne("one model"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cat, err := a.catalog()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				if filter != "" || kind != "" || moe {
					return usage("", "--filter, --type and --moe select from the list, and %s asks for one model", args[0])
				}
				found, err := a.resolve(cmd.Context(), cat, args[0])
				if err != nil {
					return err
				}
				document := report.Model(found.Model, version())
				document.Origin, document.Revision = found.Origin, found.Revision
				if f := found.Facts; f != nil {
					document.Checkpoint = &report.CheckpointKeys{Bytes: f.CheckpointBytes, Params: f.Params, BitsPerWeight: f.BitsPerWeight}
				}
				return a.write(document, report.ModelTables(document)...)
			}
			models := selectModels(cat.Models(), filter, kind, moe)
			if len(models) == 0 {
				a.warn("no model of the catalog matches")
			}
			return a.write(report.Models(models, version()), report.ModelList(models))
		},
		ValidArgsFunction: a.completeModels,
	}
	cmd.Flags().StringVar(&filter, "filter", "", "only names, hub ids or aliases that contain this text")
	cmd.Flags().StringVar(&kind, "type", "", "only this model_type, e.g. qwen3_moe")
	cmd.Flags().BoolVar(&moe, "moe", false, "only mixtures of experts")
	return cmd
}

func selectModels(all []*catalog.Model, filter, kind string, moe bool) []*catalog.Model {
	filter = strings.ToLower(filter)
	var kept []*catalog.Model
	for _, m := range all {
		names := strings.ToLower(m.Name + " " + m.HubID + " " + strings.Join(m.Aliases, " "))
		if strings.Contains(names, filter) && (kind == "" || m.Type == kind) && (!moe || m.MoE != nil) {
			kept = append(kept, m)
		}
	}
	return kept
}
