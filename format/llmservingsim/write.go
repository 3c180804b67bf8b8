package llmservingsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// WriteOptions says how a bundle is written.
type WriteOptions struct {
	// WithoutProfile leaves out profile.llmprof.gz, also where the CSV files
	// cannot hold the whole profile.
	WithoutProfile bool
}

// Write writes a profile of layers as a bundle. create opens a file of it for
// writing; its path is within the bundle, with slashes: "tp1/dense.csv". A
// bundle that was read is written byte for byte. Of any other profile the
// layers become those of LLMServingSim, one row for each key: of points with
// the same key that with the shortest context counts, and of those the last.
// The whole profile is written beside the files where they hold less than it.
//
// Remarks say what the files leave out and what LLMServingSim misses in them;
// of a bundle that was read, only the former.
func Write(p *profile.Profile, create func(path string) (io.WriteCloser, error), opts WriteOptions) (remarks []string, err error) {
	fail := func(err error) ([]string, error) { return nil, fmt.Errorf("write LLMServingSim bundle: %w", err) }
	kept, err := bundleOf(&p.Header)
	if err != nil {
		return fail(err)
	}
	w := &writer{profile: p, kept: kept}
	if kept == nil {
		w.rows, remarks = translate(p)
	} else {
		remarks = w.place()
	}
	if len(w.rows) == 0 {
		return fail(errors.New(strings.Join(append([]string{"the profile holds no layers that have a place in a bundle"}, remarks...), "; ")))
	}
	files, err := w.files()
	if err != nil {
		return fail(err)
	}
	if !w.complete && !opts.WithoutProfile {
		text, err := w.sidecar(files)
		if err != nil {
			return fail(err)
		}
		files[sidecarFile] = text
	}
	// The profile beside the files comes last: a crash before it leaves a
	// bundle that can be read.
	names := slices.Sorted(maps.Keys(files))
	if at := slices.Index(names, sidecarFile); at >= 0 {
		names = append(slices.Delete(names, at, at+1), sidecarFile)
	}
	for _, name := range names {
		if err := writeFile(create, name, files[name]); err != nil {
			return fail(fmt.Errorf("%s: %w", name, err))
		}
	}
	return remarks, nil
}

func writeFile(create func(string) (io.WriteCloser, error), name string, text []byte) error {
	f, err := create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// row is a point as it stands in one of the files.
type row struct {
	point *profile.Point
	layer profile.Layer
	// samples is the number of times behind the row's.
	samples int
}

// writer writes the points of one profile.
type writer struct {
	profile *profile.Profile
	kept    map[string]keptFile
	rows    map[string][]row // by path
	// complete says that the files hold all that the profile says.
	complete bool
}

// place sorts the points of a bundle that was read into its files, and says
// which have no place there.
func (w *writer) place() (remarks []string) {
	w.rows, w.complete = map[string][]row{}, true
	left := map[string]int{}
	for i := range w.profile.Points {
		p := &w.profile.Points[i]
		file, layer, ok := w.placeOf(p)
		if !ok {
			w.complete = false
			name := string(p.Kind)
			if p.Layer != nil {
				name = p.Layer.Name
			}
			left[name]++
			continue
		}
		if layer.TensorParallel == 0 {
			layer.TensorParallel = max(w.profile.Header.Deploy.TensorParallel, 1)
		}
		file = path.Join(folderOf(layer.TensorParallel), file)
		if w.complete && (layer != *p.Layer || !bare(p) || !w.holds(file, p)) {
			w.complete = false
		}
		w.rows[file] = append(w.rows[file], row{p, layer, len(p.Samples)})
	}
	if text := counted(left); text != "" {
		remarks = append(remarks, "a bundle has no place for "+text)
	}
	return remarks
}

// bare reports whether the point says nothing but its layer, one time and
// columns of a file.
func bare(p *profile.Point) bool {
	return len(p.Samples) == 1 && p.Summary == nil && p.Clock == "" && p.Reason == "" && len(p.Warnings) == 0 && p.Origin == ""
}

// holds reports whether a file has a column for everything in the point's
// Extra.
func (w *writer) holds(file string, p *profile.Point) bool {
	for key := range p.Extra {
		if key != KeySheet && !slices.ContainsFunc(w.kept[file].Columns, func(c string) bool { return strings.TrimSpace(c) == key }) {
			return false
		}
	}
	return true
}

// placeOf is the file that a point goes to, and the layer as that file names
// its sizes. ok is false where no file has a place for it.
func (w *writer) placeOf(p *profile.Point) (file string, layer profile.Layer, ok bool) {
	if _, timed := p.Mean(); p.Kind != profile.KindLayer || p.Layer == nil || !timed {
		return "", layer, false
	}
	layer = *p.Layer
	if layer.TensorParallel > maxRanks || w.profile.Header.Deploy.TensorParallel > maxRanks {
		return "", layer, false
	}
	file = sheetOf(&profile.Point{Layer: &layer, Extra: p.Extra})
	for _, s := range sheets() {
		if s.file != file {
			continue
		}
		rest := layer
		for _, c := range s.sizes {
			n := c.of(&rest)
			if *n < c.least {
				return "", layer, false
			}
			*n = 0
		}
		if s.layer == "" || s.layer == layer.Name {
			rest.Name = ""
		}
		rest.TensorParallel = 0
		return file, layer, rest == profile.Layer{} && layer.Tokens+layer.Sequences > 0
	}
	return "", layer, false
}

// ranksOf lists the tensor parallel sizes of the rows.
func ranksOf(all map[string][]row) []int {
	set := map[int]bool{}
	for _, list := range all {
		for _, r := range list {
			set[r.layer.TensorParallel] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// files are the texts of the bundle by path.
func (w *writer) files() (map[string][]byte, error) {
	files := map[string][]byte{}
	known := map[string]sheet{}
	for _, s := range sheets() {
		known[s.file] = s
	}
	for name, kept := range w.kept {
		if len(kept.Columns) == 0 {
			if !belongs(name) {
				return nil, fmt.Errorf("metadata %s: %q is no file of a bundle", MetadataKey, name)
			}
			files[name] = []byte(kept.Text)
		} else if s, ok := known[path.Base(name)]; ok && belongs(name) && w.rows[name] == nil {
			text, err := csvText(s, kept, nil)
			if err != nil {
				return nil, err
			}
			files[name] = text
		}
	}
	for name, list := range w.rows {
		s := known[path.Base(name)]
		kept := w.kept[name]
		if len(kept.Columns) == 0 {
			kept = keptFile{Columns: s.columns, Newline: s.newline}
		}
		text, err := csvText(s, kept, list)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[name] = text
	}
	if _, ok := files[metaFile]; !ok {
		files[metaFile] = newMeta(&w.profile.Header, w.rows)
	}
	return files, nil
}

// belongs reports whether a path is one of a bundle's: metadata may come from
// anywhere, and must not lead out of the folder.
func belongs(name string) bool {
	if name == metaFile {
		return true
	}
	folder, file := path.Split(name)
	n, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSuffix(folder, "/"), "tp"))
	if err != nil || n < 1 || n > maxRanks || folder != folderOf(n)+"/" {
		return false
	}
	return file == fitFile || slices.ContainsFunc(sheets(), func(s sheet) bool { return s.file == file })
}

// csvText writes the rows of one file.
func csvText(s sheet, kept keptFile, list []row) ([]byte, error) {
	var b bytes.Buffer
	lines := format.NewTableWriter(&b, kept.Newline)
	if err := lines.Write(kept.Columns); err != nil {
		return nil, err
	}
	columns := make([]string, len(kept.Columns))
	sizes := make([]func(*profile.Layer) *int, len(columns))
	for i, column := range kept.Columns {
		columns[i] = strings.TrimSpace(column)
		for _, c := range s.sizes {
			if c.name == columns[i] {
				sizes[i] = c.of
			}
		}
	}
	cells := make([]string, len(columns))
	for _, r := range list {
		for i, column := range columns {
			switch {
			case sizes[i] != nil:
				cells[i] = format.SizeCell(r.point, column, *sizes[i](&r.layer))
			case column == s.time:
				cells[i] = timeCell(s, r.point, column)
			case s.layer == "" && column == colLayer:
				cells[i] = r.layer.Name
			default:
				cells[i], _ = format.KeptCell(r.point, column) // empty where nothing was kept
			}
		}
		if err := lines.Write(cells); err != nil {
			return nil, err
		}
	}
	lines.Flush()
	return b.Bytes(), lines.Error()
}

// timeCell writes the point's mean time, as it was spelled where that is the
// same time.
func timeCell(s sheet, p *profile.Point, column string) string {
	if kept, ok := format.KeptCell(p, column); ok {
		mean, _ := format.MeanTime(p)
		if t, err := format.ParseTime(kept, format.Microseconds); err == nil && t == mean {
			return kept
		}
	}
	return s.timeText(p)
}

// sidecar is the profile as it goes beside the files.
func (w *writer) sidecar(files map[string][]byte) ([]byte, error) {
	digests := map[string]string{}
	for name, text := range files {
		digests[name] = digest(text)
	}
	kept, err := json.Marshal(digests)
	if err != nil {
		return nil, err
	}
	beside := &profile.Profile{Header: w.profile.Header, Points: w.profile.Points}
	beside.Header.Metadata = map[string]json.RawMessage{}
	maps.Copy(beside.Header.Metadata, w.profile.Header.Metadata)
	beside.Header.Metadata[digestKey] = kept
	var b bytes.Buffer
	if err := beside.Write(sidecarFile, &b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
