package campaign

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/store"
	"github.com/llmprof/llmprof/unit"
)

// PlanOptions are what a plan can draw on. Nil fields are done without.
type PlanOptions struct {
	// Model finds the architecture of a model.
	Model func(modelID string) (*catalog.Model, error)
	// Device is the accelerator of cells that name none.
	Device *catalog.Device
	// FindDevice finds the accelerator that a cell names.
	FindDevice func(name string) (*catalog.Device, error)
	// Only chooses among the cells.
	Only Filter
	// Settings are those of the cost model.
	Settings cost.Settings
	// Command returns the command line that measures a cell by itself.
	Command func(Cell) []string
	// Refusal is why the engine of a group would refuse a cell of it, as far as
	// that is known beforehand.
	Refusal func(Group, Cell) error
}

// Plan is what a campaign is about to do.
type Plan struct {
	Schema  string `json:"schema"`
	Version string `json:"version"`
	// Count is the number of cells, Loads how often an engine is loaded.
	Count int `json:"count"`
	Loads int `json:"loads"`
	// PredictedSeconds is the time of all iterations of all cells that can run, in
	// seconds, without the starts of the engines; nil where it is not known for
	// every one of them.
	PredictedSeconds *float64      `json:"predicted_s"`
	Groups           []PlannedLoad `json:"groups"`
	Cells            []PlannedCell `json:"cells"`
	Warnings         []string      `json:"warnings"`
}

// PlannedLoad is one start of an engine.
type PlannedLoad struct {
	ModelID string `json:"model_id"`
	Place   string `json:"place"`
	Engine  string `json:"engine"`
	// Cells are the hashes of the cells in the order in which they run.
	Cells []string `json:"cells"`
	// MaxBatch, MaxInput and MaxOutput are the bounds of [Group].
	MaxBatch  int `json:"max_batch"`
	MaxInput  int `json:"max_input"`
	MaxOutput int `json:"max_output"`
}

// PlannedCell is a cell with what is known about it beforehand. In JSON the
// fields of the cell stand beside the others.
type PlannedCell struct {
	// Index is the place of the cell among all that were given, from 0: those that
	// are not chosen count.
	Index int    `json:"index"`
	Hash  string `json:"hash"`
	Name  string `json:"name"`
	Cell
	Command   []string   `json:"command,omitempty"`
	Predicted Prediction `json:"predicted"`
	// Fits says whether the whole batch finds room at once; nil means unknown.
	Fits *bool `json:"fits"`
	// Reason says why the cell does not fit, or why that is unknown.
	Reason string `json:"reason,omitempty"`
	// Refused says why the engine would refuse the cell.
	Refused string `json:"refused,omitempty"`
}

// runs reports whether a cell is expected to be measured.
func (c *PlannedCell) runs() bool { return c.Refused == "" && (c.Fits == nil || *c.Fits) }

// Prediction is what a cell needs: bytes of one device, and seconds. What does
// not follow from what is known is nil, and Notes say why.
type Prediction struct {
	Weights     *unit.Bytes `json:"weights_bytes"`
	KVCache     *unit.Bytes `json:"kv_cache_bytes"`
	Activations *unit.Bytes `json:"activations_bytes"`
	// Reserve is context, communicator and graphs.
	Reserve *unit.Bytes `json:"reserve_bytes"`
	Total   *unit.Bytes `json:"total_bytes"`
	// Usable is the share of the device's memory that the engine may take.
	Usable *unit.Bytes `json:"usable_bytes"`
	// LatencySeconds is one iteration in seconds, MeasureSeconds all warm-up
	// and timed iterations.
	LatencySeconds *float64 `json:"latency_s"`
	MeasureSeconds *float64 `json:"measure_s"`
	// Basis says where the figures come from; empty where there are none.
	Basis stat.Basis `json:"basis,omitempty"`
	// Notes say what is missing, what is an upper bound and what was assumed.
	Notes []string `json:"notes,omitempty"`
}

// NewPlan predicts, for the cells that are chosen, what follows from the architecture and the device, or from
// what the file says about the model.
func NewPlan(cells []Cell, o PlanOptions) Plan {
	p := planner{PlanOptions: o, models: map[string]found[catalog.Model]{}, devices: map[string]found[catalog.Device]{}, estimators: map[string]priced{}}
	plan := Plan{Schema: "llmprof/batch-plan", Version: "1.0", Groups: []PlannedLoad{}, Cells: []PlannedCell{}, Warnings: []string{}}
	var chosen []Cell
	for i, c := range cells {
		if !o.Only.Match(c, store.Pending) {
			continue
		}
		chosen = append(chosen, c)
		planned := PlannedCell{Index: i, Hash: c.Hash(), Name: c.Name(), Cell: c}
		planned.Predicted, planned.Fits, planned.Reason = p.predict(c)
		if o.Command != nil {
			planned.Command = o.Command(c)
		}
		plan.Cells = append(plan.Cells, planned)
	}
	plan.Count = len(chosen)
	refused := map[string]string{}
	for _, g := range Order(chosen) {
		first := g.Cells[0]
		load := PlannedLoad{ModelID: first.ModelID, Place: first.Place, Engine: first.Engine, MaxBatch: g.MaxBatch, MaxInput: g.MaxInput, MaxOutput: g.MaxOutput}
		for _, c := range g.Cells {
			hash := c.Hash()
			load.Cells = append(load.Cells, hash)
			if o.Refusal == nil {
				continue
			}
			if err := o.Refusal(g, c); err != nil {
				refused[hash] = err.Error()
			}
		}
		plan.Groups = append(plan.Groups, load)
	}
	plan.Loads = len(plan.Groups)
	for i := range plan.Cells {
		plan.Cells[i].Refused = refused[plan.Cells[i].Hash]
	}
	plan.PredictedSeconds = secondsOf(plan.Cells)
	plan.Warnings = append(plan.Warnings, p.warnings...)
	return plan
}

// secondsOf is the time of the cells that can run; nil where there is none, or
// one whose time is not known.
func secondsOf(cells []PlannedCell) *float64 {
	var sum *float64
	for i := range cells {
		c := &cells[i]
		switch s := c.Predicted.MeasureSeconds; {
		case !c.runs():
		case s == nil:
			return nil
		case sum == nil:
			sum = new(*s)
		default:
			*sum += *s
		}
	}
	return sum
}

// planner looks every model and device up once.
type planner struct {
	PlanOptions
	models     map[string]found[catalog.Model]
	devices    map[string]found[catalog.Device]
	estimators map[string]priced // by load key
	warnings   []string
}

// found is what a lookup gave.
type found[T any] struct {
	value *T
	why   string // without a value
}

// priced is an estimator, or why there is none.
type priced struct {
	estimator *cost.Estimator
	notes     []string
	err       error
}

// predict returns what a cell needs, whether it fits and why not.
func (p *planner) predict(c Cell) (Prediction, *bool, string) {
	model, device := p.model(c.ModelID), p.device(c.Device)
	if model.value == nil || device.value == nil {
		return rough(c, model.value), nil, cmp.Or(model.why, device.why)
	}
	priced := p.priced(c, model.value, device.value)
	if priced.err != nil {
		prediction := rough(c, model.value)
		var layout *cost.LayoutError
		if errors.As(priced.err, &layout) {
			no := false
			return prediction, &no, priced.err.Error()
		}
		return prediction, nil, priced.err.Error()
	}
	a, err := priced.estimator.Analyze(cost.Request{Batch: c.BatchSize, Input: c.InputLen, Output: c.OutputLen})
	if err != nil {
		return rough(c, model.value), nil, err.Error()
	}
	latency := float64(a.E2E)
	measure := latency * float64(c.NumWarmup+c.NumIters)
	m, total := a.Memory, a.Memory.Total()
	prediction := Prediction{
		Weights: &m.Weights, KVCache: &m.KVCache, Activations: &m.Activations, Reserve: &m.Reserve, Total: &total, Usable: &m.Usable,
		LatencySeconds: &latency, MeasureSeconds: &measure, Basis: stat.Theoretical, Notes: priced.notes,
	}
	reason := ""
	if !a.Fits {
		reason = "it does not fit"
		if len(a.Reasons) > 0 {
			reason = a.Reasons[0].Message
		}
	}
	return prediction, &a.Fits, reason
}

// model looks a model up.
func (p *planner) model(id string) found[catalog.Model] {
	if f, seen := p.models[id]; seen {
		return f
	}
	f := found[catalog.Model]{why: "the architecture of " + id + " is not known"}
	if p.Model != nil {
		m, err := p.Model(id)
		if err != nil {
			p.warn("model", id, err)
		} else if m != nil {
			f = found[catalog.Model]{value: m}
		}
	}
	p.models[id] = f
	return f
}

// device looks the device of a cell up.
func (p *planner) device(name string) found[catalog.Device] {
	if name == "" {
		return found[catalog.Device]{value: p.Device, why: "no device is named"}
	}
	if f, seen := p.devices[name]; seen {
		return f
	}
	f := found[catalog.Device]{why: "the device " + name + " is not known"}
	if p.FindDevice != nil {
		d, err := p.FindDevice(name)
		if err != nil {
			p.warn("device", name, err)
		} else if d != nil {
			f = found[catalog.Device]{value: d}
		}
	}
	p.devices[name] = f
	return f
}

// warn notes a lookup that failed.
func (p *planner) warn(kind, name string, err error) {
	text := err.Error()
	if !strings.Contains(text, name) {
		text = fmt.Sprintf("%s %s: %s", kind, name, text)
	}
	p.warnings = append(p.warnings, text)
}
