package memprofile

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed schema.json
var schemaText []byte

// schemaURL is the identity of the schema, under which nothing is fetched.
const schemaURL = "https://llmprof.dev/schema/memory-profile-1.json"

// Schema returns the JSON Schema (draft 2020-12) of the documents.
func Schema() []byte { return slices.Clone(schemaText) }

// Write fills the derived keys of a document and writes it as indented JSON,
// which fits the schema. A document that does not fit is an error, and
// nothing is written.
func Write(w io.Writer, d *Document) error {
	d.Fill()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(d); err != nil {
		return fmt.Errorf("write memory profile: %w", err)
	}
	if err := validate(text.Bytes(), true); err != nil {
		return fmt.Errorf("write memory profile: %w", err)
	}
	if _, err := w.Write(text.Bytes()); err != nil {
		return fmt.Errorf("write memory profile: %w", err)
	}
	return nil
}

// validate holds a JSON text to the schema; the error names the first place, in
// alphabetical order, that does not fit. Whole wants every key: what is written
// has them all, while a file of an older minor version may lack some.
func validate(text []byte, whole bool) error {
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemaText))
	if err != nil {
		return fmt.Errorf("read the schema: %w", err)
	}
	if !whole {
		loosen(schema)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(schemaURL, schema); err != nil {
		return fmt.Errorf("read the schema: %w", err)
	}
	compiled, err := compiler.Compile(schemaURL)
	if err != nil {
		return fmt.Errorf("compile the schema: %w", err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	err = compiled.Validate(document)
	if bad, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return fmt.Errorf("does not fit the schema %s %s: %s", SchemaName, Version, first(bad))
	}
	return err
}

// loosen takes out of a schema which keys an object must have.
func loosen(schema any) {
	switch s := schema.(type) {
	case map[string]any:
		if _, list := s["required"].([]any); list {
			delete(s, "required")
		}
		for _, below := range s {
			loosen(below)
		}
	case []any:
		for _, below := range s {
			loosen(below)
		}
	}
}

// first of the faults in the order of their places: the library has them in
// any order.
func first(bad *jsonschema.ValidationError) string {
	if len(bad.Causes) == 0 {
		return bad.Error()
	}
	texts := make([]string, len(bad.Causes))
	for i, cause := range bad.Causes {
		texts[i] = first(cause)
	}
	return slices.Min(texts)
}
