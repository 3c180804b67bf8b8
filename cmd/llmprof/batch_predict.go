package main

import (
	"context"
	"encoding/json"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/unit"
)

// predictTotals fills in what the devices of each cell were expected to need
// together, where its model is known and its device is one of the catalog: the
// one on which the cell ran, or that of the run's other cells at the same place.
func (a *app) predictTotals(ctx context.Context, cat *catalog.Catalog, d *report.CampaignDocument) {
	type where struct{ place, device string }
	ranOn := map[where]*catalog.Device{}
	for _, row := range d.Rows {
		if device := measuredDevice(cat, row); device != nil {
			ranOn[where{row.Place, row.Device}] = device
		}
	}
	models := modelsOf(d.Rows, a.offlineModel(ctx, cat))
	// Cells of a device are planned together: the plan prices each load once.
	at := map[*catalog.Device][]int{}
	for i, row := range d.Rows {
		device := measuredDevice(cat, row)
		if device == nil {
			device = ranOn[where{row.Place, row.Device}]
		}
		if device != nil {
			at[device] = append(at[device], i)
		}
	}
	for device, rows := range at {
		var cells []campaign.Cell
		for _, i := range rows {
			c := d.Rows[i].Cell
			c.Device = ""
			cells = append(cells, c)
		}
		for n, planned := range campaign.NewPlan(cells, campaign.PlanOptions{Model: models, Device: device}).Cells {
			if one := planned.Predicted.Total; one != nil {
				all := *one * unit.Bytes(max(planned.TensorParallel, 1)*max(planned.PipelineParallel, 1))
				d.Rows[rows[n]].Predicted = &all
			}
		}
	}
}

// measuredDevice is the device on which a cell ran; nil where it did not, or on
// one that the catalog does not have.
func measuredDevice(cat *catalog.Catalog, row report.CampaignRow) *catalog.Device {
	if row.Profile == nil || len(row.Profile.GPUInfo.Names) == 0 || row.Profile.GPUInfo.GPUType == "cpu" {
		return nil
	}
	device, _, err := cat.Device(row.Profile.GPUInfo.Names[0])
	if err != nil {
		return nil
	}
	return device
}

// modelsOf finds architectures as find does, and where that does not know one,
// in the profiles.
func modelsOf(rows []report.CampaignRow, find func(string) (*catalog.Model, error)) func(string) (*catalog.Model, error) {
	return func(id string) (*catalog.Model, error) {
		model, err := find(id)
		if err == nil && model != nil {
			return model, nil
		}
		for _, row := range rows {
			if row.ModelID != id || row.Profile == nil || len(row.Profile.ModelInfo.Architecture) == 0 {
				continue
			}
			var own catalog.Model
			if json.Unmarshal(row.Profile.ModelInfo.Architecture, &own) == nil && own.Validate() == nil {
				return &own, nil
			}
		}
		return nil, err
	}
}
