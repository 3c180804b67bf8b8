package workload

import "github.com/llmprof/llmprof/settings"

// classes reads the classes of the traffic. All is the description that they
// stand in, whose lengths are read.
func (d *describer) classes(v settings.Value, all settings.Fields) []Class {
	if !v.Present() {
		return nil
	}
	var classes []Class
	for _, one := range v.List() {
		f := one.Fields("name", "share", "priority", "slo", "lengths", "prefixes")
		c := Class{Name: f.Get("name").Text(), Share: 1}
		if f.Has("share") {
			c.Share = f.Get("share").Number()
		}
		if f.Has("priority") {
			c.Priority = f.Get("priority").Whole(-1<<31, 1<<31-1)
		}
		if f.Has("slo") {
			targets, err := ParseSLOs(f.Get("slo").Text())
			settle(f.Get("slo"), err)
			c.Targets = targets
		}
		d.own(&c, f, all)
		classes = append(classes, c)
	}
	settle(v, checkClasses(classes))
	return classes
}

// own reads what a class has for itself.
func (d *describer) own(c *Class, f, all settings.Fields) {
	if all.Has("trace") {
		for _, key := range []string{"lengths", "prefixes"} {
			if f.Has(key) {
				f.Get(key).Fault("", "it has no use with a trace, which holds the whole load")
			}
		}
		return
	}
	switch {
	case f.Has("lengths"):
		c.Lengths = d.classLengths(f.Get("lengths"))
	case !all.Has("lengths"):
		f.Get("name").Fault("lengths: {input: …, output: …} beside it, or for the whole load", "want the lengths of the class, since the load has none")
	}
	if !f.Has("prefixes") {
		return
	}
	if text, ok := f.Get("prefixes").Scalar(); ok && text == "none" {
		c.Prefixes = new(noPrefixes())
		return
	}
	c.Prefixes = readPrefixes(f.Get("prefixes"))
}

// classLengths reads the lengths of a class. One side that is left out is that of
// the load.
func (d *describer) classLengths(v settings.Value) Lengths {
	f := v.Fields("input", "output")
	var in, out string
	ok := true
	if f.Has("input") {
		in, ok = readScalar(f.Get("input"))
	}
	if f.Has("output") && ok {
		out, ok = readScalar(f.Get("output"))
	}
	if !ok {
		return nil
	}
	lengths, err := classLengths(d.out.Spec.Lengths, in, out, d.open)
	settle(v, err)
	return lengths
}
