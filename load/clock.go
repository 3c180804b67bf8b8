package load

import "time"

// clock tells the time since the start of a run. It never steps.
type clock struct{ origin time.Time }

func (c clock) now() time.Duration { return time.Since(c.origin) }
