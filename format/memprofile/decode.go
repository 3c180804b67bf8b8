package memprofile

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/unit"
)

// Bounds of what a file may say.
const (
	maxCount = 1 << 31
	maxBytes = 1 << 52
)

// decoder fills structs from JSON by their keys. Unlike encoding/json it
// takes numbers in quotes and passes over NaN, null and unknown keys; a
// value of another kind is an error with its place.
type decoder struct {
	skipped  func(path string) bool // unknown keys that are no surprise
	unknown  []string
	warnings []string
}

// decode sets v from a value that is there; false where it holds nothing that
// can be taken.
func (d *decoder) decode(n format.Node, v reflect.Value) (bool, error) {
	if v.Type() == reflect.TypeFor[json.RawMessage]() {
		text, ok := n.JSON()
		if !ok {
			d.warn(n, "left out: holds a number that is not finite")
			return false, nil
		}
		v.SetBytes(text)
		return true, nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		target := reflect.New(v.Type().Elem())
		ok, err := d.decode(n, target.Elem())
		if ok && err == nil {
			v.Set(target)
		}
		return ok, err
	case reflect.Struct:
		return true, d.object(n, v)
	case reflect.Slice:
		return true, d.list(n, v)
	case reflect.Map:
		return true, d.table(n, v)
	case reflect.String:
		return true, text(n, v)
	case reflect.Bool:
		if n.Kind() != format.Bool {
			return false, n.Errorf("want true or false, got %s", n.Got())
		}
		v.SetBool(n.Got() == "true")
		return true, nil
	default:
		return d.number(n, v)
	}
}

func (d *decoder) warn(n format.Node, text string, args ...any) {
	d.warnings = append(d.warnings, n.Path()+": "+fmt.Sprintf(text, args...))
}

func (d *decoder) object(n format.Node, v reflect.Value) error {
	if n.Kind() != format.Object {
		return n.Errorf("want an object, got %s", n.Got())
	}
	known := make([]string, v.NumField())
	for i := range v.NumField() {
		known[i] = v.Type().Field(i).Tag.Get("json")
		if child := n.Get(known[i]); child.Present() {
			if _, err := d.decode(child, v.Field(i)); err != nil {
				return err
			}
		}
	}
	for key, child := range n.Members() {
		if !slices.Contains(known, key) && !d.skipped(child.Path()) {
			d.unknown = append(d.unknown, child.Path())
		}
	}
	return nil
}

func (d *decoder) list(n format.Node, v reflect.Value) error {
	if n.Kind() != format.Array {
		return n.Errorf("want a list, got %s", n.Got())
	}
	list := reflect.MakeSlice(v.Type(), 0, n.Len())
	for _, child := range n.Elements() {
		element := reflect.New(v.Type().Elem()).Elem()
		gaps := element.Kind() == reflect.Pointer // a figure of a series that is missing keeps its place
		if child.Kind() == format.Null {
			if !gaps {
				return child.Errorf("want a value, got null")
			}
			list = reflect.Append(list, element)
			continue
		}
		ok, err := d.decode(child, element)
		if err != nil {
			return err
		}
		if ok || gaps {
			list = reflect.Append(list, element)
		}
	}
	v.Set(list)
	return nil
}

func (d *decoder) table(n format.Node, v reflect.Value) error {
	if n.Kind() != format.Object {
		return n.Errorf("want an object, got %s", n.Got())
	}
	v.Set(reflect.MakeMap(v.Type()))
	for key, child := range n.Members() {
		element := reflect.New(v.Type().Elem()).Elem()
		if child.Kind() == format.Null {
			continue
		}
		ok, err := d.decode(child, element)
		if err != nil {
			return err
		}
		if ok {
			v.SetMapIndex(reflect.ValueOf(key), element)
		}
	}
	return nil
}

// text reads a string; a version may also stand there as a number.
func text(n format.Node, v reflect.Value) error {
	if n.Kind() == format.Number {
		v.SetString(n.Got())
		return nil
	}
	s, err := n.Text()
	if err == nil {
		v.SetString(s)
	}
	return err
}

// number reads a float, a count or a size.
func (d *decoder) number(n format.Node, v reflect.Value) (bool, error) {
	f, err := n.Float()
	if err != nil {
		return false, err
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		d.warn(n, "left out: %s", n.Got())
		return false, nil
	}
	if v.Kind() == reflect.Float64 {
		v.SetFloat(f)
		return true, nil
	}
	least, most := 0, maxCount
	if v.Type() == reflect.TypeFor[unit.Bytes]() {
		least, most = -maxBytes, maxBytes
	}
	whole, err := n.Int(least, most)
	if err != nil {
		return false, err
	}
	v.SetInt(int64(whole))
	return true, nil
}

// remarks are the warnings so far, with one for all unknown keys.
func (d *decoder) remarks() []string {
	const shown = 8
	if len(d.unknown) == 0 {
		return d.warnings
	}
	names := strings.Join(d.unknown[:min(len(d.unknown), shown)], ", ")
	if more := len(d.unknown) - shown; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return append(d.warnings, "unknown keys passed over: "+names)
}
