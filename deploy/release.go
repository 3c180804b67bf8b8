package deploy

import (
	"fmt"
	"regexp"
	"strconv"
)

// NewestVLLM and OldestVLLM are the newest and the oldest release of vLLM whose
// rules and defaults are known.
const (
	NewestVLLM = "0.33.0"
	OldestVLLM = "0.9.2"
)

// Release is a release of an engine: major, minor and patch number.
type Release struct{ Major, Minor, Patch int }

// ParseRelease reads 0.32, 0.32.0, v0.32.0 and what builds add to it, such as
// 0.32.0rc1, 0.32.0.post1 or 0.32.0+cpu, which count as their release.
func ParseRelease(text string) (Release, bool) {
	parts := regexp.MustCompile(`^v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4})(?:[.+a-z][.+a-z0-9]*)?)?$`).FindStringSubmatch(text)
	if parts == nil {
		return Release{}, false
	}
	var v [3]int
	for i, digits := range parts[1:] {
		v[i], _ = strconv.Atoi(digits) // no patch is patch 0
	}
	return Release{v[0], v[1], v[2]}, true
}

// String is the release as its project writes it.
func (r Release) String() string { return fmt.Sprintf("%d.%d.%d", r.Major, r.Minor, r.Patch) }

// Before reports whether r is older than other.
func (r Release) Before(other Release) bool {
	switch {
	case r.Major != other.Major:
		return r.Major < other.Major
	case r.Minor != other.Minor:
		return r.Minor < other.Minor
	}
	return r.Patch < other.Patch
}

// From reports whether r is 0.minor.patch or newer.
func (r Release) From(minor, patch int) bool { return !r.Before(Release{0, minor, patch}) }

// VLLMRelease reads a release of vLLM; "" is the newest. One whose rules are
// not known is an [*UnknownReleaseError]; a patch of the newest is known.
func VLLMRelease(text string) (Release, error) {
	if text == "" {
		text = NewestVLLM
	}
	v, ok := ParseRelease(text)
	oldest, _ := ParseRelease(OldestVLLM)
	newest, _ := ParseRelease(NewestVLLM)
	if !ok || v.Before(oldest) || newest.Before(Release{v.Major, v.Minor, 0}) {
		return Release{}, &UnknownReleaseError{Release: text}
	}
	return v, nil
}

// VLLMReleases lists the first release of each minor version whose rules are
// known, the newest first.
func VLLMReleases() []string {
	oldest, _ := ParseRelease(OldestVLLM)
	newest, _ := ParseRelease(NewestVLLM)
	var all []string
	for minor := newest.Minor; minor > oldest.Minor; minor-- {
		all = append(all, Release{newest.Major, minor, 0}.String())
	}
	return append(all, OldestVLLM)
}

// UnknownReleaseError says that the rules of a release are not known.
type UnknownReleaseError struct {
	// Release is the text that was given.
	Release string
}

// Error names the release.
func (e *UnknownReleaseError) Error() string {
	return fmt.Sprintf("vLLM release %q: its scheduling rules are not known", e.Release)
}

// Hint says which releases are known.
func (e *UnknownReleaseError) Hint() string {
	return fmt.Sprintf("known are %s to %s; of a newer one, %s is the nearest", OldestVLLM, NewestVLLM, NewestVLLM)
}
