package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Found says whether a source works on a host.
type Found struct {
	// Name is the source's.
	Name   string
	Usable bool
	// Why says why it is not usable, empty where it is.
	Why string
	// Devices is the first snapshot.
	Devices []Reading
}

// detectPatience is how long a source may take for its first snapshot; some
// drivers load only then.
const detectPatience = 20 * time.Second

// Detect tries every source of this package on a host, all at once. One that
// is usable on the host may still have no device of the engine's.
func Detect(ctx context.Context, h Host) []Found {
	return detect(ctx, NvidiaSMI(h), amdgpu{host: h}, amdSMI(h), rocmSMI(h), Processes(h, ""))
}

// detect tries sources.
func detect(ctx context.Context, sources ...Source) []Found {
	out := make([]Found, len(sources))
	var all sync.WaitGroup
	for i, source := range sources {
		all.Go(func() { out[i] = Try(ctx, source) })
	}
	all.Wait()
	return out
}

// Try waits for a source's first snapshot.
func Try(ctx context.Context, source Source) Found {
	patient, cancel := context.WithTimeout(ctx, detectPatience)
	defer cancel()
	recording := Record(patient, source, RecordOptions{Every: time.Second})
	first, err := recording.First(patient)
	_, _ = recording.Stop() // First has the error
	found := Found{Name: source.Name(), Usable: err == nil, Devices: first.Readings}
	if err != nil && errors.Is(patient.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("%s: no answer within %v", found.Name, detectPatience)
	}
	if err != nil {
		found.Why = err.Error()
	}
	return found
}
