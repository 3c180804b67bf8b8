package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of an overlay file. The YAML parser's time grows with the square of
// the lines and its stack with the nesting.
const (
	maxOverlayBytes = 1 << 20
	maxOverlayLines = 10_000
	maxOverlayDepth = 32
	maxOverlayLine  = 1 << 16 // bytes
)

// Overlay returns the catalog with a user's entries laid over it; c stays as
// it is. The text is YAML with two optional lists of entries, whose keys are
// those of [Model] and [Device]:
//
//	models:
//	  - name: my-model
//	    base: Qwen3-8B        # start from this entry
//	    num_layers: 40
//	devices:
//	  - base: h100-sxm-80gb   # without a name: change this very entry
//	    power_w: {value: 500, source: our limit}
//
// An entry whose name is known replaces that entry. One with base starts as a
// copy of it, under its own name without the base's hub id and aliases; a list
// given anew replaces the base's list, a mapping is merged into the base's,
// and a peak of null is dropped. A figure without a source is sourced to the
// file and counts as not verified. A name or alias that the file gives wins
// over an alias in c.
//
// The name of the file stands in every error, with line and column. Anchors,
// aliases, several documents, deep nesting and more than a mebibyte or 10,000
// lines are refused.
func (c *Catalog) Overlay(name string, yamlText []byte) (*Catalog, error) {
	if err := checkOverlayText(yamlText); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r := overlayReader{file: name, base: c}
	file, err := parser.ParseBytes(yamlText, 0)
	if err != nil {
		return nil, r.yamlFault(err)
	}
	for i, doc := range file.Docs {
		if i > 0 {
			return nil, r.fault(doc.GetToken(), errors.New("a second document: want one"))
		}
		if err := r.document(doc.Body); err != nil {
			return nil, err
		}
	}
	merged, err := newCatalog(r.mergedModels(), r.mergedDevices())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return merged, nil
}

// checkOverlayText refuses what the YAML parser would spend too much time or
// stack on.
func checkOverlayText(text []byte) error {
	if len(text) > maxOverlayBytes {
		return fmt.Errorf("the file has %d bytes: want at most %d", len(text), maxOverlayBytes)
	}
	open, line := 0, 0
	for row := range bytes.Lines(text) {
		line++
		if line > maxOverlayLines {
			return fmt.Errorf("the file has more than %d lines", maxOverlayLines)
		}
		if len(row) > maxOverlayLine {
			return fmt.Errorf("line %d has %d bytes: want at most %d", line, len(row), maxOverlayLine)
		}
		open = max(0, open+bytes.Count(row, []byte("["))+bytes.Count(row, []byte("{"))-bytes.Count(row, []byte("]"))-bytes.Count(row, []byte("}")))
		depth := max(open, bytes.Count(row, []byte("[")), bytes.Count(row, []byte("{")), indicators(row))
		indent := len(row) - len(bytes.TrimLeft(row, " \t"))
		if depth > maxOverlayDepth || indent > 8*maxOverlayDepth {
			return fmt.Errorf("line %d is nested deeper than %d levels", line, maxOverlayDepth)
		}
	}
	return nil
}

// indicators counts the places in a row that can open a level of a block:
// hyphens, question marks and colons before a blank.
func indicators(row []byte) int {
	n := 0
	for i, b := range row {
		last := i+1 == len(row)
		if (b == '-' || b == '?' || b == ':') && (last || row[i+1] == ' ' || row[i+1] == '\t' || row[i+1] == '\n' || row[i+1] == '\r') {
			n++
		}
	}
	return n
}

// overlayReader collects the entries of one file.
type overlayReader struct {
	file    string
	base    *Catalog
	models  []*Model
	devices []*Device
}

// document reads the top level.
func (r *overlayReader) document(body ast.Node) error {
	if body == nil || body.Type() == ast.NullType || body.Type() == ast.CommentType {
		return nil
	}
	for _, node := range ast.Filter(ast.AnchorType, body) {
		return r.fault(node.GetToken(), errors.New("anchors are not supported: use base to start from another entry"))
	}
	for _, node := range ast.Filter(ast.AliasType, body) {
		return r.fault(node.GetToken(), errors.New("aliases are not supported: use base to start from another entry"))
	}
	fields, ok := pairs(body)
	if !ok {
		return r.fault(body.GetToken(), errors.New("want a mapping with models and devices"))
	}
	for _, field := range fields {
		var read func(ast.Node) error
		switch key := field.Key.String(); key {
		case "models":
			read = r.model
		case "devices":
			read = r.device
		default:
			return r.fault(field.Key.GetToken(), fmt.Errorf("unknown field %q: want models or devices", key))
		}
		if field.Value.Type() == ast.NullType {
			continue
		}
		list, ok := field.Value.(*ast.SequenceNode)
		if !ok {
			return r.fault(field.Value.GetToken(), fmt.Errorf("%s: want a list", field.Key))
		}
		for _, entry := range list.Values {
			if err := read(entry); err != nil {
				return err
			}
		}
	}
	return nil
}

// model reads one entry of models.
func (r *overlayReader) model(node ast.Node) error {
	baseName, rest, err := r.splitBase(node)
	if err != nil {
		return err
	}
	m := &Model{}
	var base *Model
	if baseName != nil {
		if base, err = r.base.Model(baseName.Value); err != nil {
			return r.fault(baseName.Token, err)
		}
		m = base.Clone()
		m.Source, m.Verified, m.ParamsTotal = "", false, 0
	}
	if err := r.decode(rest, m); err != nil {
		return err
	}
	if base != nil && modelKey(m.Name) != modelKey(base.Name) {
		if m.HubID == base.HubID {
			m.HubID = ""
		}
		if slices.Equal(m.Aliases, base.Aliases) {
			m.Aliases = nil
		}
		if m.Note == base.Note {
			m.Note = ""
		}
	}
	if m.Source == "" {
		m.Source, m.Verified = r.file, false
		if base != nil {
			m.Source += ", from " + base.Name
		}
	}
	if err := m.Validate(); err != nil {
		return r.fault(node.GetToken(), err)
	}
	if modelKey(m.Name) == "" {
		return r.fault(node.GetToken(), errors.New("a model has no name"))
	}
	if slices.ContainsFunc(r.models, func(o *Model) bool { return modelKey(o.Name) == modelKey(m.Name) }) {
		return r.fault(node.GetToken(), fmt.Errorf("model %s is given twice", m.Name))
	}
	r.models = append(r.models, m)
	return nil
}

// device reads one entry of devices.
func (r *overlayReader) device(node ast.Node) error {
	baseName, rest, err := r.splitBase(node)
	if err != nil {
		return err
	}
	d := &Device{}
	var base *Device
	if baseName != nil {
		if base, _, err = r.base.Device(baseName.Value); err != nil {
			return r.fault(baseName.Token, err)
		}
		*d = *base
		d.Aliases, d.Peaks = slices.Clone(base.Aliases), nil
		for _, q := range figures(d) {
			q.Verified = false // unless it stays as it is
		}
	} else {
		base = &Device{}
	}
	if err := r.decode(rest, d); err != nil {
		return err
	}
	peaks := maps.Clone(base.Peaks)
	if peaks == nil {
		peaks = map[DType]Quantity{}
	}
	for t, q := range d.Peaks {
		if peaks[t] = q; q == (Quantity{}) {
			delete(peaks, t)
		}
	}
	d.Peaks = peaks
	if baseName != nil && deviceKey(d.Name) != deviceKey(base.Name) && slices.Equal(d.Aliases, base.Aliases) {
		d.Aliases = nil
	}
	r.source(d, base)
	if d.Memory.Value != base.Memory.Value && d.MemoryTotal.Value == base.MemoryTotal.Value {
		d.MemoryTotal = Quantity{} // it was that of another memory
	}
	if err := d.Validate(); err != nil {
		return r.fault(node.GetToken(), err)
	}
	if deviceKey(d.Name) == "" {
		return r.fault(node.GetToken(), errors.New("a device has no name"))
	}
	if slices.ContainsFunc(r.devices, func(o *Device) bool { return deviceKey(o.Name) == deviceKey(d.Name) }) {
		return r.fault(node.GetToken(), fmt.Errorf("device %s is given twice", d.Name))
	}
	r.devices = append(r.devices, d)
	return nil
}

// source settles where the figures of d come from: those as in the base keep
// its word, a new one without a source of its own gets the file's name.
func (r *overlayReader) source(d, base *Device) {
	settle := func(q *Quantity, old Quantity) {
		switch {
		case q.Value == old.Value && q.Source == old.Source:
			q.Verified = q.Verified || old.Verified
		case q.Source == "" || q.Source == old.Source:
			q.Source, q.Verified = r.file, false
		}
	}
	old := figures(base)
	for i, q := range figures(d) {
		settle(q, *old[i])
	}
	for t, q := range d.Peaks {
		settle(&q, base.Peaks[t])
		d.Peaks[t] = q
	}
}

// figures lists the quantities of d besides its peaks, always in one order.
func figures(d *Device) []*Quantity {
	return []*Quantity{
		&d.Memory, &d.MemoryTotal, &d.Bandwidth, &d.SMs, &d.L2, &d.Link.Bandwidth, &d.Link.Alpha,
		&d.InterNode, &d.PCIe, &d.Power,
	}
}

// splitBase takes the key base out of an entry. rest is nil if nothing else is
// there.
func (r *overlayReader) splitBase(node ast.Node) (base *ast.StringNode, rest ast.Node, err error) {
	fields, ok := pairs(node)
	if !ok {
		return nil, nil, r.fault(node.GetToken(), errors.New("want an entry: a mapping"))
	}
	at := slices.IndexFunc(fields, func(f *ast.MappingValueNode) bool { return f.Key.String() == "base" })
	if at < 0 {
		return nil, node, nil
	}
	base, ok = fields[at].Value.(*ast.StringNode)
	if !ok {
		return nil, nil, r.fault(fields[at].Value.GetToken(), errors.New("base: want the name of an entry"))
	}
	mapping, ok := node.(*ast.MappingNode)
	if !ok || len(fields) == 1 {
		return base, nil, nil
	}
	mapping.Values = slices.Delete(slices.Clone(fields), at, at+1)
	return base, mapping, nil
}

// decode reads node into v, which may hold values already.
func (r *overlayReader) decode(node ast.Node, v any) error {
	if node == nil {
		return nil
	}
	if err := yaml.NodeToValue(node, v, yaml.Strict()); err != nil {
		return r.yamlFault(err)
	}
	return nil
}

// mergedModels returns the base's models with the file's over them.
func (r *overlayReader) mergedModels() []*Model {
	claimed := map[string]bool{}
	for _, m := range r.models {
		for key := range modelSpellings(m) {
			claimed[key] = true
		}
	}
	models := slices.Clone(r.models)
	for _, m := range r.base.models {
		if slices.ContainsFunc(r.models, func(o *Model) bool { return modelKey(o.Name) == modelKey(m.Name) }) {
			continue
		}
		org := hubOrg(m)
		taken := func(name string) bool {
			return slices.ContainsFunc(spellings(org, name), func(key string) bool { return claimed[key] })
		}
		if taken(m.HubID) || slices.ContainsFunc(m.Aliases, taken) {
			m = m.Clone()
			m.Aliases = slices.DeleteFunc(m.Aliases, taken)
			if taken(m.HubID) {
				m.HubID = ""
			}
		}
		models = append(models, m)
	}
	return models
}

// mergedDevices returns the base's devices with the file's over them.
func (r *overlayReader) mergedDevices() []*Device {
	claimed := map[string]bool{}
	for _, d := range r.devices {
		for key := range deviceSpellings(d) {
			claimed[key] = true
		}
	}
	devices := slices.Clone(r.devices)
	for _, d := range r.base.devices {
		if slices.ContainsFunc(r.devices, func(o *Device) bool { return deviceKey(o.Name) == deviceKey(d.Name) }) {
			continue
		}
		taken := func(name string) bool { return claimed[deviceKey(name)] }
		if slices.ContainsFunc(d.Aliases, taken) {
			changed := *d
			changed.Aliases = slices.DeleteFunc(slices.Clone(d.Aliases), taken)
			d = &changed
		}
		devices = append(devices, d)
	}
	return devices
}

// fault places an error at a token of the file.
func (r *overlayReader) fault(at *token.Token, err error) error {
	if at == nil || at.Position == nil {
		return fmt.Errorf("%s: %w", r.file, err)
	}
	return &OverlayError{
		File: r.file, Line: at.Position.Line, Column: at.Position.Column,
		Err: err, Excerpt: excerpt(yaml.FormatErrorWithToken("", at, false, true)),
	}
}

// yamlFault takes over an error of the YAML package with its place.
func (r *overlayReader) yamlFault(err error) error {
	var located yaml.Error
	if !errors.As(err, &located) {
		return fmt.Errorf("%s: %w", r.file, err)
	}
	return r.fault(located.GetToken(), errors.New(located.GetMessage()))
}

// excerpt cuts the first line, which holds the message, from a formatted
// error: the source lines with the caret are left.
func excerpt(formatted string) string {
	_, lines, _ := strings.Cut(formatted, "\n")
	return strings.TrimRight(lines, "\n ")
}

// pairs returns the fields of a mapping.
func pairs(node ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := node.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// OverlayError says where a user's file is not what [Catalog.Overlay] reads.
type OverlayError struct {
	// File is the name given to Overlay; Line and Column count from 1.
	File         string
	Line, Column int
	// Err says what is wrong.
	Err error
	// Excerpt shows the lines around the place, with a caret under it.
	Excerpt string
}

// Error gives place and message, then the excerpt on lines of its own.
func (e *OverlayError) Error() string {
	text := fmt.Sprintf("%s:%d:%d: %v", e.File, e.Line, e.Column, e.Err)
	if e.Excerpt != "" {
		text += "\n" + e.Excerpt
	}
	return text
}

// Unwrap gives the fault without its place.
func (e *OverlayError) Unwrap() error { return e.Err }
