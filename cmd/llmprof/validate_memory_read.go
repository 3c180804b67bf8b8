package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/llmprof/llmprof/fit/memory"
	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/unit"
)

// memoryInput is what the paths of validate memory hold.
type memoryInput struct {
	report.MemoryReading
	app      *app
	profiles []memoryProfile
	// recorded has the figures that stand in validation tables.
	recorded *memory.Recorded
	// seen are the profiles that were read, faults the files that were not.
	seen   map[string]bool
	faults []error
}

// memoryProfile is one profile, or a row of a table.
type memoryProfile struct {
	measured memory.Measured
	// row is the profile's own half of a row of batch-validate.
	row memprofile.ValidationRow
	// at is the profile's time, as it has it.
	at string
	// recorded says that a calculator's figures stand beside it.
	recorded bool
}

// readMemoryProfiles reads files and folders. What cannot be read is listed,
// and an error only where nothing else is there.
func (a *app) readMemoryProfiles(paths []string, compat bool) (*memoryInput, error) {
	in := &memoryInput{app: a, recorded: memory.NewRecorded("as recorded"), seen: map[string]bool{}}
	in.Compat = compat
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case path == "-":
			in.file(path)
		case err != nil:
			return nil, fileError("read", path, err)
		case info.IsDir():
			in.folder(path)
		default:
			in.file(path)
		}
	}
	in.Profiles = len(in.profiles)
	switch {
	case in.Profiles > 0:
		return in, nil
	case len(in.faults) == 1 && in.PassedOver == 0:
		return nil, in.faults[0]
	case len(in.faults) > 0:
		return nil, usage("llmprof profile memory makes one", "no memory profile in %s: %d files unreadable, %d others: %w", strings.Join(paths, ", "), len(in.faults), in.PassedOver, in.faults[0])
	}
	why := "no JSON file is there"
	if n := in.PassedOver; n > 0 {
		why = fmt.Sprintf("none of %s is one", unit.Plural(n, "JSON file"))
	}
	return nil, usage("llmprof profile memory makes one", "no memory profile in %s: %s", strings.Join(paths, ", "), why)
}

// unread keeps a file that could not be read.
func (in *memoryInput) unread(name string, err error) {
	in.faults = append(in.faults, err)
	in.Unreadable = append(in.Unreadable, report.MemoryUnreadableKeys{File: name, Reason: strings.TrimPrefix(err.Error(), name+": ")})
}

// folder reads the profiles below a folder.
func (in *memoryInput) folder(root string) {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			in.unread(path, fileError("read", path, err))
		case entry.IsDir() || !strings.EqualFold(filepath.Ext(path), ".json"):
		default:
			if text, err := in.text(path); err != nil {
				in.unread(path, err)
			} else if memprofile.Detect(text) {
				in.document(path, text)
			} else {
				in.PassedOver++
			}
		}
		return nil
	})
	if err != nil {
		in.unread(root, fileError("read", root, err))
	}
}

// file reads a profile or a table, told apart by content.
func (in *memoryInput) file(name string) {
	text, err := in.text(name)
	if err != nil {
		in.unread(name, err)
		return
	}
	if head := bytes.TrimLeft(text, "\ufeff \t\r\n"); len(head) > 0 && (head[0] == '{' || head[0] == '[') {
		in.document(name, text)
		return
	}
	in.table(name, text)
}

// text is the content of a file within bounds, decompressed.
func (in *memoryInput) text(name string) ([]byte, error) {
	file, err := in.app.openInput(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // read only
	return format.ReadText(name, file, format.Limits{})
}

// document adds a profile, once.
func (in *memoryInput) document(name string, text []byte) {
	key, err := filepath.Abs(name)
	if err != nil {
		key = name
	}
	if in.seen[key] {
		return
	}
	in.seen[key] = true
	d, warnings, err := memprofile.Read(name, bytes.NewReader(text), format.Limits{})
	if err != nil {
		in.unread(name, err)
		return
	}
	m, remarks := memory.FromDocument(name, d, in.Compat)
	if !in.Compat {
		remarks = append(remarks, warnings...)
	}
	in.add(memoryProfile{measured: m, row: memprofile.ValidationRowOf(d, name), at: string(d.Timestamp)}, remarks)
}

func (in *memoryInput) add(p memoryProfile, remarks []string) {
	in.profiles = append(in.profiles, p)
	in.remark(p.measured.Source, remarks...)
}

func (in *memoryInput) remark(source string, remarks ...string) {
	for _, r := range remarks {
		in.Remarks = append(in.Remarks, report.MemoryProfileRemarkKeys{Profile: source, Remark: r})
	}
}

// apply lays over the runs what the command line says of them.
func (in *memoryInput) apply(said overrides) {
	for i := range in.profiles {
		m := &in.profiles[i].measured
		said.apply(m)
		if m.Preallocates && m.KVCache != nil && m.MaxBatchedTokens == 0 {
			in.remark(m.Source, "the engine's largest step is not known: ours takes all prompts of the batch as one; --max-num-batched-tokens tells it")
		}
	}
}

// table adds the rows of a batch or of a validation.
func (in *memoryInput) table(name string, text []byte) {
	rows, warnings, err := memprofile.ReadMeasuredCSV(name, bytes.NewReader(text), format.Limits{})
	if err == nil && len(rows) == 0 {
		err = &format.Error{File: name, Err: errors.New("holds no rows")}
	}
	if err != nil {
		in.unread(name, err)
		return
	}
	for _, w := range warnings {
		in.app.warn(w)
	}
	for i, row := range rows {
		source := fmt.Sprintf("%s row %d", name, i+1)
		if row.ProfileFile != "" {
			source += " (" + filepath.Base(row.ProfileFile) + ")"
		}
		recorded := in.recorded.Add(source, row)
		if !recorded && in.profileOf(name, row) {
			continue
		}
		m, remarks := memory.FromRow(source, row, in.Compat || recorded)
		in.add(memoryProfile{measured: m, row: rowOf(row), recorded: recorded}, remarks)
	}
}

// profileOf adds the profile behind a row of a table, where it is found: under
// the name that the row has, or beside the table.
func (in *memoryInput) profileOf(table string, row memprofile.MeasuredRow) bool {
	if row.ProfileFile == "" || row.ErrorMessage != "" {
		return false
	}
	for _, name := range []string{row.ProfileFile, filepath.Join(filepath.Dir(table), filepath.Base(row.ProfileFile))} {
		if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if text, err := in.text(name); err == nil && memprofile.Detect(text) {
			in.document(name, text)
			return true
		}
	}
	return false
}

// rowOf is the measured half of a row.
func rowOf(r memprofile.MeasuredRow) memprofile.ValidationRow {
	row := memprofile.ValidationRow{
		ProfileFile: r.ProfileFile, ModelName: r.Model, ParamsB: r.ParamsB, GPUs: r.GPUs, GPUType: r.GPU,
		Batch: r.Batch, InputLen: r.InputLen, OutputLen: r.OutputLen, DType: r.WeightDType,
	}
	if r.InputLen != nil && r.OutputLen != nil {
		length := *r.InputLen + *r.OutputLen
		row.SeqLen = &length
	}
	return row
}

// judge holds the profiles against the calculators, and the rows of
// validation tables against the figures that stand beside them.
func (in *memoryInput) judge(calculators []memory.Calculator, o memory.Options) memory.Report {
	var runs, rows []memory.Measured
	for _, p := range in.profiles {
		if p.recorded {
			rows = append(rows, p.measured)
		} else {
			runs = append(runs, p.measured)
		}
	}
	if len(rows) == 0 {
		return memory.Judge(runs, calculators, o)
	}
	judged := memory.Judge(rows, []memory.Calculator{in.recorded}, o)
	if len(runs) > 0 {
		more := memory.Judge(runs, calculators, o)
		judged.Verdicts = append(judged.Verdicts, more.Verdicts...)
		judged.Unusable = append(judged.Unusable, more.Unusable...)
		judged.Summaries = append(judged.Summaries, more.Summaries...)
	}
	return judged
}
