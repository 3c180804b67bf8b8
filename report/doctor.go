package report

// DoctorDocument is the JSON of a look at a machine: what it can measure.
type DoctorDocument struct {
	Head
	// Place is where it was looked.
	Place  string  `json:"place"`
	Checks []Check `json:"checks"`
}

// Check is one thing that was looked for.
type Check struct {
	// Area is "machine", "device", "engine" or "place".
	Area string `json:"area"`
	Name string `json:"name"`
	// Usable says whether it can be used, Found what is there.
	Usable bool   `json:"usable"`
	Found  string `json:"found,omitempty"`
	// Missing says what is wrong, Remedy what mends it.
	Missing string `json:"missing,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
}

// Doctor builds the document.
func Doctor(place string, checks []Check, tool string) DoctorDocument {
	return DoctorDocument{NewHead("doctor", tool), place, checks}
}

// DoctorTables shows the checks, and below what mends those that fail.
func DoctorTables(d DoctorDocument) []Table {
	t := Table{Columns: []Column{{Name: "", Left: true}, {Name: "area", Left: true}, {Name: "name", Left: true}, {Name: "found", Left: true}}}
	remedies := Table{Title: "To mend", Columns: []Column{{Name: "name", Left: true}, {Name: "remedy", Left: true}}}
	for _, c := range d.Checks {
		mark, text := "yes", c.Found
		if !c.Usable {
			mark, text = "no", c.Missing
			if c.Remedy != "" {
				remedies.Rows = append(remedies.Rows, []Cell{Say(c.Name), Say(c.Remedy)})
			}
		}
		t.Rows = append(t.Rows, []Cell{Say(mark), Say(c.Area), Say(c.Name), Say(text)})
	}
	if len(remedies.Rows) == 0 {
		return []Table{t}
	}
	return []Table{t, remedies}
}
