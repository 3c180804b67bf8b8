package gpu

import (
	"bufio"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// parseNvidiaApps reads "nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory
// --format=csv": what the processes of each device hold, by UUID.
func parseNvidiaApps(r io.Reader) (map[string]held, error) {
	lines := bufio.NewScanner(io.LimitReader(r, maxText))
	lines.Buffer(nil, maxLine)
	device, used := -1, -1
	out := make(map[string]held)
	for lines.Scan() {
		row := cells(lines.Text())
		if device < 0 || used < 0 {
			device = slices.Index(row, "gpu_uuid")
			// The program calls it used_gpu_memory.
			used = slices.IndexFunc(row, func(name string) bool { return strings.HasPrefix(name, "used_") })
			continue
		}
		if len(row) <= max(device, used) {
			continue
		}
		v, err := figure(row[used])
		if err != nil {
			continue
		}
		var held *int64
		if v != nil {
			held = bytes(*v, 1<<20)
		}
		out[row[device]] = out[row[device]].add(held)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("nvidia-smi: %w", err)
	}
	if device < 0 || used < 0 {
		return nil, errors.New("nvidia-smi: the header names no gpu_uuid and used_memory")
	}
	return out, nil
}

// nvidiaInstance is where "nvidia-smi -L" lists a MIG instance.
type nvidiaInstance struct {
	card  string // its UUID
	index int    // of the instance within the card
}

// nvidiaListing names the MIG instances of a host.
type nvidiaListing map[nvidiaInstance]nvidiaIdentity

// nvidiaIdentity is what a listing says of an instance.
type nvidiaIdentity struct {
	uuid, profile string
	card          int // the card's index
}

var (
	listedCard     = regexp.MustCompile(`^GPU\s+(\d+):.*\(UUID: ([^)]+)\)`)
	listedInstance = regexp.MustCompile(`^\s+MIG\s+(\S+)\s+Device\s+(\d+):\s*\(UUID: ([^)]+)\)`)
)

// parseNvidiaList reads "nvidia-smi -L".
func parseNvidiaList(r io.Reader) (nvidiaListing, error) {
	lines := bufio.NewScanner(io.LimitReader(r, maxText))
	lines.Buffer(nil, maxLine)
	out := make(nvidiaListing)
	card, index := "", -1
	for lines.Scan() {
		if found := listedCard.FindStringSubmatch(lines.Text()); found != nil {
			number, err := strconv.Atoi(found[1])
			if err != nil {
				return nil, fmt.Errorf("nvidia-smi -L: %w", err)
			}
			card, index = found[2], number
		}
		if found := listedInstance.FindStringSubmatch(lines.Text()); found != nil && card != "" {
			number, err := strconv.Atoi(found[2])
			if err != nil {
				return nil, fmt.Errorf("nvidia-smi -L: %w", err)
			}
			out[nvidiaInstance{card, number}] = nvidiaIdentity{uuid: found[3], profile: found[1], card: index}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("nvidia-smi -L: %w", err)
	}
	return out, nil
}

// nvidiaLog is what is read of "nvidia-smi -q -x".
type nvidiaLog struct {
	Cards []struct {
		UUID      string `xml:"uuid"`
		Name      string `xml:"product_name"`
		Instances []struct {
			Index int    `xml:"index"`
			Total string `xml:"fb_memory_usage>total"`
			Used  string `xml:"fb_memory_usage>used"`
		} `xml:"mig_devices>mig_device"`
	} `xml:"gpu"`
}

// instances reads the MIG instances of "nvidia-smi -q -x". The log need not
// give their UUIDs, so the listing does.
func (l nvidiaListing) instances(r io.Reader) ([]Reading, error) {
	var log nvidiaLog
	if err := xml.NewDecoder(io.LimitReader(r, maxText)).Decode(&log); err != nil {
		return nil, fmt.Errorf("nvidia-smi -q -x: %w", err)
	}
	var out []Reading
	for _, card := range log.Cards {
		for _, instance := range card.Instances {
			listed, ok := l[nvidiaInstance{card.UUID, instance.Index}]
			if !ok {
				continue // made after the listing
			}
			reading := Reading{Index: listed.card, UUID: listed.uuid, Name: strings.TrimSpace(card.Name + " MIG " + listed.profile), Parent: card.UUID}
			for _, size := range []struct {
				text string
				into **int64
			}{{instance.Total, &reading.MemoryTotal}, {instance.Used, &reading.MemoryUsed}} {
				v, err := figure(strings.TrimSpace(size.text))
				if err != nil {
					return nil, fmt.Errorf("nvidia-smi -q -x: memory of %s: %w", listed.uuid, err)
				}
				if v != nil {
					*size.into = bytes(*v, 1<<20)
				}
			}
			out = append(out, reading)
		}
	}
	return out, nil
}
