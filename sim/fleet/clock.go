package fleet

// clock knows when each replica has its next event, and who is first. It is a
// tree of pairs: a node holds the earlier of its two children, the left one if
// both are at once, so that the replica of the lower index goes first.
type clock struct {
	at    []int64
	first []int32 // by node: node 1 is the root, and replica k stands at leaf+k; nil without a tree
	leaf  int
}

// flat is the number of replicas up to which all times are looked at; more
// stand in a tree.
const flat = 12

func newClock(replicas int) clock { return clockOf(replicas, flat) }

// clockOf makes a clock that has a tree for more than flat replicas.
func clockOf(replicas, flat int) clock {
	c := clock{at: make([]int64, replicas)}
	for k := range c.at {
		c.at[k] = idle
	}
	if replicas <= flat {
		return c
	}
	for c.leaf = 1; c.leaf < replicas; {
		c.leaf *= 2
	}
	c.first = make([]int32, 2*c.leaf)
	for k := range c.leaf {
		c.first[c.leaf+k] = int32(min(k, replicas-1))
	}
	for n := c.leaf - 1; n > 0; n-- {
		c.first[n] = c.first[2*n]
	}
	return c
}

// set notes when a replica has its next event.
func (c *clock) set(k int, at int64) {
	if c.at[k] == at {
		return
	}
	c.at[k] = at
	if c.first == nil {
		return
	}
	for n := (c.leaf + k) / 2; n > 0; n /= 2 {
		first, other := c.first[2*n], c.first[2*n+1]
		if c.at[other] < c.at[first] {
			first = other
		}
		c.first[n] = first
	}
}

// earliest is the replica with the next event, and its time.
func (c *clock) earliest() (k int, at int64) {
	if c.first != nil {
		k = int(c.first[1])
		return k, c.at[k]
	}
	for i, t := range c.at[1:] {
		if t < c.at[k] {
			k = i + 1
		}
	}
	return k, c.at[k]
}
