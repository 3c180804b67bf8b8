package campaign

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/settings"
)

// SettingsError says that a run would go on with other settings than those that
// it began with.
type SettingsError struct {
	RunID string
	// Differences name what differs, with both values.
	Differences []string
}

// Error lists the differences.
func (e *SettingsError) Error() string {
	return fmt.Sprintf("run %s began with other settings: %s", e.RunID, strings.Join(e.Differences, "; "))
}

// Hint says what to do next.
func (e *SettingsError) Hint() string {
	return "go on with those, or begin a new run: cells of one run are compared with each other"
}

// ExitCode is that of wrong usage.
func (e *SettingsError) ExitCode() int { return 2 }

// compareSettings refuses settings that differ from those of the run, of the run
// as a whole and of its cells.
func (r *run) compareSettings(ctx context.Context) error {
	found, err := r.otherSettings(ctx)
	if err != nil {
		return fmt.Errorf("run %s: compare its settings: %w", r.RunID, err)
	}
	asked, err := r.otherCells(ctx)
	found = append(found, asked...)
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		return nil
	case !r.OtherSettings:
		return &SettingsError{r.RunID, found}
	}
	r.note("run %s goes on with other settings: %s", r.RunID, strings.Join(found, "; "))
	return nil
}

// otherSettings are the differences between [Options.Settings] and those of the
// run.
func (r *run) otherSettings(ctx context.Context) ([]string, error) {
	if r.Settings == nil {
		return nil, nil
	}
	stored, err := r.Store.Run(ctx, r.RunID)
	if err != nil || stored.Settings == nil {
		return nil, err
	}
	return differences(stored.Settings, r.Settings)
}

// differences names the fields of two JSON objects that are not equal. A field
// that is missing is as one that is null, false, 0 or empty.
func differences(before, now json.RawMessage) ([]string, error) {
	var was, is map[string]any
	for _, text := range []struct {
		json json.RawMessage
		into *map[string]any
	}{{before, &was}, {now, &is}} {
		decoder := json.NewDecoder(bytes.NewReader(text.json))
		decoder.UseNumber()
		if err := decoder.Decode(text.into); err != nil {
			return nil, fmt.Errorf("want a JSON object: %w", err)
		}
	}
	value := func(fields map[string]any, name string) string {
		text, err := json.Marshal(fields[name])
		if err != nil || slices.Contains([]string{"null", "false", "0", `""`, "[]", "{}"}, string(text)) {
			return ""
		}
		return string(text)
	}
	var found []string
	names := slices.AppendSeq(slices.Collect(maps.Keys(was)), maps.Keys(is))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if first, later := value(was, name), value(is, name); first != later {
			found = append(found, fmt.Sprintf("%s was %s and is %s", name, cmp.Or(settings.Clip(first), "not set"), cmp.Or(settings.Clip(later), "not set")))
		}
	}
	return found, nil
}
