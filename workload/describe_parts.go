package workload

import (
	"slices"

	"github.com/llmprof/llmprof/settings"
	"github.com/llmprof/llmprof/unit"
)

// patterns lists the patterns of arrivals, with the keys that each takes.
func patterns() []struct {
	name string
	keys []string
} {
	return []struct {
		name string
		keys []string
	}{
		{"poisson", []string{"rate", "burst"}},
		{"gamma", []string{"rate", "burstiness", "burst"}},
		{"weibull", []string{"rate", "shape", "burst"}},
		{"constant", []string{"rate", "burst"}},
		{"at_once", nil},
		{"ramp", []string{"from", "to", "over", "strategy", "burstiness", "burst"}},
		{"rates", []string{"points", "between", "until", "burstiness", "burst"}},
		{"closed", []string{"clients", "think"}},
	}
}

// readArrivals reads when requests come.
func readArrivals(v settings.Value, count int) Arrivals {
	if !v.Present() {
		v.Fault("for example arrivals: {pattern: poisson, rate: 4}", "want a pattern, got nothing")
		return nil
	}
	var names, keys []string
	for _, p := range patterns() {
		names = append(names, p.name)
		keys = append(keys, p.keys...)
	}
	slices.Sort(keys)
	f := v.Fields(append([]string{"pattern"}, slices.Compact(keys)...)...)
	name := f.Get("pattern").Text()
	i := slices.Index(names, name)
	if i < 0 {
		if name != "" {
			f.Get("pattern").Fault("nearest known: "+settings.Nearest(name, names), "unknown pattern %q: want one of %s", name, unit.List(names))
		}
		return nil
	}
	for _, key := range slices.Compact(keys) {
		if f.Has(key) && !slices.Contains(patterns()[i].keys, key) {
			f.Get(key).Fault("", "the pattern %s has none", name)
		}
	}
	a := readPattern(name, f, count)
	if f.Has("burst") {
		a = Burst{Of: a, Size: readCount(f.Get("burst"), 1, MaxRequests)}
	}
	settle(v, a.Validate())
	return a
}

// readPattern reads one pattern.
func readPattern(name string, f settings.Fields, count int) Arrivals {
	burstiness := 1.0
	if f.Has("burstiness") {
		burstiness = readRate(f.Get("burstiness"))
	}
	switch name {
	case "gamma":
		return Gamma{Rate: readRate(f.Get("rate")), Burstiness: burstiness}
	case "weibull":
		return Weibull{Rate: readRate(f.Get("rate")), Shape: f.Get("shape").Number()}
	case "constant":
		return Constant{Rate: readRate(f.Get("rate"))}
	case "at_once":
		return Trace{Offsets: make([]unit.Seconds, max(count, 1))}
	case "ramp":
		p := Ramp{From: f.Get("from").Number(), To: f.Get("to").Number(), Shape: Linear, Over: readSeconds(f.Get("over")), Burstiness: burstiness}
		if f.Has("strategy") {
			p.Shape = RampShape(f.Get("strategy").Text())
		}
		return p
	case "rates":
		return readRates(f, burstiness)
	case "closed":
		c := Closed{Workers: readCount(f.Get("clients"), 1, MaxRequests)}
		if f.Has("think") {
			c.Think = readDelay(f.Get("think"))
		}
		return c
	}
	return Poisson{Rate: readRate(f.Get("rate"))}
}

// readRates reads a rate that changes at given times.
func readRates(f settings.Fields, burstiness float64) Rates {
	p := Rates{Burstiness: burstiness}
	for _, one := range f.Get("points").List() {
		point := one.Fields("at", "rate")
		p.Points = append(p.Points, RatePoint{At: readSeconds(point.Get("at")), Rate: point.Get("rate").Number()})
	}
	if f.Has("between") {
		p.Between = f.Get("between").Truth()
	}
	if f.Has("until") {
		p.Until = readSeconds(f.Get("until"))
	}
	return p
}

// readPrefixes reads what prompts have in common.
func readPrefixes(v settings.Value) *Prefixes {
	f := v.Fields("share", "added", "groups", "length", "zipf", "tree")
	p := &Prefixes{Share: 1}
	if f.Has("share") {
		p.Share = f.Get("share").Number()
	}
	if f.Has("added") {
		p.Added = f.Get("added").Truth()
	}
	if f.Has("tree") {
		p.Tree = readGroups(f.Get("tree"))
		for _, key := range []string{"groups", "length", "zipf"} {
			if f.Has(key) {
				f.Get(key).Fault("", "it has no use beside a tree, whose groups have their own")
			}
		}
	} else {
		p.Groups, p.Length = 1, readLength(f.Get("length"))
		if f.Has("groups") {
			p.Groups = readCount(f.Get("groups"), 1, maxGroups)
		}
		if f.Has("zipf") {
			p.Zipf = f.Get("zipf").Number()
		}
		if p.Length == nil {
			return p
		}
	}
	settle(v, p.Validate())
	return p
}

// readGroups reads the groups of a tree.
func readGroups(v settings.Value) []Group {
	var groups []Group
	for _, one := range v.List() {
		f := one.Fields("name", "copies", "zipf", "weight", "length", "alone", "groups")
		g := Group{Length: readLength(f.Get("length"))}
		if f.Has("name") {
			g.Name = f.Get("name").Text()
		}
		if f.Has("copies") {
			g.Copies = readCount(f.Get("copies"), 1, maxGroups)
		}
		if f.Has("zipf") {
			g.Zipf = f.Get("zipf").Number()
		}
		if f.Has("weight") {
			if g.Weight = f.Get("weight").Number(); g.Weight == 0 {
				f.Get("weight").Fault("leave the group out", "want more than 0")
			}
		}
		if f.Has("alone") {
			g.Alone = f.Get("alone").Number()
		}
		if f.Has("groups") {
			g.Groups = readGroups(f.Get("groups"))
		}
		groups = append(groups, g)
	}
	return groups
}

// readSessions reads conversations.
func readSessions(v settings.Value) *Sessions {
	f := v.Fields("turns", "think", "given", "context")
	s := &Sessions{Turns: readLength(f.Get("turns"))}
	if f.Has("think") {
		s.Think = readDelay(f.Get("think"))
	}
	if f.Has("given") {
		s.Given = f.Get("given").Truth()
	}
	if f.Has("context") {
		s.Context = readCount(f.Get("context"), 1, MaxLen)
	}
	if s.Turns != nil {
		settle(v, s.Validate())
	}
	return s
}
