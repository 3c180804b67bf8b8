// Package llmservingsim reads and writes the layer profiles of LLMServingSim
// from version 1.1 on: bundles, which are a folder of one device, model and
// number format.
//
//	meta.yaml
//	tp1/dense.csv         layer,tokens,time_us
//	tp1/per_sequence.csv  layer,sequences,time_us
//	tp1/attention.csv     prefill_chunk,kv_prefill,n_decode,kv_decode,time_us
//	tp1/moe.csv           tokens,activated_experts,time_us
//	tp1/skew.csv          batches of unequal contexts, see [KeyRegime]
//	tp1/skew_fit.csv      what the profiler fitted to them
//	tp2/…
//
// Every file may also be gzip, as "dense.csv.gz". Times are microseconds of
// one call on one rank; they become seconds by moving the decimal point in
// the text. Each row becomes a point of a [profile.Profile], in order,
// repeated rows included, with the rank's tensor parallel size. meta.yaml and
// skew_fit.csv stay verbatim in the header's metadata: [Meta], [SkewFit]. Of
// meta.yaml the header takes device, model, engine and formats; what it says
// about the grid is not believed, since it may not match the rows.
//
// [ReadFS] takes the bundle's folder, or one above exactly one bundle. [Write]
// writes a bundle that was read byte for byte.
//
// # Profiles from elsewhere
//
// LLMServingSim puts a step together from layers of its own: embedding, for
// each block layernorm, qkv_proj, rotary_emb, attention, o_proj, layernorm,
// gate_up_proj, act_fn and down_proj (or moe), then final_layernorm, and once
// a sequence lm_head and sampler. A profile that was measured by the torch
// probe or read from a CSV of LLM-Profile names smaller ones, and Write turns
// them into those, at each size by itself:
//
//	qkv_proj      q_proj + k_proj + v_proj
//	gate_up_proj  gate_proj + up_proj, or fc1 where a model has no gate
//	down_proj     fc2
//	layernorm     the mean of input_layernorm and post_layernorm
//	rotary_emb    rope
//	qk_norm       q_norm + k_norm, which Qwen3 has
//	attention     attn, or qk_matmul + softmax + sv_matmul
//	embedding     embedding + position_embedding
//	moe           gate + experts, where the number of activated experts is known
//	lm_head       lm_head by sequences; of one token, for one sequence
//
// Names of LLMServingSim stay as they are. What has no place is left out,
// nothing is estimated, and remarks say what was left out and what
// LLMServingSim will miss: nothing here times a sampler.
//
// The whole profile goes beside the files, as profile.llmprof.gz with a digest
// of every other file. ReadFS takes that profile as long as the digests hold,
// and the files once somebody changed one; so nothing is lost on the way from
// a CSV to a bundle and back. [Ours] tells whether a folder is still such a
// bundle, untouched, and may be replaced.
//
//	p, warnings, err := llmservingsim.ReadFS("perf/RTX4090", os.DirFS("perf/RTX4090"), llmservingsim.Options{})
//
// # Runs and links
//
// LLMServingSim also publishes what it is compared with. [ReadRun] reads the
// folder of a run of its bench on a real vLLM: every request with the engine's
// own times, and what the engine was started with. [ReadHardware] reads the
// collectives that were measured between the devices of a machine, which no
// bundle holds.
package llmservingsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// Options says how a bundle is read.
type Options struct {
	// Device finds the canonical catalog name of a device by the name that
	// the bundle gives. Without it, and where it knows no name, the profile
	// holds the reported name alone.
	Device func(reported string) (canonical string, ok bool)
	// Limits bounds what is taken in of each file; Values counts cells.
	Limits format.Limits
}

const (
	metaFile    = "meta.yaml"
	sidecarFile = "profile.llmprof.gz"

	// maxMeta bounds meta.yaml in bytes, maxRanks the tensor parallel size.
	maxMeta  = 1 << 20
	maxRanks = 1 << 14
	// maxEntries and maxDepth bound the search for a bundle.
	maxEntries = 100_000
	maxDepth   = 12
)

// MetadataKey is the key of the profile's metadata under which [ReadFS] keeps
// what it needs to write the bundle again.
const MetadataKey = "llmservingsim"

// digestKey is the key under which a profile beside a bundle keeps the
// digests of the bundle's files.
const digestKey = "llmservingsim_digests"

// keptFile is what the metadata holds of one file of the bundle.
type keptFile struct {
	// Columns and Newline are those of a file whose rows are points.
	Columns []string `json:"columns,omitempty"`
	Newline string   `json:"newline,omitempty"`
	// Text is the whole of any other file.
	Text string `json:"text,omitempty"`
}

// bundleOf is what ReadFS kept of a bundle; nil where the profile does not
// come from one.
func bundleOf(h *profile.Header) (map[string]keptFile, error) {
	kept, ok := h.Metadata[MetadataKey]
	if !ok {
		return nil, nil
	}
	var files map[string]keptFile
	if err := json.Unmarshal(kept, &files); err != nil {
		return nil, fmt.Errorf("metadata %s: %w", MetadataKey, err)
	}
	return files, nil
}

// Meta is the text of the bundle's meta.yaml; ok is false where the profile
// does not come from a bundle.
func Meta(h *profile.Header) (text string, ok bool) { return keptText(h, metaFile) }

// SkewFit is the text of skew_fit.csv of the ranks of one tensor parallel
// size; ok is false where the bundle had none.
func SkewFit(h *profile.Header, tensorParallel int) (text string, ok bool) {
	return keptText(h, path.Join(folderOf(tensorParallel), fitFile))
}

func keptText(h *profile.Header, file string) (string, bool) {
	files, err := bundleOf(h)
	kept, ok := files[file]
	return kept.Text, ok && err == nil
}

// folderOf is the folder of a tensor parallel size.
func folderOf(tensorParallel int) string { return "tp" + strconv.Itoa(tensorParallel) }

// Find lists the bundles in a folder and below: the folders that hold a
// meta.yaml, plain or gzip.
func Find(fsys fs.FS) ([]string, error) {
	var found []string
	entries := 0
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		entries++
		if entries > maxEntries {
			return fmt.Errorf("more than %d files and folders: name the bundle's own folder", maxEntries)
		}
		if err != nil {
			if name == "." {
				return err
			}
			return fs.SkipDir // a folder that may not be read holds nothing for us
		}
		if d.IsDir() && strings.Count(name, "/") >= maxDepth {
			return fs.SkipDir
		}
		if folder := path.Dir(name); !d.IsDir() && (d.Name() == metaFile || d.Name() == metaFile+".gz") && !slices.Contains(found, folder) {
			found = append(found, folder)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// ReadFS reads the bundle in a folder, or the one bundle below it. The name
// stands for the folder in errors and as the source of the profile. Warnings
// are remarks on files that were left out or contradict each other. A fault
// of a file is a [*format.Error] with file and line.
func ReadFS(name string, fsys fs.FS, opts Options) (*profile.Profile, []error, error) {
	fail := func(err error) (*profile.Profile, []error, error) {
		if _, placed := errors.AsType[*format.Error](err); !placed {
			err = &format.Error{File: name, Err: err}
		}
		return nil, nil, err
	}
	found, err := Find(fsys)
	switch {
	case err != nil:
		return fail(err)
	case len(found) == 0:
		return fail(errors.New("no meta.yaml: this is no LLMServingSim bundle, nor a folder above one"))
	case slices.Contains(found, "."):
		found = []string{"."}
	case len(found) > 1:
		return fail(fmt.Errorf("holds %d bundles, name one of them: %s", len(found), strings.Join(found, ", ")))
	}
	folder, err := fs.Sub(fsys, found[0])
	if err != nil {
		return fail(err)
	}
	r := &reader{name: path.Join(name, found[0]), fsys: folder, opts: opts, texts: map[string][]byte{}, kept: map[string]keptFile{}}
	if err := r.open(); err != nil {
		return fail(err)
	}
	if p := r.sidecar(); p != nil {
		if p.Header.Device.Name == "" {
			findDevice(&p.Header, opts.Device, p.Header.Device.Reported)
		}
		return p, r.warnings, nil
	}
	p, err := r.read()
	if err != nil {
		return fail(err)
	}
	return p, r.warnings, nil
}

// reader reads one bundle.
type reader struct {
	name     string
	fsys     fs.FS
	opts     Options
	texts    map[string][]byte // by path within the bundle, without ".gz"
	ranks    []int
	kept     map[string]keptFile
	points   []profile.Point
	warnings []error
}

func (r *reader) warn(file, text string, args ...any) {
	r.warnings = append(r.warnings, &format.Error{File: path.Join(r.name, file), Err: fmt.Errorf(text, args...)})
}

// open reads the text of every file that belongs to a bundle.
func (r *reader) open() error {
	top, err := fs.ReadDir(r.fsys, ".")
	if err != nil {
		return err
	}
	for _, entry := range top {
		if n, err := strconv.Atoi(strings.TrimPrefix(entry.Name(), "tp")); entry.IsDir() && err == nil && n >= 1 && n <= maxRanks && entry.Name() == folderOf(n) {
			r.ranks = append(r.ranks, n)
		}
	}
	slices.Sort(r.ranks)
	if err := r.load(".", top, metaFile, maxMeta); err != nil {
		return err
	}
	for _, n := range r.ranks {
		folder := folderOf(n)
		entries, err := fs.ReadDir(r.fsys, folder)
		if err != nil {
			return err
		}
		known := []string{fitFile}
		for _, s := range sheets() {
			known = append(known, s.file)
		}
		for _, file := range known {
			if err := r.load(folder, entries, file, 0); err != nil {
				return err
			}
		}
		for _, entry := range entries {
			if !slices.Contains(known, strings.TrimSuffix(entry.Name(), ".gz")) {
				r.warn(path.Join(folder, entry.Name()), "left out: no file of a bundle has this name")
			}
		}
	}
	return nil
}

// load reads one file, plain or gzip, where it is there.
func (r *reader) load(folder string, entries []fs.DirEntry, file string, limit int64) error {
	has := func(name string) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name && !e.IsDir() })
	}
	found := file
	switch {
	case has(file) && has(file+".gz"):
		r.warn(path.Join(folder, file+".gz"), "left out: the plain file is there as well")
	case has(file):
	case has(file + ".gz"):
		found = file + ".gz"
	default:
		return nil
	}
	f, err := r.fsys.Open(path.Join(folder, found))
	if err != nil {
		return err
	}
	limits := r.opts.Limits
	if limit > 0 {
		limits.Bytes = limit
	}
	text, err := format.ReadText(path.Join(r.name, folder, found), f, limits)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	r.texts[path.Join(folder, file)] = text
	return nil
}

// read builds the profile from the files.
func (r *reader) read() (*profile.Profile, error) {
	meta := r.texts[metaFile]
	r.kept[metaFile] = keptFile{Text: string(meta)}
	for _, n := range r.ranks {
		for _, s := range sheets() {
			file := path.Join(folderOf(n), s.file)
			if text, ok := r.texts[file]; ok {
				if err := r.sheet(file, s, n, text); err != nil {
					return nil, err
				}
			}
		}
		file := path.Join(folderOf(n), fitFile)
		if text, ok := r.texts[file]; ok {
			r.kept[file] = keptFile{Text: string(text)}
		}
	}
	if len(r.points) == 0 {
		return nil, errors.New("holds no rows: want tp1/dense.csv and the like beside meta.yaml")
	}
	kept, err := json.Marshal(r.kept)
	if err != nil {
		return nil, err
	}
	p := &profile.Profile{
		Header: profile.Header{
			Schema: profile.Schema, Version: profile.Version, Source: r.name,
			Metadata: map[string]json.RawMessage{MetadataKey: kept},
		},
		Points: r.points,
	}
	header(&p.Header, metaValues(meta), r.opts.Device)
	if p.Header.Deploy.Model == "" {
		r.warn(metaFile, "names no model")
	}
	measured := map[int]bool{}
	for i := range p.Points {
		measured[p.Points[i].Layer.TensorParallel] = true
	}
	if sizes := slices.Sorted(maps.Keys(measured)); len(sizes) == 1 {
		p.Header.Deploy.TensorParallel = sizes[0]
	}
	return p, nil
}

// sheet reads the rows of one file.
func (r *reader) sheet(file string, s sheet, tensorParallel int, text []byte) error {
	t, err := format.OpenTable(path.Join(r.name, file), text, r.opts.Limits)
	if err != nil {
		return err
	}
	for _, column := range s.required() {
		if t.Column(column) < 0 {
			return t.Errorf("", "column %s is missing: want %s", column, strings.Join(s.columns, ","))
		}
	}
	r.kept[file] = keptFile{Columns: t.Columns(), Newline: t.Newline()}
	b := &rows{table: t, sheet: s, at: make([]int, len(s.sizes)), time: t.Column(s.time), layer: t.Column(colLayer)}
	for i, c := range s.sizes {
		b.at[i] = t.Column(c.name)
	}
	for i, column := range t.Columns() {
		if key := strings.TrimSpace(column); !s.own(key) {
			b.others = append(b.others, otherColumn{key, i})
		}
	}
	for row, err := range t.Rows() {
		if err != nil {
			return err
		}
		p, err := b.point(row, tensorParallel)
		if err != nil {
			return err
		}
		r.points = append(r.points, p)
	}
	r.warnings = append(r.warnings, t.Warnings()...)
	return nil
}

// rows turns the rows of one sheet into points.
type rows struct {
	table *format.Table
	sheet sheet
	at    []int // index of each size's column
	time  int
	layer int
	// others are the columns without a place in a layer or a time.
	others []otherColumn
}

type otherColumn struct {
	name  string
	index int
}

func (b *rows) point(row []string, tensorParallel int) (profile.Point, error) {
	l := &profile.Layer{Name: b.sheet.layer, TensorParallel: tensorParallel}
	p := profile.Point{Kind: profile.KindLayer, Layer: l}
	if l.Name == "" {
		if l.Name = strings.Clone(row[b.layer]); l.Name == "" {
			return p, b.table.Errorf(colLayer, "missing: want the name of a layer")
		}
	}
	for i, c := range b.sheet.sizes {
		text := row[b.at[i]]
		n, err := format.ParseSize(text, c.least)
		if err != nil {
			return p, b.table.Errorf(c.name, "%w", err)
		}
		if *c.of(l) = n; strconv.Itoa(n) != text {
			format.KeepCell(&p, c.name, text)
		}
	}
	switch {
	case l.Tokens == 0 && l.Sequences == 0:
		return p, b.table.Errorf("", "neither tokens nor sequences: nothing is computed")
	case l.LongSequences > l.Sequences:
		return p, b.table.Errorf("nb", "%d of %d sequences", l.LongSequences, l.Sequences)
	}
	text := row[b.time]
	t, err := format.ParseTime(text, format.Microseconds)
	if err != nil {
		return p, b.table.Errorf(b.sheet.time, "%w", err)
	}
	p.Samples = []float64{float64(t)}
	if b.sheet.timeText(&p) != text {
		format.KeepCell(&p, b.sheet.time, text)
	}
	for _, o := range b.others {
		if cell := row[o.index]; cell != "" { // an empty cell says nothing
			format.KeepCell(&p, o.name, cell)
		}
	}
	if sheetOf(&p) != b.sheet.file {
		format.KeepCell(&p, KeySheet, b.sheet.file)
	}
	return p, nil
}
