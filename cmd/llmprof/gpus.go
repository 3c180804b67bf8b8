package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/report"
)

func (a *app) gpusCommand() *cobra.Command {
	var filter, vendor string
	cmd := &cobra.Command{
		Use:     "gpus [GPU]",
		Aliases: []string{"devices"},
		Short:   "List the devices of the catalog, or show one with its sources",
		Long: `Gpus lists the accelerators of the catalog, or shows one in full: dense peaks
by format, memory, bandwidth, links and power, each figure with its source and
whether it was compared with it.`,
		Example: `  llmprof gpus
  llmprof gpus --vendor AMD
  llmprof gpus "NVIDIA A100-SXM4-80GB"
  llmprof gpus h200 --json | jq .peak_flops`,
		Args: atMostOne("one device"),
		RunE: func(_ *cobra.Command, args []string) error {
			cat, err := a.catalog()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				if filter != "" || vendor != "" {
					return usage("", "--filter and --vendor select from the list, and %s asks for one device", args[0])
				}
				device, err := a.device(cat, args[0])
				if err != nil {
					return err
				}
				return a.write(report.Device(device, version()), report.DeviceTables(device)...)
			}
			devices := selectDevices(cat.Devices(), filter, vendor)
			if len(devices) == 0 {
				a.warn("no device of the catalog matches")
			}
			return a.write(report.Devices(devices, version()), report.DeviceList(devices))
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, to string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeDevices(cmd, args, to)
		},
	}
	cmd.Flags().StringVar(&filter, "filter", "", "only names or aliases that contain this text")
	cmd.Flags().StringVar(&vendor, "vendor", "", "only this vendor, e.g. NVIDIA")
	return cmd
}

func selectDevices(all []*catalog.Device, filter, vendor string) []*catalog.Device {
	filter = strings.ToLower(filter)
	var kept []*catalog.Device
	for _, d := range all {
		names := strings.ToLower(d.Name + " " + d.FullName + " " + strings.Join(d.Aliases, " "))
		if strings.Contains(names, filter) && (vendor == "" || strings.EqualFold(vendor, d.Vendor)) {
			kept = append(kept, d)
		}
	}
	return kept
}
