package store

import (
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/llmprof/llmprof/unit"
)

// moment is a time as it stands in the database: UTC text that sorts by time,
// NULL for the zero time.
type moment time.Time

const momentLayout = "2006-01-02T15:04:05.000000000Z"

// Value writes the text.
func (m moment) Value() (driver.Value, error) {
	t := time.Time(m).UTC()
	if t.IsZero() {
		return nil, nil //nolint:nilnil // NULL is a value without an error
	}
	if t.Year() < 0 || t.Year() > 9999 {
		return nil, fmt.Errorf("time %s: the year is not one of 0 to 9999", t)
	}
	return t.Format(momentLayout), nil
}

// Scan reads the text.
func (m *moment) Scan(value any) error {
	switch value := value.(type) {
	case nil:
		*m = moment{}
		return nil
	case string:
		t, err := time.Parse(momentLayout, value)
		*m = moment(t)
		return err
	default:
		return fmt.Errorf("read a time: %T is not a text", value)
	}
}

// jsonText is a JSON value as it stands in the database, NULL for none.
func jsonText(raw json.RawMessage) any {
	if len(raw) == 0 {
		return nil
	}
	return string(raw)
}

// scanText reads one text.
func scanText(scan func(...any) error) (text string, err error) {
	err = scan(&text)
	return text, err
}

// orElse is err, or other where there is no err.
func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// checkRun refuses what cannot be stored, all faults at once.
func checkRun(run Run, cells []Cell) error {
	return errors.Join(checkName("id", run.ID), checkJSON("settings", run.Settings), checkCells(cells))
}

// checkCells refuses cells that cannot be added, all faults at once.
func checkCells(cells []Cell) error {
	var faults []error
	first := map[string]int{}
	for i, c := range cells {
		if earlier, ok := first[c.Hash]; ok {
			faults = append(faults, fmt.Errorf("cells %d and %d have the same hash %s", earlier, i, c.Hash))
			continue
		}
		first[c.Hash] = i
		if err := checkCell(c); err != nil {
			faults = append(faults, fmt.Errorf("cell %d: %w", i, err))
		}
	}
	return errors.Join(faults...)
}

func checkCell(c Cell) error {
	faults := []error{checkName("hash", c.Hash), checkJSON("spec", c.Spec), checkJSON("result", c.Result)}
	if c.Index < 0 || c.Attempts < 0 {
		faults = append(faults, fmt.Errorf("index %d, attempts %d: want 0 or more", c.Index, c.Attempts))
	}
	if !(c.Seconds >= 0 && c.Seconds <= math.MaxFloat64) {
		faults = append(faults, fmt.Errorf("seconds %g: want a finite number, 0 or more", c.Seconds))
	}
	switch {
	case c.State != "" && !slices.Contains(States(), c.State):
		faults = append(faults, fmt.Errorf("state %q: not one of %s", c.State, unit.List(States())))
	case c.State == Running:
		faults = append(faults, errors.New("state running: a cell gets there by Begin only"))
	}
	return errors.Join(faults...)
}

// checkName refuses what cannot be typed or printed.
func checkName(what, name string) error {
	const longest = 200 // bytes
	switch {
	case name == "":
		return fmt.Errorf("the %s is empty", what)
	case len(name) > longest:
		return fmt.Errorf("the %s has %d bytes: want at most %d", what, len(name), longest)
	case !utf8.ValidString(name):
		return fmt.Errorf("the %s %q is not UTF-8", what, name)
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("the %s %q holds a character that cannot be printed", what, name)
		}
	}
	return nil
}

func checkJSON(what string, raw json.RawMessage) error {
	if len(raw) > 0 && !json.Valid(raw) {
		return fmt.Errorf("the %s is not JSON", what)
	}
	return nil
}
