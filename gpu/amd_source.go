package gpu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// AMD reads the devices of a host through the files of the amdgpu driver, which
// are read at the full rate. Where they are not there it asks amd-smi, and
// where that is not either, rocm-smi, as fast as they answer; a second or so is
// usual.
func AMD(h Host) Source {
	return &firstOf{sources: []Source{amdgpu{h, ""}, amdSMI(h), rocmSMI(h)}}
}

// amdSMI polls amd-smi.
func amdSMI(h Host) Source {
	return polled{
		name: "amd-smi", host: h, parse: ParseAMDSMI,
		argv: []string{"amd-smi", "metric", "--usage", "--power", "--temperature", "--mem-usage", "--json"},
		identify: func(ctx context.Context) (map[int]string, error) {
			return ask(ctx, h, parseAMDList, "amd-smi", "list", "--json")
		},
	}
}

// rocmSMI polls rocm-smi.
func rocmSMI(h Host) Source {
	return polled{
		name: "rocm-smi", host: h, parse: ParseROCmSMI,
		argv: []string{"rocm-smi", "--showproductname", "--showuse", "--showpower", "--showtemp", "--showmeminfo", "vram", "--json"},
	}
}

// polled is a program that is run for every snapshot.
type polled struct {
	name     string
	host     Host
	argv     []string
	parse    func(io.Reader) ([]Reading, error)
	identify func(context.Context) (map[int]string, error) // UUIDs by index; nil: the program says all
}

// Name is the program.
func (s polled) Name() string { return s.name }

// Follow runs the program again and again.
func (s polled) Follow(ctx context.Context, every time.Duration, take func(Snapshot)) error {
	var known map[int]string
	if s.identify != nil {
		if found, err := s.identify(ctx); err == nil {
			known = found
		}
	}
	answered := false
	ask := func() error {
		readings, err := ask(ctx, s.host, s.parse, s.argv...)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		for i := range readings {
			if readings[i].UUID == "" {
				readings[i].UUID = known[readings[i].Index]
			}
		}
		answered = true
		take(Snapshot{Time: time.Now(), Readings: readings})
		return nil
	}
	if err := ask(); !answered {
		return stoppedOr(ctx, err)
	}
	return tick(ctx, every, failing(ask))
}

// parseAMDList reads "amd-smi list --json".
func parseAMDList(r io.Reader) (map[int]string, error) {
	var devices []struct {
		GPU  *int   `json:"gpu"`
		UUID string `json:"uuid"`
	}
	if err := json.NewDecoder(io.LimitReader(r, maxText)).Decode(&devices); err != nil {
		return nil, fmt.Errorf("amd-smi list: %w", err)
	}
	out := make(map[int]string)
	for _, d := range devices {
		if d.GPU != nil && d.UUID != "N/A" {
			out[*d.GPU] = d.UUID
		}
	}
	return out, nil
}

// firstOf is the first source that reads anything.
type firstOf struct {
	sources []Source
	at      atomic.Int32
}

// Name is that of the source that is read, or tried.
func (f *firstOf) Name() string { return f.sources[f.at.Load()].Name() }

// Follow tries the sources in order and stays with the first that reads.
func (f *firstOf) Follow(ctx context.Context, every time.Duration, take func(Snapshot)) error {
	var faults []error
	for i, source := range f.sources {
		f.at.Store(int32(i))
		read := false
		err := source.Follow(ctx, every, func(s Snapshot) {
			read = true
			take(s)
		})
		if err == nil || read {
			return err
		}
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}
