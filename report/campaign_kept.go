package report

import "time"

// KeptKeys is a profile or a predictor that a store keeps.
type KeptKeys struct {
	// Kind is "profile" or "predictor".
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Hash is the SHA-256 of the content.
	Hash   string `json:"hash"`
	Model  string `json:"model,omitempty"`
	Device string `json:"device,omitempty"`
	Engine string `json:"engine,omitempty"`
	// Created is when it was made.
	Created time.Time `json:"created,omitzero"`
	// File holds the content; empty where the store itself does.
	File string `json:"file,omitempty"`
}

// KeptDocument is the JSON of a list of what a store keeps.
type KeptDocument struct {
	Head
	Kept []KeptKeys `json:"kept"`
}

// Kept builds the document of such a list.
func Kept(kept []KeptKeys, tool string) KeptDocument {
	return KeptDocument{NewHead("kept", tool), append([]KeptKeys{}, kept...)}
}

// KeptTable lists what a store keeps; ten digits of a hash are enough to name it.
func KeptTable(d KeptDocument) Table {
	t := Table{Columns: []Column{
		{Name: "name", Left: true},
		{Name: "kind", Left: true},
		{Name: "model", Left: true, Idle: idle("")},
		{Name: "device", Left: true, Idle: idle("")},
		{Name: "engine", Left: true, Idle: idle("")},
		{Name: "created", Left: true},
		{Name: "hash", Left: true},
		{Name: "file", Left: true, Idle: idle("")},
	}}
	for _, k := range d.Kept {
		t.Rows = append(t.Rows, []Cell{
			Say(k.Name), Say(k.Kind), Say(k.Model), Say(k.Device), Say(k.Engine), Shown(dateText(k.Created), k.Created.UTC().Format(time.RFC3339)),
			Shown(k.Hash[:min(len(k.Hash), 10)], k.Hash), Say(k.File),
		})
	}
	return t
}
