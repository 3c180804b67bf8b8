package hub

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// FileError says what is wrong in a file, and where.
type FileError struct {
	// File is the file's name as the caller gave it.
	File string
	// Line and Column count from 1; both are 0 where the place is a field of
	// the whole file or the file is binary.
	Line, Column int
	// Field is the path of the value ("text_config.hidden_size"), a tensor's
	// name, or "" where the text itself is broken.
	Field string
	// Problem says what was found and what was wanted.
	Problem string
	// Err is the cause, if there is one beneath.
	Err error
}

// Error reads "file:line:column: field: problem".
func (e *FileError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
	}
	if e.Field != "" {
		b.WriteString(": " + e.Field)
	}
	b.WriteString(": " + e.Problem)
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return oneLine(b.String())
}

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// UnsupportedError says that a file describes an architecture that this
// program does not know well enough to count its parameters.
type UnsupportedError struct {
	// File is the file that names the architecture.
	File string
	// Key is where it stands: "model_type", "general.architecture", or the
	// field with a variant that is not known.
	Key string
	// Name is the architecture or the variant.
	Name string
	// Missing says what would be needed to support it.
	Missing string
}

// Error names the architecture and what is missing.
func (e *UnsupportedError) Error() string {
	return oneLine(fmt.Sprintf("%s: %s %q is not supported", e.File, e.Key, e.Name))
}

// Hint says what would be needed.
func (e *UnsupportedError) Hint() string { return e.Missing }

// Reason classes the ways in which the hub does not answer.
type Reason string

// The reasons of an [AccessError].
const (
	// Gated: the licence must be accepted before the files can be read.
	Gated Reason = "gated"
	// MissingRepo: there is no such repository, or it is private.
	MissingRepo Reason = "missing repository"
	// MissingRevision: the repository has no such branch, tag or commit.
	MissingRevision Reason = "missing revision"
	// MissingFile: the repository has no config.json.
	MissingFile Reason = "missing file"
	// Unauthorized: the token was refused.
	Unauthorized Reason = "unauthorized"
	// Offline: the network is switched off and no cache has the file.
	Offline Reason = "offline"
	// Unreachable: the endpoint did not answer, or not in time.
	Unreachable Reason = "unreachable"
	// RateLimited: too many requests.
	RateLimited Reason = "rate limited"
	// BadAnswer: the endpoint answered something else than a file.
	BadAnswer Reason = "bad answer"
)

// AccessError says why a model's files could not be had from the hub. It
// never holds the token.
type AccessError struct {
	Reason Reason
	// ID and Revision name the repository, File the file asked for.
	ID, Revision, File string
	// Endpoint is the hub's address without credentials.
	Endpoint string
	// Status is the HTTP status; 0 where there was no answer.
	Status int
	// Detail says more: the cache that was searched, the odd answer.
	Detail string
	// SentToken says that the request carried a token.
	SentToken bool
	// Err is the cause beneath.
	Err error
}

// Error names what was tried on what, and why it failed.
func (e *AccessError) Error() string {
	text := fmt.Sprintf("get %s of %s@%s from %s: %s", e.File, e.ID, e.Revision, e.Endpoint, e.reasonText())
	if e.Status != 0 {
		text += fmt.Sprintf(" (HTTP %d)", e.Status)
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *AccessError) reasonText() string {
	switch e.Reason {
	case Gated:
		return "the repository is gated"
	case MissingRepo:
		return "no such repository, or it is private"
	case MissingRevision:
		return "no such revision"
	case MissingFile:
		return "the repository has no such file"
	case Unauthorized:
		return "the token was refused"
	case Offline:
		return "offline, and the file is in no cache"
	case Unreachable:
		return "the hub could not be reached"
	case RateLimited:
		return "too many requests"
	case BadAnswer:
	}
	return "the hub did not answer as expected"
}

// Unwrap returns the cause.
func (e *AccessError) Unwrap() error { return e.Err }

// Hint says what to do next.
func (e *AccessError) Hint() string {
	switch e.Reason {
	case Gated:
		page := e.Endpoint + "/" + e.ID
		if e.SentToken {
			return "accept the licence at " + page + " with the account of HF_TOKEN"
		}
		return "accept the licence at " + page + " and set HF_TOKEN to a token of that account"
	case MissingRepo:
		if e.SentToken {
			return "check the spelling; a private repository needs a token that may read it"
		}
		return "check the spelling; a private repository needs HF_TOKEN"
	case MissingRevision:
		return "name a branch, tag or commit that exists, or leave @" + e.Revision + " away"
	case MissingFile:
		return "give a repository in the transformers layout, or a local .gguf file"
	case Unauthorized:
		return "set HF_TOKEN to a valid token, or unset it for public repositories"
	case Offline:
		return "unset HF_HUB_OFFLINE, or give a local folder with config.json"
	case Unreachable:
		return "check the network and HF_ENDPOINT, or give a local folder with config.json"
	case RateLimited:
		return "wait a little, or set HF_TOKEN"
	case BadAnswer:
		return "check HF_ENDPOINT"
	}
	return ""
}

// RefError says that a model reference cannot be understood.
type RefError struct {
	// Ref is the reference as given.
	Ref string
	// Problem says what is wrong with it.
	Problem string
	// Err is the cause, if there is one beneath.
	Err error
}

// Error names the reference and the problem.
func (e *RefError) Error() string {
	text := fmt.Sprintf("model %q: %s", e.Ref, e.Problem)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *RefError) Unwrap() error { return e.Err }

// Hint lists what a reference may be.
func (e *RefError) Hint() string {
	return "a model is a catalog name, a hub id (org/name), a folder with config.json, a config.json or a .gguf file"
}

// oneLine takes control characters, which names in a foreign file may hold,
// out of a message.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
}

// shorten cuts a text that stands in a message, and puts it on one line.
func shorten(s string) string {
	const most = 48
	s = strings.Join(strings.Fields(s[:min(len(s), 4*most)]), " ")
	if len(s) <= most {
		return strings.ToValidUTF8(s, "")
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// listed joins names for a hint, sorted.
func listed(names []string) string {
	names = slices.Clone(names)
	slices.Sort(names)
	return strings.Join(names, ", ")
}
