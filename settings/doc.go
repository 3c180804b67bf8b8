// Package settings reads YAML that a person wrote: strictly, and with all faults
// together, each with its line, a caret under the place and the nearest word
// that is known.
//
//	f := settings.Open("load.yaml", text)
//	top := f.Top().Fields("seed", "arrivals")
//	seed := top.Get("seed").Number()
//	if err := f.Err(); err != nil { … }
//
// A value that is not what was asked for notes a fault and reads as zero, so
// that a caller goes on and finds the others too.
package settings
