package memprofile

import (
	"fmt"
	"math"
	"reflect"
)

// agreement is the share by which a figure may differ from what it follows from.
const agreement = 1e-6

// maxDisagreements bounds what is said one by one of a file.
const maxDisagreements = 8

// disagreements are the figures of a file that follow from others and are not
// what follows: stated is a document as it was read, filled the same after
// [Document.Fill], which goes by the bytes.
func disagreements(stated, filled *Document) []string {
	var found []string
	compareFigures("", reflect.ValueOf(*stated), reflect.ValueOf(*filled), func(path string, says float64, follows *float64) {
		text := fmt.Sprintf("%s is %.12g in the file, and what it follows from is not there: it does not count", path, says)
		if follows != nil {
			text = fmt.Sprintf("%s is %.12g in the file, and %.12g by the figures that it follows from, which count", path, says, *follows)
		}
		found = append(found, text)
	})
	if n := len(found); n > maxDisagreements {
		found = append(found[:maxDisagreements], fmt.Sprintf("%d more figures do not agree with those that they follow from", n-maxDisagreements))
	}
	return found
}

// compareFigures tells of the numbers that differ, and of those that only stated
// has, for which follows is nil.
func compareFigures(path string, stated, filled reflect.Value, tell func(path string, says float64, follows *float64)) {
	switch stated.Kind() {
	case reflect.Pointer:
		switch {
		case stated.Type() == reflect.TypeFor[*Timeline](), stated.IsNil(): // of a timeline nothing is derived
		case !filled.IsNil():
			compareFigures(path, stated.Elem(), filled.Elem(), tell)
		case isNumber(stated.Type().Elem()):
			tell(path, asFloat(stated.Elem()), nil)
		}
	case reflect.Struct:
		for i := range stated.NumField() {
			name := stated.Type().Field(i).Tag.Get("json")
			if path != "" {
				name = path + "." + name
			}
			compareFigures(name, stated.Field(i), filled.Field(i), tell)
		}
	case reflect.Slice:
		for i := range min(stated.Len(), filled.Len()) {
			compareFigures(fmt.Sprintf("%s[%d]", path, i), stated.Index(i), filled.Index(i), tell)
		}
	case reflect.Int, reflect.Int64, reflect.Float64:
		says, follows := asFloat(stated), asFloat(filled)
		within := agreement * math.Max(math.Abs(says), math.Abs(follows))
		if stated.Type() == reflect.TypeFor[GB]() {
			within = math.Max(within, 1e-9) // one byte
		}
		if math.Abs(says-follows) > within {
			tell(path, says, &follows)
		}
	}
}

func isNumber(t reflect.Type) bool {
	return t.Kind() == reflect.Int || t.Kind() == reflect.Int64 || t.Kind() == reflect.Float64
}

func asFloat(v reflect.Value) float64 {
	if v.CanInt() {
		return float64(v.Int())
	}
	return v.Float()
}
