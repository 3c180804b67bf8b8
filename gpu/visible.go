package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Visible picks the devices that an engine may use, in its order, by the text
// of CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES: numbers
// or UUIDs, of which the beginning suffices, with commas between them. A number
// counts the whole devices among readings, which are to be in the driver's
// order. Where the variable is not set, all devices are visible; where it is
// empty, "-1" or "none", none is, and a list ends at such an entry. What HIP
// sees is picked from what ROCr sees:
//
//	gpu.Visible(visible to ROCr, hip, hipSet)
//
// A card that is divided into MIG instances cannot be used as a whole: its
// number stands for its first instance, as CUDA has it, and by default its
// instances take its place.
func Visible(readings []Reading, list string, set bool) ([]Reading, error) {
	if !set {
		return slices.DeleteFunc(slices.Clone(readings), func(r Reading) bool { return len(instancesOf(readings, r)) > 0 }), nil
	}
	whole := slices.DeleteFunc(slices.Clone(readings), func(r Reading) bool { return r.Parent != "" })
	var out []Reading
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" || entry == "-1" || strings.EqualFold(entry, "none") || strings.EqualFold(entry, "NoDevFiles") {
			break
		}
		found, err := visible(readings, whole, entry)
		if err != nil {
			return nil, fmt.Errorf("visible devices %q: %w", list, err)
		}
		if slices.ContainsFunc(out, func(r Reading) bool { return deviceKey(r) == deviceKey(found) }) {
			return nil, fmt.Errorf("visible devices %q: %s is named twice", list, entry)
		}
		out = append(out, found)
	}
	return out, nil
}

// instancesOf are the MIG instances of a card.
func instancesOf(readings []Reading, card Reading) []Reading {
	var out []Reading
	for _, r := range readings {
		if r.Parent != "" && r.Parent == card.UUID {
			out = append(out, r)
		}
	}
	return out
}

// visible finds the device of one entry.
func visible(readings, whole []Reading, entry string) (Reading, error) {
	if number, err := strconv.Atoi(entry); err == nil {
		if number < 0 || number >= len(whole) {
			return Reading{}, fmt.Errorf("there is no device %d, but %s", number, named(readings))
		}
		if parts := instancesOf(readings, whole[number]); len(parts) > 0 {
			return parts[0], nil
		}
		return whole[number], nil
	}
	var found []Reading
	for _, r := range readings {
		if len(entry) <= len(r.UUID) && strings.EqualFold(r.UUID[:len(entry)], entry) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return Reading{}, fmt.Errorf("there is no device %s, but %s", entry, named(readings))
	case 1:
		return found[0], nil
	default:
		return Reading{}, fmt.Errorf("%s is the beginning of several: %s", entry, named(found))
	}
}

// named lists devices for an error.
func named(readings []Reading) string {
	if len(readings) == 0 {
		return "none at all"
	}
	const most = 16
	var names []string
	number := 0
	for _, r := range readings[:min(len(readings), most)] {
		name := r.UUID
		if r.Parent == "" {
			name = strings.TrimSpace(strconv.Itoa(number) + " " + r.UUID)
			number++
		}
		names = append(names, name)
	}
	if len(readings) > most {
		names = append(names, fmt.Sprintf("%d more", len(readings)-most))
	}
	return strings.Join(names, ", ")
}
