package unit

import "strings"

// List names things in a sentence: "fcfs, lpm, lof".
func List[T ~string](names []T) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, ", ")
}
